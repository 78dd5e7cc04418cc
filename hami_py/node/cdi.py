"""The devices of a container, as a CDI specification that is written when the container starts.

When the kubelet admits a container, nobody tells the device plugin whose devices it allocates. So
the plugin's answer names a CDI device that no specification defines yet: ``hami.io/card=<slot>``.
Right before the container starts, its assignment is known, and the agent writes the specification:
the edits that NVIDIA's own specification has for the assigned cards, and the mounts of the slot.
The container runtime refuses a device that is not defined, and the kubelet tries again. So a
container never starts on other cards than the assigned ones.

    /etc/cdi, /var/run/cdi               NVIDIA's specifications, read here
    /var/run/cdi/hami-<slot>.json        ours, one for each container

The mounts of the slot are in the specification because of the order of mounts: the runtime drops a
mount of the pod at the same path, and mounts deeper paths later.

The format: https://github.com/cncf-tags/container-device-interface/blob/main/SPEC.md
"""

import time
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from functools import lru_cache
from pathlib import Path
from typing import Any, TypeAlias

import msgspec
import yaml

from hami_py.errors import StateError
from hami_py.node.paths import Paths
from hami_py.node.slot import Bind

KIND = "hami.io/card"

NVIDIA_KIND = "nvidia.com/gpu"

Edits: TypeAlias = Mapping[str, Any]
"""``containerEdits`` of a specification: what changes in a container's configuration."""

_PREFIX, _SUFFIX = "hami-", ".json"

_OLDEST = "0.6.0"
"""The version of a specification without cards of NVIDIA's. containerd 1.7 reads it."""

NO_OTHERS = {"NVIDIA_VISIBLE_DEVICES": "void"}
"""Many images have ``all`` there, and NVIDIA's runtime would add all cards."""


_NEEDED_S = 20.0
"""The kubelet has the container created right after the specification is written."""


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
    """

    def __init__(self, directories: Sequence[Path]) -> None:
        self._directories = directories

    def missing(self, cards: Iterable[str]) -> list[str]:
        """Those of these UUIDs that no specification has as the name of a device."""
        known = self._devices()
        return [card for card in cards if card not in known]

    def edits(self, cards: Sequence[str]) -> tuple[str, Edits]:
        """The edits for a container with these cards, after the version of CDI that they need.

        Raises:
            StateError: no specification has one of these cards.
        """
        known = self._devices()
        version, found = _OLDEST, dict[str, Any]()
        for card in cards:
            if card not in known:
                raise StateError(f"card {card}", self.why_missing(), FIX)
            specification, device = known[card]
            _add(found, specification.container_edits)
            _add(found, device.container_edits)
            version = max(version, specification.cdi_version, key=_number)
        return version, found

    def why_missing(self) -> str:
        """Why no container can be allocated a card, in one line."""
        places = " and ".join(map(str, self._directories))
        return f"no CDI specification in {places} has a device {NVIDIA_KIND}=<its UUID>"

    def _devices(self) -> dict[str, tuple[_Specification, _Device]]:
        """The devices by name. As for the runtime, one that is defined twice is none."""
        found: dict[str, tuple[_Specification, _Device]] = {}
        for directory in self._directories:
            here: dict[str, tuple[_Specification, _Device]] = {}
            twice = set()
            for specification in map(_read, _files(directory)):
                if specification is not None and specification.kind == NVIDIA_KIND:
                    for device in specification.devices or ():
                        twice |= {device.name} & here.keys()
                        here[device.name] = (specification, device)
            found |= here
            found = {name: each for name, each in found.items() if name not in twice}
        return found


def _files(directory: Path) -> list[Path]:
    """The specifications in a directory that are not ours."""
    with suppress(OSError):
        return sorted(
            path
            for path in directory.iterdir()
            if path.suffix in (".json", ".yaml") and not _is_ours(path.name)
        )
    return []


FIX = (
    "run on the node: nvidia-ctk cdi generate --device-name-strategy=uuid "
    "--output=/var/run/cdi/nvidia.yaml"
)


def device_name(slot: str) -> str:
    """The CDI device of a container, by the name of its slot."""
    return f"{KIND}={slot}"


def write(paths: Paths, slot: str, edits: tuple[str, Edits], binds: Iterable[Bind]) -> None:
    """Define the device of a container, or define it anew.

    Args:
        paths: the node's directories.
        slot: the name of its slot.
        edits: of ``NodeCards.edits``.
        binds: the mounts of its slot.

    Raises:
        StateError: the specification cannot be written.
    """
    version, of_cards = edits
    mounts = [
        {
            "hostPath": str(bind.source),
            "containerPath": str(bind.target),
            "options": ["ro" if bind.read_only else "rw", "nosuid", "nodev", "bind"],
        }
        for bind in binds
    ]
    all_edits = dict[str, Any]()
    _add(all_edits, of_cards)
    _add(all_edits, {"mounts": mounts})
    others = [each for each in all_edits.get("env", ()) if each.partition("=")[0] not in NO_OTHERS]
    all_edits["env"] = others + [f"{name}={value}" for name, value in NO_OTHERS.items()]
    device = {"name": slot, "containerEdits": all_edits}
    content = msgspec.json.encode({"cdiVersion": version, "kind": KIND, "devices": [device]})
    path = _path(paths, slot)
    # The runtime reads files of this directory by their suffix.
    aside = path.with_suffix(".new")
    try:
        path.parent.mkdir(mode=0o755, parents=True, exist_ok=True)
        aside.write_bytes(content)
        aside.chmod(0o644)
        aside.rename(path)
    except OSError as error:
        why = f"{error.filename}: {error.strerror or error}"
        fix = f"free some space, and check {path.parent}"
        raise StateError(f"the CDI specification of slot {slot}", why, fix) from error


def keep(paths: Paths, slots: Iterable[str]) -> None:
    """Remove the specifications of other slots than these, and those of containers that run.

    The runtime reads a specification when it creates the container, and the next start writes a new
    one. It reads all of them after each change, so few must be there: with 100 of 36 KB each, one
    look took 240 ms (the library of the CDI project, 1.1.0).

    Raises:
        OSError: one cannot be removed.
    """
    kept = {_path(paths, slot).name for slot in slots}
    now = time.time()
    if paths.cdi[-1].is_dir():
        for path in list(paths.cdi[-1].iterdir()):
            with suppress(FileNotFoundError):
                if _is_ours(path.name) and (
                    path.name not in kept or now - path.stat().st_mtime > _NEEDED_S
                ):
                    path.unlink()


def _path(paths: Paths, slot: str) -> Path:
    return paths.cdi[-1] / f"{_PREFIX}{slot}{_SUFFIX}"


def _is_ours(name: str) -> bool:
    return name.startswith(_PREFIX) and name.endswith((_SUFFIX, ".new"))


def _add(to: dict[str, Any], more: Edits | None) -> None:
    """Add edits to others. An edit that two cards have in common is added once."""
    for key, value in (more or {}).items():
        if value is None:
            continue
        if isinstance(value, list):
            known = to.setdefault(key, [])
            to[key] = known + [each for each in value if each not in known]
        else:
            to[key] = value


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
