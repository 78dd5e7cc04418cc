"""The operator's settings for pods: the names that are read, defaults and bounds.

``PodSettings`` are the settings; ``decode_settings`` reads them from a settings file. The webhook,
the scheduler and the command line read the same file, and read it strictly: what they do not
understand is an error, never a default.
"""

import posixpath
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from difflib import get_close_matches
from functools import cached_property
from typing import Any, Literal, TypeAlias, get_args, get_origin, get_type_hints

import msgspec

from hami_py._native import MAX_CARDS
from hami_py.errors import InvalidValue
from hami_py.model.limits import Mode
from hami_py.model.names import check_object_name, legible
from hami_py.model.pods.names import ALIYUN, HAMI, NameProfile
from hami_py.model.pods.quantities import MAX_MEMORY_MIB, ResourceTable, resource_table

CorePolicy: TypeAlias = Literal["default", "force", "disable"]

LeastLevel: TypeAlias = Literal["preload", "kernel", "mig"]

KernelLimits: TypeAlias = Literal["dmem", "any", "off"]

Unassigned: TypeAlias = Literal["wait", "whole-card"]

_IN_PRELOADS = frozenset(" \t\n:$")


@dataclass(frozen=True)
class PodSettings:
    """How pods are read and judged."""

    profiles: tuple[NameProfile, ...] = (HAMI,)
    """The naming profiles that are understood. The annotations that select cards are read by the
    names of the first one."""

    default_cards: int = 1
    """Cards of a container that requests memory or cores and no number of cards, like HAMi's
    ``defaultGPUNum``. 0 = such a pod is refused."""

    default_memory_mib: int = 0
    """MiB on each card for a container that requests cards and no memory, like HAMi's
    ``defaultMemory``. 0 = the whole card: that is what ``nvidia.com/gpu: 1`` means without us."""

    default_cores: int = 0
    """Percent for a container that requests a part of a card's memory and no cores, like HAMi's
    ``defaultCores``. 0 = no limit on its time."""

    core_policy: CorePolicy = "default"
    """How limits on time are enforced, like HAMi's ``gpuCorePolicy``: the value of
    ``GPU_CORE_UTILIZATION_POLICY``. With ``default`` the variable is not set, and a pod may set it.
    """

    share_mode: Mode = "hard"
    """How the share of a container holds if neither its pod nor its namespace says it
    (share_mode.py). ``hard``: it gets no more, even if the card is idle. ``soft``: it also gets
    the time that no other container uses, as with HAMi's ``gpuCorePolicy: default``."""

    share_modes: Mapping[str, Mode] = field(default_factory=dict, hash=False)
    """The same by namespace. They are here because a node agent does not read namespaces."""

    isolations: Mapping[str, LeastLevel] = field(default_factory=dict, hash=False)
    """The least level at which memory limits are enforced, by namespace. A pod that accepts less is
    raised to it."""

    kernel_limits: KernelLimits = "dmem"
    """With which back end the driver limits the memory of containers, too. ``any``: also with
    ``misc``, which can give a new container what it knows of a removed one. ``off``: with none."""

    schedulers: tuple[str, ...] = ()
    """Schedulers that may place pods that request a GPU. The webhook writes the first into pods
    that name none; another scheduler would bind them without cards. Empty = any scheduler."""

    allowed_preloads: tuple[str, ...] = ()
    """Libraries that a container with a GPU may name in ``LD_PRELOAD``: exact paths, for example of
    a memory allocator. Only the path is checked: the image decides which file is there."""

    guarded_host_paths: tuple[str, ...] = (
        "/var/lib/hami",
        "/run/hami",
        "/var/run/hami",
        "/var/lib/kubelet/device-plugins",
        "/etc/cdi",
        "/run/cdi",
        "/var/run/cdi",
        "/sys/fs/cgroup",
        "/proc",
    )
    """Directories of the node that hold limits and ledgers, that tell runtimes what to put into
    containers (CDI), or that confine a container to its devices and the kernel to its files. A
    container that can write there, or to a directory around one, can change its own limits."""

    unassigned: Unassigned = "wait"
    """The rule for a container whose pod was bound without hami-py's scheduler. ``wait``: it waits
    at its start. ``whole-card``: it gets whole cards that no other container uses."""

    def __post_init__(self) -> None:
        """Check every setting.

        Raises:
            InvalidValue: a number is out of range, a name or path is malformed, or a profile is
                missing or named twice. ``field`` is the setting's name.
        """
        maxima = {
            "default_cards": MAX_CARDS,
            "default_memory_mib": MAX_MEMORY_MIB,
            "default_cores": 100,
        }
        for name, most in maxima.items():
            value = getattr(self, name)
            if not 0 <= value <= most:
                raise InvalidValue(name, str(value), f"write a number from 0 to {most}")
        for name, value, choices in (
            ("core_policy", self.core_policy, CorePolicy),
            ("share_mode", self.share_mode, Mode),
            *((f"share_modes[{each}]", mode, Mode) for each, mode in self.share_modes.items()),
            *(
                (f"isolations[{each}]", level, LeastLevel)
                for each, level in self.isolations.items()
            ),
            ("unassigned", self.unassigned, Unassigned),
            ("kernel_limits", self.kernel_limits, KernelLimits),
        ):
            if value not in get_args(choices):
                raise InvalidValue(name, value, f"write {_either(get_args(choices))}")
        for name in ("share_modes", "isolations"):
            for namespace in getattr(self, name):
                check_object_name(name, namespace)
        for path in self.allowed_preloads:
            # ld.so splits or expands a path with one of these characters.
            if not path.startswith("/") or any(each in _IN_PRELOADS for each in path):
                fix = "write an absolute path without spaces, colons and $"
                raise InvalidValue("allowed_preloads", path, fix)
        _check_guarded(self.guarded_host_paths)
        for scheduler in self.schedulers:
            check_object_name("schedulers", scheduler)
        if not self.profiles:
            raise InvalidValue("profiles", "", "name at least one")
        for number, profile in enumerate(self.profiles):
            if profile in self.profiles[:number]:
                raise InvalidValue("profiles", profile.name, "name each profile once")

    @cached_property
    def tables(self) -> tuple[ResourceTable, ...]:
        """The rules for each resource, by profile."""
        return tuple(map(resource_table, self.profiles))


