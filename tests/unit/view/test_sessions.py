"""Sessions: what a token sees, how often the API server is asked, and how many there may be."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator

import pytest

from hami_py.view.session import Session, SessionSettings
from hami_py.view.sessions import Busy, Sessions
from support.launcher import until
from unit.overview.fake_cluster import GIB, FakeCluster, figures, on
from unit.view.api import Users

TENANT = "system:serviceaccount:red:viewer"
FAST = SessionSettings(title="here", period_s=0.01)


@pytest.fixture
def users() -> Users:
    cluster = FakeCluster()
    cluster.add_node("n1")
    cluster.add_pod("red-1", on("GPU-n1-0", 2048), node="n1", namespace="red")
    cluster.add_pod("blue-1", on("GPU-n1-0", 4096), node="n1", namespace="blue")
    cluster.add_pod("red-waits", namespace="red", mib=500_000)
    cluster.figures = {"n1": figures("n1", used=7 * GIB)}
    for namespace in ("red", "blue"):
        about = {"kind": "Pod", "namespace": namespace, "name": f"{namespace}-1"}
        event = {
            "metadata": {"name": f"{namespace}-event", "namespace": namespace},
            "involvedObject": about,
            "type": "Warning",
            "reason": "Failed",
            "message": f"of {namespace}",
            "lastTimestamp": "2026-01-01T00:00:00Z",
        }
        cluster.lists[f"/api/v1/namespaces/{namespace}/events"] = [event]
    cluster.lists["/api/v1/events"] = [
        cluster.lists[f"/api/v1/namespaces/{each}/events"][0] for each in ("red", "blue")
    ]
    return Users(cluster, {"root": "admin", "red": TENANT, "none": "nobody"})


@pytest.fixture
def opened(users: Users) -> Iterator[Callable[..., Sessions]]:
    every: list[Sessions] = []

    def one(settings: SessionSettings = FAST, **bounds: int) -> Sessions:
        every.append(Sessions(users.of, settings, **bounds))
        return every[-1]

    yield one
    for each in every:
        each.stop()


def read(session: Session) -> Session:
    until(lambda: session.shown is not None or session.refused is not None)
    return session


def picture(session: Session) -> str:
    import gzip

    assert session.shown is not None
    return gzip.decompress(session.shown.body).decode()


def test_a_tenant_sees_nothing_of_others(users: Users, opened: Callable[..., Sessions]) -> None:
    sessions = opened()
    tenant = read(sessions.of("red", ""))
    assert tenant.shown is not None
    until(lambda: "of red" in picture(tenant))
    assert "blue" not in picture(tenant)
    assert [each.pod for each in tenant.shown.containers["n1"]] == ["red-1"]
    assert "red-waits" in picture(tenant)
    # No right to ask the node agents, so no history either.
    assert tenant.history("n1") is None
    everyone = read(sessions.of("root", ""))
    until(lambda: "of blue" in picture(everyone))
    assert everyone.shown is not None
    assert [each.pod for each in everyone.shown.containers["n1"]] == ["blue-1", "red-1"]


@pytest.mark.parametrize(("token", "status"), [("made-up", 401), ("none", 403)])
def test_who_may_see_nothing_is_refused(
    users: Users, opened: Callable[..., Sessions], token: str, status: int
) -> None:
    session = read(opened().of(token, ""))
    assert session.refused is not None
    assert (session.refused.status, session.shown) == (status, None)
    until(lambda: token in users.closed)


def test_a_refresh_lists_nothing(users: Users, opened: Callable[..., Sessions]) -> None:
    session = read(opened().of("root", ""))
    until(lambda: "of red" in picture(session))
    # Nodes, pods, quotas and agents; events, and those of the agents.
    until(lambda: users.lists["admin"] >= 6)
    asked = users.cluster.asked.count
    agent = "/api/v1/namespaces/hami-system/pods/agent-n1%3A9382/proxy/figures"
    before = asked(agent)
    until(lambda: asked(agent) > before + 20)
    assert users.lists["admin"] == 6


def test_one_token_has_one_session(users: Users, opened: Callable[..., Sessions]) -> None:
    sessions = opened()
    assert sessions.of("root", "") is sessions.of("root", "")
    assert sessions.of("root", "") is not sessions.of("red", "")


def test_a_session_that_nobody_asks_ends(users: Users, opened: Callable[..., Sessions]) -> None:
    sessions = opened(SessionSettings(period_s=0.01, idle_s=0.05))
    session = read(sessions.of("root", ""))
    until(lambda: not session.is_running)
    assert users.closed == ["root"]
    assert sessions.of("root", "") is not session


def test_a_token_that_is_revoked_ends_its_session(
    users: Users, opened: Callable[..., Sessions]
) -> None:
    session = read(opened(SessionSettings(period_s=0.01, token_s=0.05)).of("root", ""))
    del users.users["root"]
    until(lambda: session.refused is not None)
    assert session.refused is not None
    assert (session.refused.status, session.shown) == (401, None)
    assert "does not accept this token, or not any more; sign in" in session.refused.why


def test_a_right_that_is_granted_or_taken_counts_from_the_next_round(
    users: Users, opened: Callable[..., Sessions]
) -> None:
    session = read(opened(SessionSettings(period_s=0.01, round_s=0.05)).of("red", ""))
    users.users["red"] = "admin of all"
    until(lambda: "blue-1" in picture(session) or "GPU-n1-0" in picture(session))
    users.users["red"] = TENANT
    until(lambda: "cannot list" in picture(session))


def test_made_up_tokens_do_not_end_the_session_of_a_user(
    users: Users, opened: Callable[..., Sessions]
) -> None:
    sessions = opened(most=3)
    session = read(sessions.of("root", ""))
    for number in range(30):
        while True:
            try:
                read(sessions.of(f"made-up-{number}", ""))
                break
            except Busy:
                time.sleep(0.01)
    assert sessions.of("root", "") is session
    assert session.is_running


def test_many_tokens_of_one_user_do_not_end_the_session_of_another(
    users: Users, opened: Callable[..., Sessions]
) -> None:
    sessions = opened(most=3)
    session = read(sessions.of("root", ""))
    for number in range(10):
        users.users[f"red-{number}"] = TENANT
        read(sessions.of(f"red-{number}", ""))
    assert sessions.of("root", "") is session
    assert session.is_running


def test_a_user_who_finds_no_room_is_told(users: Users, opened: Callable[..., Sessions]) -> None:
    sessions = opened(most=2)
    for token in ("root", "red"):
        read(sessions.of(token, ""))
    users.users["new"] = "admin 2"
    with pytest.raises(Busy):
        sessions.of("new", "")


def test_sessions_that_are_slow_to_end_count(users: Users, opened: Callable[..., Sessions]) -> None:
    sessions = opened(most=3)
    users.listing.clear()
    started: set[Session] = set()
    refused = 0
    try:
        for number in range(200):
            try:
                started.add(sessions.of("root", f"n{number}"))
            except Busy:
                refused += 1
            until(lambda: all(each.user or not each.is_running for each in started))
        assert len(started) <= 3 + 4
        assert refused
    finally:
        users.listing.set()


def test_a_refused_request_ends_no_session(users: Users, opened: Callable[..., Sessions]) -> None:
    sessions = opened(most=2, most_unknown=0)
    with pytest.raises(Busy):
        sessions.of("made-up", "")
    full = opened(most=2, most_unknown=1)
    kept = [read(full.of(token, "")) for token in ("root", "red")]
    users.answers.clear()
    for number in range(5):
        with pytest.raises(Busy):
            full.of(f"made-up-{number}", "")
    assert all(each.is_running for each in kept)


def test_nothing_is_shown_while_the_token_cannot_be_checked(
    users: Users, opened: Callable[..., Sessions]
) -> None:
    often = SessionSettings(period_s=0.01, token_s=0.05, retry_s=0.01)
    session = read(opened(often).of("root", ""))
    users.answers.clear()
    until(lambda: session.shown is None)
    assert "does not answer" in session.problem
    users.answers.set()
    until(lambda: session.shown is not None and not session.problem)


def test_a_right_to_list_without_one_to_watch_is_named(
    users: Users, opened: Callable[..., Sessions]
) -> None:
    users.no_watch.add("admin")
    session = read(opened().of("root", ""))
    until(lambda: "changes are shown late" in picture(session))
    assert "cannot watch" in picture(session)
