"""The committed modules of the kubelet's interfaces are those of the locked version."""

import shutil
import subprocess
from pathlib import Path

import pytest

from cluster import interfaces
from support.requirements import skip_or_fail


@pytest.fixture(scope="module")
def generated() -> dict[Path, str]:
    """The modules, generated from the kubelet's own interface."""
    if shutil.which("go") is None:
        skip_or_fail("there is no go")
    try:
        return interfaces.generated()
    except subprocess.CalledProcessError as error:
        skip_or_fail(f"the module k8s.io/kubelet is not here: {error.stdout}{error.stderr}")


def test_the_committed_modules_are_the_generated_ones(
    generated: dict[Path, str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(interfaces, "generated", lambda: generated)
    status = interfaces.main(["--check"])
    assert (capsys.readouterr().out, status) == ("", 0)


def test_no_other_module_is_committed(generated: dict[Path, str]) -> None:
    for package in interfaces.PACKAGES:
        wanted = {path for path in generated if path.parent == package.folder}
        wanted.add(package.folder / "__init__.py")
        assert {*package.folder.glob("*.py*")} == wanted
