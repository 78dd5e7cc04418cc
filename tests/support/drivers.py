"""The stub's drivers of several CUDA versions, and what their exports are called."""

import re

from support.artifacts import ROOT, Artifacts

NEWEST = "newest"

OLDER = {"11.8": 11080, "12.2": 12020, "12.8": 12080, "13.0": 13000}
"""Versions that have a library of their own, as cuDriverGetVersion returns them."""


def environment(artifacts: Artifacts, version: str) -> dict[str, str]:
    """The variables with which a program finds the driver of this version."""
    return {} if version == NEWEST else {"LD_LIBRARY_PATH": str(artifacts.older_driver(version))}


def names() -> list[str]:
    """Every name that cuGetProcAddress knows, from the tables generated from NVIDIA's headers."""
    text = (ROOT / "interposer" / "sys" / "src" / "versions.rs").read_text()
    return sorted(set(re.findall(r'^\s*\("(cu\w+)"', text, re.MULTILINE)))


def since() -> dict[str, int]:
    """The CUDA version that introduced each symbol, from the same tables."""
    text = (ROOT / "interposer" / "sys" / "src" / "versions.rs").read_text()
    rows = re.findall(r'^\s*\("\w+", (\d+), \w+, "(cu\w+)"\)', text, re.MULTILINE)
    oldest: dict[str, int] = {}
    for version, symbol in rows:
        oldest[symbol] = min(int(version), oldest.get(symbol, int(version)))
    return oldest


def signatures(header: str) -> dict[str, list[str]]:
    """Parameter types by function of `cuda` or `nvml`, as the generator wrote them."""
    text = (ROOT / "interposer" / "sys" / "src" / f"{header}.rs").read_text()
    rows = re.findall(r"^        (\w+) \((.*?)\) -> \w+;$", text, re.MULTILINE)
    return {
        name: [p.split(": ")[1] for p in parameters.split(", ") if p] for name, parameters in rows
    }
