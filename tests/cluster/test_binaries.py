"""How the cluster's programs are built: once, whole, and with one line where that cannot be."""

from pathlib import Path

import pytest

from cluster import binaries

# They need no Kubernetes.
pytestmark = pytest.mark.tier("fast")


@pytest.fixture
def go(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A `go` that a test writes; an empty cache."""
    folder = tmp_path / "bin"
    folder.mkdir()
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("PATH", f"{folder}:/usr/bin:/bin")
    monkeypatch.setattr("shutil.which", lambda name: str(folder / name))
    return folder / "go"


def write(go: Path, script: str) -> None:
    go.write_text(f"#!/bin/sh\n{script}\n")
    go.chmod(0o755)


def test_a_group_is_built_once_and_named_by_its_sources(go: Path) -> None:
    write(go, f'echo build >> {go}.calls; while [ "$1" != -o ]; do shift; done; echo new > "$2"')
    folder = binaries.ensure("kubectl")
    assert folder.name.startswith("kubectl-")
    assert (folder / "kubectl").read_text() == "new\n"
    assert binaries.ensure("kubectl") == folder
    assert Path(f"{go}.calls").read_text() == "build\n"


def test_a_failed_build_leaves_nothing_and_shows_the_output_of_go(go: Path) -> None:
    write(go, "echo 'go: downloading x'; echo 'no such host: proxy.golang.org'; exit 1")
    with pytest.raises(binaries.CannotBuild, match=r"proxy\.golang\.org") as said:
        binaries.ensure("kubectl")
    assert "downloading" not in str(said.value)
    assert [path.name for path in binaries.cache().iterdir()] == ["lock"]


def test_a_build_that_takes_too_long_is_ended(go: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(binaries, "DEADLINE", 0.2)
    write(go, "sleep 1000")
    with pytest.raises(binaries.CannotBuild, match="took more than"):
        binaries.ensure("kubectl")


def test_a_missing_go_is_reported(
    go: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("shutil.which", lambda name: None)
    assert binaries.main(["kubectl"]) == 1
    said = capsys.readouterr().err
    assert f"to build into {binaries.cache()}: kubectl; about 1 min in all" in said
    assert "missing: go " in said
