"""What the root of a container tries against its limits; runs there: python3 -c ... ATTACK.

It prints each try that succeeded. Nothing here is hami's.
"""

import ctypes
import errno
import mmap
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

SLOT = Path("/usr/local/hami")
PRELOAD = Path("/etc/ld.so.preload")
PROTECTED = [SLOT / "limits", SLOT / "grants", SLOT / "libvgpu.so", PRELOAD]
libc = ctypes.CDLL(None, use_errno=True)


def succeeds(what: str, act: Callable[..., Any], *arguments: Any) -> None:
    """Report an act that is not refused."""
    try:
        act(*arguments)
    except OSError as error:
        refused = (errno.EROFS, errno.EPERM, errno.EACCES, errno.EBUSY, errno.EXDEV, errno.EISDIR)
        if error.errno not in refused:
            print(f"{what}: an unexpected error: {error}")
    else:
        print(f"{what}: succeeded")


def call(name: str, *arguments: Any) -> None:
    if getattr(libc, name)(*arguments) != 0:
        raise OSError(ctypes.get_errno(), name)


def attack_open() -> None:
    for path in PROTECTED:
        for flags in (os.O_WRONLY, os.O_RDWR, os.O_WRONLY | os.O_APPEND):
            succeeds(f"open {path}", os.open, path, flags)
        succeeds(f"chmod {path}", path.chmod, 0o666)
        succeeds(f"chown {path}", os.chown, path, 1, 1)
    succeeds("a new file", (SLOT / "new").touch)


def attack_mmap() -> None:
    for path in PROTECTED[:2]:
        with path.open("rb") as file:
            succeeds(f"mmap {path}", mmap.mmap, file.fileno(), 4096)
            again = f"/proc/self/fd/{file.fileno()}"
            succeeds(f"reopen {path}", os.open, again, os.O_RDWR)


def attack_rename() -> None:
    for path in [*PROTECTED, SLOT / "account", SLOT]:
        succeeds(f"rename {path}", path.rename, "/away")
        succeeds(f"rename onto {path}", Path("/etc/hostname").rename, path)
        succeeds(f"remove {path}", path.rmdir if path is SLOT else path.unlink)
        succeeds(f"link to {path}", os.link, path, SLOT / "other")


def attack_mount() -> None:
    for path in [*PROTECTED, SLOT / "account", SLOT]:
        name = os.fsencode(path)
        succeeds(f"unmount {path}", call, "umount2", name, 2)
        succeeds(f"bind over {path}", call, "mount", b"/tmp", name, None, 4096, None)
        succeeds(f"remount {path}", call, "mount", None, name, None, 32 | 4096, None)
    succeeds("a mount namespace", call, "unshare", 0x00020000)


def attack_truncate() -> None:
    for path in PROTECTED:
        succeeds(f"truncate {path}", os.truncate, path, 0)


def attack_environment() -> None:
    """Nothing in the environment of another process, or in the loader's, turns the library off."""
    for name in ("LD_PRELOAD", "LD_LIBRARY_PATH", "HAMI_SLICE", "CUDA_DISABLE_CONTROL"):
        command = ["cat", "/proc/self/maps"]
        done = subprocess.run(
            command, env={name: "/nothing"}, capture_output=True, text=True, check=True
        )
        if "libvgpu" not in done.stdout:
            print(f"{name}: a program ran without the library")


def attack_account() -> None:
    """The account may be written, and it cannot be replaced, removed or left."""
    path = SLOT / "account"
    succeeds("remove the account", path.unlink)
    succeeds("replace the account", Path("/etc/hostname").rename, path)
    succeeds("unmount the account", call, "umount2", os.fsencode(path), 0)


globals()[f"attack_{sys.argv[1]}"]()
