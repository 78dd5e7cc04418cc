"""The stub GPU's MIG as nvidia-ml-py sees it, for the tests that rely on it."""

import json
import os
import sys
import tempfile
from pathlib import Path

import pytest

from support.mig import MigCard
from support.mig_programs import MIB, NVML, cuda, nvml
from support.running import Started
from support.stub import StubServer

IN_USE, NO_PERMISSION, NOT_SUPPORTED, INSUFFICIENT_RESOURCES = 19, 4, 3, 23
NOT_FOUND, INVALID_ARGUMENT, UNKNOWN = 6, 2, 999
NO_DEVICE, OUT_OF_MEMORY = 100, 2


def test_seven_instances_are_made_used_to_the_last_byte_and_destroyed(gpu):
    made = nvml(
        gpu.env,
        """
assert nvmlDeviceSetMigMode(card, 1) == 0 and nvmlDeviceGetMigMode(card) == [1, 1]
small = profiles()["1g.5gb"]
before = nvmlDeviceGetGpuInstanceRemainingCapacity(card, small.id)
for _ in range(7):
    make(small, 0)
eighth = code(nvmlDeviceCreateGpuInstance, card, small.id)[0]
rows = [
    (nvmlDeviceGetUUID(device), nvmlDeviceGetName(device), nvmlDeviceGetGpuInstanceId(device),
     nvmlDeviceGetComputeInstanceId(device), nvmlDeviceGetMemoryInfo(device).total,
     nvmlDeviceGetAttributes(device).multiprocessorCount, nvmlDeviceIsMigDeviceHandle(device).value,
     nvmlDeviceGetUUID(nvmlDeviceGetDeviceHandleFromMigDeviceHandle(device)),
     nvmlDeviceGetIndex(nvmlDeviceGetHandleByUUID(nvmlDeviceGetUUID(device))))
    for device in devices()
]
left = nvmlDeviceGetGpuInstanceRemainingCapacity(card, small.id)
answer = [before, eighth, left, nvmlDeviceGetMaxMigDeviceCount(card), nvmlDeviceGetUUID(card), rows]
""",
    )
    before, eighth, left, most, parent, rows = made
    assert (before, eighth, left, most) == (7, INSUFFICIENT_RESOURCES, 0, 7)
    name = "NVIDIA A100-SXM4-40GB MIG 1g.5gb"
    assert [row[1:] for row in rows] == [
        [name, 7 + index, 0, 4864 * MIB, 14, 1, parent, index] for index in range(7)
    ]
    uuid = rows[3][0]
    fill = """
free = value(ctypes.c_size_t, cuda.cuMemGetInfo_v2, ctypes.byref(ctypes.c_size_t()))
print([allocate(free + 1), allocate(free), allocate(1)], flush=True)
sys.stdin.read()
"""
    with cuda(gpu.env, uuid, fill, STUB_GPU_GROUP="slice") as program:
        count, seen, total, sms = json.loads(program.next_line())
        assert (count, seen, sms) == (1, name, 14)
        assert json.loads(program.next_line()) == [OUT_OF_MEMORY, 0, OUT_OF_MEMORY]
        ledger = gpu.ledger()
        used = {row["uuid"]: row["used"] for row in ledger["mig_devices"]}
        assert used == {row[0]: total if row[0] == uuid else 0 for row in rows}
        assert ledger["cards"][0]["used"] == 0
        [owner] = [row for row in ledger["processes"] if row["group"] == "slice"]
        assert owner["pid"] == program.pid and owner["mig_device"]["uuid"] == uuid
        reading = nvml(
            gpu.env,
            """
answer = [nvmlDeviceGetMemoryInfo(device).free for device in devices()], processes(card)
answer += [processes(device) for device in devices()][2:4], nvmlDeviceGetMemoryInfo(card).used
""",
        )
        free, on_card, of_two, on_whole = reading
        assert [not bytes_ for bytes_ in free] == [row[0] == uuid for row in rows]
        assert on_card == [[program.pid, 10, 0]] and of_two == [[], on_card]
        assert on_whole > total
    destroyed = nvml(
        gpu.env,
        """
for instance in instances(profiles()["1g.5gb"]):
    [compute] = computes(instance, 0)
    nvmlComputeInstanceDestroy(compute)
    nvmlGpuInstanceDestroy(instance)
answer = len(devices()), nvmlDeviceSetMigMode(card, 0), nvmlDeviceGetMigMode(card)
""",
    )
    assert destroyed == [0, 0, [0, 0]]


