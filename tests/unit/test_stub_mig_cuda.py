"""The stub GPU's MIG as CUDA programs see it, for the tests that rely on it."""

import json
import sys

from support.mig import MigCard
from support.mig_programs import CUDA, cuda, nvml
from support.running import Started

NO_DEVICE = 100


def test_a_program_without_a_choice_gets_the_first_instance_or_none(stub_server):
    server = stub_server("a100,a100")
    card = MigCard(server, 1).mode()
    with cuda(server.env) as program:
        assert json.loads(program.next_line())[0] == 1, "the card in MIG mode has no instance"
    first, second = card.create(14), card.create(19)
    for chosen, names in [
        (None, 2),
        ("1", " MIG 2g.10gb"),
        (second.uuid, " MIG 1g.5gb"),
        (f"{second.uuid},{first.uuid}", " MIG 1g.5gb"),
    ]:
        with cuda(server.env, chosen) as program:
            count, name, *_ = json.loads(program.next_line())
            assert (count == names) if chosen is None else (count == 1 and name.endswith(names))
    card.destroy(first)
    with cuda(server.env, first.uuid) as program:
        assert program.finish().code == NO_DEVICE
    MigCard(server, 0).mode()
    card.destroy(second)
    with cuda(server.env) as program:
        assert program.finish().code == NO_DEVICE, "neither card has an instance"


def test_capability_files_open_an_instance_and_only_it(stub_server, tmp_path):
    root = tmp_path / "root"
    server = stub_server("a100,a100", root=root)
    table = (root / "proc/driver/nvidia-caps/mig-minors").read_text().splitlines()
    minors = dict(line.rsplit(" ", 1) for line in table)
    # As NVIDIA's guide prints them.
    assert [minors[name] for name in ("config", "monitor")] == ["1", "2"]
    assert (minors["gpu0/gi1/access"], minors["gpu0/gi1/ci0/access"]) == ("12", "13")
    nodes = root / "dev/nvidia-caps"
    assert {node.name for node in nodes.iterdir()} == {"nvidia-cap1", "nvidia-cap2"}
    card = MigCard(server, 1).mode()
    first, second = card.create(14), card.create(14)

    def files(device):
        instance = f"gpu1/gi{device.instance}"
        names = (f"{instance}/access", f"{instance}/ci{device.compute}/access")
        return [nodes / f"nvidia-cap{minors[name]}" for name in names]

    both = {*files(first), *files(second)}
    assert both == {*nodes.iterdir()} - {nodes / "nvidia-cap1", nodes / "nvidia-cap2"}
    # A container with the card's node and the capabilities of the second instance.
    container = tmp_path / "dev"
    (container / "nvidia-caps").mkdir(parents=True)
    (container / "nvidia1").touch()
    for node in files(second):
        (container / "nvidia-caps" / node.name).touch()
    inside = {**server.env, "STUB_GPU_DEVICES": str(container)}
    for chosen, code in [(None, 0), (second.uuid, 0), (first.uuid, NO_DEVICE)]:
        with cuda(inside, chosen, "") as program:
            assert program.finish().code == code, chosen
    uuids = "answer = [nvmlDeviceGetUUID(device) for device in devices()]"
    assert nvml(inside, uuids) == [second.uuid]
    (container / "nvidia-caps" / "nvidia-cap2").touch()
    assert nvml(inside, uuids) == [first.uuid, second.uuid], "monitors see all"
    for node in files(second):
        moved = container / "nvidia-caps" / node.name
        moved.unlink()
        with cuda(inside, second.uuid, "") as program:
            assert program.finish().code == NO_DEVICE, "both are needed"
        moved.touch()
    card.destroy(first)
    assert {*nodes.iterdir()} & both == {*files(second)}


KERNELS = """
module = value(ctypes.c_void_p, cuda.cuModuleLoadData, b".version 8.0\\n.visible .entry k() {}\\0")
kernel = value(ctypes.c_void_p, cuda.cuModuleGetFunction, ctypes.c_void_p(module), b"k")
events = [ctypes.c_void_p(value(ctypes.c_void_p, cuda.cuEventCreate, 0)) for _ in range(2)]
def launch(times):
    for _ in range(times):
        grid = [ctypes.c_uint(size) for size in (int(sys.argv[1]), 1, 1)]
        block = [ctypes.c_uint(1)] * 3
        assert cuda.cuLaunchKernel(ctypes.c_void_p(kernel), *grid, *block, 0, *[None] * 3) == 0
launch(1)
assert cuda.cuEventRecord(events[0], None) == 0
launch(20)
assert cuda.cuEventRecord(events[1], None) == 0
print("launched", flush=True)
sys.stdin.readline()
assert cuda.cuCtxSynchronize() == 0
print(round(value(ctypes.c_float, cuda.cuEventElapsedTime, *events), 3), flush=True)
sys.stdin.read()
"""


def test_time_is_separate_and_by_multiprocessors(stub_server):
    server = stub_server(clock="virtual")
    card = MigCard(server).mode()
    first, second = card.create(9), card.create(9)
    server.control({"command": "kernels", "kernels": {"k": 1000}})
    env = {**server.env, "STUB_GPU_CLOCK": "virtual"}

    def launched(device, blocks):
        command = [sys.executable, "-c", CUDA + KERNELS, str(blocks)]
        return Started(command, {**env, "CUDA_VISIBLE_DEVICES": device.uuid})

    # Kernels of 1 ms on a whole card: as many blocks as a 3g has multiprocessors, and a whole card.
    with launched(first, 42) as small, launched(second, 108) as large:
        for program in (small, large):
            program.wait_for("launched")
        took = []
        for program in (small, large):
            program.tell("")
            took.append(float(program.next_line()))
        assert took == [20.0, round(20 * 108 / 42, 3)], "neither waits for a turn"
        ledger = server.ledger()
    rows = {row["uuid"]: row for row in ledger["mig_devices"]}
    of_program = {row["pid"]: row["mig_device"] for row in ledger["processes"] if row["mig_device"]}
    for device, program in [(first, small), (second, large)]:
        assert rows[device.uuid]["kernels"] == of_program[program.pid]["kernels"] == 21
        assert rows[device.uuid]["busy_ns"] == of_program[program.pid]["busy_ns"]
