"""The devices of a container, as a CDI specification that is written when the container starts.

When the kubelet admits a container, nobody tells the device plugin whose devices it allocates. So
the plugin's answer names a CDI device that no specification defines yet: ``hami.io/card=<slot>``.
Right before the container starts, its assignment is known, and the agent writes the specification:
the edits that NVIDIA's own specification has for the assigned cards, and the mounts of the slot.
The container runtime refuses a device that is not defined, and the kubelet tries again. So a
container never starts on other cards than the assigned ones.

A MIG instance that was made after NVIDIA's specification is not in it. Then its edits are ours: the
device nodes of its GPU and of its two capabilities. The nodes of the whole GPU would show all of
its instances.

    /etc/cdi, /var/run/cdi               NVIDIA's specifications, read here
    /var/run/cdi/hami.json               ours: the containers that are about to start

The mounts of the slot are in the specification because of the order of mounts: the runtime drops a
mount of the pod at the same path, and mounts deeper paths later. So a deeper path of the pod that
leads to ours through a symbolic link would cover it. A hook (``native/hook``) therefore compares
what the container has at our paths with what was mounted, right before its program starts.

The format: https://github.com/cncf-tags/container-device-interface/blob/main/SPEC.md
"""

import math
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from functools import lru_cache
from pathlib import Path
from typing import Any, Literal, NamedTuple, TypeAlias

import msgspec
import yaml

from hami_py.errors import StateError, state_errors
from hami_py.gpu.mig import MigDevice
from hami_py.node.slot import Bind

KIND = "hami.io/card"
NVIDIA_KIND = "nvidia.com/gpu"

Edits: TypeAlias = Mapping[str, Any]
"""``containerEdits`` of a specification: what changes in a container's configuration."""

NAME = "hami.json"
"""The file of our specification."""

_FIRST = "0.3.0"
"""The first version that runtimes read."""

_OLDEST = "0.6.0"
"""The version of a specification without cards of NVIDIA's. containerd 1.7 reads it."""

NO_OTHERS = {"NVIDIA_VISIBLE_DEVICES": "void"}
"""Many images have ``all`` there, and NVIDIA's runtime would add all cards."""

# Of a variable the last value counts.
_ALONE = {"env": [f"{name}={value}" for name, value in NO_OTHERS.items()]}

_TENANTS_HOOK = "apply-cuda-memory-limits"
"""A hook of NVIDIA's toolkit 1.20 that we leave out. It gives a container the memory that the
container's own NVIDIA_GPU_MEMORY_REQUEST and _LIMIT ask of the driver, also memory of others; with
cgroup v1 a container that has them does not start."""

_MPS = "/tmp/nvidia-mps"  # noqa: S108
"""The pipes of an MPS daemon, which NVIDIA's specification has if they were there when it was made.
With them a container would be a client of that daemon, beside our limits of time."""

_NO_MPS = {"env": ["CUDA_MPS_PIPE_DIRECTORY=/nonexistent"]}
"""Each program looks for a daemon when it initializes CUDA."""

_HOOK_S = 60
"""How long the hook may take. It waits for nothing, except a busy node; the kubelet waits 120 s."""

_NODE = Path("/proc/1/root")
"""The node's file system: the agent is in the node's PID namespace."""

_MINORS = "proc/driver/nvidia-caps/mig-minors"
"""The driver's table: the number of the device node of each capability."""

_CAPABILITIES = "nvidia-caps"

_MAJORS = "proc/devices"
"""The kernel's table: the first number of the device nodes of each driver."""

_LIMIT_S = 10
"""How long the hook may take that waits for the agent. It gives up after 8 s."""

Need: TypeAlias = Literal["required", "wanted"]

_NEEDED_S = 20.0
"""The kubelet has the container created right after its device is defined."""


class CardEdits(NamedTuple):
    """The edits for some cards, the version of CDI that they need, and those for all cards."""

    version: str
    common: Edits
    own: Edits


NO_CARDS = CardEdits(_FIRST, {}, {})
"""For a container whose devices others define."""


