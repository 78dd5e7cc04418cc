"""How the extender runs, and how long it waits for things."""

from __future__ import annotations

from dataclasses import dataclass, field

from hami_py.model import pods
from hami_py.serving import Listen


@dataclass(frozen=True)
class Timing:
    """How long the extender holds cards and waits for bindings, in seconds.

    Attributes:
        hold_s: how long the best node found for a pod is held for it, in memory only. Binding is
            asynchronous, and kube-scheduler filters the next pods before it is done.
        claims_s: how much longer cards are held if the pod claims volumes or devices: as long as
            kube-scheduler waits for those (``bindTimeoutSeconds``, 600 s by default).
        freed_s: how long cards are held for a preemptor after its last victim is gone. Its next
            attempts begin within 10 s each, kube-scheduler's longest back-off.
        bind_s: how long a binding may take, from the bind request to the end of its write;
            kube-scheduler waits 30 s for the extender.
        late_s: how much later a write without an answer may still take effect. The API server ends
            a request when the client hangs up, except for what it has passed to etcd by then. The
            next holder of kube-scheduler's lease waits for both.
        doubt_s: how long after a binding the watch may take to report it, and how long a binding
            without an answer may still be written. The API server drops a request when the client
            hangs up, unless it was stopped itself.
    """

    hold_s: float = 5.0
    claims_s: float = 600.0
    freed_s: float = 60.0
    bind_s: float = 4.0
    late_s: float = 1.0
    doubt_s: float = 30.0

    @property
    def handover_s(self) -> float:
        """After this time no binding of the previous holder of the lease can take effect."""
        return self.bind_s + self.late_s


@dataclass(frozen=True)
class SchedulerSettings:
    """How the extender runs.

    Attributes:
        listen: where kube-scheduler sends requests; loopback, because it runs in the same pod.
        probes: where health and metrics are served in addition to ``listen``; ``None``: only there.
        pod_selector: selects the pods to follow; the webhook sets this label. Empty follows all.
        lease: namespace and name of kube-scheduler's lease; ``None`` if there is only one replica.
        lease_holder: the name of the host that our kube-scheduler runs on, as the lease names it.
            ``None``: this host, which is right if both run in one pod.
        requeue: the StorageClass that is touched to have pods tried again; empty: none.
        expire_s: how often expired holds and unanswered bindings are looked for.
    """

    listen: Listen = field(default_factory=lambda: Listen("127.0.0.1", 9380))
    probes: Listen | None = None
    pods: pods.PodSettings = field(default_factory=pods.PodSettings)
    timing: Timing = field(default_factory=Timing)
    pod_selector: str = "hami.io/pod=true"
    lease: tuple[str, str] | None = None
    lease_holder: str | None = None
    requeue: str = "hami-wake"
    expire_s: float = 1.0
