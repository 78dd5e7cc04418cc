"""Slices within slices: of their shares, the lowest applies."""

import pytest

from share import workloads as w
from support.world import Container, Program

SECONDS = 4.0

#: Runs a command in its slice within the slice named outer, as `hami run` in `hami run` does.
WITHIN = 'printf "%s\\n" "${HAMI_SLICE%/*}/outer" "$HAMI_SLICE" > "$HAMI_SLICE/layers"; exec "$@"'


@pytest.mark.parametrize(("outer", "inner"), [(50, 20), (20, 50), (None, 20)])
def test_the_lowest_share_applies(world, kit, outer, inner):
    """The turns are the outermost slice's; the share of the inner one held nothing there."""
    load = kit.command(w.ASYNC_500US.program, SECONDS)
    within = Program(("sh", "-c", WITHIN, "sh", *load), command=True)
    played = world().play(
        [Container("outer", [], outer), Container("inner", [within], inner)], SECONDS
    )
    assert played.share("inner") == pytest.approx(20, abs=1.0)
