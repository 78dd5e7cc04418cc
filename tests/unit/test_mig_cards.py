"""MIG instances on a stub as cards of a node: what is published, and what a container gets."""

import json
import re
import sys
from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest

from hami_py.errors import StateError
from hami_py.gpu.mig import MigDevice
from hami_py.model.pods.wire import Card, MigProfile
from hami_py.node.cdi import NodeCards
from support.mig import TABLES, MigCard
from support.running import run
from support.stub import StubServer

ROOT = Path(__file__).parents[2]

READ = """
import msgspec
from hami_py.gpu.inventory import inventory
print(msgspec.json.encode(inventory(slots=4)).decode())
"""

#: Profiles of an A100 with 40 GB, by their ID.
SMALL, HALF = 19, 9


class Read(msgspec.Struct):
    """What the agent reads."""

    cards: tuple[Card, ...]
    mig_devices: dict[str, MigDevice]
    in_mig_mode: tuple[Card, ...]


def read(server: StubServer, **more: str) -> tuple[Read, str]:
    """What the agent reads of these cards, and its log."""
    done = run([sys.executable, "-c", READ], {**server.env, "PYTHONPATH": str(ROOT), **more})
    assert done.code == 0, done.err
    return msgspec.json.decode(done.out, type=Read), done.err


def test_each_instance_is_a_card_for_one_container(
    stub_server: Callable[..., StubServer],
) -> None:
    server = stub_server("a100,a100,a100")
    MigCard(server, 0).mode()
    halved = MigCard(server, 1).mode()
    small, half = halved.create(SMALL), halved.create(HALF)
    seen, _ = read(server)
    cards = seen.cards
    (whole,) = [card for card in cards if card.uuid.startswith("GPU-")]
    assert whole.uuid == server.uuids()[2], "a card in MIG mode is no card, also without instances"
    assert (whole.cores, whole.slots, whole.memory_mib) == (100, 4, 40960)
    found = {card.uuid: (card.model, card.memory_mib, card.cores, card.slots) for card in cards}
    name = "NVIDIA A100-SXM4-40GB MIG"
    assert found[small.uuid] == (f"{name} 1g.5gb", 4864, 14, 1)
    assert found[half.uuid] == (f"{name} 3g.20gb", 19968, 42, 1)
    assert len({card.index for card in cards}) == len(cards) == 3
    assert seen.mig_devices == {
        each.uuid: MigDevice(1, each.instance, each.compute, server.uuids()[1], found[each.uuid][0])
        for each in (small, half)
    }
    assert [(card.uuid, card.slots) for card in seen.in_mig_mode] == [
        (uuid, 7) for uuid in server.uuids()[:2]
    ]


@pytest.mark.parametrize("model", ["a100", "a100-80", "h100", "h200", "b200"])
def test_a_gpu_has_the_profiles_of_its_table(
    stub_server: Callable[..., StubServer], model: str
) -> None:
    server = stub_server(model)
    MigCard(server).mode()
    seen, _ = read(server)
    (card,) = seen.in_mig_mode
    assert card.mig is not None
    assert {profile.name: profile for profile in card.mig.profiles} == {
        name: MigProfile(name, row["memory_mib"], row["slices"], tuple(row["starts"]), row["size"])
        for name, row in TABLES[model].items()
    }


def test_the_page_has_the_profiles_of_the_tables() -> None:
    page = (ROOT / "docs" / "levels.md").read_text()
    rows = [line.split("|") for line in page.splitlines() if re.match(r"\| \dg[ ,].*MiB", line)]
    assert len(rows) == 6
    for cells in rows:
        *profiles, most, cores = cells[2:-1]
        for model, cell in zip(("a100", "a100-80", "h100", "h200"), profiles, strict=True):
            found = re.fullmatch(r" `(.+)`: (\d+) MiB ", cell)
            assert found, cell
            row = TABLES[model][found[1]]
            assert (row["memory_mib"], row["instances"]) == (int(found[2]), int(most))
            assert row["slices"] * 100 // 7 == int(cores)


