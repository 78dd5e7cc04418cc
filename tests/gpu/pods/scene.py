"""The cluster with its three pods, and what programs in them see, get and are refused.

    first   4000 MiB, no limit on its time: memory, NVML, PyTorch if this machine has it
    small   3000 MiB and 30 %; its memory is changed to 2000 MiB while a program runs in it
    large   6000 MiB and 70 %, on the same card at the same time

A pod's image has no files but links: the machine's own /usr and the folders of its Python are
mounted as copies that can be written to. Programs are run by `kubectl exec`.
"""

import argparse
import contextlib
import json
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from bench.results import Row, number, put
from cluster import image_layers, images, limited_pods, objects, waiting
from cluster.deployed import create_soon
from cluster.image_layers import Layer
from cluster.images import Image
from cluster.limited_pods import LABEL
from cluster.node_gpu import NodeGpu
from cluster.objects import NODES, PODS
from cluster.whole import WholeCluster
from gpu.pods import machine
from gpu.pods.driver import MachineGpu
from gpu.test_monitors import LISTED, SMI
from hami_py.model.pods.annotations import RESIZE, VERSION
from hami_py.model.pods.resize import encode_resize
from hami_py.model.pods.wire import CardAllocation, Resize
from support import artifacts
from support.console import OUT_OF_MEMORY, Console
from support.running import run as run_program
from support.slices import MIB

#: The image of the pods.
_HOST = "docker.io/hami-py/host:test"

#: Seconds until three pods have their cards, from the start of this part.
_START = 60.0

#: Seconds that two pods compute together, and that one of them does alone.
_TOGETHER, _ALONE = 6.0, 3.0

#: Points by which the share of a pod may differ, on a card that is otherwise idle.
_POINTS = 4.0

#: The part of a limit that a program must get; the driver takes the rest.
_ENOUGH = 0.75

#: Seconds for a program in a pod: importing PyTorch takes most of it.
_DEADLINE = 120.0

_STEP = 64 * MIB

#: Folders of the pod itself.
_OWN = {Path("/", name) for name in ("dev", "etc", "proc", "run", "sys", "tmp", "var")}

#: Links to folders of /usr, on most machines.
_SHORT = [Path("/", name) for name in ("bin", "lib", "lib32", "lib64", "sbin")]

_KIT, _SITE = Path("/kit"), Path("/site")


@dataclass(frozen=True)
class Wanted:
    """A pod and its limits."""

    name: str
    memory_mib: int
    cores: int = 0

    @property
    def limits(self) -> dict[str, int]:
        """What its container requests."""
        cores = {"nvidia.com/gpucores": self.cores} if self.cores else {}
        return {"nvidia.com/gpu": 1, "nvidia.com/gpumem": self.memory_mib, **cores}


FIRST, SMALL, LARGE = Wanted("first", 4000), Wanted("small", 3000, 30), Wanted("large", 6000, 70)

#: Smaller limit of SMALL, which it gets while a program runs in it.
_RESIZED = 2000


@dataclass
class Scene:
    """A running cluster with its pods, and the results so far."""

    options: argparse.Namespace
    cluster: WholeCluster
    command: str
    rows: list[Row] = field(default_factory=list)
    failures: list[str] = field(default_factory=list)

    def row(self, name: str, value: float, unit: str, target: float | None = None) -> None:
        """Add a result; a target is the most that it may be."""
        row = Row(name, value, unit, None, 1, target, "lower", self.command)
        self.rows.append(row)
        print(f"{row.name}: {number(row.value)} {row.unit}", flush=True)

    def expect(self, holds: bool, otherwise: str) -> None:
        """Add a failure if something does not hold."""
        if not holds:
            self.failures.append(otherwise)
            print(f"FAILED: {otherwise}", flush=True)

    @contextlib.contextmanager
    def measuring(self, what: str) -> Iterator[None]:
        """An error fails this measurement, and the next ones run."""
        try:
            yield
        except Exception as error:
            self.expect(False, f"{what}: {type(error).__name__}: {error}")

    def exec(self, pod: Wanted, *program: str | Path) -> list[str]:
        """The command line of a program in a pod."""
        return limited_pods.command(self.cluster, pod.name, *map(str, program))

    def output(self, pod: Wanted, *program: str | Path) -> str:
        """The output of a program in a pod, which has to succeed."""
        done = run_program(self.exec(pod, *program), {}, deadline=_DEADLINE)
        assert done.code == 0, f"exit code {done.code}: {done.err[-1000:]}"
        return done.out

    def python(self, pod: Wanted, code: str) -> Any:
        """Python code in a pod, with the kit's packages; its last line, as JSON."""
        python = [sys.executable, "-S", "-c", code]
        return json.loads(self.output(pod, "env", f"PYTHONPATH={_SITE}", *python).splitlines()[-1])

    @contextlib.contextmanager
    def console(self, pod: Wanted) -> Iterator[Console]:
        """A console in a pod, with a current context."""
        prefix = self.exec(pod)
        with Console(_KIT / "programs" / "console", {}, prefix=prefix) as console:
            console.do("lookup dlsym", "init", "device 0")
            yield console


