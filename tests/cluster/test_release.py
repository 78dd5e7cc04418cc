"""The files of `make release`, and a cluster that is installed from nothing but them."""

import hashlib
import json
import shutil
import subprocess
import sys
import tarfile
from pathlib import Path

import pytest
import yaml

from cluster import binaries, charts, image_layers, images
from cluster.conftest import StartWhole
from cluster.deployed import create_soon
from cluster.install_page import InstallPage
from cluster.limited_pods import FILL, LABEL, MIB, Limited, run_in, running
from cluster.objects import NODES
from hami_py._native import VERSION
from support.artifacts import ROOT

pytestmark = [
    pytest.mark.programs("controllers", "kubectl", "node", "helm"),
    pytest.mark.timeout(600),
    # It downloads the plugin's packages for every Python.
    pytest.mark.tier("torture"),
]

URL = "https://releases.example/v0"


EPOCH = 1_000_000_000


def make_release(dist: Path, *more: str | Path) -> Path:
    """The files, in the folder, with an image that has the files of deploy/image/Dockerfile."""
    for wheel in (ROOT / "dist").glob(f"hami_py-{VERSION}-*.whl"):
        shutil.copy(wheel, dist)
    with (dist / f"hami-py-{VERSION}-image.tar").open("wb") as stream:
        images.write([images.whole()[0]], stream)
    helm = binaries.folder("helm") / "helm"
    tools = (f"--uv={image_layers.uv()}", f"--helm={helm}")
    of = (f"--version={VERSION}", f"--epoch={EPOCH}", f"--url={URL}", f"--dist={dist}")
    script = ROOT / "deploy" / "release.py"
    subprocess.run([sys.executable, script, *tools, *of, *more], check=True)
    return dist


