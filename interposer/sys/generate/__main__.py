"""Regenerates every file that is derived from NVIDIA's headers: ``make gen``.

``--check`` writes nothing and fails when a committed file differs from what would be written.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

import headers
import python
import rust
from declarations import Header, resolve_lookups

ROOT = Path(__file__).resolve().parents[3]


def outputs(cache: Path, pip: str) -> dict[Path, str]:
    """Every generated file and its text."""
    sys_crate = ROOT / "interposer/sys/src"
    files = {}
    for wheel, prefix in ((headers.CUDA, "cuda"), (headers.NVML, "nvml")):
        path = headers.fetch(wheel, cache, pip) / wheel.header
        header = Header()
        header.read(headers.preprocess(path))
        source = f"{wheel.requirement} ({path.name})"
        files[sys_crate / f"{prefix}.rs"] = rust.module(header, source, path, prefix)
        if wheel is headers.CUDA:
            files[sys_crate / "versions.rs"] = rust.versions(resolve_lookups(header), source)
            files[ROOT / "hami_py/gpu/_driver_cdef.py"] = python.cdef(header, source)
    return files


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true")
    parser.add_argument("--cache", type=Path, required=True, help="the folder that caches headers")
    parser.add_argument("--pip", default="pip", help="the pip command that downloads them")
    options = parser.parse_args()
    options.cache.mkdir(parents=True, exist_ok=True)
    stale = []
    for path, text in outputs(options.cache, options.pip).items():
        if path.exists() and path.read_text() == text:
            continue
        stale.append(path.relative_to(ROOT))
        if not options.check:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
    for path in stale:
        print(
            f"{path}: {'differs from its headers; run `make gen`' if options.check else 'written'}"
        )
    return 1 if options.check and stale else 0


if __name__ == "__main__":
    sys.exit(main())
