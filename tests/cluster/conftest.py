"""Clusters for tests: `control_plane()` starts one, and the programs are built before any test.

A test that asks for `programs`, directly or not, needs the group "control-plane"; more groups are
named by `@pytest.mark.programs("controllers")`. They are built right after collection, outside the
time limit of every test, with a line that says so. If one cannot be built, the run fails.
"""

import contextlib
import os
import subprocess
from collections.abc import Callable, Generator, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from cluster import binaries, claims, extender, images, objects, waiting
from cluster.claims import ClaimsCluster, ClaimsDriver
from cluster.control_plane import ControlPlane, Programs, Settings
from cluster.device_plugin import Interfaces, Plugin, StartPlugin, interfaces
from cluster.extended import extended
from cluster.gpu_pods import IDS, shows
from cluster.node import Node
from cluster.objects import NODES, PODS
from cluster.placing import Placing
from cluster.pool import Pool
from cluster.recordings import Recordings
from cluster.servers import tail
from cluster.whole import WholeCluster
from support import requirements

StartControlPlane = Callable[..., ControlPlane]
StartNode = Callable[..., Node]
StartWhole = Callable[..., WholeCluster]

_LOGS = pytest.StashKey[list[Path]]()


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--record", action="store_true", help="write tests/cluster/recordings anew")


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line(
        "markers", "programs(name, ...): groups of programs that the test needs, see binaries"
    )
    config.stash[_LOGS] = []


def pytest_collection_finish(session: pytest.Session) -> None:
    """Build what the chosen tests need."""
    if session.config.option.collectonly:
        return
    try:
        for group in sorted({group for item in session.items for group in _groups(item)}):
            binaries.ensure(group)
        if os.geteuid() == 0 and any(
            "whole_cluster" in getattr(item, "fixturenames", ()) for item in session.items
        ):
            binaries.ensure("toolkit")
            images.whole()
    except binaries.CannotBuild as error:
        pytest.exit(str(error), returncode=1)


def _groups(item: pytest.Item) -> set[str]:
    # Tests elsewhere have fixtures of that name too.
    is_of_a_cluster = item.path.is_relative_to(Path(__file__).parent)
    if not is_of_a_cluster or "programs" not in getattr(item, "fixturenames", ()):
        return set()
    # Only root can start a node, so only root builds its programs.
    of_nodes = set() if os.geteuid() == 0 else {"node", "toolkit"}
    return {*_named(item), "control-plane"} - of_nodes


def _named(item: pytest.Item) -> set[str]:
    return {group for mark in item.iter_markers("programs") for group in mark.args}


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    """Only root can run the tests that have a node."""
    if "node" in _named(item) and os.geteuid() != 0:
        requirements.skip_or_fail("a node needs root")


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item,
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """A failure shows the ends of the logs of the clusters that ran then."""
    report = yield
    if report.failed:
        for log in item.config.stash[_LOGS]:
            # Of a folder of pods' logs, those of ours.
            logs = sorted(log.glob("hami-system_*/*/*.log")) if log.is_dir() else [log]
            report.sections.extend((str(log), tail(log)) for log in logs)
    return report


@pytest.fixture(scope="session")
def recordings(pytestconfig: pytest.Config) -> Recordings:
    """`recordings.keep(name, object)` writes or compares a recording."""
    return Recordings(record=bool(pytestconfig.getoption("--record", default=False)))


@pytest.fixture(scope="session")
def programs() -> Programs:
    """The built programs; a group that no test was marked with may be absent."""
    controllers = binaries.folder("controllers")
    return Programs(
        control_plane=binaries.folder("control-plane"),
        controllers=controllers if controllers.is_dir() else None,
    )


@pytest.fixture(scope="session")
def node_programs(programs: Programs) -> Path:
    """kubelet, containerd, its shim and ctr; for tests with `@pytest.mark.programs("node")`."""
    return binaries.folder("node")