def run(options: argparse.Namespace, place: Path, about: Mapping[str, Any], begin: float) -> int:
    """Start the cluster and measure; 1 if something failed. The part started at ``begin``."""
    head = json.loads(options.head.read_text())
    host = _host(options, place)
    wanted = [
        images.busybox(),
        images.kube_scheduler(),
        _ours(about, place / "programs" / "layers"),
        _host_image(host),
    ]
    gpu = MachineGpu if options.card == "gpu" else _stub
    failed: list[str] = []
    with WholeCluster(place / "logs", wanted=wanted, gpu=gpu) as cluster:
        scene = Scene(options, cluster, head["command"])
        scene.row("control plane and node are ready", time.monotonic() - begin, "s")
        try:
            _install(scene, begin)
            _start(scene, host, begin)
            _measure(scene)
        except Exception as error:
            failed = [f"{type(error).__name__}: {error}"]
            _keep_logs(cluster, options.out)
            raise
        finally:
            if scene.failures:
                _keep_logs(cluster, options.out)
            failures = [*scene.failures, *failed]
            title = "Pods under limits on a card"
            put(options.out, "gpu-pods", title, head, scene.rows, failures=failures)
    return 1 if failures else 0


def _stub(folder: Path) -> NodeGpu:
    return NodeGpu(artifacts.find(), folder, "a100")


def _ours(about: Mapping[str, Any], layers: Path) -> Image:
    found = [Layer(layers / digest, digest) for digest in about["layers"]]
    return Image(about["image"], found, about["config"])


@dataclass(frozen=True)
class Host:
    """The machine's own folders, as its Python needs them in a pod."""

    mounts: Sequence[tuple[Path, Path]]
    """Copies that can be written to, and where pods have them."""
    links: Mapping[Path, Path]
    """Links, and what they lead to."""


def _host(options: argparse.Namespace, place: Path) -> Host:
    paths = [Path(sys.prefix), Path(sys.base_prefix), Path(sys.executable)]
    paths += [Path(path) for path in options.python_path.split(":") if path]
    tops = {Path("/usr")} | {
        Path(*each.parts[:2]) for path in paths for each in (path, path.resolve())
    }
    tops |= {path for path in _SHORT if path.is_dir() and not path.is_symlink()}
    mounts: list[tuple[Path, Path]] = []
    links = {path: path.readlink() for path in _SHORT if path.is_symlink()}
    for top in sorted(tops - _OWN):
        merged = machine.overlay(top, place / "host" / top.name)
        below = place / "below" / top.name
        for index, mount in enumerate(_mounts_below(top)):
            target = merged / mount.relative_to(top)
            # NVIDIA's toolkit makes links in the driver's folder, and some machines mount that one.
            copy = machine.overlay(mount, below / str(index)) if mount.is_dir() else mount
            machine.bind(copy, target)
        for path in _apart(top):
            if path.is_symlink():
                links[path] = path.readlink()
            elif path.is_dir():
                mounts.append((merged / path.relative_to(top), path))
    return Host(mounts, links)


def _apart(top: Path) -> Iterator[Path]:
    """The folders of a top folder: a pod must not mount over /usr/local/hami."""
    if top != Path("/usr"):
        yield top
        return
    local = top / "local"
    yield from sorted(path for path in top.iterdir() if path != local)
    if local.is_dir():
        yield from sorted(local.iterdir())


def _mounts_below(top: Path) -> list[Path]:
    lines = Path("/proc/self/mountinfo").read_text().splitlines()
    mounts = {Path(line.split()[4]) for line in lines}
    return sorted(path for path in mounts if top in path.parents)


