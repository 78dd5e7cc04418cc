"""The kit's part `pods` on the stub: a cluster of the kit's own, and three pods on its card."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from support import requirements
from support.artifacts import ROOT
from support.running import Run, run

#: Seconds for the part; several times what it takes on a busy machine.
DEADLINE = 600.0

pytestmark = [
    pytest.mark.tier("ci"),
    pytest.mark.timeout(2 * DEADLINE),
    # It compares the addresses and cgroups of the whole machine.
    pytest.mark.alone,
]

KIT, PARTS = ROOT / "build" / "gpu-kit", ROOT / "build" / "gpu-pods"


@pytest.fixture
def pods(tmp_path: Path):
    """`pods(...)`: the part, run by the system's Python; its results are in `tmp_path / "out"`."""
    if os.geteuid() != 0:
        requirements.skip_or_fail("a node needs root")
    if not (PARTS / "image" / "pods.json").is_file():
        raise FileNotFoundError(f"{PARTS}: not built; run `make gpu-pods-folders`")
    python = Path(sys.base_prefix) / "bin" / "python3"
    kit = shutil.copytree(KIT, tmp_path / "gpu-kit", ignore=shutil.ignore_patterns("site"))

    def started(*arguments: str | Path, path: str = "/usr/sbin:/usr/bin:/sbin:/bin") -> Run:
        deadline = ("--deadline", str(DEADLINE))
        command = [python, kit / "run.py", "pods", "--stub", "--out", tmp_path / "out", *deadline]
        return run(["env", "-i", f"PATH={path}", *command, *arguments], {}, deadline=DEADLINE)

    return started


def test_three_pods_have_their_limits_in_a_cluster_of_the_kit(pods, tmp_path):
    before = (_mounts(), _addresses(), _cgroups())
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
    assert (_mounts(), _addresses(), _cgroups()) == before


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


def _mounts() -> list[str]:
    return sorted(line.split()[4] for line in Path("/proc/self/mountinfo").read_text().splitlines())


def _addresses() -> str:
    done = subprocess.run(["ip", "-o", "address"], check=True, capture_output=True, text=True)
    return "\n".join(line.split("valid_lft")[0] for line in done.stdout.splitlines())


def _cgroups() -> list[str]:
    found = Path("/sys/fs/cgroup").glob("*/*")
    return sorted(str(path) for path in found if path.is_dir())
