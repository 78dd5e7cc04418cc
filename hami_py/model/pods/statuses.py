"""The states of a pod's containers, as the API server reports them."""

from __future__ import annotations

from hami_py.model.pods.decoding import ApiObject
from hami_py.model.pods.objects import PodStatus


class Waiting(ApiObject, frozen=True):
    """``ContainerStateWaiting``."""

    reason: str | None = None
    message: str | None = None


class Running(ApiObject, frozen=True):
    """``ContainerStateRunning``."""

    started_at: str | None = None


class Terminated(ApiObject, frozen=True):
    """``ContainerStateTerminated``."""

    exit_code: int = 0
    started_at: str | None = None


class ContainerState(ApiObject, frozen=True):
    """``ContainerState``."""

    waiting: Waiting | None = None
    running: Running | None = None
    terminated: Terminated | None = None


class ContainerStatus(ApiObject, frozen=True):
    """``ContainerStatus``."""

    name: str = ""
    state: ContainerState = ContainerState()


class DetailedStatus(PodStatus, frozen=True):
    """``PodStatus``, with the states of the containers."""

    container_statuses: tuple[ContainerStatus, ...] | None = None
    init_container_statuses: tuple[ContainerStatus, ...] | None = None

    @property
    def states(self) -> tuple[ContainerState, ...]:
        """The states of all containers, init containers first."""
        statuses = (*(self.init_container_statuses or ()), *(self.container_statuses or ()))
        return tuple(each.state for each in statuses)