def _host_image(host: Host) -> Image:
    def fill(layer: Path) -> None:
        for folder in _OWN:
            (layer / folder.name).mkdir()
        (layer / "tmp").chmod(0o1777)
        for path, to in host.links.items():
            link = layer / path.relative_to("/")
            link.parent.mkdir(parents=True, exist_ok=True)
            link.symlink_to(to)
        (layer / "etc" / "passwd").write_text("root:x:0:0::/tmp:/bin/sh\n")

    layer = image_layers.files("host", [str(host)], fill)
    path = "PATH=/usr/local/nvidia/bin:/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin"
    return Image(_HOST, [layer], {"Env": [path, "HOME=/tmp"], "Cmd": ["sleep", "infinity"]})


def _install(scene: Scene, begin: float) -> None:
    cluster = scene.cluster
    cluster.api.patch(f"{NODES}/{cluster.node.name}", {"metadata": {"labels": LABEL}})
    cluster.apply()
    for part in ("deployment/hami-webhook", "deployment/hami-scheduler", "daemonset/hami-node"):
        cluster.rolled_out(part)
    waiting.until(
        lambda: limited_pods.shown(cluster)["nvidia.com/gpu"] > 0,
        "the node has cards",
        limited_pods.DEADLINE,
    )
    scene.row("the node's cards can be requested", time.monotonic() - begin, "s")


def _start(scene: Scene, host: Host, begin: float) -> None:
    # One after the other: a card whose whole time is allocated has no room for FIRST.
    for wanted in (FIRST, SMALL, LARGE):
        create_soon(scene.cluster.control_plane, _pod(wanted, host))
        limited_pods.running(scene.cluster, wanted.name)
    seconds = time.monotonic() - begin
    scene.row("three pods run", seconds, "s", _START)


def _pod(wanted: Wanted, host: Host) -> objects.Object:
    site = Path(next(path for path in sys.path if (Path(path) / "hami_py").is_dir()))
    kit = Path(__file__).resolve().parents[3]
    mounts = [*host.mounts, (kit, _KIT), (site, _SITE)]
    volumes = [
        {"name": f"host-{index}", "hostPath": {"path": str(source), "type": "Directory"}}
        for index, (source, _) in enumerate(mounts)
    ]
    container = objects.container(
        "main",
        wanted.limits,
        image=_HOST,
        imagePullPolicy="Never",
        command=["sleep", "infinity"],
        volumeMounts=[
            {"name": f"host-{index}", "mountPath": str(target)}
            for index, (_, target) in enumerate(mounts)
        ],
    )
    return objects.pod(wanted.name, containers=[container], volumes=volumes)


def _measure(scene: Scene) -> None:
    for measure in (_memory, _monitor, _torch, _share, _resize):
        with scene.measuring(measure.__name__.strip("_")):
            measure(scene)


def _memory(scene: Scene) -> None:
    """Each pod sees its limit, and its programs are stopped at it."""
    for pod in (FIRST, SMALL, LARGE):
        with scene.console(pod) as console:
            total = console.value("info", "total") / MIB
            scene.row(f"{pod.name}: memory that CUDA shows", total, "MiB", pod.memory_mib)
            scene.expect(total == pod.memory_mib, f"{pod.name} sees {total} MiB")
            got, result = console.fill("alloc a {size}", _STEP, 2 * pod.memory_mib * MIB)
            scene.row(f"{pod.name}: allocated before out-of-memory", got / MIB, "MiB")
            enough = _ENOUGH * pod.memory_mib <= got / MIB <= pod.memory_mib
            scene.expect(
                result == OUT_OF_MEMORY and enough,
                f"{pod.name} got {got / MIB} MiB, and then CUresult {result}",
            )


def _monitor(scene: Scene) -> None:
    """`nvidia-smi` shows the limit; where the machine has none, another reader of NVML does."""
    has_smi = run_program(scene.exec(FIRST, "sh", "-c", "command -v nvidia-smi"), {}).code == 0
    for pod in (FIRST, SMALL):
        if has_smi:
            line = scene.output(pod, "nvidia-smi", *SMI).strip()
            total = float(line.split(",")[1])
        else:
            (seen,) = scene.python(pod, LISTED)
            total = seen["total"] / MIB
        reader = "nvidia-smi" if has_smi else "NVML"
        scene.row(f"{pod.name}: memory that {reader} shows", total, "MiB", pod.memory_mib)
        scene.expect(total == pod.memory_mib, f"{pod.name}: {reader} shows {total} MiB")


