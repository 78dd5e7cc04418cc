"""deploy/slurm: the shards of jobs of a real Slurm are limits, on the stub."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from cluster.slurm import ANNA, BERT, FOLDER, PAGE, Slurm
from cluster.waiting import until
from support.artifacts import Artifacts
from support.programs import Programs
from support.requirements import skip_or_fail
from support.running import run
from support.stub import StubServer
from support.world import Kit

pytestmark = [
    pytest.mark.skipif(os.geteuid() != 0, reason="Slurm and the service run as root"),
    pytest.mark.timeout(600),
]

GIB = 1 << 30

#: Of the stub's a100.
WHOLE = 40 * GIB

#: By user, the shards of a job.
SHARDS = {ANNA: 4, BERT: 8}

#: Users have no card outside of jobs.
POLICY = '[default]\ncards = "none"\n'

#: A program that prints the limits that it has.
LIMITS = (
    "import json, hami_py;"
    "print(json.dumps([[each.uuid, each.memory, each.share] for each in hami_py.limits().cards]))"
)

#: A console that prints the memory of its first card.
SEES = "init\ndevice 0 a\ninfo\n"


@pytest.fixture
def slurm(artifacts: Artifacts, program: Programs) -> Iterator[Slurm]:
    """Slurm on a node with two cards of 16 shards."""
    if shutil.which("slurmctld") is None:
        skip_or_fail("slurmctld is not here")
    with contextlib.ExitStack() as stack:
        place = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="hami-slurm-")))
        place.chmod(0o755)
        gpu = stack.enter_context(StubServer(artifacts, place / "stub", "a100,a100"))
        node = Slurm(place, gpu, artifacts, POLICY)
        stack.callback(node.close)
        shutil.copy(program("console"), place / "console")
        node.start_slurm()
        yield node


def total(slurm: Slurm, *words: object, **options: Any) -> int | str:
    """The memory of device 0 that a program sees, or why it sees none."""
    done = slurm.srun(*words, slurm.place / "console", input=SEES, **options)
    found = done.out.partition("\ninfo -> 0 ")[2].partition("total=")[2].split()
    return int(found[0]) if found else done.out + done.err


def holding(slurm: Slurm, *gibs: int) -> str:
    """A script that allocates this and holds it until a file `end` appears."""
    lines = SEES + "".join(f"alloc a{at} {gib}G\n" for at, gib in enumerate(gibs))
    program = slurm.place / "console"
    end = slurm.place / "end"
    return f"(printf '{lines}'; while [ ! -e {end} ]; do sleep 0.1; done) | {program}"


def printed(slurm: Slurm, job: int, name: str, line: str) -> str:
    """What a job has printed, with the start of this line."""
    until(lambda: line in slurm.output(job, name), f"job {job} prints {line}")
    return slurm.output(job, name)


def requested(slurm: Slurm) -> list[int]:
    """The bytes that programs hold of each card, by the stub's ledger."""
    return [slurm.gpu.held(card) for card in (0, 1)]


def has_ended_without_rest(slurm: Slurm) -> None:
    """Nothing is left of jobs."""
    until(lambda: not slurm.slots(), "the slots of jobs end")
    ledger = (slurm.place / "hami" / "ledger.json").read_text()
    assert '"kind":"job"' not in ledger, ledger
    slurm.gpu.wait_until(lambda _: requested(slurm) == [0, 0])


