"""A control plane that a test borrows from the pool is as new, after any earlier test."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from cluster import objects, waiting
from cluster.api import ApiError, Object
from cluster.control_plane import ControlPlane, Programs
from cluster.objects import NODES, PODS
from cluster.pool import Pool

DEFAULT = "/api/v1/namespaces/default"

#: A webhook that is not there, and without which no pod may be made.
WEBHOOK: Object = {
    "metadata": {"name": "nobody"},
    "webhooks": [
        {
            "name": "nobody.example.com",
            "clientConfig": {"url": "https://127.0.0.1:1/"},
            "rules": [
                {
                    "apiGroups": [""],
                    "apiVersions": ["v1"],
                    "operations": ["CREATE"],
                    "resources": ["pods"],
                }
            ],
            "sideEffects": "None",
            "admissionReviewVersions": ["v1"],
        }
    ],
}


@pytest.fixture
def own_pool(programs: Programs, tmp_path: Path) -> Iterator[Pool]:
    with Pool(programs, tmp_path / "pool") as pool:
        yield pool


def ignore(cluster: ControlPlane) -> None:
    """Its logs are not of interest."""


def test_objects_of_a_test_are_removed_before_the_next(own_pool: Pool, tmp_path: Path) -> None:
    with own_pool.borrow(tmp_path / "1", {}, ignore) as first:
        first.api.create(NODES, objects.node("a"))
        first.api.create(PODS, objects.pod("one"))
        first.api.create("/api/v1/namespaces", {"metadata": {"name": "more"}})
        first.api.patch(DEFAULT, {"metadata": {"labels": {"a": "b"}}})
        first.api.delete("/apis/rbac.authorization.k8s.io/v1/clusterroles/view")
        hooks = "/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations"
        first.api.create(hooks, WEBHOOK)
    with own_pool.borrow(tmp_path / "2", {}, ignore) as second:
        assert second is first
        assert second.api.list(NODES) == []
        assert second.api.list(PODS) == []
        with pytest.raises(ApiError, match="not found"):
            second.api.get("/api/v1/namespaces/more")
        assert "a" not in second.api.get(DEFAULT)["metadata"]["labels"]
        second.api.get("/apis/rbac.authorization.k8s.io/v1/clusterroles/view")
        assert second.api.list(hooks) == []
        # No webhook is called.
        second.api.create(PODS, objects.pod("one"))


def test_one_that_has_crashed_is_not_lent_again(own_pool: Pool, tmp_path: Path) -> None:
    """Whether it crashes in a test or while nobody has it."""

    def crash(cluster: ControlPlane) -> None:
        os.kill(cluster.apiserver.pid, signal.SIGKILL)
        waiting.until(lambda: not cluster.apiserver.is_running, "it has ended")

    with own_pool.borrow(tmp_path / "1", {}, ignore) as first:
        crash(first)
    with own_pool.borrow(tmp_path / "2", {}, ignore) as second:
        assert second is not first
    crash(second)
    with own_pool.borrow(tmp_path / "3", {}, ignore) as third:
        assert third is not second
