"""A library that is linked with the driver, written without a compiler.

A program that is linked with the driver looks up no address: the loader binds its calls while it
loads the program. To test whether it binds them to the preload library, a shared object is needed,
and a machine with a GPU may have no linker. So this module writes one: a shared object that needs
libraries, names symbols of theirs, and has a table into which the loader writes their addresses. It
contains no code.

Layout: System V ABI, chapter 5, and the relocation of each processor's supplement.
"""

import os
import struct
from collections.abc import Sequence
from dataclasses import dataclass

from hami_py.errors import UnsupportedPlatform

TABLE = "hami_bound"
"""The exported symbol: a table with 8 bytes per named symbol, in their order."""

_FILE_HEADER = struct.Struct("<16sHHIQQQIHHHHHH")
_SEGMENT = struct.Struct("<IIQQQQQQ")
_SYMBOL = struct.Struct("<IBBHQQ")
_RELOCATION = struct.Struct("<QQq")
_DYNAMIC = struct.Struct("<qQ")

_TYPES = {"x86_64": (62, 6), "aarch64": (183, 1025)}
"""By processor: e_machine and the relocation GLOB_DAT, "the address of the symbol"."""

_DT_NEEDED, _DT_HASH, _DT_STRTAB, _DT_SYMTAB = 1, 4, 5, 6
_DT_RELA, _DT_RELASZ, _DT_RELAENT, _DT_STRSZ, _DT_SYMENT = 7, 8, 9, 10, 11
_PT_LOAD, _PT_DYNAMIC, _PT_GNU_STACK = 1, 2, 0x6474E551
_READ_WRITE = 6
_GLOBAL_FUNCTION, _GLOBAL_OBJECT = 0x12, 0x11
_ALIGNMENT = 0x10000
"""Bytes: the largest page size of the processors above."""


@dataclass(frozen=True)
class Linked:
    """A shared object to be written to a file."""

    needed: Sequence[str]
    symbols: Sequence[str]

    def image(self, processor: str) -> bytes:
        """The file's bytes.

        Raises:
            UnsupportedPlatform: the processor is not supported.
        """
        if processor not in _TYPES:
            fix = f"use a machine with {' or '.join(_TYPES)}"
            raise UnsupportedPlatform("processor", f"{processor} is not supported", fix)
        machine, glob_dat = _TYPES[processor]
        strings = _Strings()
        named = [strings.add(name) for name in self.symbols]
        table_name = strings.add(TABLE)
        needed = [strings.add(name) for name in self.needed]

        # One writable segment contains everything; addresses equal offsets in the file.
        count = len(named) + 2
        at_symbols = _FILE_HEADER.size + 3 * _SEGMENT.size
        at_hash = at_symbols + count * _SYMBOL.size
        at_relocations = (at_hash + 4 * (3 + count) + 7) // 8 * 8
        at_dynamic = at_relocations + len(named) * _RELOCATION.size
        dynamic_size = (len(needed) + 9) * _DYNAMIC.size
        at_table = at_dynamic + dynamic_size
        table_size = 8 * len(named)
        at_strings = at_table + table_size
        size = at_strings + len(strings.bytes)

        undefined = [_SYMBOL.pack(name, _GLOBAL_FUNCTION, 0, 0, 0, 0) for name in named]
        # Any section number except 0 marks the symbol as defined; there are no sections.
        table = _SYMBOL.pack(table_name, _GLOBAL_OBJECT, 0, 1, at_table, table_size)
        # One bucket with one symbol, the last; no other symbol can be looked up.
        lookup = struct.pack(f"<{3 + count}I", 1, count, count - 1, *[0] * count)
        relocations = [
            _RELOCATION.pack(at_table + 8 * i, (i + 1) << 32 | glob_dat, 0)
            for i in range(len(named))
        ]
        dynamic = [
            *((_DT_NEEDED, name) for name in needed),
            (_DT_HASH, at_hash),
            (_DT_STRTAB, at_strings),
            (_DT_SYMTAB, at_symbols),
            (_DT_STRSZ, len(strings.bytes)),
            (_DT_SYMENT, _SYMBOL.size),
            (_DT_RELA, at_relocations),
            (_DT_RELASZ, len(named) * _RELOCATION.size),
            (_DT_RELAENT, _RELOCATION.size),
            (0, 0),
        ]
        segments = [
            _SEGMENT.pack(_PT_LOAD, _READ_WRITE, 0, 0, 0, size, size, _ALIGNMENT),
            _SEGMENT.pack(
                _PT_DYNAMIC, _READ_WRITE, *[at_dynamic] * 3, dynamic_size, dynamic_size, 8
            ),
            # Without it the loader would make the program's stack executable, or fail.
            _SEGMENT.pack(_PT_GNU_STACK, _READ_WRITE, 0, 0, 0, 0, 0, 16),
        ]
        identification = b"\x7fELF\x02\x01\x01".ljust(16, b"\0")
        shared_object = 3
        header = _FILE_HEADER.pack(
            identification, shared_object, machine, 1, 0, _FILE_HEADER.size, 0, 0,
            _FILE_HEADER.size, _SEGMENT.size, len(segments), 0, 0, 0,
        )  # fmt: skip
        parts = [
            header, *segments, bytes(_SYMBOL.size), *undefined, table, lookup.ljust(
                at_relocations - at_hash, b"\0"
            ), *relocations, *(_DYNAMIC.pack(*entry) for entry in dynamic), bytes(table_size),
            strings.bytes,
        ]  # fmt: skip
        return b"".join(parts)

    def write(self) -> str:
        """Write it to a memory file; returns its path, valid as long as this process runs."""
        descriptor = os.memfd_create("hami-linked")
        with open(descriptor, "wb", closefd=False) as file:
            file.write(self.image(os.uname().machine))
        return f"/proc/self/fd/{descriptor}"


class _Strings:
    """The string table; a name is identified by its offset."""

    def __init__(self) -> None:
        self.bytes = b"\0"

    def add(self, name: str) -> int:
        at = len(self.bytes)
        self.bytes += name.encode() + b"\0"
        return at
