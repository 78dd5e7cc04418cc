"""The hook that checks a container's mounts, beside real mounts, as the container runtime runs it.

The root of the container is a directory. The mounts are made in a mount namespace that ends with
the hook: those of our CDI device, and those of volumes before and after them.
"""

import json
import os
import shlex
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from hami_py.config import PACKAGED_HOOK
from hami_py.node.library import PRELOAD
from hami_py.node.slot import Bind, binds
from support.elf import readelf
from support.requirements import skip_or_fail
from support.running import Run, run

INSIDE = Path("/usr/local/hami")


def test_it_runs_on_a_node_with_any_c_library() -> None:
    assert "INTERP" not in readelf("--program-headers", PACKAGED_HOOK)
    assert "NEEDED" not in readelf("--dynamic", PACKAGED_HOOK)


@dataclass
class Container:
    """A container: its root, the slot of its CDI device, and a volume."""

    folder: Path
    binds: Sequence[Bind]
    #: Commands, before and after the mounts of the device.
    before: list[str] = field(default_factory=list)
    after: list[str] = field(default_factory=list)
    #: Where the links lead by which the runtime finds its mount points.
    links: dict[str, str] = field(default_factory=dict)

    @property
    def root(self) -> Path:
        return self.folder / "bundle" / "rootfs"

    @property
    def volume(self) -> Path:
        return self.folder / "volume"

    def at(self, path: str | Path) -> Path:
        """A path of the container, as one of the node."""
        there = str(path)
        for link, leads_to in self.links.items():
            there = there.replace(f"{link}/", f"{leads_to}/", 1)
        return self.root / Path(there).relative_to("/")

    def link(self, path: str, target: str, leads_to: str) -> None:
        """Put a symbolic link in place of an empty directory of the image."""
        self.at(path).rmdir()
        self.at(path).symlink_to(target)
        self.links[path] = leads_to

    def mount(self, path: str | Path, source: Path | None = None, flags: str = "") -> str:
        """The command that mounts the volume, or another source, in the container."""
        command = ["mount", "--bind", str(source or self.volume), str(self.at(path))]
        return shlex.join(command) + (
            f"\nmount -o remount,bind,{flags} {command[-1]}" * bool(flags)
        )

    def place(self, bind: Bind) -> str:
        """The command that mounts a part of the device. The runtime makes what is missing."""
        target = self.at(bind.target)
        make = "mkdir -p" if bind.source.is_dir() else "touch"
        prepare = f"[ -e {target} ] || {{ mkdir -p {target.parent}; {make} {target}; }}\n"
        return prepare + self.mount(bind.target, bind.source, "ro" if bind.read_only else "rw")

    def check(self, state: str | None = None, *words: str) -> Run:
        """Run the hook in the container's mount namespace."""
        if state is None:
            state = json.dumps({"ociVersion": "1.0.2", "bundle": str(self.root.parent)})
        arguments: list[str] = []
        for bind in self.binds:
            arguments += ["ro" if bind.read_only else "rw", str(bind.source), str(bind.target)]
        hook = shlex.join([str(PACKAGED_HOOK), *(words or arguments)])
        lines = [
            f"mount --bind {self.root} {self.root}",
            *self.before,
            *(map(self.place, self.binds)),
            *self.after,
            f"exec {hook} <<'END'\n{state}\nEND",
        ]
        command = ["unshare", "--mount", "--propagation", "private", "sh", "-euc"]
        return run([*command, "\n".join(lines)], {})

    def refused(self) -> str:
        """The one line with which the hook refuses the container."""
        done = self.check()
        assert done.code == 1, done.err
        (line,) = done.err.splitlines()
        begin = "hami-py: the container would start without its GPU limits: "
        assert line.startswith(begin)
        return line.removeprefix(begin)

    def accepted(self) -> None:
        done = self.check()
        assert (done.code, done.out, done.err) == (0, "", "")


@pytest.fixture
def container(tmp_path: Path) -> Container:
    if os.geteuid() != 0:
        skip_or_fail("only root can mount")
    slot, library = tmp_path / "slot", tmp_path / "library" / "libvgpu.so"
    for folder in (slot, library.parent, tmp_path / "volume" / "hami"):
        folder.mkdir(parents=True)
    preload = library.with_name("ld.so.preload")
    for file in (*(slot / name for name in ("limits", "grants", "account", "libvgpu.so")), library):
        file.touch()
    preload.touch()
    made = Container(
        tmp_path, [*binds(slot, library, INSIDE), Bind(preload, PRELOAD, read_only=True)]
    )
    for name in ("etc", "usr/local", "data"):
        (made.root / name).mkdir(parents=True)
    (made.root.parent / "config.json").write_text('{"process": {}, "root": {"path": "rootfs"}}')
    return made


