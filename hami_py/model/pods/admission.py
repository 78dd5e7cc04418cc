"""What the webhook does with a new pod, decided here and carried out there.

Judged is what could defeat a limit, for the containers that ask for a GPU. What merely looks bold
is let in: a privileged init container that asks for no card, ``hostNetwork``, ``hostIPC``, a root
user, ``SYS_PTRACE`` without the host's processes, ``LD_LIBRARY_PATH``. An image's own environment
and files cannot be seen here: the limits page on the node is the lock, this is the sign on the
door.
"""

import itertools
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from hami_py.errors import InvalidValue
from hami_py.model.names import legible
from hami_py.model.pods import library
from hami_py.model.pods.annotations import is_written_by_us
from hami_py.model.pods.asks import Place, Reading
from hami_py.model.pods.bounds import first, judge_annotations, judge_lists
from hami_py.model.pods.environment import EnvironmentPlan, plan_environment
from hami_py.model.pods.findings import Finding, refused
from hami_py.model.pods.mounts import Mounts
from hami_py.model.pods.objects import DEFAULT_SCHEDULER, Pod, Variable, Volume, VolumeMount
from hami_py.model.pods.request import MOST_CARDS, PodReading, read_pod
from hami_py.model.pods.settings import DEFAULT, PodSettings
from hami_py.model.pods.spelling import misspelled
from hami_py.model.pods.wire import Request, Size

_LONGEST = 128 << 10
"""Bytes of a variable: execve(2) takes no longer one (MAX_ARG_STRLEN)."""

_SHOWN = 80
"""Characters of a name that somebody else made, in a message."""

_MOST_FORGED = MOST_CARDS + 1
"""Annotations that we write on the largest pod: who has copied such a one has no more."""

_LOADER = ("LD_PRELOAD", "LD_AUDIT")

# Each of them alone leads to the limits page: by mounting, by the kernel, by the disk.
_CAPABILITIES = {
    "ALL": "name the few that the program needs",
    "SYS_ADMIN": "it may unmount the limits; to profile, let the driver show counters to all users "
    "(NVreg_RestrictProfilingToAdminUsers=0)",
    "SYS_MODULE": "it may change the node's kernel; leave it out",
    "SYS_RAWIO": "it may write to the node's memory and disks; leave it out",
    "DAC_READ_SEARCH": "it may open the node's files; leave it out",
    "BPF": "it may write to the memory of the node's processes; leave it out",
}


@dataclass(frozen=True)
class ContainerEdit:
    """What a container gets and loses.

    Attributes:
        path: ``spec.containers[0]``.
        container: its name.
        limits: to be set in ``resources.limits``.
        environment: to be done to ``env``.
        mounts: to be added to ``volumeMounts``.
    """

    path: str
    container: str
    limits: Mapping[str, str]
    environment: EnvironmentPlan
    mounts: tuple[VolumeMount, ...] = ()

    @property
    def is_empty(self) -> bool:
        """There is nothing to do."""
        variables = self.environment
        return not (self.limits or variables.add or variables.remove or self.mounts)


@dataclass(frozen=True)
class Admission:
    """What is to be done with a pod.

    Attributes:
        request: what it asks for; None = nothing, or it cannot be read.
        findings: what there is to say; a refusal among them means that it is not let in.
        edits: to its containers; those without one stay as they are.
        remove_annotations: the ones that only we write.
        volumes: to be added to the pod's.
    """

    request: Request | None = None
    findings: tuple[Finding, ...] = ()
    edits: tuple[ContainerEdit, ...] = ()
    remove_annotations: tuple[str, ...] = ()
    volumes: tuple[Volume, ...] = ()

    @property
    def refusals(self) -> tuple[Finding, ...]:
        """Why it is not let in; empty = it is."""
        return tuple(each for each in self.findings if each.action == "refuse")

    @property
    def warnings(self) -> tuple[Finding, ...]:
        """What its author is told if it is let in."""
        return tuple(each for each in self.findings if each.action != "refuse")


