"""containerd's default seccomp profile, as a filter that a program can install.

A runtime compiles the profile with libseccomp. Here it is assembled by hand: the kernel takes a
program of classic BPF (seccomp(2)), whose instructions are 8 bytes each.
"""

import errno
import platform
import re
import socket
import struct
import subprocess
from pathlib import Path

_ALLOWED = Path(__file__).with_name("containerd_syscalls.txt")

#: Of linux/audit.h.
_ARCHITECTURES = {"x86_64": 0xC000003E, "aarch64": 0xC00000B7}

#: Of linux/seccomp.h.
_ALLOW, _ERRNO = 0x7FFF0000, 0x00050000

#: Of struct seccomp_data: the call's number, the architecture, and the low half of argument 0.
_NUMBER, _ARCHITECTURE, _ARGUMENT = 0, 4, 16

#: Of linux/filter.h: load a word, jump if equal, jump if a bit is set, return.
_LOAD, _EQUAL, _BITS, _RETURN = 0x20, 0x15, 0x45, 0x06

#: CLONE_NEWNS, _NEWCGROUP, _NEWUTS, _NEWIPC, _NEWUSER, _NEWPID and _NEWNET.
_NEW_NAMESPACES = 0x7E020000

_PERSONALITIES = (0, 0x8, 0x20000, 0x20008, 0xFFFFFFFF)

_REFUSED_FAMILIES = (socket.AF_ALG, socket.AF_VSOCK)
"""The profile lists the families that it allows: all others that Linux has."""


def containerd_filter() -> bytes:
    """The filter of a container that has containerd's default profile and capabilities."""
    numbers = call_numbers()
    words = [
        word
        for line in _ALLOWED.read_text().splitlines()
        if not line.startswith("#")
        for word in line.split()
    ]
    program = [
        _instruction(_LOAD, _ARCHITECTURE),
        _instruction(_EQUAL, _ARCHITECTURES[platform.machine()], 1, 0),
        _refuse(errno.EPERM),
        _instruction(_LOAD, _NUMBER),
    ]
    # Another architecture, or an older C library, has no number for some of them.
    for name in (name for name in words if name in numbers):
        program += _for(numbers[name], [_instruction(_RETURN, _ALLOW)])
    program += _for(numbers["clone3"], [_refuse(errno.ENOSYS)])
    clone = [
        _instruction(_LOAD, _ARGUMENT),
        _instruction(_BITS, _NEW_NAMESPACES, 1, 0),
        _instruction(_RETURN, _ALLOW),
        _refuse(errno.EPERM),
    ]
    program += _for(numbers["clone"], clone)
    families = [_instruction(_LOAD, _ARGUMENT)]
    for family in _REFUSED_FAMILIES:
        families += _for(family, [_refuse(errno.EPERM)])
    program += _for(numbers["socket"], [*families, _instruction(_RETURN, _ALLOW)])
    personalities = [_instruction(_LOAD, _ARGUMENT)]
    for personality in _PERSONALITIES:
        personalities += _for(personality, [_instruction(_RETURN, _ALLOW)])
    program += _for(numbers["personality"], [*personalities, _refuse(errno.EPERM)])
    return b"".join([*program, _refuse(errno.EPERM)])


def _instruction(code: int, value: int, if_true: int = 0, if_false: int = 0) -> bytes:
    return struct.pack("=HBBI", code, if_true, if_false, value)


def _refuse(error: int) -> bytes:
    return _instruction(_RETURN, _ERRNO | error)


def _for(value: int, then: list[bytes]) -> list[bytes]:
    """``then``, if the loaded word has this value."""
    return [_instruction(_EQUAL, value, 0, len(then)), *then]


def call_numbers() -> dict[str, int]:
    """The numbers of this architecture's system calls, by name, as the C library declares them."""
    done = subprocess.run(
        ["gcc", "-E", "-dM", "-include", "sys/syscall.h", "-x", "c", "/dev/null"],
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    defined = re.findall(r"^#define __NR_(\w+) (\d+)$", done.stdout, re.MULTILINE)
    return {name: int(number) for name, number in defined}