class _Device(msgspec.Struct, frozen=True, rename="camel"):
    name: str
    container_edits: dict[str, Any] | None = None


class _Specification(msgspec.Struct, frozen=True, rename="camel"):
    cdi_version: str
    kind: str
    devices: tuple[_Device, ...] | None = None
    container_edits: dict[str, Any] | None = None


class NodeCards:
    """NVIDIA's specifications of the node's cards. A change on disk is seen at the next call.

    Args:
        directories: where they are; a later directory counts more, as for the container runtime.
        instances: where each MIG instance of now is, by UUID.
        node: the root directory of the node.
    """

    def __init__(
        self,
        directories: Sequence[Path],
        instances: Callable[[], Mapping[str, MigDevice]] = dict,
        node: Path = _NODE,
    ) -> None:
        self._directories, self._instances, self._node = directories, instances, node

    def missing(self, cards: Iterable[str]) -> list[str]:
        """Those of these UUIDs that no specification has as the name of a device."""
        known = self.devices()
        return [card for card in cards if card not in known]

    def edits(self, cards: Sequence[str], *, allows_mps: bool = False) -> CardEdits:
        """The edits for a container with these cards.

        Args:
            cards: their UUIDs.
            allows_mps: let it be a client of an MPS daemon: we do not limit its time.

        Raises:
            StateError: no specification has one of these cards.
        """
        known = self.devices()
        for card in cards:
            if card not in known:
                raise StateError(f"card {card}", self.why_missing(card), FIX)
        specifications = [known[card][0] for card in cards]
        common = _merged(*(each.container_edits for each in specifications))
        own = _merged(*(known[card][1].container_edits for card in cards))
        return CardEdits(
            max((_FIRST, *(each.cdi_version for each in specifications)), key=_number),
            _for_tenants(common, allows_mps),
            _merged(_for_tenants(own, allows_mps), None if allows_mps else _NO_MPS, _ALONE),
        )

    def why_missing(self, card: str = "UUID") -> str:
        """Why no container can be allocated a card, in one line."""
        places = " and ".join(map(str, self._directories))
        return f"no CDI specification in {places} has a device {NVIDIA_KIND}={card}"

    def devices(self) -> dict[str, tuple[_Specification, _Device]]:
        """The devices by name, equal to those of the call before while no specification changes.

        As for the runtime, one that is defined twice is none.
        """
        found: dict[str, tuple[_Specification, _Device]] = {}
        for directory in self._directories:
            here: dict[str, tuple[_Specification, _Device]] = {}
            twice = set()
            files = {*directory.glob("*.json"), *directory.glob("*.yaml")} - {directory / NAME}
            for specification in map(_read, sorted(files)):
                if specification is not None and specification.kind == NVIDIA_KIND:
                    for device in specification.devices or ():
                        twice |= {device.name} & here.keys()
                        here[device.name] = (specification, device)
            found |= here
            found = {name: each for name, each in found.items() if name not in twice}
        missing = {uuid: at for uuid, at in self._instances().items() if uuid not in found}
        if missing and found:
            specification, _ = next(iter(found.values()))
            found |= self._made(specification, missing)
        return found

    def _made(
        self, specification: _Specification, instances: Mapping[str, MigDevice]
    ) -> dict[str, tuple[_Specification, _Device]]:
        """The instances as devices beside those of a specification, if their nodes are known."""
        root, made = _root(specification), {}
        minors = dict(self._table(_MINORS))
        major = next((number for number, name in self._table(_MAJORS) if name == _CAPABILITIES), "")
        for uuid, at in instances.items():
            gpu = f"gpu{at.minor}/gi{at.gpu_instance}"
            nodes = [self._node_of(root, f"/dev/nvidia{at.minor}")]
            for name in (f"{gpu}/access", f"{gpu}/ci{at.compute_instance}/access"):
                minor = minors.get(name, "")
                path = f"/dev/{_CAPABILITIES}/nvidia-cap{minor}"
                numbers = None
                if major and minor:
                    # The node may not exist yet.
                    numbers = {"path": path, "type": "c", "major": int(major), "minor": int(minor)}
                nodes.append(self._node_of(root, path) or numbers)
            if all(nodes):
                made[uuid] = specification, _Device(uuid, {"deviceNodes": nodes})
        return made

    def _node_of(self, root: str, path: str) -> dict[str, Any] | None:
        there = (self._node / f"{root}{path}"[1:]).exists()
        return {"path": path, "hostPath": root + path} if there else None

    def _table(self, file: str) -> list[list[str]]:
        """The lines of two words of a file of the node; none if it is not there."""
        with suppress(OSError):
            lines = map(str.split, (self._node / file).read_text().splitlines())
            return [line for line in lines if len(line) == 2]
        return []