@pytest.fixture(scope="module")
def key(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The key of a maintainer."""
    path = tmp_path_factory.mktemp("key") / "key"
    new = ("-q", "-t", "ed25519", "-N", "", "-f", path)
    subprocess.run(["ssh-keygen", *new], check=True)
    return path


@pytest.fixture(scope="module")
def release(programs: object, key: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """dist/ of a signed release, and beside its files the key that a user trusts."""
    dist = make_release(tmp_path_factory.mktemp("dist"), f"--sign={key}")
    signer = f'maintainer namespaces="hami-py-release" {key.with_suffix(".pub").read_text()}'
    (dist / "allowed_signers").write_text(
        (ROOT / "deploy" / "allowed_signers").read_text() + signer
    )
    return dist


def verify(release: Path) -> list[bool]:
    """Whether each command that verifies a release in docs/install.md succeeds."""
    found = []
    for command in InstallPage.commands("Verify a release"):
        done = subprocess.run(
            ["bash", "-c", command], cwd=release, capture_output=True, check=False
        )
        found.append(done.returncode == 0)
    return found


def test_the_sums_are_of_all_files(release: Path) -> None:
    sums = (release / "SHA256SUMS").read_text().splitlines()
    unsummed = {"SHA256SUMS", "allowed_signers"}
    signed = {each.name for each in release.iterdir() if each.suffix != ".sig"} - unsummed
    assert {line.partition("  ")[2] for line in sums} == signed


def test_a_changed_byte_is_refused(release: Path, tmp_path: Path) -> None:
    """By the commands of docs/install.md: the sums, the chart, and the provenance."""
    assert verify(release) == [True, True, True]
    for name, held in {
        "SHA256SUMS": [False, True, False],
        f"hami-py-{VERSION}-provenance.json": [True, False, False],
        f"hami-py-{VERSION}.tgz": [True, True, False],
    }.items():
        changed = tmp_path / name
        shutil.copytree(release, changed)
        content = bytearray((changed / name).read_bytes())
        content[len(content) // 2] ^= 1
        (changed / name).write_bytes(content)
        assert verify(changed) == held, name


def test_the_provenance_names_the_commit_and_all_files(release: Path) -> None:
    (file,) = release.glob("*-provenance.json")
    statement = json.loads(file.read_text())
    assert statement["_type"] == "https://in-toto.io/Statement/v1"
    assert statement["predicateType"] == "https://slsa.dev/provenance/v1"
    sums = {f"{each['digest']['sha256']}  {each['name']}" for each in statement["subject"]}
    of_itself = f"{hashlib.sha256(file.read_bytes()).hexdigest()}  {file.name}"
    assert {*(release / "SHA256SUMS").read_text().splitlines()} == {*sums, of_itself}
    source, *locks = statement["predicate"]["buildDefinition"]["resolvedDependencies"]
    head = subprocess.run(
        ["git", "rev-parse", "HEAD"], cwd=ROOT, stdout=subprocess.PIPE, check=True
    )
    assert source["digest"] == {"gitCommit": head.stdout.decode().strip()}
    assert {each["name"] for each in locks} == {"Cargo.lock", "uv.lock"}


def test_a_second_run_makes_the_same_files(release: Path, tmp_path: Path) -> None:
    """Without a key it removes what the first one has signed: those would be of other files."""
    shutil.copytree(release, tmp_path, dirs_exist_ok=True)
    make_release(tmp_path)
    removed = {each.name for each in release.iterdir()} - {each.name for each in tmp_path.iterdir()}
    origin = f"hami-py-{VERSION}-provenance.json"
    assert removed == {origin, f"{origin}.sig", "SHA256SUMS.sig"}
    sums, signed = ((each / "SHA256SUMS").read_text() for each in (tmp_path, release))
    assert {*signed.splitlines()} - {*sums.splitlines()} == {signed.splitlines()[-1]}
    check = ["sha256sum", "--check", "--strict", "SHA256SUMS"]
    subprocess.run(check, cwd=tmp_path, stdout=subprocess.DEVNULL, check=True)


def test_the_bills_of_materials_name_what_is_locked(release: Path) -> None:
    named = {}
    for kind in ("python", "rust"):
        (file,) = release.glob(f"*-{kind}.cdx.json")
        bill = json.loads(file.read_text())
        assert bill["bomFormat"] == "CycloneDX"
        assert bill["metadata"]["component"]["version"] == VERSION
        named[kind] = {each["name"] for each in bill["components"]}
        for each in [bill["metadata"]["component"], *bill["components"]]:
            assert each["licenses"], each["name"]
    assert {"msgspec", "kubernetes", "grpcio"} <= named["python"]
    assert {"pyo3", "hami-allocator", "vgpu", "vgpu-table", "hami-hook", "libc"} <= named["rust"]


def test_a_cluster_is_installed_from_these_files(
    release: Path, whole_cluster: StartWhole, tmp_path: Path
) -> None:
    """The node has no image of ours before. The plugin uses no package of this Python."""
    ours, *others = images.whole()
    cluster = whole_cluster(cards="a100", wanted=others)
    cluster.api.patch(f"{NODES}/{cluster.node.name}", {"metadata": {"labels": LABEL}})
    (image,) = release.glob("*-image.tar")
    assert ours.name not in cluster.node.ctr("images", "list", "--quiet")
    cluster.node.ctr("images", "import", str(image))
    assert ours.name in cluster.node.ctr("images", "list", "--quiet")
    (chart,) = release.glob("hami-py-*.tgz")
    of = ("--namespace=hami-system", "--create-namespace", "--wait", "--timeout=5m")
    charts.run(cluster.control_plane, "install", "hami", chart, *of)
    pod = Limited("released", 3000, 30)
    create_soon(cluster.control_plane, pod.pod("sleep infinity"))
    running(cluster, pod.name)
    report = json.loads(run_in(cluster, pod.name, FILL))
    assert report["total"] == 3000 * MIB
    assert "CUDA_ERROR_OUT_OF_MEMORY" in report["error"]

    (platform,) = yaml.safe_load((release / "hami.yaml").read_text())["spec"]["platforms"]
    archive = release / platform["uri"].removeprefix(f"{URL}/")
    with tarfile.open(archive) as tar:
        tar.extractall(tmp_path / "store", filter="data")
    # As krew does.
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "kubectl-hami").symlink_to(tmp_path / "store" / platform["bin"])
    path = f"{tmp_path / 'bin'}:{binaries.folder('kubectl')}:/usr/bin:/bin"
    done = subprocess.run(
        ["kubectl", "hami", "inspect"],
        env={
            "PATH": path,
            "HOME": str(tmp_path),
            "KUBECONFIG": str(cluster.control_plane.kubeconfig),
        },
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert cluster.node.name in done.stdout