def test_a_container_that_sees_what_was_mounted_starts(container: Container) -> None:
    container.before = [container.mount("/data")]
    container.accepted()


def test_the_root_may_be_anywhere(container: Container) -> None:
    config = {"root": {"path": str(container.root), "readonly": True}}
    (container.root.parent / "config.json").write_text(json.dumps(config))
    container.accepted()


@pytest.mark.parametrize("target", ["/opt/local", "../opt/local", "../../../opt/x/../local"])
def test_links_inside_the_image_are_followed(container: Container, target: str) -> None:
    """As in images whose /usr cannot be written."""
    for name in ("local", "x"):
        (container.root / "opt" / name).mkdir(parents=True)
    container.link("/usr/local", target, leads_to="/opt/local")
    container.accepted()


COVERED = "is not what hami-py has mounted there; mount no volume at or above"


@pytest.mark.parametrize(
    "path", [INSIDE, INSIDE / "limits", INSIDE / "libvgpu.so", PRELOAD], ids=str
)
def test_a_volume_over_a_path_of_ours_is_found(container: Container, path: Path) -> None:
    volume = container.volume
    if path != INSIDE:
        volume = container.volume / "file"
        volume.touch()
    container.after = [container.mount(path, volume)]
    assert container.refused().startswith(f"{path} {COVERED} {path}, also not through a symbolic")


@pytest.mark.parametrize("when", ["before", "after"])
@pytest.mark.parametrize("path", ["/etc", "/usr", "/usr/local"])
def test_no_path_of_ours_is_inside_a_volume(container: Container, path: str, when: str) -> None:
    """Another container that has the volume could remove the directory that we have mounted at."""
    (container.volume / "local").mkdir()
    setattr(container, when, [container.mount(path)])
    assert f" is in the mount at {path}; mount no volume there" in container.refused()


def test_a_link_of_the_image_into_a_volume_is_found(container: Container) -> None:
    container.link("/usr/local", "../data", leads_to="/data")
    container.before = [container.mount("/data")]
    assert container.refused() == (
        "/usr/local/hami is in the mount at /data; mount no volume there, also not through a "
        "symbolic link"
    )


def test_the_preload_file_is_no_link(container: Container) -> None:
    """A program of the container could remove it: a link is not a mount point."""
    (container.root / "etc" / "ld.so.preload").symlink_to("preload")
    (container.root / "etc" / "preload").touch()
    assert container.refused() == (
        "/etc/ld.so.preload is a symbolic link in the container; take an image without it"
    )


def test_a_loop_of_links_is_no_path(container: Container) -> None:
    container.after = [f"rmdir {container.root}/data; ln -s data {container.root}/data"]
    done = container.check(None, "ro", str(container.volume), "/data/x")
    assert done.code == 1
    assert "Too many levels of symbolic links" in done.err


@pytest.mark.parametrize("flags", ["ro", "rw"])
def test_the_limits_are_read_only_and_the_account_is_not(container: Container, flags: str) -> None:
    (bind,) = [each for each in container.binds if each.read_only is (flags == "rw")][-1:]
    container.after = [f"mount -o remount,bind,{flags} {container.at(bind.target)}"]
    what = "cannot" if flags == "ro" else "can"
    assert container.refused().startswith(f"{bind.target} {what} be written; ")


def test_a_mount_that_was_not_made_is_found(container: Container) -> None:
    bind = container.binds[-1]
    container.after = [f"umount {container.at(bind.target)}; rm {container.at(bind.target)}"]
    assert container.refused() == f"{PRELOAD}: No such file or directory (os error 2)"


def test_a_slot_that_is_gone_is_found(container: Container) -> None:
    slot = container.binds[0].source
    container.after = [f"mv {slot} {slot}-gone"]
    assert container.refused() == f"{slot}: No such file or directory (os error 2)"


@pytest.mark.parametrize(
    "state", ["", "{", "[]", "{}", '{"bundle": 1}', '{"bundle": "relative"}', '{"bundle": "/none"}']
)
def test_an_unknown_state_fails(container: Container, state: str) -> None:
    assert container.check(state).code == 1


@pytest.mark.parametrize("text", ["", "{}", '{"root": {}}', '{"root": {"path": "none"}}'])
def test_an_unknown_root_fails(container: Container, text: str) -> None:
    (container.root.parent / "config.json").write_text(text)
    assert container.refused()


@pytest.mark.parametrize("words", [("ro",), ("ro", "/a"), ("x", "/a", "/b"), ("ro", "/", "a")])
def test_unknown_arguments_fail(container: Container, words: tuple[str, ...]) -> None:
    assert container.check(None, *words).code == 1