@pytest.fixture(scope="session")
def pool(programs: Programs, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Pool]:
    """Running control planes, for this test process."""
    with Pool(programs, tmp_path_factory.mktemp("pool")) as pool:
        yield pool


@pytest.fixture(scope="module")
def module_control_plane(
    programs: Programs,
    pool: Pool,
    tmp_path_factory: pytest.TempPathFactory,
    request: pytest.FixtureRequest,
) -> Iterator[StartControlPlane]:
    """As `control_plane`, for clusters that a module's tests share."""
    with _starter(programs, pool, tmp_path_factory.mktemp("cluster"), request.config) as start:
        yield start


@pytest.fixture
def control_plane(
    programs: Programs, pool: Pool, tmp_path: Path, request: pytest.FixtureRequest
) -> Iterator[StartControlPlane]:
    """`control_plane(scheduler=..., settings=...)` is one that is the test's alone.

    One with settings is started for the test and ends with it, another comes from the pool.
    """
    with _starter(programs, pool, tmp_path, request.config) as start:
        yield start


@pytest.fixture(scope="module")
def module_node(
    node_programs: Path, tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest
) -> Iterator[StartNode]:
    """`module_node(cluster, "n1", kubelet_config={...})` starts one that a module's tests share."""
    logs = request.config.stash[_LOGS]
    before = len(logs)
    with contextlib.ExitStack() as nodes:

        def start(cluster: ControlPlane, name: str = "n1", **options: Any) -> Node:
            folder = tmp_path_factory.mktemp(name)
            node = Node(node_programs, cluster, folder, name, **options)
            logs.extend(server.log for server in node.servers)
            return nodes.enter_context(node)

        yield start
    del logs[before:]


@pytest.fixture(scope="module")
def node(module_control_plane: StartControlPlane, module_node: StartNode) -> Node:
    """A node of a cluster of its own, which a module's tests share."""
    return module_node(module_control_plane())


@pytest.fixture(scope="module")
def whole_cluster(
    node_programs: Path, tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest
) -> Iterator[StartWhole]:
    """`whole_cluster(cards="a100,a100")` starts one that a module's tests share.

    For tests with `@pytest.mark.programs("controllers", "kubectl", "node")`.
    """
    logs = request.config.stash[_LOGS]
    before = len(logs)
    with contextlib.ExitStack() as clusters:

        def start(**options: Any) -> WholeCluster:
            cluster = WholeCluster(tmp_path_factory.mktemp("whole"), **options)
            logs.extend(server.log for server in cluster.servers)
            logs.append(cluster.node.pod_logs)
            return clusters.enter_context(cluster)

        yield start
    del logs[before:]


