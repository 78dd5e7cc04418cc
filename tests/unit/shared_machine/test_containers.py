"""Kept slices as devices of containers: their specification, and the containers that have them."""

import json
import os
from pathlib import Path
from typing import Any

import pytest

from hami_py.cli.cdi import _options
from hami_py.errors import SliceInUse, StateError
from hami_py.machine.containers import processes_in_containers, slots_mounted
from hami_py.machine.policy import Policy, User
from hami_py.model import LimitRequest
from support.running import Started
from unit.shared_machine.test_register import ALICE, BOB, GIB, Machine, me

pytestmark = pytest.mark.skipif(os.getuid() != 0, reason="the service runs as root")

#: In the shape that nvidia-ctk writes.
NVIDIA: dict[str, Any] = {
    "cdiVersion": "0.5.0",
    "kind": "nvidia.com/gpu",
    "devices": [
        {"name": uuid, "containerEdits": {"deviceNodes": [{"path": f"/dev/nvidia{minor}"}]}}
        for minor, uuid in enumerate(("GPU-a", "GPU-b"))
    ],
    "containerEdits": {
        "deviceNodes": [{"path": "/dev/nvidiactl"}],
        "mounts": [{"hostPath": "/lib/libcuda.so.1", "containerPath": "/lib/libcuda.so.1"}],
    },
}

SMALL = LimitRequest(GIB, 1)


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Machine:
    """That of the register's tests, with users who have names, and NVIDIA's specification."""
    names = {ALICE: "alice", BOB: "bob"}

    def user_of(uid: int) -> User:
        return User(uid, names.get(uid, str(uid)))

    monkeypatch.setattr("hami_py.machine.register.user_of", user_of)
    made = Machine(tmp_path / "machine")
    made.policy = Policy()
    put(made, NVIDIA)
    return made


def put(machine: Machine, specification: object) -> None:
    """Write NVIDIA's specification."""
    directory = machine.paths.cdi[1]
    directory.mkdir(exist_ok=True)
    (directory / "nvidia.json").write_text(json.dumps(specification))


def keep(machine: Machine, name: str | None, uid: int = ALICE, **more: Any) -> Path:
    """A kept slice."""
    slot, _ = machine.register.create(me(uid), SMALL, name=name, keep=True, **more)
    return slot


def written(machine: Machine) -> dict[str, Any]:
    """The specification."""
    machine.devices.update()
    found = json.loads((machine.paths.cdi[0] / "hami-slices.json").read_text())
    assert isinstance(found, dict)
    return found


def names(machine: Machine) -> list[str]:
    """The names of its devices."""
    return sorted(device["name"] for device in written(machine)["devices"])


def test_a_kept_slice_is_a_device_with_its_files_and_the_driver_s(machine: Machine) -> None:
    slot = keep(machine, "train", devices=("1",))
    found = written(machine)
    assert (found["cdiVersion"], found["kind"]) == ("0.5.0", "hami.io/slice")
    assert found["containerEdits"] == NVIDIA["containerEdits"]
    (device,) = found["devices"]
    edits, beside = device["containerEdits"], machine.library.parent
    assert device["name"] == "alice.train"
    assert edits["deviceNodes"] == [{"path": "/dev/nvidia1"}]
    no_mps = "CUDA_MPS_PIPE_DIRECTORY=/nonexistent"
    assert edits["env"] == [no_mps, "NVIDIA_VISIBLE_DEVICES=void"]
    plain, of_tmpfs = ["nosuid", "nodev", "bind"], ["nosuid", "nodev", "noexec", "bind"]
    assert [
        (each["hostPath"], each["containerPath"], each["options"]) for each in edits["mounts"]
    ] == [
        (f"{beside}/slot", "/usr/local/hami", ["ro", *plain]),
        (f"{slot}/limits", "/usr/local/hami/limits", ["ro", *of_tmpfs]),
        (f"{slot}/grants", "/usr/local/hami/grants", ["ro", *of_tmpfs]),
        (f"{slot}/account", "/usr/local/hami/account", ["rw", *of_tmpfs]),
        (f"{beside}/libvgpu.so", "/usr/local/hami/libvgpu.so", ["ro", *plain]),
        (f"{beside}/ld.so.preload", "/etc/ld.so.preload", ["ro", *plain]),
    ]
    assert sorted((each.name, each.stat().st_size) for each in (beside / "slot").iterdir()) == [
        ("account", 0),
        ("grants", 0),
        ("libvgpu.so", 0),
        ("limits", 0),
    ]


def test_each_kept_slice_has_a_device_of_its_own(machine: Machine) -> None:
    keep(machine, "train")
    keep(machine, "train", BOB)
    # 61003 has no name, and some names cannot be those of devices.
    keep(machine, "train", 61_003)
    unnamed, odd = keep(machine, None), keep(machine, "odd_")
    machine.register.create(me(), SMALL, name="ends")
    own = keep(machine, "outer")
    keep(machine, "inner", around=(str(own),))
    short = (each.name[:12] for each in (unnamed, odd))
    expected = ["61003.train", "alice.outer", "alice.train", "bob.train"]
    assert names(machine) == sorted([*expected, *(f"alice.{each}" for each in short)])


