"""The dynamic loader's functions, through cffi: the ways in which programs look up symbols.

The loader binds a program's call of ``dlsym`` to the first library that exports it. Looking up
``dlsym`` with ``dlsym`` may find another one. So these functions come from a library that the
loader has bound, as in a program.
"""

import os
from typing import Any

from cffi import FFI

from hami_py.errors import NoDriver, UnsupportedPlatform
from hami_py.gpu.linked import TABLE, Linked

_CDEF = f"""
extern uintptr_t {TABLE}[];
typedef struct {{
    const char *dli_fname; void *dli_fbase; const char *dli_sname; void *dli_saddr;
}} Dl_info;
"""

_TYPES = {
    "dlopen": "uintptr_t (*)(const char *file, int mode)",
    "dlsym": "uintptr_t (*)(uintptr_t handle, const char *symbol)",
    "dlvsym": "uintptr_t (*)(uintptr_t handle, const char *symbol, const char *version)",
    "dlerror": "char *(*)(void)",
    "dladdr": "int (*)(uintptr_t address, Dl_info *info)",
}
"""From <dlfcn.h>; pointers that are only passed on are whole numbers."""


class Loader:
    """dlopen, dlsym and the like; addresses and handles are whole numbers."""

    def __init__(self) -> None:
        """Bind the functions.

        Raises:
            UnsupportedPlatform: a library in memory cannot be loaded here.
        """
        self._ffi = FFI()
        self._ffi.cdef(_CDEF)
        # Every process has loaded a library with these functions, so none must be named.
        try:
            self._linked: Any = self._ffi.dlopen(Linked([], list(_TYPES)).write())
        except OSError as error:
            fix = "mount /proc, and allow memory files (memfd_create)"
            raise UnsupportedPlatform("loader", str(error), fix) from error
        table = getattr(self._linked, TABLE)
        self._functions: dict[str, Any] = {
            name: self._ffi.cast(kind, table[i]) for i, (name, kind) in enumerate(_TYPES.items())
        }

    def open(self, name: str, flags: int = os.RTLD_LOCAL) -> int:
        """Open a library by file name or path; it stays open.

        Raises:
            NoDriver: it cannot be loaded.
        """
        handle = int(self._functions["dlopen"](name.encode(), os.RTLD_NOW | flags))
        if not handle:
            fix = "install the NVIDIA driver; a container needs the compute driver capability"
            # The message begins with the name too.
            why = self._text(self._functions["dlerror"]()).removeprefix(f"{name}: ")
            raise NoDriver(name, why, fix)
        return handle

    def symbol(self, handle: int, name: str, dlsym: int = 0) -> int:
        """The address that ``dlsym`` returns; ``dlsym`` may be another one; 0 for none."""
        function: Any = self._functions["dlsym"]
        if dlsym:
            function = self._ffi.cast(_TYPES["dlsym"], dlsym)
        return int(function(handle, name.encode()))

    def versioned(self, handle: int, name: str, version: str) -> int:
        """The address that ``dlvsym`` returns; 0 for none."""
        return int(self._functions["dlvsym"](handle, name.encode(), version.encode()))

    def words(self, address: int, count: int) -> list[int]:
        """Read ``count`` addresses at an address."""
        return [int(word) for word in self._ffi.cast(f"uintptr_t (*)[{count}]", address)[0]]

    def object_of(self, address: int) -> str:
        """The path of the library that contains an address, from the loader."""
        info: Any = self._ffi.new("Dl_info *")
        if not self._functions["dladdr"](address, info):
            return ""
        return self._text(info.dli_fname)

    def _text(self, pointer: Any) -> str:  # noqa: ANN401
        return os.fsdecode(self._ffi.string(pointer)) if pointer != self._ffi.NULL else ""