def admit(pod: Pod, settings: PodSettings = DEFAULT) -> Admission:
    """What is to be done with a new pod. Done again with what came of it, nothing is left to do.

    A pod that asks for no GPU loses forged annotations, and nothing else happens to it.
    """
    forged = tuple(key for key in pod.annotations if is_written_by_us(key))
    too_large = (*judge_annotations(pod), *_forgery(forged))
    if too_large:
        return Admission(None, too_large)
    findings = [_forged(pod, key) for key in forged]
    try:
        reading = read_pod(pod, settings)
    except InvalidValue as error:
        return Admission(None, (refused(error), *findings), (), forged)
    if reading.request is None:
        return Admission(None, tuple(findings), (), forged)
    if too_long := tuple(judge_lists(pod)):
        return Admission(None, too_long)
    edits = [
        _edit(place, reading.readings.get(place.container.name), settings)
        for place in reading.places
    ]
    of_environments = (each for edit in edits for each in edit.environment.findings)
    findings += first(itertools.chain(judge(pod, reading, settings), of_environments))
    kept = tuple(edit for edit in edits if not edit.is_empty)
    added = library.missing_volumes(pod, settings)
    return Admission(reading.request, tuple(findings), kept, forged, added)


def judge(pod: Pod, reading: PodReading, settings: PodSettings) -> Iterator[Finding]:
    """What would defeat a limit, and what deserves a remark."""
    if pod.spec.node_name:
        fix = "the scheduler has to choose the cards; select the node with spec.nodeSelector"
        yield Finding("node-name", "refuse", "spec.nodeName", pod.spec.node_name, fix)
    theirs = pod.spec.scheduler_name or DEFAULT_SCHEDULER
    if settings.schedulers and theirs not in (DEFAULT_SCHEDULER, *settings.schedulers):
        fix = f"it would bind the pod without cards; write {' or '.join(settings.schedulers)}"
        yield Finding("scheduler", "refuse", "spec.schedulerName", theirs, fix)
    if pod.spec.os is not None and pod.spec.os.name == "windows":
        fix = "limits are kept on Linux alone; leave out the GPU, or this"
        yield Finding("windows", "refuse", "spec.os.name", "windows", fix)
    yield from _opt_outs(pod, settings)
    yield from _misspelled(pod, settings)
    if pod.spec.host_pid:
        fix = "it sees, and may end, the processes of others on the node, those of limits too"
        yield Finding("host-pid", "remark", "spec.hostPID", "true", fix)
    yield from library.judge_volumes(pod, settings)
    mounts = Mounts(pod, settings)
    for place in reading.places:
        yield from library.judge_mounts(place, settings)
        asked = reading.readings.get(place.container.name)
        if asked is not None:
            yield from _loader_variables(place, settings)
            yield from _unseen_variables(place)
            yield from _privileges(place, pod)
            yield from mounts.judge(place)
            yield from _sizes(place, asked, settings)


def judge_ephemeral(pod: Pod, settings: PodSettings = DEFAULT) -> tuple[Finding, ...]:
    """What of a pod's ephemeral containers would defeat its limits.

    They come into a pod that is there already, and among the processes of its containers. They have
    no resources, so no card and nothing that a loader's variables could undo.
    """
    try:
        if read_pod(pod, settings).request is None:
            return ()
    except InvalidValue:
        # It asks for something, whatever that was meant to be.
        pass
    return tuple(judge_lists(pod)) or tuple(first(_added(pod, settings)))


def _added(pod: Pod, settings: PodSettings) -> Iterator[Finding]:
    mounts = Mounts(pod, settings)
    for number, container in enumerate(pod.spec.ephemeral_containers or ()):
        place = _Ephemeral(container, number, "app")
        yield from _privileges(place, pod)
        yield from mounts.judge(place)
        yield from library.judge_mounts(place, settings)
        # It could be taken away here as in other containers, but who debugs should know.
        for each in plan_environment(place, None, settings).findings:
            yield Finding(each.rule, "refuse", each.field, each.value, each.fix)


class _Ephemeral(Place, frozen=True):
    @property
    def path(self) -> str:
        return f"spec.ephemeralContainers[{self.number}]"


def _opt_outs(pod: Pod, settings: PodSettings) -> Iterator[Finding]:
    """HAMi lets pods leave themselves out; then whoever makes pods would make the rules."""
    for profile in settings.profiles:
        label = profile.ignore_label
        if label is not None and pod.labels.get(label) == profile.ignore_value:
            fix = "it counts on a namespace, which is the operator's, and not on a pod"
            path = f"metadata.labels[{label}]"
            yield Finding("opt-out", "remark", path, profile.ignore_value, fix)