def test_compute_instances_that_share_memory_are_left_out(
    stub_server: Callable[..., StubServer],
) -> None:
    """Neither would limit the memory of its container."""
    server = stub_server("a100")
    card = MigCard(server).mode()
    alone = card.create(SMALL)
    order = {"command": "mig", "card": 0}
    shared = server.control({**order, "call": {"create-instance": {"profile": HALF}}})["id"]
    for _ in range(2):
        server.control({**order, "call": {"create-compute": {"instance": shared, "slices": 1}}})
    seen, log = read(server)
    assert [each.uuid for each in seen.cards] == [alone.uuid]
    assert log.count("is left out: other compute instances use its memory") == 2


@pytest.mark.parametrize("below", ["", "/run/driver"], ids=["on-the-node", "in-a-container"])
def test_a_container_gets_the_nodes_of_its_instance(
    stub_server: Callable[..., StubServer], tmp_path: Path, below: str
) -> None:
    """NVIDIA's specification was made before the instances."""
    node = tmp_path / "node"
    root = node / below[1:]
    root.mkdir(parents=True)
    server = stub_server("a100,a100", root=root)
    card = MigCard(server, 1).mode()
    mine, other = card.create(SMALL), card.create(SMALL)
    if below:
        # The kernel has the table below the root directory in any case.
        (root / "proc").rename(node / "proc")
    (root / "dev" / "nvidia1").touch()
    control = {"path": "/dev/nvidiactl", "hostPath": f"{below}/dev/nvidiactl"}
    written = {
        "cdiVersion": "0.5.0",
        "kind": "nvidia.com/gpu",
        "devices": [{"name": "GPU-a", "containerEdits": {}}],
        "containerEdits": {"deviceNodes": [control]},
    }
    (tmp_path / "nvidia.json").write_text(json.dumps(written))
    seen, _ = read(server)
    cards = NodeCards([tmp_path], lambda: seen.mig_devices, node)
    assert cards.missing([mine.uuid, other.uuid]) == []
    edits = cards.edits([mine.uuid])
    assert edits.common == written["containerEdits"]
    got = {each["path"]: each["hostPath"] for each in edits.own["deviceNodes"]}
    assert got == {path: below + path for path in got}
    caps = {path for path in got if "nvidia-cap" in path}
    assert (len(caps), got.keys() - caps) == (2, {"/dev/nvidia1"})
    # What the driver asks of a program: both nodes of an instance. The libraries look in a folder.
    folder = tmp_path / "dev"
    for path in got:
        copy = folder / path.removeprefix("/dev/")
        copy.parent.mkdir(parents=True, exist_ok=True)
        copy.touch()
    inside, _ = read(server, STUB_GPU_DEVICES=str(folder))
    assert [each.uuid for each in inside.cards] == [mine.uuid]

    (root / sorted(caps)[0][1:]).unlink()
    assert cards.missing([mine.uuid]) == [mine.uuid]
    with pytest.raises(StateError, match=f"{mine.uuid}: no CDI specification"):
        cards.edits([mine.uuid])


def test_nvidia_s_specification_of_an_instance_counts(tmp_path: Path) -> None:
    env = {"env": ["NVIDIA=1"]}
    written = {
        "cdiVersion": "0.5.0",
        "kind": "nvidia.com/gpu",
        "devices": [{"name": "MIG-a", "containerEdits": env}],
    }
    (tmp_path / "nvidia.json").write_text(json.dumps(written))
    table = tmp_path / "proc" / "driver" / "nvidia-caps" / "mig-minors"
    nodes = ("dev/nvidia0", "dev/nvidia-caps/nvidia-cap12", "dev/nvidia-caps/nvidia-cap13")
    for file in (table, *(tmp_path / node for node in nodes)):
        file.parent.mkdir(parents=True, exist_ok=True)
        file.touch()
    table.write_text("gpu0/gi1/access 12\ngpu0/gi1/ci0/access 13\n")
    cards = NodeCards([tmp_path], lambda: {"MIG-a": MigDevice(0, 1, 0)}, tmp_path)
    own = cards.edits(["MIG-a"], allows_mps=True).own
    assert own == {"env": ["NVIDIA=1", "NVIDIA_VISIBLE_DEVICES=void"]}