#: By card: each profile's ID, slices, instances, memory in MiB, multiprocessors, and placements.
PUBLISHED = {
    "h100": {
        "1g.10gb": [19, 1, 7, 9984, 16, [[start, 1] for start in range(7)]],
        "1g.10gb+me": [20, 1, 1, 9984, 16, [[start, 1] for start in range(7)]],
        "1g.20gb": [15, 1, 4, 20096, 26, [[0, 2], [2, 2], [4, 2], [6, 2]]],
        "2g.20gb": [14, 2, 3, 20096, 32, [[0, 2], [2, 2], [4, 2]]],
        "3g.40gb": [9, 3, 2, 40448, 60, [[0, 4], [4, 4]]],
        "4g.40gb": [5, 4, 1, 40448, 64, [[0, 4]]],
        "7g.80gb": [0, 7, 1, 81152, 132, [[0, 8]]],
    },
}


@pytest.mark.parametrize("card", ["a100", "a100-80", "h100", "h200", "b200"])
def test_every_profile_can_be_made_as_often_as_it_says(stub_server, card):
    server = stub_server(card)
    rows = nvml(
        server.env,
        """
nvmlDeviceSetMigMode(card, 1)
answer = {}
for name, info in profiles().items():
    made = []
    while True:
        result, instance = code(nvmlDeviceCreateGpuInstance, card, info.id)
        if result:
            break
        made.append(instance)
    assert result == NVML_ERROR_INSUFFICIENT_RESOURCES and len(made) == info.instanceCount, name
    for instance in made:
        nvmlGpuInstanceDestroy(instance)
    assert nvmlDeviceGetGpuInstanceRemainingCapacity(card, info.id) == info.instanceCount
    answer[name] = [info.id, info.sliceCount, info.instanceCount, info.memorySizeMB,
                    info.multiprocessorCount, placements(info)]
""",
    )
    assert len(rows) == 7 and {row[1] for row in rows.values()} == {1, 2, 3, 4, 7}
    if card in PUBLISHED:
        assert rows == PUBLISHED[card]


def test_calls_are_refused_as_the_header_says(gpu):
    refused = nvml(
        gpu.env,
        """
small = 19
off = [
    code(nvmlDeviceCreateGpuInstance, card, small)[0],
    code(nvmlDeviceGetGpuInstanceById, card, 7)[0],
    code(nvmlDeviceGetMigDeviceHandleByIndex, card, 0)[0],
    code(nvmlDeviceGetGpuInstanceProfileInfo, card, 0)[0],
    code(nvmlDeviceGetGpuInstanceId, card)[0],
    nvmlDeviceGetMaxMigDeviceCount(card),
]
nvmlDeviceSetMigMode(card, 1)
def at(start, size):
    return ctypes.byref(c_nvmlGpuInstancePlacement_t(start=start, size=size))
placement = at(3, 1)
instance = nvmlDeviceCreateGpuInstanceWithPlacement(card, small, placement)
info = nvmlGpuInstanceGetInfo(instance)
compute = nvmlGpuInstanceCreateComputeInstance(instance, 0)
on = [
    code(nvmlDeviceCreateGpuInstanceWithPlacement, card, small, placement)[0],
    code(nvmlDeviceCreateGpuInstanceWithPlacement, card, 9, at(0, 4))[0],
    code(nvmlDeviceCreateGpuInstanceWithPlacement, card, 9, at(1, 4))[0],
    code(nvmlDeviceCreateGpuInstance, card, 77)[0],
    code(nvmlGpuInstanceDestroy, instance)[0],
    code(nvmlGpuInstanceCreateComputeInstance, instance, 0)[0],
    code(nvmlGpuInstanceCreateComputeInstance, instance, 1)[0],
    code(nvmlDeviceGetGpuInstanceById, card, 8)[0],
    code(nvmlDeviceGetMigDeviceHandleByIndex, card, 1)[0],
    code(nvmlDeviceGetMigDeviceHandleByIndex, card, 7)[0],
    code(nvmlDeviceSetMigMode, card, 0)[1],
    code(nvmlDeviceGetUtilizationRates, card)[0],
]
[device] = devices()
nvmlComputeInstanceDestroy(compute)
on += [code(nvmlDeviceGetUUID, device)[0], code(nvmlComputeInstanceDestroy, compute)[0]]
answer = off, (info.id, info.profileId, info.placement.start), on
""",
    )
    off, made, on = refused
    assert off == [*[NOT_SUPPORTED] * 5, 0]
    assert made == [10, 19, 3]
    assert on == [
        INSUFFICIENT_RESOURCES,
        INSUFFICIENT_RESOURCES,
        INVALID_ARGUMENT,
        NOT_SUPPORTED,
        IN_USE,
        INSUFFICIENT_RESOURCES,
        NOT_SUPPORTED,
        NOT_FOUND,
        NOT_FOUND,
        INVALID_ARGUMENT,
        IN_USE,
        NOT_SUPPORTED,
        INVALID_ARGUMENT,
        INVALID_ARGUMENT,
    ]