def _misspelled(pod: Pod, settings: PodSettings) -> Iterator[Finding]:
    for key, known in misspelled(pod.annotations, settings.profiles[0].wishes):
        fix = f"nobody reads it; if it is to say which cards, write {known}"
        path = f"metadata.annotations[{legible(key[:_SHOWN])}]"
        yield Finding("unknown-annotation", "remark", path, pod.annotations[key], fix)


def _edit(place: Place, reading: Reading | None, settings: PodSettings) -> ContainerEdit:
    missing = reading.missing if reading is not None else {}
    limits = {name: str(number) for name, number in missing.items()}
    environment = plan_environment(place, reading, settings)
    mounts = library.missing_mounts(place, settings) if reading is not None else ()
    return ContainerEdit(place.path, place.container.name, limits, environment, mounts)


def _forgery(forged: tuple[str, ...]) -> Iterator[Finding]:
    if len(forged) > _MOST_FORGED:
        fix = "hami writes them, and never so many; leave them out"
        written = f"{len(forged)} like {forged[0][:_SHOWN]}"
        yield Finding("forged-annotation", "refuse", "metadata.annotations", written, fix)


def _forged(pod: Pod, key: str) -> Finding:
    fix = "only the scheduler writes it; leave it out"
    path = f"metadata.annotations[{legible(key[:_SHOWN])}]"
    return Finding("forged-annotation", "remove", path, pod.annotations[key], fix)


def _loader_variables(place: Place, settings: PodSettings) -> Iterator[Finding]:
    for variable in place.container.env or ():
        if variable.name not in _LOADER or not (variable.value or variable.value_from):
            continue
        if variable.name == "LD_PRELOAD" and _loads_allowed(variable, settings):
            continue
        fix = "what it loads could stand before the library that keeps the limit; leave it out"
        if variable.name == "LD_PRELOAD" and settings.allowed_preloads:
            fix += f", or name only {', '.join(settings.allowed_preloads)}"
        path, value = f"{place.path}.env[{variable.name}]", variable.value or "valueFrom"
        yield Finding("loader-variable", "refuse", path, value, fix)


def _loads_allowed(variable: Variable, settings: PodSettings) -> bool:
    text = variable.value or ""
    if variable.value_from is not None or len(text) >= _LONGEST:
        return False
    # Spaces and colons stand between two libraries (ld.so(8)).
    return {*text.replace(":", " ").split(" ")} <= {"", *settings.allowed_preloads}


def _unseen_variables(place: Place) -> Iterator[Finding]:
    # Neither is an image's environment, nor what a command sets: so it is not worth a refusal.
    if place.container.env_from:
        fix = "what is in it is not seen here; leave variables like LD_* and NVIDIA_* out of it"
        path = f"{place.path}.envFrom"
        yield Finding("unseen-variables", "remark", path, str(len(place.container.env_from)), fix)


def _privileges(place: Place, pod: Pod) -> Iterator[Finding]:
    context = place.container.security_context
    if context is None:
        return
    path = f"{place.path}.securityContext"
    if context.privileged:
        fix = "it reaches every card of the node; leave it out where a GPU is asked for"
        yield Finding("privileged", "refuse", f"{path}.privileged", "true", fix)
    for name in (context.capabilities and context.capabilities.add) or ():
        plain = name.upper().removeprefix("CAP_")
        why = _CAPABILITIES.get(plain)
        if plain == "SYS_PTRACE" and pod.spec.host_pid:
            why = "with spec.hostPID it may change the node's processes; leave one of them out"
        if why is not None:
            yield Finding("capability", "refuse", f"{path}.capabilities.add", name, why)


def _sizes(place: Place, reading: Reading, settings: PodSettings) -> Iterator[Finding]:
    memory = reading.ask.memory
    mib = memory.mib if isinstance(memory, Size) else None
    if mib is not None and mib < settings.small_memory_mib:
        name = reading.profile.memory
        fix = f"a CUDA context alone takes 100 MiB and more; {name} counts MiB"
        path = f"{place.path}.resources.limits[{name}]"
        yield Finding("small-memory", "remark", path, str(mib), fix)