def test_a_name_that_is_the_id_of_another_slice_does_not_spoil_the_file(machine: Machine) -> None:
    unnamed = keep(machine, None)
    keep(machine, unnamed.name[:12])
    assert names(machine) == [f"alice.{unnamed.name[:12]}"]


def test_users_with_other_names_are_numbers(
    machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("a.b", "LAB\\carol", "carol@lab", "4711"):
        user = User(ALICE, name)
        monkeypatch.setattr("hami_py.machine.register.user_of", lambda _uid, user=user: user)
        keep(machine, name.replace("\\", ".").replace("@", "."))
    assert {each.partition(".")[0] for each in names(machine)} == {str(ALICE)}


def test_the_file_follows_slices_and_the_driver(machine: Machine) -> None:
    keep(machine, "train")
    path = machine.paths.cdi[0] / "hami-slices.json"
    written(machine)
    before = path.stat().st_ino
    machine.devices.update()
    assert path.stat().st_ino == before, "nothing has changed"
    put(machine, {**NVIDIA, "cdiVersion": "0.7.0", "containerEdits": {"env": ["DRIVER=2"]}})
    found = written(machine)
    assert (found["cdiVersion"], found["containerEdits"]) == ("0.7.0", {"env": ["DRIVER=2"]})
    machine.register.release(me(), "train")
    machine.register.remove(me(), "train")
    machine.devices.update()
    assert not path.exists(), "a specification without devices is refused"


def test_without_the_driver_s_specification_a_slice_is_no_device(machine: Machine) -> None:
    keep(machine, "both")
    keep(machine, "one", devices=("0",))
    put(machine, {**NVIDIA, "devices": NVIDIA["devices"][:1]})
    assert names(machine) == ["alice.one"]
    told = {
        each.name: each.problem for each in machine.devices.devices(machine.register.visible(me()))
    }
    assert told["hami.io/slice=alice.one"] is None
    problem = told["hami.io/slice=alice.both"]
    assert problem is not None
    assert "no CDI specification" in problem
    assert "nvidia-ctk cdi generate" in problem


def test_a_docker_without_cdi_gets_the_cards_and_the_same_files(machine: Machine) -> None:
    slot = keep(machine, "both")
    beside, target = machine.library.parent, "/usr/local/hami"
    (device,) = machine.devices.devices(machine.register.visible(me()))
    assert list(_options(device, slot)) == [
        *("--gpus", '"device=GPU-a,GPU-b"'),
        *("-v", f"{beside}/slot:{target}:ro"),
        *("-v", f"{slot}/limits:{target}/limits:ro"),
        *("-v", f"{slot}/grants:{target}/grants:ro"),
        *("-v", f"{slot}/account:{target}/account"),
        *("-v", f"{beside}/libvgpu.so:{target}/libvgpu.so:ro"),
        *("-v", f"{beside}/ld.so.preload:/etc/ld.so.preload:ro"),
    ]


def test_a_file_that_cannot_be_written_says_why(machine: Machine) -> None:
    keep(machine, "train")
    machine.paths.cdi[0].touch()
    with pytest.raises(StateError, match=r"hami-slices\.json"):
        machine.devices.update()
    machine.paths.cdi[0].unlink()
    assert names(machine) == ["alice.train"], "it is tried again"


#: Mounts the files of a slot as a container runtime does.
MOUNTS = """
mount -t tmpfs none /usr/local
mkdir /usr/local/hami
touch /usr/local/hami/account
mount --bind "$0/account" /usr/local/hami/account
echo mounted
"""


def container(slot: Path, *more: str) -> Started:
    script = MOUNTS + "\n".join(more or ["exec cat"])
    unshare = ["unshare", "--mount", "--propagation", "private"]
    return Started([*unshare, "sh", "-euc", script, str(slot)], {}).wait_for("mounted")


def test_a_container_uses_its_slice_also_without_a_program_on_the_card(machine: Machine) -> None:
    slot, other = keep(machine, "train"), keep(machine, "other")
    device = machine.paths.slots.stat().st_dev
    for name in ("train", "other"):
        machine.register.release(me(), name)
    with container(slot) as started:
        assert processes_in_containers(device) == {slot.name: {started.pid}}
        assert slots_mounted(Path(f"/proc/{started.pid}"), device) == {slot.name}
        with pytest.raises(SliceInUse, match=str(started.pid)):
            machine.register.remove(me(), "train")
        machine.register.remove(me(), "other")
    assert not other.exists()
    machine.register.remove(me(), "train")
    assert not slot.exists()