def test_a_card_that_cannot_be_divided_says_so(stub_server):
    server = stub_server("t4")
    codes = "answer = [code(nvmlDeviceGetMigMode, card)[0], code(nvmlDeviceSetMigMode, card, 1)[0]]"
    assert nvml(server.env, codes) == [NOT_SUPPORTED] * 2


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can be another user")
def test_only_root_changes_a_card(artifacts):
    with (
        tempfile.TemporaryDirectory() as folder,
        StubServer(artifacts, Path(folder) / "stub", "a100") as gpu,
    ):
        # All users reach the server, as they reach a driver.
        Path(folder).chmod(0o755)
        gpu.client_socket.chmod(0o777)
        device = MigCard(gpu).mode().create(19)
        codes = nvml(
            gpu.env,
            f"""
nvmlShutdown()
os.setuid(65534)
nvmlInit()
answer = [
    code(nvmlDeviceSetMigMode, card, 0)[0],
    code(nvmlDeviceCreateGpuInstance, card, 19)[0],
    code(nvmlDeviceGetGpuInstanceById, card, {device.instance})[0],
    code(nvmlDeviceGetGpuInstanceRemainingCapacity, card, 19)[0],
    code(placements, profiles()["1g.5gb"])[0],
    nvmlDeviceGetUUID(devices()[0]),
]
""",
        )
    assert codes == [*[NO_PERMISSION] * 5, device.uuid]


def test_what_is_in_use_is_not_destroyed(gpu):
    card = MigCard(gpu).mode()
    used, held = card.create(19), card.create(19)

    def destroy(*numbers):
        return nvml(
            gpu.env,
            f"""
codes = []
for number in {numbers}:
    instance = nvmlDeviceGetGpuInstanceById(card, number)
    for compute in computes(instance, 0):
        codes.append(code(nvmlComputeInstanceDestroy, compute)[0])
    codes.append(code(nvmlGpuInstanceDestroy, instance)[0])
answer = codes, processes(card)
""",
        )

    card.hold(held.instance)
    with cuda(gpu.env, used.uuid) as program:
        program.next_line()
        codes, shown = destroy(used.instance, held.instance)
        assert codes == [IN_USE] * 4
        assert shown == [[program.pid, used.instance, used.compute]]
    codes, shown = destroy(used.instance, held.instance)
    assert codes == [0, 0, IN_USE, IN_USE] and shown == []
    card.hold(held.instance, held=False)
    assert destroy(held.instance)[0] == [0, 0]


def test_memory_that_is_not_free_yet_keeps_an_instance_in_use(stub_server):
    server = stub_server(free_delay_ms=60_000)
    device = MigCard(server).mode().create(19)
    with cuda(server.env, device.uuid) as program:
        program.next_line()
    destroy = "instance = nvmlDeviceGetGpuInstanceById(card, 7)\n"
    destroy += "answer = code(nvmlComputeInstanceDestroy, computes(instance, 0)[0])[0]"
    assert nvml(server.env, destroy) == IN_USE


def test_ordered_faults_leave_a_gpu_instance_without_a_compute_instance(gpu):
    card = MigCard(gpu).mode()
    card.fail()
    codes = """
instance = nvmlDeviceCreateGpuInstance(card, 19)
first = code(nvmlGpuInstanceCreateComputeInstance, instance, 0)[0]
without = len(devices()), len(instances(profiles()["1g.5gb"]))
answer = first, without, code(nvmlGpuInstanceCreateComputeInstance, instance, 0)[0], len(devices())
"""
    assert nvml(gpu.env, codes) == [UNKNOWN, [0, 1], 0, 1]
    with pytest.raises(AssertionError, match="card 3 must be below 1"):
        MigCard(gpu, 3).fail()


