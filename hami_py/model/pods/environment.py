"""The variables that tell a container its limits, and what becomes of those that it brings itself.

They inform a program, and are the limit where no limits page is: the page on the node decides, and
beside it a variable may only lower. So a lower value of the pod's own stays, a higher one goes. All
of them are read by the preload library and by ``hami`` as docs/configuration.md says; memory is
written as HAMi writes it, ``3000m`` for 3000 MiB.

| variable | says | where it comes from |
|---|---|---|
| ``CUDA_DEVICE_MEMORY_LIMIT`` | memory of every card | the number in the pod |
| the same | percent of one card's memory | the binding, by ``fieldRef`` |
| ``CUDA_DEVICE_MEMORY_LIMIT_<i>`` | percent of several cards' | the binding, by ``fieldRef`` |
| ``CUDA_DEVICE_SM_LIMIT`` | percent of time, 1 to 99 | the number in the pod |
| ``CUDA_TASK_PRIORITY`` | 0 or 1 | the number in the pod |
| ``GPU_CORE_UTILIZATION_POLICY`` | how the percentage holds | the cluster's setting |

A whole card has no variable for its memory: there is nothing to say before the card is known.
"""

import re
from dataclasses import dataclass

from hami_py.config import TASK_PRIORITY, UTILIZATION_POLICY
from hami_py.errors import InvalidValue
from hami_py.model.pods.annotations import field_path, memory_key, memory_value
from hami_py.model.pods.asks import Place, Reading
from hami_py.model.pods.findings import Action, Finding, Rule, refused
from hami_py.model.pods.objects import Variable
from hami_py.model.pods.settings import PodSettings
from hami_py.model.pods.wire import Ask, Size
from hami_py.model.quantity import parse_memory, parse_share

MEMORY = "CUDA_DEVICE_MEMORY_LIMIT"
CORES = "CUDA_DEVICE_SM_LIMIT"
VISIBLE_DEVICES = "NVIDIA_VISIBLE_DEVICES"
OFF_SWITCH = "CUDA_DISABLE_CONTROL"

_OF_A_LIMIT = re.compile(rf"({MEMORY}|{CORES})(_([0-9]|1[0-5]))?")
_WHOLE = 100
_MOST_REMOVED = 64
"""Entries of one ``env``: above it is the number of the names that go. The API server copies the
list for each, so thousands of them would keep it busy for seconds."""

_NO_CARDS = ("", "none", "void")
"""Values of NVIDIA_VISIBLE_DEVICES with which NVIDIA's container toolkit adds no card."""


@dataclass(frozen=True)
class Injected:
    """A variable that a container gets.

    Attributes:
        name: its name.
        value: its value; None = it comes from the annotation.
        annotation: of the pod, which the binding writes and the kubelet reads.
    """

    name: str
    value: str | None = None
    annotation: str | None = None

    def manifest(self) -> dict[str, object]:
        """The entry of the container's ``env``."""
        if self.annotation is None:
            return {"name": self.name, "value": self.value}
        reference = {"apiVersion": "v1", "fieldPath": field_path(self.annotation)}
        return {"name": self.name, "valueFrom": {"fieldRef": reference}}

    def is_said_by(self, variable: Variable) -> bool:
        """Whether the container has it already."""
        if self.annotation is None:
            return variable.value_from is None and (variable.value or "") == self.value
        reference = variable.value_from.field_ref if variable.value_from is not None else None
        return reference is not None and reference.field_path == field_path(self.annotation)


@dataclass(frozen=True)
class EnvironmentPlan:
    """What happens to a container's environment.

    Attributes:
        add: at its end.
        remove: names, every entry of each, before that.
        findings: what its author is told.
    """

    add: tuple[Injected, ...] = ()
    remove: tuple[str, ...] = ()
    findings: tuple[Finding, ...] = ()


def injected(reading: Reading, settings: PodSettings) -> tuple[Injected, ...]:
    """The variables that say what a container asked for."""
    ask = reading.ask
    found = list(_memory(ask))
    if 0 < ask.cores < _WHOLE:
        found.append(Injected(CORES, str(ask.cores)))
    if reading.priority is not None:
        found.append(Injected(TASK_PRIORITY, str(reading.priority)))
    if settings.core_policy != "default":
        found.append(Injected(UTILIZATION_POLICY, settings.core_policy))
    return tuple(found)


def plan_environment(
    place: Place, reading: Reading | None, settings: PodSettings
) -> EnvironmentPlan:
    """What happens to the environment of a container, of which ``reading`` is what it asks for.

    Planned a second time, after it was carried out, nothing is left to do.
    """
    plan = _Plan(place)
    plan.take_cards(asks=reading is not None)
    if reading is not None:
        plan.take_off_switch()
        for ours in injected(reading, settings):
            plan.inject(ours)
        for name, (field, variable) in plan.own.items():
            if _OF_A_LIMIT.fullmatch(name):
                plan.compare(name, field, variable, reading.ask)
    return plan.result()


