"""The settings of the package. Only this module reads the environment.

Precedence: an option or argument, then the variable named in the field's description, then the
default. The rest of the package receives a ``Settings`` object and reads no variable.
"""

import os
import stat
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from hami_py._native import HAMI_MEMORY_LIMITS, HAMI_SHARE_LIMITS, runtime_directory

CONTEXT_MEMORY = "HAMI_CONTEXT_MEMORY"
GRANULE = "HAMI_GRANULE"
HAMI_SLICE = "HAMI_SLICE"
SUMMARY = "HAMI_SUMMARY"
NODE_NAME = "NODE_NAME"
LD_PRELOAD = "LD_PRELOAD"
VISIBLE_DEVICES = "CUDA_VISIBLE_DEVICES"

UTILIZATION_POLICY = "GPU_CORE_UTILIZATION_POLICY"
TASK_PRIORITY = "CUDA_TASK_PRIORITY"

_HAMI_VARIABLES = {*HAMI_MEMORY_LIMITS, *HAMI_SHARE_LIMITS, UTILIZATION_POLICY, TASK_PRIORITY}

LIBRARY_NAME = "libvgpu.so"
LIMITS = "limits"
"""The file name of the limits page, in a slice and beside a container's own library."""

ACCOUNT = "account"
"""The file name of the account of a slice."""

GRANTS = "grants"
"""The file name of the grants page of a slice."""

CHOSEN = "chosen-cards"
"""The file name of the list of a slice's cards, if they were chosen."""

MACHINE = "machine"
"""The file beside the library of all programs of a machine, which names the service's directory."""

INSIDE = Path("/usr/local/hami")
"""Where a container on a node has its slot, and in it the library."""

NODE_RUNTIME = Path("/run/hami")
"""The runtime directory of the node agent, or of ``hami machine``."""

PACKAGED_LIBRARY = Path(__file__).parent / "lib" / LIBRARY_NAME

PACKAGED_HOOK = Path(__file__).parent / "lib" / "hami-hook"
"""The program by which a container runtime checks the mounts of a container (``native/hook``)."""


@dataclass(frozen=True)
class Settings:
    """The settings that the environment contains."""

    runtime_directory: Path
    """The directory of the user's slices: ``$HAMI_RUNTIME_DIR/hami`` if that is an absolute path to
    a directory of this user, else ``/tmp/hami-<uid>``. That one is the same for shells, ``cron``,
    ``sudo -u`` and services, and a logout does not remove it, as it does ``XDG_RUNTIME_DIR``. Where
    ``/tmp`` cannot hold an account, as in most containers, it is in ``/dev/shm``."""

    ignored_directory: str | None = None
    """Why ``HAMI_RUNTIME_DIR`` is not used, such as "is not an absolute path"."""

    library: Path = PACKAGED_LIBRARY
    """The preload library, ``HAMI_LIBRARY``. Default: the one in this package."""

    visible_devices: str | None = None
    """``CUDA_VISIBLE_DEVICES``, unparsed; None = not set, every card is visible."""

    device_order: str = "FASTEST_FIRST"
    """``CUDA_DEVICE_ORDER``; the default is CUDA's. It decides which card a number in
    ``CUDA_VISIBLE_DEVICES`` means."""

    hami_limits: Mapping[str, str] = field(default_factory=dict)
    """HAMi's ``CUDA_DEVICE_MEMORY_LIMIT[_i]``, ``CUDA_DEVICE_SM_LIMIT[_i]``,
    ``GPU_CORE_UTILIZATION_POLICY`` and ``CUDA_TASK_PRIORITY``, unparsed."""

    hami_account: Path = Path()
    """The directory of the account that is shared by processes which only HAMi's variables limit:
    beside ``CUDA_DEVICE_MEMORY_SHARED_CACHE`` if that is set and not empty, else in the runtime
    directory. A relative path is relative to the working directory, as in the preload library."""

    context_memory: str | None = None
    """``HAMI_CONTEXT_MEMORY``, unparsed: what the driver takes for a context on every card; None =
    the figures of ``hami_py.gpu``."""

    granule: str | None = None
    """``HAMI_GRANULE``, unparsed: what the driver takes large requests in multiples of, on every
    card; None = the figures of ``hami_py.gpu``."""

    summary: str | None = None
    """``HAMI_SUMMARY``, unparsed: whether ``hami run`` prints a summary at the end; None = no."""

    node_runtime: Path = NODE_RUNTIME
    """Where a node agent's coordinator runs, if this machine is a node that has one."""

    node: str | None = None
    """``NODE_NAME``: the name of the node, in the node agent's container."""

    environment: Mapping[str, str] = field(default_factory=dict, repr=False)
    """The whole environment, to which a slice adds its variables for a program."""


def read(environment: Mapping[str, str] | None = None) -> Settings:
    """The settings of this process, or of one with the given environment."""
    variables = dict(os.environ) if environment is None else dict(environment)
    library = variables.get("HAMI_LIBRARY")
    shared_cache = variables.get("CUDA_DEVICE_MEMORY_SHARED_CACHE")
    named = variables.get("HAMI_RUNTIME_DIR", "")
    ignored = _why_ignored(named)
    runtime = Path(named) / "hami" if named and ignored is None else _common_directory()
    return Settings(
        runtime_directory=runtime,
        ignored_directory=ignored,
        library=Path(library).absolute() if library else PACKAGED_LIBRARY,
        visible_devices=variables.get(VISIBLE_DEVICES),
        device_order=variables.get("CUDA_DEVICE_ORDER", "FASTEST_FIRST"),
        hami_limits={name: value for name, value in variables.items() if name in _HAMI_VARIABLES},
        hami_account=Path(f"{shared_cache}.hami") if shared_cache else runtime / "environment",
        context_memory=variables.get(CONTEXT_MEMORY),
        granule=variables.get(GRANULE),
        summary=variables.get(SUMMARY),
        node=variables.get(NODE_NAME),
        environment=variables,
    )


def _why_ignored(named: str) -> str | None:
    """The directory must belong to this user: ``su`` and ``sudo`` may pass on another user's.

    A relative path would be another one in each working directory, so it is ignored.
    """
    if not named:
        return None
    if not Path(named).is_absolute():
        return "is not an absolute path"
    try:
        status = Path(named).stat()
    except OSError as error:
        return f"cannot be used ({error.strerror})"
    if not stat.S_ISDIR(status.st_mode):
        return "is not a directory"
    return None if status.st_uid == os.geteuid() else "belongs to another user"


def _common_directory() -> Path:
    # The name is predictable on purpose; the owner and mode are checked before use.
    common = runtime_directory()
    if _is_ours(common) or not os.path.lexists(common):
        return common
    # Another user has taken the name. A name that nobody can predict is found by its owner.
    others = sorted(path for path in common.parent.glob(f"{common.name}-*") if _is_ours(path))
    return (
        others[0] if others else Path(tempfile.mkdtemp(prefix=f"{common.name}-", dir=common.parent))
    )


def _is_ours(path: Path) -> bool:
    """Whether it is a directory of this user, and no link to one."""
    try:
        status = path.lstat()
    except OSError:
        return False
    return stat.S_ISDIR(status.st_mode) and status.st_uid == os.geteuid()
