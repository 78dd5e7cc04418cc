"""Reading an ELF file: the processor that it is built for, and its loader.

Only two fields of the header and one segment are needed, which is not worth a dependency.
"""

import struct
from dataclasses import dataclass
from pathlib import Path

MACHINES = {"x86_64": 62, "aarch64": 183}
"""``e_machine`` of the processors that the preload library supports."""

_PT_INTERP = 3
_HEADER_SIZE = 64
_SEGMENT_SIZE = 56


@dataclass(frozen=True)
class Elf:
    """The header of a program's file.

    Attributes:
        bits: 32 or 64.
        machine: ``e_machine``.
        interpreter: its loader; None = statically linked, or not 64-bit.
    """

    bits: int
    machine: int
    interpreter: str | None


def read(path: Path) -> Elf | None:
    """Read a file's header; None if it is not an ELF file.

    Raises:
        OSError: it cannot be read.
        ValueError: it is truncated or damaged.
    """
    with path.open("rb") as file:
        header = file.read(_HEADER_SIZE)
        if not header.startswith(b"\x7fELF"):
            return None
        try:
            bits, machine = 32 * header[4], struct.unpack_from("<H", header, 18)[0]
            if bits != 64:
                return Elf(bits, machine, None)
            table, size, count = struct.unpack_from("<Q14xHH", header, 32)
            for index in range(count):
                file.seek(table + index * size)
                segment = file.read(_SEGMENT_SIZE)
                kind, at, length = struct.unpack_from("<I4xQ16xQ", segment)
                if kind == _PT_INTERP:
                    file.seek(at)
                    return Elf(bits, machine, file.read(length).rstrip(b"\0").decode())
        except (struct.error, IndexError, UnicodeDecodeError) as error:
            raise ValueError(f"{path} is truncated or damaged") from error
    return Elf(64, machine, None)
