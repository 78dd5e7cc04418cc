"""Programs that rely on the depth of the driver's queue, and on kernels that overlap.

The work that a program completes under a share is compared with its work without us. If it
completes less than its share of this, work is lost, even if the engine is busy for as long as the
share says.
"""

from dataclasses import replace

import pytest

from share.variants import MODES, varied
from support.world import Container, Program

_SECONDS = 10.0


@pytest.mark.parametrize(
    ("queued_ms", "stall_ms", "share", "mode"),
    varied(
        [(100, 60, 90, "hard"), (100, 60, 99, "hard"), (100, 60, 90, "soft")],
        (20, 100, 300),
        (10, 60),
        (10, 50, 90, 99),
        MODES,
    ),
)
def test_a_host_that_stalls_while_its_queue_runs(world, queued_ms, stall_ms, share, mode):
    """Alone on the card, a program may queue as deep as without us."""
    program = Program((_SECONDS, 500, queued_ms, stall_ms), name="stalls")
    alone = Container("alone", [program], share, mode)
    native = world().play([replace(alone, share=None, bare=True)], _SECONDS).share("alone")
    played = world().play([alone], _SECONDS)
    assert played.share("alone") >= 0.95 * min(share, native)
    if mode == "hard":
        assert played.share("alone") <= share + 1


@pytest.mark.parametrize(
    ("us", "streams", "share"),
    varied(
        [(500, 4, 40), (500, 8, 90), (100, 2, 40), (500, 16, 40)],
        (100, 500),
        (2, 4, 8),
        (10, 40, 90),
    ),
)
def test_a_pipeline_of_kernels_that_overlap(world, us, streams, share):
    """Kernels of several streams overlap under a share too."""
    seconds = 5.0
    pipe = Container("alone", [Program((seconds, us, streams), name="pipe")], share)
    bare = world().play([replace(pipe, share=None, bare=True)], seconds)
    held = world().play([pipe], seconds)
    done, native = (played.said["alone"][0]["completed"] for played in (held, bare))
    assert done >= 0.85 * share / 100 * native
    assert held.share("alone") <= share + 1
