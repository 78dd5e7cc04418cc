"""What a cluster's operator decides about pods: the names, and what holds where nothing is said."""

import posixpath
from dataclasses import dataclass
from functools import cached_property
from typing import Literal, TypeAlias, get_args

from hami_py._native import MAX_CARDS
from hami_py.errors import InvalidValue
from hami_py.model.names import check_object_name
from hami_py.model.pods.counts import Table, table
from hami_py.model.pods.names import HAMI, NameProfile

CorePolicy: TypeAlias = Literal["default", "force", "disable"]

_IN_PRELOADS = frozenset(" \t\n:$")

_MOST_MIB = 1 << 41
"""In bytes it is still a number of 64 bits."""


@dataclass(frozen=True)
class PodSettings:
    """How pods are read."""

    profiles: tuple[NameProfile, ...] = (HAMI,)
    """The names that are understood. Which cards a pod wants is read by the first one's names."""

    default_cards: int = 1
    """Cards of a container that asks for memory or cores and names no number, as HAMi's
    ``defaultGPUNum``. 0 = such a pod is refused."""

    default_memory_mib: int = 0
    """MiB on each card for a container that names cards and no memory, as HAMi's ``defaultMemory``.
    0 = the whole card: that is what ``nvidia.com/gpu: 1`` means without us."""

    default_cores: int = 0
    """Percent for a container that has a part of a card's memory and names no cores, as HAMi's
    ``defaultCores``. 0 = no limit on its time."""

    whole_card_cores: int = 100
    """Percent for a container that has all of a card's memory and names no cores: without memory
    nobody else could use the time, and HAMi's webhook says the same. 0 = nothing reserved."""

    max_cards: int = MAX_CARDS
    """Most cards of a container: the rows of a limits page, and no machine has more."""

    max_memory_mib: int = (1 << 20) - 1
    """Largest memory on one card, in MiB. Just below 1 TiB: more than three times the largest card
    there is, and ``1Mi``, by which a person means 1 MiB, is already beyond it."""

    small_memory_mib: int = 100
    """MiB below which a limit is remarked upon: a CUDA context alone takes 100 to 500 MiB. Whoever
    wrote ``3`` probably counted GiB."""

    core_policy: CorePolicy = "default"
    """How cores hold, as HAMi's ``gpuCorePolicy``: the value of ``GPU_CORE_UTILIZATION_POLICY``.
    With ``default`` the variable is not set, and a pod may set it."""

    schedulers: tuple[str, ...] = ()
    """Who may place pods that ask for a GPU; the first is given to those that name none. Another
    one would bind them without cards of theirs. Empty = whomever the pod names."""

    allowed_preloads: tuple[str, ...] = ()
    """Libraries that a container with a GPU may name in ``LD_PRELOAD``: exact paths, such as an
    allocator's. The path is all that is known of them: which file lies there is the image's."""

    guarded_mounts: tuple[str, ...] = ("/etc/ld.so.preload",)
    """Files in a container that make the limits hold: a volume of the pod's at the same path would
    come over them. One at a directory above does not, runtimes mount the deeper path later."""

    guarded_host_paths: tuple[str, ...] = (
        "/var/lib/hami",
        "/var/lib/kubelet/device-plugins",
        "/etc/cdi",
        "/run/cdi",
        "/var/run/cdi",
        "/sys/fs/cgroup",
        "/proc",
    )
    """Directories of the node with limits and ledgers in them, with what runtimes put into
    containers (CDI), or with what keeps a container to its devices and the kernel to its files: a
    container that can write there, or in a directory around one, can change its own."""

    library_directory: str = ""
    """A directory of every node, with ``libvgpu.so`` and ``ld.so.preload`` in it, that the webhook
    mounts into containers with a GPU: the library at the same path, the other as
    ``/etc/ld.so.preload``. Empty = it adds no volume: the device plugin brings the library, since a
    ``hostPath`` breaks Pod Security's baseline level."""

    def __post_init__(self) -> None:
        """Refuse what cannot be meant, with the setting's name.

        Raises:
            InvalidValue: a number is out of range, a name or a path is none, or there is no
                profile, or one twice.
        """
        # Less than one of its units could not be asked for.
        unit_mib = max((profile.memory_unit_mib for profile in self.profiles), default=1)
        ranges = {
            "max_cards": (1, MAX_CARDS),
            "max_memory_mib": (unit_mib, _MOST_MIB),
            "default_cards": (0, self.max_cards),
            "default_memory_mib": (0, self.max_memory_mib),
            "default_cores": (0, 100),
            "whole_card_cores": (0, 100),
            "small_memory_mib": (0, _MOST_MIB),
        }
        for name, (least, most) in ranges.items():
            value = getattr(self, name)
            if not least <= value <= most:
                raise InvalidValue(name, str(value), f"write a number from {least} to {most}")
        if self.core_policy not in get_args(CorePolicy):
            fix = f"write {', '.join(get_args(CorePolicy))}"
            raise InvalidValue("core_policy", self.core_policy, fix)
        for path in self.allowed_preloads:
            # What ld.so takes for two entries, or expands, is no exact path.
            if not path.startswith("/") or any(each in _IN_PRELOADS for each in path):
                fix = "write a path from the root without spaces, colons and $"
                raise InvalidValue("allowed_preloads", path, fix)
        for name in ("guarded_mounts", "guarded_host_paths"):
            for path in getattr(self, name):
                # One that is written otherwise would be compared with, and never be equal.
                if posixpath.normpath("/" + path.lstrip("/")) != path:
                    fix = "write a path from the root, without . and .. and a slash at its end"
                    raise InvalidValue(name, path, fix)
        _check_library(self.library_directory)
        for scheduler in self.schedulers:
            check_object_name("schedulers", scheduler)
        if not self.profiles:
            raise InvalidValue("profiles", "", "name one at least")
        # A name that stands for two things could not be used.
        for number, profile in enumerate(self.profiles):
            if profile in self.profiles[:number]:
                raise InvalidValue("profiles", profile.name, "name each once")

    @cached_property
    def tables(self) -> tuple[Table, ...]:
        """What each resource counts, by profile."""
        return tuple(
            table(profile, self.max_cards, self.max_memory_mib) for profile in self.profiles
        )


def _check_library(directory: str) -> None:
    plain = posixpath.normpath("/" + directory.lstrip("/"))
    # As ld.so.preload has it, where # begins a comment; and Kubernetes mounts nothing at a colon.
    is_plain = plain == directory != "/" and not {*directory} & {*_IN_PRELOADS, "#"}
    if directory and not is_plain:
        fix = "write a path from the root, without spaces, : $ #, . and .. and a slash at its end"
        raise InvalidValue("library_directory", directory, fix)


DEFAULT = PodSettings()
"""HAMi's names and defaults."""
