"""Rules for a container that requests a GPU: the loader's variables, privileges, sizes.

The rules refuse what could defeat a limit. They admit what is unusual but harmless to limits: a
privileged init container that requests no card, ``hostNetwork``, ``hostIPC``, a root user,
``SYS_PTRACE`` without the host's processes, ``LD_LIBRARY_PATH``.
"""

from collections.abc import Iterator

from hami_py.model.pods.admission.findings import Finding
from hami_py.model.pods.objects import Pod, Variable
from hami_py.model.pods.request import ParsedContainer, PodContainer
from hami_py.model.pods.settings import PodSettings
from hami_py.model.pods.wire import Size

_MAX_VARIABLE_BYTES = 128 << 10
"""The longest variable that execve(2) accepts (MAX_ARG_STRLEN)."""

_SMALL_MIB = 100
"""Less is probably a mistake: a CUDA context alone takes 100 to 500 MiB, and ``3`` means GiB."""

_LOADER_VARIABLES = ("LD_PRELOAD", "LD_AUDIT")

# Each of them alone gives access to the limits page: by mounting, by the kernel, by the disk.
_CAPABILITIES = {
    "ALL": "name the few that the program needs",
    "SYS_ADMIN": "it may unmount the limits; for profiling, let the driver show counters to all "
    "users (NVreg_RestrictProfilingToAdminUsers=0)",
    "SYS_MODULE": "it may change the node's kernel; leave it out",
    "SYS_RAWIO": "it may write to the node's memory and disks; leave it out",
    "DAC_READ_SEARCH": "it may open the node's files; leave it out",
    "BPF": "it may write to the memory of the node's processes; leave it out",
}


def judge_loader_variables(container: PodContainer, settings: PodSettings) -> Iterator[Finding]:
    """Refuse variables by which the loader would load another library before ours."""
    for variable in container.spec.env or ():
        if variable.name not in _LOADER_VARIABLES or not (variable.value or variable.value_from):
            continue
        if variable.name == "LD_PRELOAD" and _is_allowed(variable, settings):
            continue
        fix = "it could load a library before the one that enforces the limit; leave it out"
        if variable.name == "LD_PRELOAD" and settings.allowed_preloads:
            fix += f", or name only {', '.join(settings.allowed_preloads)}"
        path, value = f"{container.path}.env[{variable.name}]", variable.value or "valueFrom"
        yield Finding("loader-variable", "refuse", path, value, fix)


def _is_allowed(variable: Variable, settings: PodSettings) -> bool:
    text = variable.value or ""
    if variable.value_from is not None or len(text) >= _MAX_VARIABLE_BYTES:
        return False
    # Spaces and colons separate libraries (ld.so(8)).
    return {*text.replace(":", " ").split(" ")} <= {"", *settings.allowed_preloads}


def judge_unseen_variables(container: PodContainer) -> Iterator[Finding]:
    """Warn of ``envFrom``.

    It is not refused: the image's environment, and what a command sets, are not seen either.
    """
    if container.spec.env_from:
        fix = "its contents are not checked; keep variables like LD_* and NVIDIA_* out of it"
        value = str(len(container.spec.env_from))
        yield Finding("unseen-variables", "remark", f"{container.path}.envFrom", value, fix)


def judge_privileges(container: PodContainer, pod: Pod) -> Iterator[Finding]:
    """Refuse privileges by which a container could change its limits."""
    context = container.spec.security_context
    if context is None:
        return
    path = f"{container.path}.securityContext"
    if context.privileged:
        fix = "it can use every card of the node; leave it out where a GPU is requested"
        yield Finding("privileged", "refuse", f"{path}.privileged", "true", fix)
    for name in (context.capabilities and context.capabilities.add) or ():
        plain = name.upper().removeprefix("CAP_")
        problem = _CAPABILITIES.get(plain)
        if plain == "SYS_PTRACE" and pod.spec.host_pid:
            problem = "with spec.hostPID it may change the node's processes; leave one of them out"
        if problem is not None:
            yield Finding("capability", "refuse", f"{path}.capabilities.add", name, problem)


def judge_sizes(container: PodContainer, parsed: ParsedContainer, pod: Pod) -> Iterator[Finding]:
    """Warn of a memory limit that is probably a mistake of units, or differs between cards."""
    memory, profile = parsed.request.memory, parsed.profile
    if not isinstance(memory, Size):
        return
    limits = f"{container.path}.resources.limits"
    if memory.mib is not None and memory.mib < _SMALL_MIB:
        name = profile.memory
        fix = f"a CUDA context alone takes 100 MiB and more, and {name} counts MiB; request more"
        yield Finding("small-memory", "remark", f"{limits}[{name}]", str(memory.mib), fix)
    selected = {profile.use_type, profile.use_uuid} & pod.annotations.keys()
    if memory.percent is not None and parsed.request.cards > 1 and not selected:
        fix = (
            "it is another amount on each card, if these are of several models; name one model in "
            f"the annotation {profile.use_type}"
        )
        value = str(memory.percent)
        yield Finding("mixed-cards", "remark", f"{limits}[{profile.percentage}]", value, fix)