def _check_guarded(paths: Sequence[str]) -> None:
    for path in paths:
        # Normalised paths are compared with it, so another spelling would never match.
        if posixpath.normpath("/" + path.lstrip("/")) != path:
            fix = "write an absolute path without . and .. and without a slash at the end"
            raise InvalidValue("guarded_host_paths", path, fix)


DEFAULT = PodSettings()
"""HAMi's names and defaults."""


# The settings file.

_PROFILES: dict[str, NameProfile] = {"hami": HAMI, "aliyun": ALIYUN}

_FIELD_TYPES: dict[str, object] = {
    **get_type_hints(PodSettings),
    "profiles": tuple[Literal["hami", "aliyun"], ...],
}
"""The fields of a file are those of ``PodSettings``; a profile is written by its name."""

_TYPE_NAMES: dict[object, str] = {
    int: "a whole number",
    str: "a text (quote what YAML would read as something else)",
}

_MAX_BITS = 63

_SIMILAR = 0.75
"""difflib's ratio, 1 for equal names: two wrong letters in ten pass, another word does not."""


def decode_settings(written: object) -> PodSettings:
    """Turn the contents of a settings file, as a YAML reader returns them, into settings.

    A field that is left out has its default. A list or a mapping replaces the default one.

    Raises:
        InvalidValue: an unknown field, a value of a wrong type or out of range, or no mapping.
            ``field`` is the setting's name, with the index in a list or the key in a mapping, as in
            ``schedulers[1]``.
    """
    if written is None:
        return PodSettings()
    if not isinstance(written, dict):
        raise InvalidValue("settings", _shown(written), "write fields, as in `default_cards: 1`")
    fields: dict[str, Any] = {}
    for name, value in written.items():
        if name not in _FIELD_TYPES:
            field = legible(_shown(name))
            close = get_close_matches(field, _FIELD_TYPES, n=1, cutoff=_SIMILAR)
            fix = f"did you mean {close[0]}?" if close else f"write {_either(sorted(_FIELD_TYPES))}"
            raise InvalidValue(field, _shown(value), f"there is no such field; {fix}")
        fields[name] = _convert(name, value, _FIELD_TYPES[name])
    if "profiles" in fields:
        fields["profiles"] = tuple(_PROFILES[name] for name in fields["profiles"])
    return PodSettings(**fields)


def _convert(field: str, value: object, kind: object) -> object:
    if get_origin(kind) is tuple:
        if not isinstance(value, list):
            raise InvalidValue(field, _shown(value), "write a list: [one, other]")
        each, _ = get_args(kind)
        return tuple(_convert(f"{field}[{i}]", item, each) for i, item in enumerate(value))
    if get_origin(kind) is Mapping:
        if not isinstance(value, dict):
            raise InvalidValue(field, _shown(value), "write a mapping: {one: …, other: …}")
        key, each = get_args(kind)
        return {
            _convert(field, name, key): _convert(f"{field}[{legible(name)}]", item, each)
            for name, item in value.items()
        }
    try:
        converted: object = msgspec.convert(value, kind)
    except msgspec.ValidationError:
        names = _TYPE_NAMES.get(kind) or _either(get_args(kind))
        raise InvalidValue(field, _shown(value), f"write {names}") from None
    if isinstance(converted, int) and converted.bit_length() > _MAX_BITS:
        raise InvalidValue(field, _shown(value), "write a smaller number")
    return converted


def _either(words: Sequence[str]) -> str:
    *most, last = words
    return f"{', '.join(most)} or {last}"


def _shown(value: object) -> str:
    """The value as the file has it; of lists and mappings only the type."""
    if value is None or isinstance(value, bool):
        return {None: "null", True: "true", False: "false"}[value]
    if isinstance(value, int):
        # Python refuses to write a decimal number of thousands of digits.
        return str(value) if value.bit_length() <= _MAX_BITS else f"{value:#x}"
    if isinstance(value, (dict, list)):
        return "a mapping" if isinstance(value, dict) else "a list"
    return str(value)