def test_a_call_can_hang_until_the_test_ends_it(gpu):
    card = MigCard(gpu).mode()
    slow = {"command": "slow", "symbol": "nvmlDeviceCreateGpuInstance"}
    gpu.control({**slow, "us": 600_000_000})
    create = "nvmlDeviceCreateGpuInstance(card, 19)\nprint('done', flush=True)"
    with Started([sys.executable, "-c", NVML + create], gpu.env) as program:
        called = "nvmlDeviceCreateGpuInstance"
        gpu.wait_until(lambda server: server.calls("nvml")[called] == 1)
        # The driver has done it; the caller does not know.
        assert len(card.instances()) == 1
        gpu.control({**slow, "us": 0})
        assert program.next_line() == "done"


def test_two_compute_instances_share_the_memory_of_their_gpu_instance(gpu):
    rows = nvml(
        gpu.env,
        """
nvmlDeviceSetMigMode(card, 1)
instance = nvmlDeviceCreateGpuInstance(card, 9)
infos = []
for profile in range(NVML_COMPUTE_INSTANCE_PROFILE_COUNT):
    result, info = code(nvmlGpuInstanceGetComputeInstanceProfileInfo, instance, profile, 0)
    if result == 0:
        row = info.id, info.name, info.instanceCount, info.multiprocessorCount
        infos.append(row)
nvmlGpuInstanceCreateComputeInstance(instance, 1)
nvmlGpuInstanceCreateComputeInstance(instance, 0)
full = code(nvmlGpuInstanceCreateComputeInstance, instance, 0)[0]
[last] = computes(instance, 0)
info = nvmlComputeInstanceGetInfo(last)
place = info.id, info.profileId, info.placement.start, info.placement.size
named = [(nvmlDeviceGetUUID(it), nvmlDeviceGetName(it)) for it in devices()]
answer = infos, full, place, named
""",
    )
    infos, full, place, named = rows
    assert infos == [
        [0, "MIG 1c.3g.20gb", 3, 14],
        [1, "MIG 2c.3g.20gb", 1, 28],
        [2, "MIG 3g.20gb", 1, 42],
    ]
    assert (full, place) == (INSUFFICIENT_RESOURCES, [1, 0, 2, 1])
    (two, name_of_two), (one, name_of_one) = named
    assert name_of_two.endswith(" MIG 2c.3g.20gb") and name_of_one.endswith(" MIG 1c.3g.20gb")
    fill = "print(allocate(total - 1024 * MIB), flush=True)\nsys.stdin.read()"
    with cuda(gpu.env, two, fill) as program:
        program.next_line()
        assert program.next_line() == "0"
        with cuda(gpu.env, one, fill) as other:
            other.next_line()
            assert other.next_line() == str(OUT_OF_MEMORY)


def test_a_reset_ends_all_instances_and_an_ampere_card_keeps_its_mode(stub_server):
    server = stub_server("a100,h100")
    for number, keeps in [(0, 1), (1, 0)]:
        card = MigCard(server, number).mode()
        old = card.create(19)
        with cuda(server.env, old.uuid) as program:
            program.next_line()
            with pytest.raises(AssertionError, match="in use"):
                card.reset()
        card.reset()
        card_mode = f"answer = nvmlDeviceGetMigMode(nvmlDeviceGetHandleByIndex({number}))"
        assert nvml(server.env, card_mode) == [keeps, keeps]
        assert card.devices() == []
        new = card.mode().create(19)
        assert (new.instance, new.compute) == (old.instance, old.compute)
        assert new.uuid != old.uuid


def test_a_mode_waits_for_a_reset_while_the_card_is_in_use(gpu):
    card = MigCard(gpu)
    set_mode = "answer = nvmlDeviceSetMigMode(card, 1), nvmlDeviceGetMigMode(card)"
    with cuda(gpu.env) as program:
        program.next_line()
        assert nvml(gpu.env, set_mode) == [IN_USE, [0, 1]]
    card.reset()
    assert nvml(gpu.env, "answer = nvmlDeviceGetMigMode(card)") == [1, 1]
    card.mode(False)
    card.hold()
    assert nvml(gpu.env, set_mode) == [IN_USE, [0, 1]], "a process that no list shows"


def test_the_profiles_of_the_table_are_those_of_the_cards():
    """Every table belongs to a card, and every card's table exists."""
    folder = Path(__file__).parents[1] / "stub" / "profiles"
    tables = {
        line[1:-1] for line in (folder / "mig.toml").read_text().splitlines() if line[:1] == "["
    }
    named = {
        line.split('"')[1]
        for file in folder.glob("*.toml")
        for line in file.read_text().splitlines()
        if line.startswith("mig_profiles")
    }
    assert tables == named
