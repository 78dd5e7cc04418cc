"""Measure how a share slows down programs with pauses, on the virtual clock.

Each is compared with the same programs without us: alone on the card, or beside each other in the
driver's time slices. `step` and `p95` are how many times as long a step of a decoder or an answer
of a server takes. `work_kept` is the work of all together, in percent of the card's time; or of one
program, in percent of the work that its share allows.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bench.results import Row
from bench.rows import row
from share import interactive
from share import workloads as w
from share.interactive import DECODE, SECONDS
from support.engine_time import Played
from support.world import Container, Kit, Program, World

#: Seconds for one server: some thousand requests.
_LONG = 60.0

#: The seed of the requests' arrivals.
_SEED = 2


@dataclass(frozen=True)
class Pauses:
    """Plays the programs, and writes the rows."""

    kit: Kit
    folder: Path
    command: str

    def rows(self) -> list[Row]:
        """All of them."""
        return [
            *self._decode("normal", 1.35),
            *self._decode("high", 1.2),
            self._decodes(),
            self._server([self._serving(_LONG)], 2.0, _LONG),
            self._server([self._serving(SECONDS), _trainer("hard")], 0.5, SECONDS),
            *(self._stalls(share) for share in (90, 99)),
            self._pipe(),
        ]

    def _play(self, containers: Sequence[Container], seconds: float = SECONDS) -> Played:
        return World(self.kit, self.folder).play(containers, seconds)

    def _both(
        self, containers: Sequence[Container], seconds: float = SECONDS
    ) -> tuple[Played, Played]:
        """With us, and without."""
        bare = interactive.without_us(containers)
        return self._play(containers, seconds), self._play(bare, seconds)

    def _ratio(
        self,
        played: tuple[Played, Played],
        name: str,
        measure: Callable[[Any], float],
    ) -> tuple[float, str]:
        held, bare = (measure(one.said[name][0]) for one in played)
        return held / bare, f"{held:.2f} ms instead of {bare:.2f}"

    def _decode(self, priority: Any, target: float) -> list[Row]:
        containers = [
            Container("decode", [DECODE.program], 50, "soft", priority),
            _trainer("soft"),
        ]
        played = self._both(containers)
        times, note = self._ratio(played, "decode", interactive.step_ms)
        name = "decode+trainer/2/50+50-soft" + ("" if priority == "normal" else f"-{priority}")
        return [
            row(self.command, f"step/{name}", [times], "times", target, note=note),
            self._kept(name, containers, played[0], 88),
        ]

    def _decodes(self) -> Row:
        four = [Container(f"decode{i}", [DECODE.program], 25, "soft") for i in range(4)]
        return self._kept("decode/4/25+25+25+25-soft", four, self._play(four), 86)

    def _kept(
        self, name: str, containers: Sequence[Container], played: Played, target: float
    ) -> Row:
        parts = [played.share(one.name) for one in containers]
        note = " + ".join(f"{part:.1f}" for part in parts)
        return row(
            *(self.command, f"work_kept/{name}", [sum(parts)], "percent", target),
            better="higher",
            note=note,
        )

    def _serving(self, seconds: float) -> Container:
        return Container("server", [interactive.server(seconds, _SEED)], 50)

    def _server(self, containers: Sequence[Container], target: float, seconds: float) -> Row:
        played = self._both(containers, seconds)
        times, note = self._ratio(played, "server", interactive.p95_ms)
        beside = "server/1/50" if len(containers) == 1 else "server+trainer/2/50+50-hard"
        return row(self.command, f"p95/{beside}", [times], "times", target, note=note)

    def _stalls(self, share: int) -> Row:
        """100 ms of work, and then 60 ms of the host, without a wait for the card."""
        program = Program((SECONDS, 500, 100, 60), name="stalls")
        held, bare = self._both([Container("stalls", [program], share)])
        due = min(share, bare.share("stalls"))
        return self._done(f"stalls-100+60ms/1/{share}", 100 * held.share("stalls") / due, 95)

    def _pipe(self) -> Row:
        """Kernels of four streams that overlap."""
        share, seconds = 40, 5.0
        program = Program((seconds, 500, 4), name="pipe")
        played = self._both([Container("pipe", [program], share)], seconds)
        held, bare = (one.said["pipe"][0]["completed"] for one in played)
        return self._done(f"pipe-4x500us/1/{share}", 100 * held / (bare * share / 100), 90)

    def _done(self, name: str, percent: float, target: float) -> Row:
        return row(
            *(self.command, f"work_kept/{name}", [percent], "percent", target), better="higher"
        )


def _trainer(mode: Any) -> Container:
    return Container("trainer", [w.ASYNC_500US.program], 50, mode)
