"""Where the headers come from: NVIDIA's own wheels on PyPI, pinned, and run through gcc.

One release is enough: with ``__CUDA_API_VERSION_INTERNAL`` defined, cuda.h declares every entry
point that drivers still export for old programs. (Compared by hand with 11.8 and 12.9: cuda.h 13.5
lacks nothing of theirs, nvml.h 13.5 lacks only the three nvmlDevice*PowerMode* calls.)
"""

from __future__ import annotations

import hashlib
import re
import subprocess
import sys
import tempfile
import zipfile
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Wheel:
    """One header, out of one pinned wheel."""

    requirement: str
    sha256: str
    header: str
    """The header to read, a path inside the wheel."""


CUDA = Wheel(
    "nvidia-cuda-runtime==13.5.37",
    "df2b79a8852f10d1fef8c848489c49eebb5754051bf870202a862831412b179d",
    "nvidia/cu13/include/cudaTypedefs.h",
)
NVML = Wheel(
    "nvidia-nvml-dev==13.5.37",
    "7394fcbefa9ba537e8238cbb1caa4cd2db6bbfbff208d217a8a884947113ae6d",
    "nvidia/cu13/include/nvml.h",
)

# Makes the headers declare the symbols under their exported names, old ones included.
EVERY_ENTRY_POINT = ("-D__CUDA_API_VERSION_INTERNAL", "-DNVML_NO_UNVERSIONED_FUNC_DEFS")

# The C library's declarations that the headers need; glibc's own headers have extensions that a
# plain C parser does not support.
_LIBC = {
    "stdlib.h": "typedef unsigned long size_t;\n",
    "stdint.h": "typedef signed char int8_t; typedef unsigned char uint8_t;\n"
    "typedef short int16_t; typedef unsigned short uint16_t;\n"
    "typedef int int32_t; typedef unsigned int uint32_t;\n"
    "typedef long int64_t; typedef unsigned long uint64_t;\n"
    "typedef unsigned long uintptr_t;\n",
}


def fetch(wheel: Wheel, cache: Path, pip: str) -> Path:
    """The unpacked wheel, from ``cache``, or by ``pip`` and with the pinned checksum."""
    folder = cache / wheel.requirement
    if not folder.is_dir():
        with tempfile.TemporaryDirectory() as temporary:
            print(f"downloading {wheel.requirement} (headers)", file=sys.stderr)
            subprocess.run(
                [
                    *(pip, "download", "--quiet", "--no-deps", "--dest", temporary),
                    *("--only-binary=:all:", "--platform=manylinux2014_x86_64"),
                    wheel.requirement,
                ],
                check=True,
                timeout=600,
            )
            (archive,) = Path(temporary).glob("*.whl")
            digest = hashlib.sha256(archive.read_bytes()).hexdigest()
            if digest != wheel.sha256:
                raise SystemExit(
                    f"{wheel.requirement}: sha256 is {digest}, pinned is {wheel.sha256}; "
                    "check the release, then change the pin in headers.py"
                )
            partial = Path(tempfile.mkdtemp(dir=cache))
            with zipfile.ZipFile(archive) as opened:
                opened.extractall(partial)
            partial.rename(folder)
    return folder


def preprocess(header: Path) -> str:
    """Plain C declarations of ``header``, including the entry points kept for old programs."""
    with tempfile.TemporaryDirectory() as temporary:
        for name, text in _LIBC.items():
            guard = re.sub(r"\W", "_", name).upper()
            (Path(temporary) / name).write_text(f"#ifndef {guard}\n#define {guard}\n{text}#endif\n")
        done = subprocess.run(
            [
                *("gcc", "-E", "-P", "-nostdinc", "-I", temporary, "-I", str(header.parent)),
                *("-D__attribute__(x)=", *EVERY_ENTRY_POINT, str(header)),
            ],
            check=True,
            capture_output=True,
            text=True,
            timeout=60,
        )
    return done.stdout