def _memory(ask: Ask) -> tuple[Injected, ...]:
    if not isinstance(ask.memory, Size):
        return ()
    if ask.memory.mib is not None:
        return (Injected(MEMORY, memory_value(ask.memory.mib)),)
    if ask.cards == 1:
        return (Injected(MEMORY, annotation=memory_key(ask.container)),)
    # Percent of unlike cards are unlike numbers.
    return tuple(
        Injected(f"{MEMORY}_{i}", annotation=memory_key(ask.container, i)) for i in range(ask.cards)
    )


class _Plan:
    def __init__(self, place: Place) -> None:
        self._place = place
        # Of several entries of one name the last one counts, as in the kubelet.
        self.own = {
            variable.name: (f"{place.path}.env[{variable.name}]", variable)
            for variable in place.container.env or ()
        }
        self._add: dict[str, Injected] = {}
        self._remove: dict[str, None] = {}
        self._findings: list[Finding] = []

    def result(self) -> EnvironmentPlan:
        entries = self._place.container.env or ()
        going = sum(each.name in self._remove for each in entries) if self._remove else 0
        if going > _MOST_REMOVED:
            field, fix = f"{self._place.path}.env", "write each variable once"
            names = f"{going} entries of {', '.join(self._remove)}"
            return EnvironmentPlan(findings=(Finding("size", "refuse", field, names, fix),))
        return EnvironmentPlan(
            tuple(self._add.values()), tuple(self._remove), tuple(self._findings)
        )

    def take_cards(self, *, asks: bool) -> None:
        """A container sees the cards that it is given. Its own variable wins over the plugin's."""
        field, variable = self.own.get(VISIBLE_DEVICES, ("", None))
        if variable is None:
            return
        if not asks and variable.value_from is None and (variable.value or "") in _NO_CARDS:
            return
        fix = "the cards come from the container's resources; leave it out"
        self._drop("visible-devices", "remove", field, variable, fix)

    def take_off_switch(self) -> None:
        field, variable = self.own.get(OFF_SWITCH, ("", None))
        if variable is not None:
            fix = "limits cannot be switched off from inside; leave it out"
            self._drop("off-switch", "remove", field, variable, fix)

    def inject(self, wanted: Injected) -> None:
        field, variable = self.own.get(wanted.name, ("", None))
        if variable is not None and wanted.is_said_by(variable):
            return
        self._add[wanted.name] = wanted
        if variable is not None and not _OF_A_LIMIT.fullmatch(wanted.name):
            rule: Rule = "own-priority" if wanted.name == TASK_PRIORITY else "own-limit"
            fix = f"the pod's resources and the cluster's settings say {wanted.value}"
            self._drop(rule, "replace", field, variable, fix)

    def compare(self, name: str, field: str, variable: Variable, ask: Ask) -> None:
        """A limit that the container brings itself: a lower one stays."""
        if any(ours.name == name and ours.is_said_by(variable) for ours in _memory(ask)):
            return
        is_memory = name.startswith(MEMORY)
        unlimited = ask.memory == "whole" if is_memory else ask.cores in (0, _WHOLE)
        if variable.value_from is not None:
            if not unlimited:
                fix = "what it will say is not known here; ours comes from the resources"
                self._drop("own-limit", "replace", field, variable, fix)
            return
        text = variable.value or ""
        try:
            parse = parse_memory if is_memory else parse_share
            own = parse(text, "hami-env", field)
        except InvalidValue as error:
            # The library would refuse CUDA for it: better said now.
            self._findings.append(refused(error))
            return
        if unlimited:
            return
        most = _most(ask, is_memory=is_memory)
        if own is not None and most is not None and own <= most:
            # It may lower, and a general one of theirs stands where ours would.
            self._add.pop(name, None)
            return
        fix = "it may only lower what the resources say, and they decide"
        self._drop("own-limit", "replace", field, variable, fix)

    def _drop(self, rule: Rule, action: Action, field: str, variable: Variable, fix: str) -> None:
        self._remove[variable.name] = None
        value = variable.value or "" if variable.value_from is None else "valueFrom"
        self._findings.append(Finding(rule, action, field, value, fix))


def _most(ask: Ask, *, is_memory: bool) -> int | None:
    """What the resources allow, in bytes or percent; None = not known before the card is."""
    if not is_memory:
        return ask.cores
    mib = ask.memory.mib if isinstance(ask.memory, Size) else None
    return None if mib is None else mib << 20
