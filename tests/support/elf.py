"""Reads the properties of a shared library with binutils."""

import re
import struct
import subprocess
from pathlib import Path

_DEADLINE = 30.0


def readelf(flag: str, path: Path) -> str:
    """`readelf FLAG PATH`."""
    command = ["readelf", "--wide", flag, str(path)]
    return subprocess.run(
        command, capture_output=True, text=True, check=True, timeout=_DEADLINE
    ).stdout


def exported(path: Path) -> set[str]:
    """The names that other objects can bind to."""
    found = set()
    for line in readelf("--dyn-syms", path).splitlines():
        fields = line.split()
        if len(fields) >= 8 and fields[0].rstrip(":").isdigit():
            binding, section, name = fields[4], fields[6], fields[7]
            if binding != "LOCAL" and section != "UND":
                found.add(name.split("@")[0])
    return found


def needed(path: Path) -> set[str]:
    """The libraries that must be there for this one to load."""
    return set(re.findall(r"\(NEEDED\).*\[(.*)\]", readelf("--dynamic", path)))


def without_versions(source: Path, target: Path) -> None:
    """Copy a library (64-bit, little-endian) without its table of symbol versions.

    In such an object any version of a symbol is accepted, so that `dlvsym` finds it.
    """
    image = bytearray(source.read_bytes())
    entry = struct.Struct("<qQ")
    offset, size = _dynamic_segment(image)
    for at in range(offset, offset + size, entry.size):
        tag, _ = entry.unpack_from(image, at)
        if tag in _VERSION_TAGS:
            entry.pack_into(image, at, _IGNORED_TAG, 0)
    target.write_bytes(image)


#: DT_VERSYM, DT_VERDEF, DT_VERDEFNUM, DT_VERNEED, DT_VERNEEDNUM.
_VERSION_TAGS = {0x6FFFFFF0, 0x6FFFFFFC, 0x6FFFFFFD, 0x6FFFFFFE, 0x6FFFFFFF}
#: In the range left to operating systems, where the dynamic linker skips what it does not know.
_IGNORED_TAG = 0x6000F000
_PT_DYNAMIC = 2


def _dynamic_segment(image: bytearray) -> tuple[int, int]:
    """File offset and size of the dynamic section."""
    table, entry_size, count = struct.unpack_from("<Q14xHH", image, 32)
    for index in range(count):
        kind, _, offset, _, _, size = struct.unpack_from(
            "<IIQQQQ", image, table + index * entry_size
        )
        if kind == _PT_DYNAMIC:
            return offset, size
    raise ValueError("not a dynamic library")