FIX = (
    "run on this machine: nvidia-ctk cdi generate --device-name-strategy=uuid "
    "--output=/etc/cdi/nvidia.yaml"
)


def device_name(slot: str) -> str:
    """The CDI device of a container, by the name of its slot."""
    return f"{KIND}={slot}"


class ContainerDevices:
    """The devices of the containers that are about to start, in one specification.

    The runtime parses all specifications after each change of one: with 100 of 36 KB each, that
    took 240 ms (the library of the CDI project, 1.1.0). So there is one, which has the edits for
    all cards once, and only containers that may not have been created yet.

    Args:
        directory: where the specification is.
        hook: the installed hook.
        socket: where the hook finds the agent.
    """

    def __init__(self, directory: Path, hook: Path, socket: Path) -> None:
        self._path, self._hook, self._socket = directory / NAME, hook, socket
        self._defined: dict[str, tuple[float, CardEdits]] = {}
        # The containers of an earlier agent may need its specification.
        self._written_at = time.monotonic()

    def define(
        self, slot: str, cards: CardEdits, binds: Sequence[Bind], kernel: Need | None = None
    ) -> None:
        """Define the device of a container, or define it anew.

        Args:
            slot: the name of its slot.
            cards: the edits for its cards.
            binds: the mounts of its slot; none for a container without cards.
            kernel: whether the container may start without a limit of the driver on its memory;
                None = the driver sets none.

        Raises:
            StateError: the specification cannot be written.
        """
        edits = with_binds(cards, binds)
        if kernel is not None:
            edits = edits._replace(own=_merged(edits.own, {"hooks": [self._limit(slot, kernel)]}))
        # The last hook: what NVIDIA's hooks make is there. A device must change something, so it is
        # there without mounts, too.
        edits = edits._replace(own=_merged(edits.own, {"hooks": [self._check(binds)]}))
        self._written_at = now = time.monotonic()
        self._defined = {
            name: each for name, each in self._defined.items() if now - each[0] < _NEEDED_S
        }
        self._defined[slot] = now, edits
        write(self._path, KIND, {name: each for name, (_, each) in self._defined.items()}, _OLDEST)

    def remove_unneeded(self) -> None:
        """Remove the specification if all of its containers have been created.

        Raises:
            OSError: it cannot be removed.
        """
        if time.monotonic() - self._written_at >= _NEEDED_S:
            self._written_at = math.inf
            self._path.unlink(missing_ok=True)

    def _limit(self, slot: str, kernel: Need) -> dict[str, Any]:
        """The hook that tells the agent the first process of the container."""
        return {
            **{"hookName": "createRuntime", "path": str(self._hook), "timeout": _LIMIT_S},
            "args": [self._hook.name, "limit", kernel, str(self._socket), slot],
        }

    def _check(self, binds: Sequence[Bind]) -> dict[str, Any]:
        """The hook: it fails, and with it the container's start, if these mounts are not seen."""
        args = [self._hook.name]
        for bind in binds:
            args += ["ro" if bind.read_only else "rw", str(bind.source), str(bind.target)]
        return {
            **{"hookName": "createContainer", "path": str(self._hook)},
            **{"args": args, "timeout": _HOOK_S},
        }