@pytest.fixture(scope="module")
def claims_cluster(
    whole_cluster: StartWhole, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[ClaimsCluster]:
    """A cluster with the DRA driver of `claims_driver`, which a module's tests share."""
    whole = whole_cluster(cards="a100,a100", wanted=[images.busybox()])
    whole.api.create(claims.CLASSES, claims.device_class(extendedResourceName=claims.EXTENDED))
    driver = ClaimsDriver(whole.node, whole.gpu, tmp_path_factory.mktemp("driver"))
    driver.start()
    yield ClaimsCluster(whole, driver)
    driver.server.stop()


@pytest.fixture(scope="session")
def compiled() -> Interfaces:
    """The kubelet's gRPC interfaces."""
    return interfaces()


@pytest.fixture
def plugin(node: Node, compiled: Interfaces) -> Iterator[StartPlugin]:
    """`plugin(hooks={...})` registers one with eight devices; the test's pods end before it."""
    started: list[Plugin] = []
    api = node.cluster.api

    def start(**options: Any) -> Plugin:
        plugin = Plugin(compiled, node.device_plugins, IDS, **options)
        started.append(plugin)
        plugin.__enter__()
        shows(node, "allocatable", len(IDS))
        return plugin

    yield start
    api.delete_all(PODS)
    waiting.until(lambda: not api.list(PODS), "the test's pods are deleted")
    for plugin in started:
        plugin.stop()
    # Else the next test takes these devices for its own.
    shows(node, "allocatable", 0)


@pytest.fixture(scope="module")
def placing_cluster(module_control_plane: StartControlPlane) -> Iterator[Placing]:
    """A cluster that places pods through an extender of ours, which a module's tests share."""
    with extended(module_control_plane) as (cluster, scheduler):
        yield Placing(cluster, scheduler)


@pytest.fixture
def placing(placing_cluster: Placing) -> Iterator[Placing]:
    """That cluster; the test's nodes, pods and quotas go with it."""
    yield placing_cluster
    placing_cluster.clear()


@pytest.fixture(scope="module")
def scheduling_cluster(module_control_plane: StartControlPlane) -> ControlPlane:
    """The API server of `scheduling`, which a module's tests share."""
    return module_control_plane()


@pytest.fixture
def scheduling(scheduling_cluster: ControlPlane) -> Iterator[extender.Scheduling]:
    """`scheduling({"/filter": ...}, nodeCacheCapable=False)`: a cluster with nodes a and b.

    ``whole`` is merged over the scheduler's configuration, what is else named over the extender's.
    The API server is the module's; scheduler, extender, nodes and pods are the test's own.
    """
    api = scheduling_cluster.api
    with contextlib.ExitStack() as undo:

        def start(
            handlers: Mapping[str, Any] | None = None,
            *,
            nodes: Mapping[str, Mapping[str, object]] | None = None,
            whole: Mapping[str, object] | None = None,
            **config: object,
        ) -> tuple[ControlPlane, extender.Extender]:
            asked = undo.enter_context(extender.Extender(handlers))
            asked.api = api
            scheduler = {**extender.config(asked.url, **config), **(whole or {})}
            for name, resources in (nodes or {"a": extender.CARD, "b": extender.CARD}).items():
                api.create(NODES, objects.node(name, resources))
            # A scheduler that starts knows all nodes before it looks at a pod.
            scheduling_cluster.reschedule(scheduler)
            return scheduling_cluster, asked

        yield start
        scheduling_cluster.scheduler.stop()
    for path in (PODS, NODES):
        api.delete_all(path)
    api.delete_all("/apis/scheduling.k8s.io/v1/priorityclasses")


@pytest.fixture
def address() -> Iterator[str]:
    """An address of this machine that is none of 127.0.0.0/8: endpoints there are refused.

    Adding it needs root. Two runs at once have two.
    """
    wanted = f"10.99.{os.getpid() // 250 % 250}.{os.getpid() % 250 + 1}"
    subprocess.run(["ip", "address", "replace", f"{wanted}/32", "dev", "lo"], check=True)
    yield wanted
    subprocess.run(["ip", "address", "delete", f"{wanted}/32", "dev", "lo"], check=True)


@contextlib.contextmanager
def _starter(
    programs: Programs, pool: Pool, folder: Path, config: pytest.Config
) -> Iterator[StartControlPlane]:
    logs = config.stash[_LOGS]
    before, count = len(logs), 0
    with contextlib.ExitStack() as clusters:

        def see(cluster: ControlPlane) -> None:
            logs.extend(server.log for server in cluster.servers)

        def start(
            *, scheduler: Mapping[str, Any] | None = None, settings: Settings | None = None
        ) -> ControlPlane:
            nonlocal count
            count += 1
            own = folder / f"cluster{count}"
            if settings is None or settings == Settings():
                return clusters.enter_context(pool.borrow(own, scheduler or {}, see))
            cluster = ControlPlane(programs, own, scheduler=scheduler, settings=settings)
            see(cluster)
            return clusters.enter_context(cluster)

        yield start
    del logs[before:]
