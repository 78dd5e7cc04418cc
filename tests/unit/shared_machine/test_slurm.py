"""What Slurm's programs print, and what a job gets by it. They are scripts that print a file."""

from __future__ import annotations

from pathlib import Path

import pytest

from hami_py.errors import StateError
from hami_py.machine import slurm

#: The end of a job in 22.05, as `scontrol -d show job 1` prints it.
JOB = """\
JobId=1 JobName={name}
   UserId=anna(64001) GroupId=anna(64001) MCS_label=N/A
   Socks/Node=* NtasksPerN:B:S:C=0:0:*:* CoreSpec=*
   JOB_GRES=shard:4
     Nodes=vm CPU_IDs=0 Mem=0 GRES={gres}
   MinCPUsNode=1 MinMemoryNode=0 MinTmpDiskNode=0
   Command={command}
"""

NODE = "NodeName=vm Arch=x86_64 CoresPerSocket=1\n   Gres={gres} GresDrain=N/A GresUsed=gpu:0\n"


class Slurm:
    """Its programs, which print what the test says."""

    def __init__(self, folder: Path, patch: pytest.MonkeyPatch) -> None:
        self._folder = folder
        patch.setenv("PATH", f"{folder}:/usr/bin:/bin")

    def program(self, name: str, script: str) -> None:
        (self._folder / name).write_text(f"#!/bin/sh\n{script}\n")
        (self._folder / name).chmod(0o755)

    def job(self, *gres: str, node: str = "gpu:2,shard:32", name: str = "x", by: str = "x") -> None:
        jobs = [JOB.format(gres=each, name=name, command=by) for each in gres]
        (self._folder / "job").write_text("\n".join(jobs))
        (self._folder / "node").write_text(NODE.format(gres=node))
        # scontrol [-d] show job|node NAME
        self.program("scontrol", f'[ "$1" = -d ] && shift; cat "{self._folder}/$2"')


@pytest.fixture
def cluster(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Slurm:
    return Slurm(tmp_path, monkeypatch)


@pytest.mark.parametrize(
    ("gres", "cards", "expected"),
    [
        ("shard:4(IDX:0)", "0", {"0": (4, 16)}),
        ("shard:4(IDX:1)", "1", {"1": (4, 16)}),
        # The numbers are those of device files: gres.conf has /dev/nvidia[2-3].
        ("shard:4(IDX:1)", "3", {"3": (4, 16)}),
        ("shard:a100:4(IDX:0)", "0", {"0": (4, 16)}),
        ("shard:4(4/16,0/16)", "0", {"0": (4, 16)}),
        ("shard:6(4/16,2/8)", "0,1", {"0": (4, 16), "1": (2, 8)}),
        # Slurm does not show how 20 of 2 x 16 are spread: 4 are on each at least.
        ("shard:20(IDX:0-1)", "0,1", {"0": (4, 16), "1": (4, 16)}),
        ("gpu:2(IDX:0-1)", "0,1", {"0": (1, 1), "1": (1, 1)}),
        ("gpu:a100:1(IDX:0),gpu:t4:1(IDX:2)", "0,2", {"0": (1, 1), "2": (1, 1)}),
    ],
)
def test_a_job_has_its_shards_of_each_card(
    cluster: Slurm, gres: str, cards: str, expected: dict[str, tuple[int, int]]
) -> None:
    cluster.job(gres)
    assert slurm.parts_of(1, "vm", cards) == expected


def test_the_first_task_of_an_array_and_a_job_on_several_nodes_have_several_lines(
    cluster: Slurm,
) -> None:
    cluster.job("shard:4(IDX:0)", "shard:4(IDX:1)", "shard:4(IDX:0)")
    assert slurm.parts_of(1, "vm", "1") == {"1": (4, 16)}
    cluster.job("gpu:2(IDX:0-1)", "gpu:1(IDX:0)")
    assert slurm.parts_of(1, "vm", "0,1") == {"0": (1, 1), "1": (1, 1)}


@pytest.mark.parametrize(
    "written",
    [
        "GRES=gpu:1(IDX:0)",
        "x\n     Nodes=vm CPU_IDs=0 Mem=0 GRES=gpu:1(IDX:0)\nJobId=2 JobName=y",
        "GRES=shard:16(16/16)",
        "GRES=shard:9(9/8)",
        "GRES=shard:0(0/16)",
        f"GRES=shard:4(IDX:{'9' * 5000})",
        "GRES=gpu:4(IDX:0-999999,0-999999)",
        "Gres=gpu:1,shard:4",
        "GRES=shard:4(4/16,)",
        "GRES=shard",
    ],
)
@pytest.mark.parametrize("place", ["name", "by"])
def test_a_user_gets_no_more_by_a_line_in_a_jobs_name(
    cluster: Slurm, written: str, place: str
) -> None:
    cluster.job("shard:4(IDX:0)", **{place: written})  # type: ignore[arg-type]
    assert slurm.parts_of(1, "vm", "0") == {"0": (4, 16)}
    cluster.job("shard:4(0/16,4/16)", **{place: written})  # type: ignore[arg-type]
    assert slurm.parts_of(1, "vm", "1") == {"1": (4, 16)}


@pytest.mark.parametrize(
    ("gres", "node"),
    [
        # Cards with different numbers of shards: 22.05 does not show which card has how many.
        ("shard:4(IDX:0)", "gpu:2,shard:33"),
        ("shard:4(IDX:0)", "(null)"),
        ("shard(CNT:4)", "gpu:2,shard:32"),
        ("gpu:2(IDX:0-1)", "gpu:2"),
        ("", "gpu:2,shard:32"),
    ],
)
def test_what_slurm_does_not_show_is_an_error(cluster: Slurm, gres: str, node: str) -> None:
    cluster.job(gres, node=node)
    with pytest.raises(StateError, match=r"cards 0; in gres\.conf"):
        slurm.parts_of(1, "vm", "0")


@pytest.mark.parametrize(
    ("script", "says"),
    [
        ("echo 'slurm_load_jobs error: Unable to contact' >&2; exit 1", "Unable to contact"),
        ("exit 3", "exit status 3"),
        ("exec sleep 60", "timed out"),
    ],
)
def test_a_slurm_that_does_not_answer_is_an_error(
    cluster: Slurm, monkeypatch: pytest.MonkeyPatch, script: str, says: str
) -> None:
    monkeypatch.setattr(slurm, "_DEADLINE_S", 0.5)
    cluster.program("squeue", script)
    with pytest.raises(StateError, match=says):
        slurm.jobs()


def test_without_slurm_its_jobs_are_unknown(cluster: Slurm) -> None:
    with pytest.raises(StateError, match="squeue"):
        slurm.jobs()
    cluster.program("squeue", "printf '17\\n18\\n'")
    assert slurm.jobs() == {"17", "18"}


def test_a_machine_without_slurms_programs_is_told_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/nonexistent")
    with pytest.raises(StateError, match=r"^squeue: No such file or directory; try `squeue "):
        slurm.jobs()