def test_jobs_have_their_shards_of_memory_and_time(slurm: Slurm) -> None:
    """Six jobs, 20 s: what the whole of deploy/slurm is for."""
    first, second = slurm.gpu.uuids()
    quarter = WHOLE * 4 // 16
    jobs = [
        slurm.submit(holding(slurm, 8, 1, 1), "--gres=shard:4", uid=uid) for uid in (ANNA, BERT)
    ]
    until(lambda: requested(slurm) == [18 * GIB, 0], "both hold 9 GiB of the same card")
    assert slurm.slots() == [f"job-{job}" for job in jobs]
    for job, name in zip(jobs, ("anna", "bert"), strict=True):
        output = printed(slurm, job, name, "alloc a2 1G")
        assert f"total={quarter}\n" in output, output
        assert "alloc a2 1G -> 2" in output, output
    limits = slurm.srun("--gres=shard:2", "python-of-hami", "-c", LIMITS)
    assert json.loads(limits.out) == [[first, WHOLE * 2 // 16, 12]], limits
    # These do not fit on the first card. Slurm's number of the second is not a slice's first.
    words = ("--gres=shard:9", "python-of-hami", "-c", LIMITS)
    assert json.loads(slurm.srun(*words).out) == [[second, WHOLE * 9 // 16, 56]]
    assert total(slurm, "--gres=shard:9") == WHOLE * 9 // 16
    (slurm.place / "end").touch()
    slurm.ends(*jobs)
    has_ended_without_rest(slurm)
    words = ("--gres=gpu:2", "python-of-hami", "-c", LIMITS)
    assert json.loads(slurm.srun(*words).out) == [[first, None, None], [second, None, None]]
    alone = slurm.run(slurm.place / "console", input=SEES).out.partition("total=")[2].split()[0]
    assert total(slurm, "--gres=gpu:1") == int(alone), "as without the service"


def test_the_time_of_a_card_is_that_of_the_shards(slurm: Slurm, kit: Kit) -> None:
    """It takes 20 s: two jobs of 4 and 8 shards, until the card has worked for 4 s."""
    shutil.copy(kit.load("load"), slurm.place / "load")
    script = f"exec {slurm.place}/load --work async --kernel-us 500 --seconds 120"
    jobs = {uid: slurm.submit(script, f"--gres=shard:{n}", uid=uid) for uid, n in SHARDS.items()}

    def busy() -> dict[int, int]:
        """By user, the time for which the card was busy, in ns."""
        found = dict.fromkeys(SHARDS, 0)
        for row in slurm.gpu.ledger()["processes"]:
            with contextlib.suppress(FileNotFoundError, KeyError):
                uid = Path(f"/proc/{row['pid']}").stat().st_uid
                found[uid] += row["cards"][0]["busy_ns"]
        return found

    until(lambda: min(busy().values()) > 3e8, "both compute")
    before = busy()
    until(lambda: sum(busy().values()) > sum(before.values()) + 4e9, "4 s more", 120)
    after = busy()
    spent = {uid: after[uid] - before[uid] for uid in SHARDS}
    # Within 1.5 on a quiet machine; on a busy one the programs do not always have work.
    assert 100 * spent[ANNA] / sum(spent.values()) == pytest.approx(100 / 3, abs=5), spent
    slurm.run("scancel", *jobs.values())
    slurm.ends()
    has_ended_without_rest(slurm)
    slurm.service.kill()
    log = slurm.service.finish().err
    assert "without limits" not in log, log


def test_a_job_without_cards_has_nothing_of_another_job(slurm: Slurm) -> None:
    other = "/run/hami/slices/job-1/libvgpu.so"
    stale: dict[str, Any] = {
        "LD_PRELOAD": f"{other}:/usr/lib/x86_64-linux-gnu/libm.so.6",
        "HAMI_SLICE": other,
    }
    plain = slurm.srun("sh", "-c", "echo $LD_PRELOAD,$HAMI_SLICE", **stale)
    assert plain.lines[-1] == "/usr/lib/x86_64-linux-gnu/libm.so.6,", plain
    shards = slurm.srun("--gres=shard:1", "sh", "-c", "echo $LD_PRELOAD,$HAMI_SLICE", **stale)
    path = "/run/hami/slices/job-2/libvgpu.so:/usr/lib/x86_64-linux-gnu/libm.so.6,"
    assert shards.lines[-1] == path, shards


def test_a_job_is_the_only_way_to_a_card_and_one_users_job_is_no_way_for_another(
    slurm: Slurm,
) -> None:
    """Five jobs, 15 s: the boundary that docs/machine.md describes."""
    assert slurm.run("hami", "machine", "preload", "on").code == 0
    job = slurm.submit(holding(slurm, 1), "--gres=shard:4")
    until(lambda: requested(slurm) == [GIB, 0], "the job holds 1 GiB")
    slot = f"/run/hami/slices/job-{job}"
    console = slurm.place / "console"
    for uid, env in (
        (ANNA, {}),
        (BERT, {}),
        (BERT, {"LD_PRELOAD": f"{slot}/libvgpu.so", "HAMI_SLICE": slot}),
    ):
        refused = slurm.run(console, uid=uid, input="init\n", **env)
        assert "init -> 0" not in refused.out, refused
        assert "[default]" in refused.err, refused
    assert "Permission denied" in slurm.run("ls", slot, uid=BERT).err
    # Its user may use it, and changes nothing of it.
    mine = slurm.run(console, uid=ANNA, input=SEES, LD_PRELOAD=f"{slot}/libvgpu.so")
    assert f"total={WHOLE * 4 // 16}\n" in mine.out, mine
    for words in (("set", f"job-{job}", "--gpumem", "20GiB"), ("rm", f"job-{job}")):
        assert f"scancel {job}" in slurm.run("hami", *words, uid=ANNA).err
        assert "you have no slice" in slurm.run("hami", *words, uid=BERT).err
    # Without the variable, a step has no way either.
    lost = total(slurm, "--gres=shard:4", "env", "-u", "LD_PRELOAD")
    assert "[default]" in str(lost), lost
    inside = ("--gres=shard:4", "hami", "run", "--gpumem")
    assert total(slurm, *inside, "1GiB", "--") == GIB
    more = total(slurm, *inside, "20GiB", "--")
    assert "leaves you" in str(more), more
    (slurm.place / "end").touch()
    slurm.ends(job)
    has_ended_without_rest(slurm)


def test_a_job_waits_for_a_service_that_is_away_and_one_that_has_ended_is_swept(
    slurm: Slurm,
) -> None:
    """It takes a minute, half of it until the prolog gives up, and drains the node."""
    ends = slurm.submit(holding(slurm, 1), "--gres=shard:4")
    until(lambda: requested(slurm) == [GIB, 0], "it holds 1 GiB")
    slurm.service.kill()
    waits = slurm.submit(holding(slurm, 2), "--gres=shard:4")
    until(lambda: "Reason=Prolog" in slurm.run("scontrol", "show", "job", waits).out, "it waits")
    slurm.run("scancel", ends)
    until(lambda: slurm.state(ends) == "CANCELLED", "the first has ended")
    until(lambda: requested(slurm) == [0, 0], "it holds nothing")
    assert slurm.slots() == [f"job-{ends}"]
    slurm.start_service()
    until(lambda: requested(slurm) == [2 * GIB, 0], "the second holds 2 GiB", 120)
    until(lambda: slurm.slots() == [f"job-{waits}"], "the slot of the first ends")
    (slurm.place / "end").touch()
    slurm.ends(waits)
    has_ended_without_rest(slurm)
    slurm.service.kill()
    fails = slurm.submit(holding(slurm, 1), "--gres=shard:4")
    until(lambda: "drain" in slurm.run("sinfo", "--noheader").out, "the node is drained", 120)
    until(lambda: slurm.state(fails) == "PENDING", "it is queued again")
    assert "the service hami machine: " in slurm.logs()
    slurm.start_service()
    host = slurm.run("sinfo", "--noheader", "--format=%N").out.strip()
    assert slurm.run("scontrol", "update", f"nodename={host}", "state=resume").code == 0
    # Slurm would wait two minutes.
    slurm.run("scontrol", "update", f"jobid={fails}", "starttime=now")
    slurm.ends(fails)
    has_ended_without_rest(slurm)


def test_twenty_jobs_get_their_shards_while_slurmd_and_the_service_are_killed(slurm: Slurm) -> None:
    """It takes a minute. Jobs start and end at each moment of the restarts."""
    end, users = slurm.place / "end", {ANNA: "anna", BERT: "bert"}
    jobs: dict[int, tuple[int, int]] = {}

    def submit(count: int) -> None:
        script = f"python-of-hami -c '{LIMITS}'; {holding(slurm, 1)}"
        for _ in range(count):
            shards, uid = (1, 2, 4)[len(jobs) % 3], list(users)[len(jobs) % 2]
            jobs[slurm.submit(script, f"--gres=shard:{shards}", uid=uid)] = shards, uid

    def held() -> int:
        return sum(requested(slurm)) // GIB

    submit(6)
    until(lambda: held() == 6, "six hold memory", 180)
    # None is about to start: Slurm loses a job that it hands to a slurmd which is killed.
    slurm.restart_slurmd()
    submit(14)
    until(lambda: held() > 8, "others start", 180)
    slurm.service.kill()
    end.touch()
    slurm.start_service()
    slurm.ends(*jobs)
    for job, (shards, uid) in jobs.items():
        output, memory = slurm.output(job, users[uid]), WHOLE * shards // 16
        assert f", {memory}, {100 * shards // 16}]]" in output, (job, shards, output)
        assert f"total={memory}\n" in output, (job, shards, output)
        assert "alloc a0 1G -> 0" in output, (job, shards, output)
    has_ended_without_rest(slurm)


def test_the_page_shows_the_lines_that_are_tested() -> None:
    page = [line.strip() for line in PAGE.read_text().splitlines()]
    for name in ("slurm.conf", "gres.conf"):
        lines = (FOLDER / name).read_text().splitlines()
        missing = [line for line in lines if line[:1] != "#" and line not in page]
        assert (len(lines) > 4, missing) == (True, [])


def test_the_scripts_are_plain_shell() -> None:
    if shutil.which("shellcheck") is None:
        skip_or_fail("shellcheck is not here")
    scripts = sorted(FOLDER.glob("*.sh"))
    assert len(scripts) == 3
    done = run(["shellcheck", "--shell=sh", *scripts], {})
    assert (done.code, done.out) == (0, ""), done
