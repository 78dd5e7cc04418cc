"""The driver's own memory limits, set and read as by a program of root with nvidia-ml-py."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from support import nvml

#: No limit.
MAX = 2**64 - 1


def set_limits(env: Mapping[str, str], cgroup: Path | str, hard: int, soft: int = 0) -> int:
    """Set the limits of a cgroup on the first card, in bytes; 0, or NVML's error."""
    code: int = nvml.asked(env, set_question(cgroup, hard, soft))
    return code


def set_question(cgroup: Path | str, hard: int, soft: int = 0, card: str = "card") -> str:
    """The same as a question to NVML, for another device."""
    limits = f"c_nvmlSetMemoryLimits_v1_t({str(cgroup).encode()!r}, {soft}, {hard})"
    return f"nvmlDeviceSetMemoryLimits_v1({card}, {limits}) or 0"


def get_limits(env: Mapping[str, str], cgroup: Path | str) -> Any:
    """[soft, hard, used] in bytes on the first card, or NVML's error."""
    return nvml.asked(env, get_question(cgroup))


def get_question(cgroup: Path | str) -> str:
    """The same as a question to NVML."""
    limits = f"c_nvmlGetMemoryLimits_v1_t({str(cgroup).encode()!r})"
    call = "nvmlDeviceGetMemoryLimits_v1(card, it)"
    return f"[({call}, [it.softLimit, it.hardLimit, it.currentUsed])[1] for it in [{limits}]][0]"