def _torch(scene: Scene) -> None:
    """PyTorch of this machine, if it has one."""
    path = scene.options.python_path
    python = ["env", f"PYTHONPATH={path}", sys.executable]
    imports = ("-c", "import importlib.util as u; print(u.find_spec('torch') is not None)")
    if scene.output(FIRST, *python, *imports).strip() != "True" or scene.options.card == "stub":
        return
    script = _KIT / "tests" / "gpu" / "frameworks" / "with_torch.py"
    lines = scene.output(FIRST, *python, script, "total", "matmul", "fill").splitlines()
    found = {each["job"]: each for each in map(json.loads, lines)}
    for job, each in found.items():
        scene.expect("result" in each, f"PyTorch: {job}: {each.get('error')}")
    totals = [total / MIB for total in found["total"]["result"]]
    for name, total in zip(("mem_get_info", "total_memory"), totals, strict=True):
        row = f"first: memory that PyTorch's {name} shows"
        scene.row(row, total, "MiB", FIRST.memory_mib)
        scene.expect(total == FIRST.memory_mib, f"PyTorch's {name} shows {total} MiB")
    filled = found["fill"]["result"]
    got = filled["got"] / MIB
    scene.row("first: allocated by PyTorch before out-of-memory", got, "MiB")
    scene.expect(
        "OutOfMemoryError" in filled["error"] and got >= _ENOUGH * FIRST.memory_mib,
        f"PyTorch got {got} MiB, and then {filled['error']}",
    )


def _share(scene: Scene) -> None:
    """Two pods compute at the same time; the measure is work that the card has completed."""
    load = _KIT / "programs" / "load"
    rounds = json.loads(scene.output(FIRST, load, "--work", "calibrate"))["rounds_per_us"]
    work = [load, "--work", "async", "--kernel-us", "500", "--rounds-per-us", str(rounds)]

    def rate(pod: Wanted, seconds: float) -> float:
        lines = scene.output(pod, *work, "--seconds", str(seconds)).splitlines()
        said = json.loads(lines[-1])
        return float(said["work_ns"]) / float(said["elapsed_ns"])

    alone = rate(FIRST, _ALONE)
    with ThreadPoolExecutor(2) as pool:
        rates = list(pool.map(lambda pod: rate(pod, _TOGETHER), (SMALL, LARGE)))
    for pod, found in zip((SMALL, LARGE), rates, strict=True):
        percent = 100 * found / alone
        name = f"{pod.name}: share of the card's time beside the other"
        scene.row(name, percent, "%", pod.cores)
        # The stub computes on the processors that all else here runs on.
        if scene.options.card == "gpu":
            wrong = f"{pod.name} got {percent:.1f} % of the time"
            scene.expect(abs(percent - pod.cores) <= _POINTS, wrong)
    scene.expect(rates[0] < rates[1], f"the pod with 30 % did as much as the other: {rates}")


def _resize(scene: Scene) -> None:
    """A smaller limit is in force in a program that runs."""
    cluster = scene.cluster
    devices = json.loads((cluster.node.cdi / "nvidia.json").read_text())["devices"]
    uuid = next(device["name"] for device in devices if device["name"] != "all")
    wanted = CardAllocation(card=uuid, memory_mib=_RESIZED, cores=SMALL.cores)
    annotation = {RESIZE: encode_resize(Resize(VERSION, {"main": (wanted,)}))}
    with scene.console(SMALL) as console:
        console.do(f"alloc a {1024 * MIB}")
        begin = time.monotonic()
        cluster.api.patch(f"{PODS}/{SMALL.name}", {"metadata": {"annotations": annotation}})
        waiting.until(
            lambda: console.value("info", "total") == _RESIZED * MIB, "the limit is changed"
        )
        scene.row("small: until a running program sees 2000 MiB", time.monotonic() - begin, "s")
        result = console(f"alloc b {1024 * MIB}")
        scene.expect(result == OUT_OF_MEMORY, f"2048 MiB of 2000: CUresult {result}")


def _keep_logs(cluster: WholeCluster, out: Path) -> None:
    """The ends of all logs, in a file beside the results."""
    from cluster.servers import tail

    logs = [server.log for server in cluster.servers]
    logs += sorted(cluster.node.pod_logs.glob("hami-system_*/*/*.log"))
    with contextlib.suppress(Exception):
        parts = [f"== {log}\n{tail(log)}\n" for log in logs]
        (out / "gpu-pods.log").write_text("\n".join([cluster.state(), *parts]))
