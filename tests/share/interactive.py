"""Programs that do not always have work for the card, and the delay that their users notice.

They are compared with the same programs without us: the driver then divides the card in time
slices.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from share.workloads import Workload
from support.world import Container, Program

#: Mean values are over this many seconds.
SECONDS = 10.0

_CHAIN, _KERNEL_US, _HOST_US = 30, 50, 1_000

DECODE = Workload(
    "decode with pauses",
    ("--work", "decode", "--kernel-us", _KERNEL_US, "--chain", _CHAIN, "--host-us", _HOST_US),
    _KERNEL_US,
    SECONDS,
)
"""1.5 ms of kernels, a wait, and 1 ms of the host."""

_REQUEST_US, _REQUEST_KERNELS, _LOAD = 500, 24, 35


def server(seconds: float, seed: int) -> Program:
    """Requests of 12 ms that arrive at random, for 35 percent of the card."""
    return Program((seconds, _REQUEST_US, _REQUEST_KERNELS, _LOAD, seed), name="server")


def without_us(containers: Sequence[Container]) -> list[Container]:
    """The same programs, bare."""
    return [replace(one, share=None, bare=True) for one in containers]


def step_ms(said: Mapping[str, Any]) -> float:
    """The mean time from the first launch of a step of `DECODE` to the end of its kernels."""
    return float(said["elapsed_ns"] / 1e6 / (said["launched"] / _CHAIN) - _HOST_US / 1e3)


def p95_ms(said: Mapping[str, Any]) -> float:
    """The 95th percentile of the times from a request's arrival to its answer."""
    late = sorted(said["late_ns"])
    return float(late[math.ceil(0.95 * len(late)) - 1] / 1e6)
