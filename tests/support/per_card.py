"""A wrong coordinator, which grants each card separately.

    python per_card.py SLICES    # JSON: two slice directories, each with the same two cards

Card 0 is first granted to one slice and card 1 to the other. A card is passed on when its turn is
over and its holder reports that it has no work left there. The grants pages are written by their
documented layout, without our code, and the processes' reports are read from the account.
"""

import ctypes
import json
import mmap
import platform
import struct
import sys
import time
from pathlib import Path

_TURN, _NOBODY, _EVERYONE = 2, 0xFFFE, 0xFFFF
_LENGTH_NS = 20_000_000
_TICK = 0.001
#: In the account: after the records, 64 bytes for each of 256 slots, by card.
_COMPUTE, _SLOTS, _WORDS = 102_400, 256, 64
_RUNS = 2
_SYS_FUTEX = {"x86_64": 202, "aarch64": 98}[platform.machine()]

_libc = ctypes.CDLL(None)


class Slice:
    """The two files of a slice that a coordinator has to do with."""

    def __init__(self, directory: Path) -> None:
        with (directory / "grants").open("r+b") as file:
            self._grants = mmap.mmap(file.fileno(), 4096)
        with (directory / "account").open("rb") as file:
            self._account = mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ)
        self._turns = [0, 0]
        struct.pack_into("<I", self._grants, 40, 1)

    def pulse(self, now: int) -> None:
        struct.pack_into("<Q", self._grants, 32, now)

    def grant(self, card: int, until: int | None) -> None:
        """Grant the card to every process of the slice, or to none."""
        self._turns[card] += 1
        row = 64 + 64 * card
        holder = _NOBODY if until is None else _EVERYONE
        struct.pack_into("<Q", self._grants, row + 8, until or 0)
        struct.pack_into("<Q", self._grants, row, holder << 48 | _TURN << 32 | self._turns[card])
        word = ctypes.addressof(ctypes.c_char.from_buffer(self._grants, row))
        _libc.syscall(_SYS_FUTEX, ctypes.c_void_p(word), 1, 1 << 30, None, None, 0)

    def runs(self, card: int) -> bool:
        """Whether any process has, or may have, work in flight there."""
        for slot in range(8):
            at = _COMPUTE + (card * _SLOTS + slot) * _WORDS
            (word,) = struct.unpack_from("<Q", self._account, at)
            if word & 0xFFFF_FFFF == _RUNS:
                return True
        return False


def main(slices: list[Slice]) -> None:
    holders = [0, 1]
    until = [0, 0]
    while True:
        now = time.monotonic_ns()
        for one in slices:
            one.pulse(now)
        for card in (0, 1):
            if now < until[card] or (until[card] and slices[holders[card]].runs(card)):
                continue
            slices[holders[card]].grant(card, None)
            holders[card] = 1 - holders[card]
            until[card] = now + _LENGTH_NS
            slices[holders[card]].grant(card, until[card])
        time.sleep(_TICK)


if __name__ == "__main__":
    main([Slice(Path(directory)) for directory in json.loads(sys.argv[1])])
