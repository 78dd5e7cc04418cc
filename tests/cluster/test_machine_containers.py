"""docs/machine.md, "Containers": its commands, run by the runtimes of Debian on the stub.

Podman, as root and rootless, and Docker 20.10. The service and the runtimes take 5 s to start,
once: no smaller setup shows that a runtime accepts the devices.
"""

import contextlib
import os
import re
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from cluster.machine_containers import IMAGE, NAME, Ctr, Docker, Podman, Runtime, Site, image
from support.artifacts import ROOT, Artifacts
from support.launcher import until
from support.programs import Programs
from support.requirements import skip_or_fail
from support.running import Started
from support.stub import StubServer
from support.world import Kit

pytestmark = pytest.mark.timeout(600)

PAGE = (ROOT / "docs" / "machine.md").read_text()
(KEEP,) = re.findall(r"^(hami run --keep .*)$", PAGE, re.M)
BEGINNINGS = {"podman": "podman run", "docker": 'eval "docker run', "ctr": "ctr run"}
LINES: dict[str, str] = {
    program: re.findall(f'`({begin} .* PROGRAM"?)`', PAGE)[0]
    for program, begin in BEGINNINGS.items()
}

GIB = 1 << 30

#: A program that no slice explains is ended; those of containers have users that are unknown here.
POLICY = """
bypass = "kill"

[default]
gpumem = "8GiB"
gpucores = 100
"""


@pytest.fixture(scope="module")
def files(program: Programs, kit: Kit) -> list[Path]:
    """The programs of the image."""
    return [*map(program, ("hold", "memory_info", "probe")), kit.load("load")]


@pytest.fixture(scope="module")
def site(artifacts: Artifacts, files: list[Path]) -> Iterator[Site]:
    """The machine, which has the same programs outside of containers."""
    if os.geteuid() != 0:
        skip_or_fail("it needs root: run it as root")
    with contextlib.ExitStack() as stack:
        place = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="hami-test-")))
        place.chmod(0o755)
        gpu = stack.enter_context(StubServer(artifacts, place / "gpu", "a100"))
        for each in files:
            shutil.copy(each, place / each.name)
        yield stack.enter_context(Site(place, gpu, artifacts, POLICY))


@pytest.fixture(scope="module")
def tar(site: Site, files: list[Path]) -> Path:
    """The image."""
    return image(site.place, files)


@pytest.fixture(scope="module")
def runtimes(site: Site, tar: Path) -> Iterator[dict[str, Runtime]]:
    with contextlib.ExitStack() as stack:

        def started(runtime: Runtime) -> Runtime:
            stack.callback(runtime.close)
            runtime("import", tar, IMAGE)
            return runtime

        yield {
            "podman": started(Podman(site, "root")),
            "rootless podman": started(Podman(site, "anna")),
            "docker": started(Docker(site, "anna")),
        }


@pytest.fixture
def kept(site: Site) -> Iterator[None]:
    """The slice that the page makes, of anna."""
    done = site.run("anna", "sh", "-c", KEEP)
    assert (done.code, done.err) == (0, ""), done
    yield
    removed = site.run("anna", "hami", "rm", "train")
    assert (removed.code, removed.err) == (0, ""), removed


def line(runtime: Runtime, program: str) -> str:
    """The page's command line that runs a program in a container."""
    named = [] if runtime.program == "ctr" else ["--interactive", f"--name={NAME}"]
    of_page = LINES[runtime.program].replace("--rm", " ".join(["--rm", *runtime.options, *named]))
    return of_page.replace("NAME", NAME).replace("IMAGE", IMAGE).replace("PROGRAM", program)


@contextlib.contextmanager
def container(runtime: Runtime, program: str) -> Iterator[Started]:
    with runtime.site.start(runtime.user, "sh", "-c", line(runtime, program)) as started:
        yield started
        done = started.finish()
        assert done.code == 0, done


@pytest.mark.parametrize("name", ["podman", "rootless podman", "docker"])
def test_the_limits_of_a_slice_hold_in_a_container(
    site: Site, runtimes: dict[str, Runtime], kept: None, name: str
) -> None:
    """It takes 7 s: only a real runtime shows what its containers and their `exec` get."""
    check_limits(site, runtimes[name])


@pytest.mark.programs("node")
def test_they_hold_in_a_container_of_containerd(
    site: Site, runtimes: dict[str, Runtime], node_programs: Path, kept: None
) -> None:
    """It takes 5 s, as with the other runtimes."""
    archive = site.place / "archive.tar"
    runtimes["podman"]("save", "--format=docker-archive", f"--output={archive}", IMAGE)
    ctr = Ctr(site, node_programs, archive)
    try:
        check_limits(site, ctr)
    finally:
        ctr.close()


