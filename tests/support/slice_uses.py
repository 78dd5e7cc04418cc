"""Made-up slices and containers on a card."""

from typing import Any

from hami_py.model import Level, SliceCard, SliceUse, TimeLevel


def container(
    *names: str,
    limit: int | None = None,
    share: int | None = None,
    level: Level = "preload",
    time_level: TimeLevel = "lease",
    share_used: float | None = None,
    node: str = "",
    index: int | None = 0,
    processes: int | None = 0,
    **use: Any,
) -> SliceUse:
    """A container.

    Args:
        names: namespace, pod, container and card.
        limit: of its memory, in bytes.
        share: in percent.
        level: what enforces the memory limit.
        time_level: what enforces the limit on time.
        share_used: the used part of the card's time.
        node: its node.
        index: the card's index.
        processes: how many it has.
        use: other fields of ``SliceCard``.
    """
    namespace, pod, name, card = names
    return SliceUse(
        use=SliceCard(uuid=card, index=index, memory_limit=limit, share=share, **use),
        namespace=namespace,
        pod=pod,
        container=name,
        node=node,
        share_used=share_used,
        processes=processes,
        level=level,
        time_level=time_level,
        enforcement=f"memory by {level}, time by {time_level}",
    )
