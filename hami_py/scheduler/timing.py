"""How long what takes in the extender."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["Timing"]


@dataclass(frozen=True)
class Timing:
    """How long things are waited for, and kept.

    Attributes:
        hold_s: how long the best node found for a pod is kept for it, in memory only: binding is
            asynchronous, and the next pods are filtered before it is done.
        claims_s: how much longer where the pod claims volumes or devices: as long as kube-scheduler
            waits for those (``bindTimeoutSeconds``, 600 s where nothing else is said).
        bind_s: how long a binding may take, from when it is asked for to the end of its write;
            kube-scheduler waits 30 s for us.
        late_s: how much later a write that was given up may be done. The API server ends a request
            when we hang up, but not what it has handed to etcd by then. The next holder of
            kube-scheduler's lease waits for both.
        doubt_s: how long after a binding the watch may take to tell of it, and how long one that
            was not answered may still be written. The API server drops a request when we hang up,
            unless it was standing still itself.
    """

    hold_s: float = 5.0
    claims_s: float = 600.0
    bind_s: float = 4.0
    late_s: float = 1.0
    doubt_s: float = 30.0

    @property
    def handover_s(self) -> float:
        """After so long nothing comes of bindings that the holder of the lease before was asked."""
        return self.bind_s + self.late_s
