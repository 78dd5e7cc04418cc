"""Making the two files of a slice, and the environment of its programs."""

import hashlib
from collections.abc import Mapping
from pathlib import Path

KIB = 1 << 10
MIB = 1 << 20
GIB = 1 << 30


def make(
    directory: Path,
    limits: Mapping[str, int | None],
    share: int | None = None,
    context_memory: int | None = None,
    granule: int | None = None,
) -> Path:
    """A slice directory: bytes per card, by UUID, and percent of its time; None is no limit.

    ``context_memory`` is what each context is charged, ``granule`` what allocations are rounded up
    to; None is nothing.
    """
    try:
        from hami_py._native import Account, LimitRow, LimitsPage
    except ImportError as error:
        raise ImportError(f"{error}: not built; run `make build`") from error
    directory.mkdir(parents=True)
    rows = [
        LimitRow(
            uuid,
            memory_limit=bytes,
            share=share,
            context_memory=context_memory,
            granule=granule,
        )
        for uuid, bytes in limits.items()
    ]
    LimitsPage.create(directory / "limits", rows)
    Account.create(directory / "account")
    return directory


def inject(
    directory: Path, uuid: str, *, memory: int | None = None, share: int | None = None
) -> None:
    """Record limits of a card as those that the control plane has put into the environment.

    The page is written anew, so no program may have it open.
    """
    from hami_py._native import LimitsPage

    path = directory / "limits"
    page = LimitsPage.open(path)
    rows, gang = page.rows(), page.gang()
    for row in rows:
        if row.uuid == uuid:
            row.injected_memory, row.injected_share = memory, share
    path.unlink()
    LimitsPage.create(path, rows, gang=gang)


def environment(library: Path, *layers: Path | str) -> dict[str, str]:
    """The variables of a program in these slices, outermost first, as `hami run` sets them."""
    names = [str(layer) for layer in layers]
    place = Path(names[-1])
    if len(names) > 1:
        text = "".join(f"{name}\n" for name in names)
        place /= f"in-{hashlib.sha256(text.encode()).hexdigest()[:16]}"
        place.mkdir(exist_ok=True)
        (place / "layers").write_text(text)
    link = place / library.name
    if not link.exists():
        link.symlink_to(library)
    return {"LD_PRELOAD": str(link), "HAMI_SLICE": ":".join(names)}
