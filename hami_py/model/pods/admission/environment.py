"""The variables that carry a container's limits, and those that the container sets itself.

The variables inform a program; where no limits page exists they are the limit. Beside a page a
variable may only lower the limit. So a lower value that the pod sets stays, and a higher one is
replaced. The preload library and ``hami`` read them as docs/configuration.md describes; memory is
written in HAMi's form, ``3000m`` for 3000 MiB.

| variable | contains | source |
|---|---|---|
| ``CUDA_DEVICE_MEMORY_LIMIT`` | memory of every card | the number in the pod |
| the same | percent of one card's memory | the binding, by ``fieldRef`` |
| ``CUDA_DEVICE_MEMORY_LIMIT_<i>`` | percent of several cards | the binding, by ``fieldRef`` |
| ``CUDA_DEVICE_SM_LIMIT`` | percent of time, 1 to 99 | the number in the pod |
| ``CUDA_TASK_PRIORITY`` | 0 or 1 | the number in the pod |
| ``GPU_CORE_UTILIZATION_POLICY`` | how the percentage is enforced | the cluster's setting |

A whole card has no variable for its memory: its size is unknown before the card is.
"""

from dataclasses import dataclass

from hami_py._native import HAMI_MEMORY_LIMITS, HAMI_SHARE_LIMITS, parse_memory, parse_share
from hami_py.config import TASK_PRIORITY, UTILIZATION_POLICY
from hami_py.errors import InvalidValue
from hami_py.model.pods.admission.findings import Action, Finding, Rule, refused
from hami_py.model.pods.annotations import field_path, memory_key, memory_value
from hami_py.model.pods.objects import Variable
from hami_py.model.pods.request import ParsedContainer, PodContainer
from hami_py.model.pods.settings import PodSettings
from hami_py.model.pods.wire import ContainerRequest, Size

MEMORY = "CUDA_DEVICE_MEMORY_LIMIT"
CORES = "CUDA_DEVICE_SM_LIMIT"
VISIBLE_DEVICES = "NVIDIA_VISIBLE_DEVICES"
OFF_SWITCH = "CUDA_DISABLE_CONTROL"

_LIMIT_VARIABLES = {*HAMI_MEMORY_LIMITS, *HAMI_SHARE_LIMITS}
_WHOLE = 100
_MAX_REMOVED = 64
"""Entries of one ``env`` that are removed. The API server copies the list for each entry, so
thousands of them would keep it busy for seconds."""

_NO_CARDS = ("", "none", "void")
"""Values of NVIDIA_VISIBLE_DEVICES with which NVIDIA's container toolkit adds no card."""


@dataclass(frozen=True)
class InjectedVariable:
    """A variable that the webhook adds to a container.

    Attributes:
        value: its value; None = it refers to the annotation.
        annotation: an annotation of the pod that the binding writes and the kubelet reads.
    """

    name: str
    value: str | None = None
    annotation: str | None = None

    def manifest(self) -> dict[str, object]:
        """The entry for the container's ``env``."""
        if self.annotation is None:
            return {"name": self.name, "value": self.value}
        reference = {"apiVersion": "v1", "fieldPath": field_path(self.annotation)}
        return {"name": self.name, "valueFrom": {"fieldRef": reference}}

    def equals(self, variable: Variable) -> bool:
        """Whether a variable of the container has this value already."""
        if self.annotation is None:
            return variable.value_from is None and (variable.value or "") == self.value
        reference = variable.value_from.field_ref if variable.value_from is not None else None
        return reference is not None and reference.field_path == field_path(self.annotation)


@dataclass(frozen=True)
class EnvironmentPlan:
    """The changes to a container's environment.

    Attributes:
        add: variables appended to ``env``.
        remove: names of which every entry is removed before that.
    """

    add: tuple[InjectedVariable, ...] = ()
    remove: tuple[str, ...] = ()
    findings: tuple[Finding, ...] = ()


def plan_environment(
    container: PodContainer, parsed: ParsedContainer | None, settings: PodSettings
) -> EnvironmentPlan:
    """Plan the changes to the environment of a container.

    The plan is idempotent: for the changed container it is empty. ``parsed`` is None if the
    container requests no GPU.
    """
    plan = _Plan(container)
    plan.remove_visible_devices(requests_gpu=parsed is not None)
    if parsed is not None:
        plan.remove_off_switch()
        for ours in injected_variables(parsed, settings):
            plan.inject(ours)
        for name, (field, variable) in plan.own.items():
            if name in _LIMIT_VARIABLES:
                plan.compare(name, field, variable, parsed.request)
    return plan.result()