def check_limits(site: Site, runtime: Runtime) -> None:
    gpu, sizes = site.gpu, "printf '%s 0\\n' 1024 1536"
    assert site.run("anna", "hami", "cdi").lines == ["hami.io/slice=anna.train"]
    with container(runtime, "/programs/hold 2048") as started:
        started.wait_for("holding")
        assert gpu.held() == 2 * GIB
        for user in ("0", "1000"):
            seen = runtime.inside(user, "/programs/memory_info")
            assert re.search(rf"^cuMemGetInfo_v2.* total={4 * GIB}$", seen, re.M), seen
            granted = runtime.inside(user, "sh", "-c", f"{sizes} | /programs/probe")
            assert granted.split() == ["ready", "0", "2"]
        # A program of the user outside is in the same slice.
        outside = f"{sizes} | hami run --join train -- {site.place}/probe"
        joined = site.run("anna", "sh", "-c", outside)
        assert joined.out.split() == ["ready", "0", "2"], joined
        for path in ("/usr/local/hami/limits", "/usr/local/hami/new", "/etc/ld.so.preload"):
            refused = runtime.inside("0", "sh", "-c", f"(: >>{path}) 2>&1 || true")
            assert re.search("Read-only file system|Permission denied", refused), path
        assert runtime.inside("1000", "sh", "-c", ": >>/usr/local/hami/account") == ""
        busy = site.run("anna", "hami", "rm", "train")
        assert busy.code == 1
        assert "slice train" in busy.err, busy
    if isinstance(runtime, Docker):
        assert runtime.cards[-1:] == gpu.uuids()


def test_a_container_without_a_program_on_the_card_keeps_its_slice(
    site: Site, runtimes: dict[str, Runtime], kept: None
) -> None:
    with container(runtimes["rootless podman"], "sh -c 'echo here; exec cat'") as started:
        started.wait_for("here")
        busy = site.run("anna", "hami", "rm", "train")
        assert busy.code == 1, busy


def test_the_slice_of_another_user_starts_no_container(site: Site, tar: Path, kept: None) -> None:
    podman = Podman(site, "bert")
    try:
        podman("import", tar, IMAGE)
        done = site.run("bert", "sh", "-c", line(podman, "true"))
        assert done.code != 0
        assert "permission denied" in done.err.lower(), done
        # One of the same name, of his own.
        _keep(site, "bert", "train", "--gpumem=2GiB")
        own = line(podman, "/programs/memory_info").replace("anna", "bert")
        seen = site.run("bert", "sh", "-c", own)
        assert f"total={2 * GIB}" in seen.out, seen
        assert site.run("bert", "hami", "rm", "train").code == 0
    finally:
        podman.close()


def test_a_card_without_the_driver_s_description_is_reported(site: Site, kept: None) -> None:
    description = site.root / "run" / "cdi" / "nvidia.json"
    description.unlink()
    try:
        done = site.run("anna", "hami", "cdi")
        assert (done.code, done.out) == (1, "")
        assert "nvidia-ctk cdi generate" in done.err
    finally:
        site.describe_cards()
    assert site.run("anna", "hami", "cdi").code == 0


def test_shares_hold_between_containers_and_programs_of_users(
    site: Site, runtimes: dict[str, Runtime]
) -> None:
    """It takes half a minute: a share is an average, and the containers have to start."""
    shares = {"pod": 20, "doc": 30, "own": 50}

    # Each program has a kernel of its own, by which the ledger shows its time.
    kernels = {"pod": 500, "doc": 501, "own": 502}

    def work(name: str) -> str:
        return f"load --work async --kernel-us {kernels[name]} --seconds 120"

    def busy() -> dict[str, int]:
        found = dict.fromkeys(shares, 0)
        for process in site.gpu.ledger()["processes"]:
            for name, us in kernels.items():
                for kernel, times in process["cards"][0]["by_kernel"].items():
                    found[name] += times["busy_ns"] if str(us) in kernel else 0
        return found

    with contextlib.ExitStack() as stack:
        for name, runtime in (("pod", "rootless podman"), ("doc", "docker")):
            _keep(site, "anna", name, "--gpumem=1GiB", f"--gpucores={shares[name]}")
            # Of a user whom the machine does not know.
            options = "--rm --user=1000"
            command = line(runtimes[runtime], f"/programs/{work(name)}").replace("--rm", options)
            command = re.sub(r"\btrain\b", name, command)
            stack.enter_context(site.start("anna", "sh", "-c", command))
        own = f"hami run --gpumem 1GiB --gpucores 50 -- {site.place}/{work('own')}"
        stack.enter_context(site.start("bert", "sh", "-c", own))
        until(lambda: all(busy().values()), lambda: f"all compute: {busy()}")
        begin = sum(busy().values())
        until(lambda: sum(busy().values()) > begin + 1e9, "a second of work")
        before = busy()
        end = sum(before.values()) + 8e9
        until(lambda: sum(busy().values()) > end, "8 s more")
        spent = {name: now - before[name] for name, now in busy().items()}
        for name, share in shares.items():
            assert 100 * spent[name] / sum(spent.values()) == pytest.approx(share, abs=5), spent
    for runtime in ("rootless podman", "docker"):
        runtimes[runtime]("rm", "--force", NAME)
    for name in ("pod", "doc"):
        done = site.run("anna", "hami", "rm", name)
        assert done.code == 0, done


def _keep(site: Site, user: str, name: str, *limits: str) -> None:
    done = site.run(user, "hami", "run", "--keep", f"--name={name}", *limits, "--", "true")
    assert done.code == 0, done
