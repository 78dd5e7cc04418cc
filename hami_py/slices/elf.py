"""Reading an ELF file: the processor that it is built for, its loader, and its symbols.

Only a few fields are needed, which is not worth a dependency.
"""

import mmap
import struct
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

MACHINES = {"x86_64": 62, "aarch64": 183}
"""``e_machine`` of the processors that the preload library supports."""

_PT_INTERP = 3
_HEADER_SIZE = 64
_SEGMENT_SIZE = 56
_SYMBOL = struct.Struct("<IBxHQQ")
_RELOCATION = struct.Struct("<Q4xIq")

_SHT_RELA, _SHT_DYNSYM = 4, 11
_STT_OBJECT, _STT_FUNC = 1, 2


@dataclass(frozen=True)
class Elf:
    """The header of a program's file.

    Attributes:
        machine: ``e_machine``.
        interpreter: its loader; None = statically linked, or not 64-bit.
    """

    bits: int
    machine: int
    interpreter: str | None


def is_whole(content: bytes) -> bool:
    """Whether a 64-bit ELF file ends after its last part, the table of sections."""
    if len(content) < _HEADER_SIZE:
        return False
    (table,) = struct.unpack_from("<Q", content, 40)
    size, count = struct.unpack_from("<HH", content, 58)
    return bool(table + size * count <= len(content))


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


def functions(path: Path) -> set[bytes]:
    """The names of the functions that a 64-bit library exports."""
    with _image(path) as image:
        return {name for _, name in _defined(image, _STT_FUNC)}


def shared_variables(path: Path) -> set[bytes]:
    """The names of a 64-bit library's variables that it finds through the loader.

    The loader binds each to the first symbol of this name, also to a function of another library.
    """
    with _image(path) as image:
        variables = dict(_defined(image, _STT_OBJECT))
        relocated = {
            symbol
            for kind, at, size, _ in _sections(image)
            if kind == _SHT_RELA and variables
            for _, symbol, _ in _RELOCATION.iter_unpack(image[at : at + size])
        }
    return {name for index, name in variables.items() if index in relocated}


@contextmanager
def _image(path: Path) -> Iterator[mmap.mmap]:
    with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as image:
        try:
            yield image
        except (struct.error, IndexError) as error:
            raise ValueError(f"{path} is truncated or damaged") from error


def _sections(image: mmap.mmap) -> list[tuple[int, int, int, int]]:
    """The type, offset, size and linked section of each section."""
    (table,) = struct.unpack_from("<Q", image, 40)
    size, count = struct.unpack_from("<HH", image, 58)
    return [struct.unpack_from("<4xI16xQQI", image, table + size * i) for i in range(count)]


def _defined(image: mmap.mmap, kind: int) -> Iterator[tuple[int, bytes]]:
    """The index and name of each symbol of this type that the file exports."""
    sections = _sections(image)
    for section, at, size, strings in sections:
        if section != _SHT_DYNSYM:
            continue
        for index, symbol in enumerate(_SYMBOL.iter_unpack(image[at : at + size])):
            name, info, place, _, _ = symbol
            if place and info & 15 == kind and info >> 4:
                start = sections[strings][1] + name
                yield index, image[start : image.find(b"\0", start)]