def injected_variables(
    parsed: ParsedContainer, settings: PodSettings
) -> tuple[InjectedVariable, ...]:
    """The variables that carry the request of a container."""
    request = parsed.request
    found = list(_memory_variables(request))
    if 0 < request.cores < _WHOLE:
        found.append(InjectedVariable(CORES, str(request.cores)))
    if parsed.priority is not None:
        found.append(InjectedVariable(TASK_PRIORITY, str(parsed.priority)))
    if settings.core_policy != "default":
        found.append(InjectedVariable(UTILIZATION_POLICY, settings.core_policy))
    return tuple(found)


def _memory_variables(request: ContainerRequest) -> tuple[InjectedVariable, ...]:
    if not isinstance(request.memory, Size):
        return ()
    if request.memory.mib is not None:
        return (InjectedVariable(MEMORY, memory_value(request.memory.mib)),)
    if request.cards == 1:
        return (InjectedVariable(MEMORY, annotation=memory_key(request.container)),)
    # The same percentage is another number on each card of another size.
    return tuple(
        InjectedVariable(f"{MEMORY}_{i}", annotation=memory_key(request.container, i))
        for i in range(request.cards)
    )


class _Plan:
    def __init__(self, container: PodContainer) -> None:
        self._container = container
        # As in the kubelet, the last of several entries with one name counts.
        self.own = {
            variable.name: (f"{container.path}.env[{variable.name}]", variable)
            for variable in container.spec.env or ()
        }
        self._add: dict[str, InjectedVariable] = {}
        self._remove: dict[str, None] = {}
        self._findings: list[Finding] = []

    def result(self) -> EnvironmentPlan:
        entries = self._container.spec.env or ()
        removed = sum(each.name in self._remove for each in entries) if self._remove else 0
        if removed > _MAX_REMOVED:
            field, fix = f"{self._container.path}.env", "write each variable once"
            names = f"{removed} entries of {', '.join(self._remove)}"
            return EnvironmentPlan(findings=(Finding("size", "refuse", field, names, fix),))
        return EnvironmentPlan(
            tuple(self._add.values()), tuple(self._remove), tuple(self._findings)
        )

    def remove_visible_devices(self, *, requests_gpu: bool) -> None:
        """The container's own variable would override the one of the device plugin."""
        field, variable = self.own.get(VISIBLE_DEVICES, ("", None))
        if variable is None:
            return
        is_plain = variable.value_from is None
        if not requests_gpu and is_plain and (variable.value or "") in _NO_CARDS:
            return
        fix = "the container's resources select its cards; leave it out"
        self._drop("visible-devices", "remove", field, variable, fix)

    def remove_off_switch(self) -> None:
        field, variable = self.own.get(OFF_SWITCH, ("", None))
        if variable is not None:
            fix = "limits cannot be switched off from inside the container; leave it out"
            self._drop("off-switch", "remove", field, variable, fix)

    def inject(self, ours: InjectedVariable) -> None:
        field, variable = self.own.get(ours.name, ("", None))
        if variable is not None and ours.equals(variable):
            return
        self._add[ours.name] = ours
        if variable is not None and ours.name not in _LIMIT_VARIABLES:
            rule: Rule = "own-priority" if ours.name == TASK_PRIORITY else "own-limit"
            fix = f"the pod's resources or the cluster's settings set it to {ours.value}"
            self._drop(rule, "replace", field, variable, fix)

    def compare(self, name: str, field: str, variable: Variable, request: ContainerRequest) -> None:
        """Compare a limit that the container sets itself; a lower one stays."""
        if any(ours.name == name and ours.equals(variable) for ours in _memory_variables(request)):
            return
        is_memory = name.startswith(MEMORY)
        unlimited = request.memory == "whole" if is_memory else request.cores in (0, _WHOLE)
        if variable.value_from is not None:
            if not unlimited:
                fix = "its value is unknown here; the limit comes from the resources"
                self._drop("own-limit", "replace", field, variable, fix)
            return
        text = variable.value or ""
        try:
            parse = parse_memory if is_memory else parse_share
            own = parse(text, "hami-env", field)
        except InvalidValue as error:
            # The library would refuse CUDA because of it, so the author should know now.
            self._findings.append(refused(error))
            return
        if unlimited:
            return
        most = _most(request, is_memory=is_memory)
        if own is not None and most is not None and own <= most:
            # It may lower the limit. If it has the name of our variable, it replaces ours.
            self._add.pop(name, None)
            return
        fix = "the resources set the limit, and a variable may only lower it"
        self._drop("own-limit", "replace", field, variable, fix)

    def _drop(self, rule: Rule, action: Action, field: str, variable: Variable, fix: str) -> None:
        self._remove[variable.name] = None
        value = variable.value or "" if variable.value_from is None else "valueFrom"
        self._findings.append(Finding(rule, action, field, value, fix))


def _most(request: ContainerRequest, *, is_memory: bool) -> int | None:
    """The limit from the resources, in bytes or percent; None = unknown before the card is."""
    if not is_memory:
        return request.cores
    mib = request.memory.mib if isinstance(request.memory, Size) else None
    return None if mib is None else mib << 20
