"""The kubelet's interfaces in hami_py/plugin/api are those of the locked version."""

import shutil
import subprocess
from pathlib import Path

import pytest

from cluster import interfaces
from support.requirements import skip_or_fail


@pytest.fixture(scope="module")
def generated() -> dict[str, str]:
    """The modules, generated from the kubelet's own interface."""
    if shutil.which("go") is None:
        skip_or_fail("there is no go")
    try:
        return interfaces.generated()
    except subprocess.CalledProcessError as error:
        skip_or_fail(f"the module k8s.io/kubelet is not here: {error.stdout}{error.stderr}")


@pytest.fixture
def checked(generated: dict[str, str], monkeypatch: pytest.MonkeyPatch) -> None:
    """`interfaces.main` uses them."""
    monkeypatch.setattr(interfaces, "generated", lambda: generated)


@pytest.mark.usefixtures("checked")
def test_the_committed_modules_are_the_generated_ones(capsys: pytest.CaptureFixture[str]) -> None:
    status = interfaces.main(["--check"])
    assert (capsys.readouterr().out, status) == ("", 0)


def test_no_other_module_is_committed(generated: dict[str, str]) -> None:
    folder = interfaces.ROOT / interfaces.PACKAGE
    assert {path.name for path in folder.glob("*.py*")} == {*generated, "__init__.py"}


@pytest.mark.usefixtures("checked")
@pytest.mark.parametrize("how", ["changed", "missing"])
def test_a_difference_is_found(
    how: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    shutil.copytree(interfaces.ROOT / interfaces.PACKAGE, tmp_path / interfaces.PACKAGE)
    monkeypatch.setattr(interfaces, "ROOT", tmp_path)
    module = tmp_path / interfaces.PACKAGE / "deviceplugin_pb2.py"
    if how == "changed":
        module.write_text(module.read_text().replace("v1beta1", "v1beta2"))
    else:
        module.unlink()
    assert interfaces.main(["--check"]) == 1
    assert "deviceplugin_pb2.py differs" in capsys.readouterr().out
