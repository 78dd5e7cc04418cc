"""The kit's part `pods` on the stub: a cluster of the kit's own, and three pods on its card."""

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from cluster import node_gpu
from support import requirements
from support.artifacts import ROOT
from support.running import Run, run

#: Seconds for the part; several times what it takes on a busy machine.
DEADLINE = 600.0

pytestmark = [
    pytest.mark.tier("ci"),
    pytest.mark.timeout(2 * DEADLINE),
    # No other test starts pods or cgroups meanwhile.
    pytest.mark.alone,
]

KIT, PARTS = ROOT / "build" / "gpu-kit", ROOT / "build" / "gpu-pods"
STUB = ROOT / "build" / "stub"

#: Where some machines mount their driver.
DRIVER = Path("/usr/local/nvidia")

#: The device nodes of a driver with one card.
NODES = (Path("/dev/nvidiactl"), Path("/dev/nvidia0"))

#: Mounts the stub as a driver that cannot be written to, and runs a command: VERSION COMMAND...
MOUNTED = f"""
set -e
mount -t tmpfs tmpfs {DRIVER}
mkdir {DRIVER}/lib64
for name in libcuda.so libnvidia-ml.so; do
    cp {STUB}/$name.1 {DRIVER}/lib64/$name.$1
    ln -s $name.$1 {DRIVER}/lib64/$name.1
done
mount -o remount,ro {DRIVER}
shift
exec "$@"
"""


@pytest.fixture
def pods(tmp_path: Path):
    """`pods(...)`: the part, run by the system's Python; its results are in `tmp_path / "out"`."""
    if os.geteuid() != 0:
        requirements.skip_or_fail("a node needs root")
    if not (PARTS / "image" / "pods.json").is_file():
        raise FileNotFoundError(f"{PARTS}: not built; run `make gpu-pods-folders`")
    python = Path(sys.base_prefix) / "bin" / "python3"
    kit = shutil.copytree(KIT, tmp_path / "gpu-kit", ignore=shutil.ignore_patterns("site"))

    def started(
        *arguments: str | Path,
        path: str = "/usr/sbin:/usr/bin:/sbin:/bin",
        card: Sequence[str] = ("--stub",),
        variables: Sequence[str] = (),
        within: Sequence[str] = (),
    ) -> Run:
        given = (*card, "--out", tmp_path / "out", "--deadline", str(DEADLINE), *arguments)
        command = ["env", "-i", f"PATH={path}", *variables, python, kit / "run.py", "pods", *given]
        return run([*within, *command], {}, deadline=DEADLINE)

    return started


@pytest.fixture
def mounted_driver() -> Iterator[list[str]]:
    """The prefix of a command for which the stub is the machine's driver, in a mounted folder."""
    if any(node.exists() for node in NODES):
        pytest.skip("this machine has a driver")
    asked = run([sys.executable, "-S", "-c", node_gpu.VERSION], {"LD_LIBRARY_PATH": str(STUB)})
    null = Path("/dev/null").stat().st_rdev
    exists = DRIVER.is_dir()
    DRIVER.mkdir(exist_ok=True)
    try:
        for node in NODES:
            os.mknod(node, 0o020666, null)
            node.chmod(0o666)
        unshare = ["unshare", "--mount", "--propagation", "private"]
        yield [*unshare, "sh", "-c", MOUNTED, "sh", asked.out.strip()]
    finally:
        for node in NODES:
            node.unlink(missing_ok=True)
        if not exists:
            DRIVER.rmdir()


def test_three_pods_have_their_limits_in_a_cluster_of_the_kit(pods, tmp_path):
    """The kit's own cluster runs three pods. Takes half a minute to start and end it."""
    before = _made_by_nodes()
    done = pods("--parts", PARTS)
    assert done.code == 0, done.out + done.err
    found = json.loads((tmp_path / "out" / "gpu-pods.json").read_text())
    assert "failures" not in found
    rows = {row["name"]: row["value"] for row in found["rows"]}
    for pod, memory in (("first", 4000), ("small", 3000), ("large", 6000)):
        assert rows[f"{pod}: memory that CUDA shows"] == memory
        assert rows[f"{pod}: allocated before out-of-memory"] <= memory
    assert rows["small: memory that NVML shows"] == 3000
    assert "small: until a running program sees 2000 MiB" in rows
    assert rows["small: share of the card's time beside the other"] > 0
    # The other test process has a node too, and a pod of it may end meanwhile.
    assert _made_by_nodes() - before == set()


@pytest.mark.tier("torture")
def test_a_driver_in_a_folder_that_is_mounted_is_the_node_s(pods, mounted_driver, tmp_path):
    variables = (f"LD_LIBRARY_PATH={DRIVER}/lib64", "STUB_GPU_PROFILE=a100")
    # Each program has a stub of its own, and what it gets beside another one says nothing.
    done = pods("--parts", PARTS, card=(), variables=variables, within=mounted_driver)
    found = json.loads((tmp_path / "out" / "gpu-pods.json").read_text())
    rows = {row["name"]: row["value"] for row in found["rows"]}
    for pod, memory in (("first", 4000), ("small", 3000), ("large", 6000)):
        assert rows[f"{pod}: memory that CUDA shows"] == memory, done.out
    assert rows["small: memory that NVML shows"] == 3000, done.out


def test_a_machine_that_cannot_run_a_node_is_told_in_one_line(pods, tmp_path):
    missing = pods("--parts", tmp_path)
    line = f"pods: this machine cannot run a node: {tmp_path} lacks programs, node, image; "
    assert missing.err == f"{line}`make gpu-pods` makes them\n"
    assert missing.code == 1
    # No program of util-linux.
    bare = pods("--parts", PARTS, path=str(tmp_path))
    assert bare.err == (
        "pods: this machine cannot run a node: missing: unshare, nsenter, setpriv, mount\n"
    )


def _made_by_nodes() -> set[str]:
    """The machine's mounts, addresses and cgroups, a line each."""
    mounts = [line.split()[4] for line in Path("/proc/self/mountinfo").read_text().splitlines()]
    shown = subprocess.run(["ip", "-o", "address"], check=True, capture_output=True, text=True)
    addresses = [line.split("valid_lft")[0] for line in shown.stdout.splitlines()]
    cgroups = [str(path) for path in Path("/sys/fs/cgroup").glob("*/*") if path.is_dir()]
    return {*mounts, *addresses, *cgroups}
