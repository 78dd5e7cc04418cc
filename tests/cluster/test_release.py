"""The files of `make release`, and a cluster that is installed from nothing but them."""

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


@pytest.fixture(scope="module")
def release(programs: object, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """dist/, with an image that has the files of deploy/image/Dockerfile."""
    dist = tmp_path_factory.mktemp("dist")
    ours = images.whole()[0]
    for wheel in (ROOT / "dist").glob(f"hami_py-{VERSION}-*.whl"):
        shutil.copy(wheel, dist)
    with (dist / f"hami-py-{VERSION}-image.tar").open("wb") as stream:
        images.write([ours], stream)
    helm = binaries.folder("helm") / "helm"
    tools = (f"--uv={image_layers.uv()}", f"--helm={helm}")
    of = (f"--version={VERSION}", f"--url={URL}", f"--dist={dist}")
    subprocess.run([sys.executable, ROOT / "deploy" / "release.py", *tools, *of], check=True)
    return dist


def test_the_sums_are_of_all_files(release: Path) -> None:
    check = ["sha256sum", "--check", "--strict", "SHA256SUMS"]
    done = subprocess.run(check, cwd=release, capture_output=True, text=True, check=True)
    checked = {line.partition(":")[0] for line in done.stdout.splitlines()}
    assert checked == {each.name for each in release.iterdir()} - {"SHA256SUMS"}


def test_the_bills_of_materials_name_what_is_locked(release: Path) -> None:
    named = {}
    for kind in ("python", "rust"):
        (file,) = release.glob(f"*-{kind}.cdx.json")
        bill = json.loads(file.read_text())
        assert bill["bomFormat"] == "CycloneDX"
        assert bill["metadata"]["component"]["version"] == VERSION
        named[kind] = {each["name"] for each in bill["components"]}
    assert {"msgspec", "kubernetes", "grpcio"} <= named["python"]
    assert {"pyo3", "hami-allocator", "vgpu", "vgpu-table", "libc"} <= named["rust"]


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
