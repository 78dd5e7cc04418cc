"""``hami explain``, ``what-if``, ``snapshot`` and ``replay`` beside a scheduler that is at work."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from cluster import objects, waiting
from cluster.conftest import StartControlPlane
from cluster.control_plane import ControlPlane
from cluster.extended import assignment, card, extended, node
from cluster.kubectl import hami
from cluster.objects import NODES, PODS


@pytest.fixture
def cluster(control_plane: StartControlPlane) -> ControlPlane:
    """One node of two cards, each with a pod of 6000 of 10,000 MiB; a third pod waits."""
    with extended(control_plane) as (cluster, _):
        cluster.api.create(NODES, node("a", [card("a", 0), card("a", 1)]))
        for name in ("one", "two"):
            asked = {"nvidia.com/gpu": 1, "nvidia.com/gpumem": 6000}
            cluster.api.create(PODS, objects.pod(name, asked))
            waiting.bound(cluster.api, name)
        larger = {"nvidia.com/gpu": 1, "nvidia.com/gpumem": 5000}
        cluster.api.create(PODS, objects.pod("three", larger))
        waiting.unschedulable(cluster.api, "three")
    return cluster


def test_explain_what_if_snapshot_and_replay_agree_and_change_nothing(
    cluster: ControlPlane, tmp_path: Path
) -> None:
    """Runs each command as a user does, against one cluster: their answers must agree."""
    there = ("--kubeconfig", cluster.kubeconfig)

    waits = hami("explain", "pod", "three", "--all", *there)
    assert waits.returncode == 0, waits.stderr
    assert "pod default/three waits for a node" in waits.stdout
    assert "4000 MiB" in waits.stdout
    has = hami("explain", "pod", "one", *there)
    mine = assignment(cluster.api, "one").containers["main"][0].card
    assert f"main has {mine} on a: 6000 MiB" in has.stdout

    absent = hami("explain", "pod", "nobody", *there)
    assert (absent.returncode, absent.stdout) == (1, "")
    assert "there is no such pod" in absent.stderr

    taken = tmp_path / "state.json"
    assert hami("snapshot", "-o", taken, *there).returncode == 0
    manifest = tmp_path / "pods.json"
    wanted = [objects.pod("p", {"nvidia.com/gpumem": 4000}) for _ in range(3)]
    manifest.write_text(json.dumps({"kind": "List", "items": wanted}))

    asked = hami("what-if", manifest, "--json", *there)
    assert asked.returncode == 0, asked.stderr
    outcomes = json.loads(asked.stdout)
    assert [outcome["node"] for outcome in outcomes["pods"]] == ["a", "a", None]
    offline = hami("what-if", manifest, "--json", "--snapshot", taken)
    assert json.loads(offline.stdout) == outcomes
    replays = [hami("replay", taken, manifest).stdout for _ in range(2)]
    assert replays[0] == replays[1]
    assert "default/p: nowhere" in replays[0]
    # Nothing of it has happened.
    assert len(cluster.api.get(PODS)["items"]) == 3


def test_the_python_of_the_page_runs(cluster: ControlPlane, tmp_path: Path) -> None:
    """docs/operate.md's Python, as it stands there, about a pod that would fit."""
    page = (Path(__file__).parents[2] / "docs" / "operate.md").read_text()
    examples = re.findall(r"^```python\n(.*?)^```$", page, re.DOTALL | re.MULTILINE)
    assert examples
    asked = {"nvidia.com/gpu": 1, "nvidia.com/gpumem": 4000}
    cluster.api.create(PODS, objects.pod("train", asked, schedulerName="nobody"))
    for example in examples:
        script = tmp_path / "example.py"
        script.write_text(example)
        done = subprocess.run(
            [sys.executable, script],
            env={**os.environ, "KUBECONFIG": str(cluster.kubeconfig)},
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )
        assert (done.returncode, done.stdout) == (0, "a True None\n"), done.stderr