def with_binds(cards: CardEdits, binds: Iterable[Bind]) -> CardEdits:
    """The edits for some cards, with the mounts of a slot."""
    mounts = [
        {
            "hostPath": str(bind.source),
            "containerPath": str(bind.target),
            "options": [
                *("ro" if bind.read_only else "rw", "nosuid", "nodev"),
                *(["noexec"] if bind.no_exec else []),
                "bind",
            ],
        }
        for bind in binds
    ]
    return cards._replace(own=_merged(cards.own, {"mounts": mounts} if mounts else None))


def write(path: Path, kind: str, devices: Mapping[str, CardEdits], oldest: str) -> None:
    """Write a specification, in one step.

    Args:
        path: the file.
        kind: of the devices.
        devices: the edits by the name of a device, at least one.
        oldest: the version of CDI that they need without the cards' own edits.

    Raises:
        StateError: it cannot be written.
    """
    common: Edits = next(iter(devices.values())).common
    if any(cards.common != common for cards in devices.values()):
        common = {}
    found = (
        _Device(name, dict(cards.own) if common else _merged(cards.common, cards.own))
        for name, cards in devices.items()
    )
    version = max((oldest, *(cards.version for cards in devices.values())), key=_number)
    specification = _Specification(version, kind, tuple(found), dict(common))
    # The runtime reads files of this directory by their suffix.
    aside = path.with_suffix(".new")
    fix = f"free some space, and check {path.parent}"
    with state_errors(f"the CDI specification {path}", fix):
        path.parent.mkdir(mode=0o755, parents=True, exist_ok=True)
        aside.write_bytes(msgspec.json.encode(specification))
        aside.chmod(0o644)
        aside.rename(path)


def _root(specification: _Specification) -> str:
    """The directory below which the driver's device nodes are; empty = the root directory."""
    edits = [specification.container_edits or {}]
    edits += [device.container_edits or {} for device in specification.devices or ()]
    nodes = (node for each in edits for node in each.get("deviceNodes", ()))
    for node in nodes:
        path, host = str(node["path"]), str(node.get("hostPath") or node["path"])
        if host.endswith(path):
            return host.removesuffix(path)
    return ""


def _merged(*some: Edits | None) -> dict[str, Any]:
    """Several edits as one. A value that several of them have is kept once, at its last place."""
    merged: dict[str, Any] = {}
    for key, value in (item for edits in some for item in (edits or {}).items()):
        if isinstance(value, list):
            merged[key] = [each for each in merged.get(key, ()) if each not in value] + value
        elif value is not None:
            merged[key] = value
    return merged


def _for_tenants(edits: dict[str, Any], allows_mps: bool) -> dict[str, Any]:
    """The edits without what no container may have."""
    return {
        key: [each for each in value if not _is_left_out(each, allows_mps)]
        if key in ("hooks", "mounts")
        else value
        for key, value in edits.items()
    }


def _is_left_out(each: Mapping[str, Any], allows_mps: bool) -> bool:
    is_mps = each.get("containerPath") == _MPS
    return (is_mps and not allows_mps) or _TENANTS_HOOK in (each.get("args") or ())


def _number(version: str) -> tuple[int, ...]:
    parts = version.removeprefix("v").split(".")
    return tuple(int(part) if part.isdecimal() else 0 for part in parts)


def _read(path: Path) -> _Specification | None:
    """A specification; None if it cannot be read. The container runtime ignores it, too."""
    # A file may be removed at any time.
    with suppress(OSError):
        status = path.stat()
        return _decoded(path, (status.st_ino, status.st_mtime_ns, status.st_size))
    return None


@lru_cache(maxsize=64)
def _decoded(path: Path, version: tuple[int, ...]) -> _Specification | None:
    """Decodes each version of a file once."""
    with suppress(OSError, yaml.YAMLError, UnicodeDecodeError, msgspec.MsgspecError):
        loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
        content = path.read_bytes()
        if path.suffix == ".json":
            return msgspec.json.decode(content, type=_Specification)
        return msgspec.convert(yaml.load(content, Loader=loader), _Specification)  # noqa: S506
    return None
