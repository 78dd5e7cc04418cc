"""The kubelet's interfaces in hami_py/plugin/api are those of the locked version."""

import shutil
import subprocess

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


def test_the_committed_modules_are_the_generated_ones(
    generated: dict[str, str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(interfaces, "generated", lambda: generated)
    status = interfaces.main(["--check"])
    assert (capsys.readouterr().out, status) == ("", 0)


def test_no_other_module_is_committed(generated: dict[str, str]) -> None:
    folder = interfaces.ROOT / interfaces.PACKAGE
    assert {path.name for path in folder.glob("*.py*")} == {*generated, "__init__.py"}
