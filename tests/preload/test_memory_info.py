"""Every query of the memory returns the slice's numbers.

total = min(limit, card), free = min(the rest of the limit, the free memory of the card), and NVML's
used is the slice's own use. All are read while other processes hold memory.
"""

import contextlib

import pytest

from support.running import Started, run
from support.slices import GIB, MIB
from support.traces import value

#: The most that the 32-bit forms of the old functions can say.
OLD_MOST = 2**32 - 1


@pytest.fixture
def tenants(program, preload):
    """`tenants(gpu, (slice, MiB, ordinal), ...)` starts processes that hold; None is no slice."""
    with contextlib.ExitStack() as started:

        def start(gpu, *holders):
            for slice_path, size, ordinal in holders:
                env = preload(gpu, slice_path) if slice_path else gpu.env
                holder = Started([program("hold"), str(size), str(ordinal)], env)
                started.enter_context(holder).wait_for("holding")

        yield start


def context_bytes(gpu, card=0):
    """The memory that contexts take of a card."""
    return gpu.ledger()["cards"][card]["context"]["now"]


def test_the_driver_returns_the_limit_and_its_free_part(
    stub_server, program, preload, slice_dir, tenants
):
    gpu = stub_server("a100,a100")
    first, second = gpu.uuids()
    limits = {first: 4 * GIB, second: 6 * GIB}
    ours, theirs = slice_dir(limits), slice_dir(limits)
    tenants(gpu, (ours, 1024, 0), (ours, 512, 1), (theirs, 2048, 0), (None, 512, 0))
    done = run([program("memory_info")], preload(gpu, ours))
    expected = [(4 * GIB, 3 * GIB), (6 * GIB, 6 * GIB - 512 * MIB)]
    for device, (total, free) in enumerate(expected):
        info, old_info, device_total, old_total = done.lines[4 * device : 4 * device + 4]
        assert (value(info, "total"), value(info, "free")) == (total, free)
        assert value(device_total, "total") == total
        assert value(old_info, "total") == min(total, OLD_MOST)
        assert value(old_info, "free") == min(free, OLD_MOST)
        assert value(old_total, "total") == min(total, OLD_MOST)


def test_nvml_returns_the_same(stub_server, program, preload, slice_dir, tenants):
    gpu = stub_server("a100,a100")
    first, second = gpu.uuids()
    limits = {first: 4 * GIB, second: 6 * GIB}
    ours, theirs = slice_dir(limits), slice_dir(limits)
    tenants(gpu, (ours, 1024, 0), (ours, 512, 1), (theirs, 2048, 0), (None, 512, 0))
    done = run([program("nvml_memory")], preload(gpu, ours))
    expected = [(4 * GIB, GIB), (6 * GIB, 512 * MIB)]
    for device, (total, used) in enumerate(expected):
        info, info_v2 = done.lines[2 * device : 2 * device + 2]
        for line in (info, info_v2):
            assert value(line, "total") == total
            assert value(line, "used") == used
            assert value(line, "free") == total - used
        assert value(info_v2, "reserved") == 0


def test_free_is_never_more_than_the_card_has(gpu, program, preload, slice_dir, tenants):
    """The limit has room, the card has not: another tenant sits on it."""
    card = gpu.ledger()["cards"][0]["total"]
    ours = slice_dir({gpu.uuids()[0]: card - GIB})
    tenants(gpu, (ours, 1024, 0), (None, card // MIB - 4096, 0))
    env = preload(gpu, ours)
    info = run([program("memory_info")], env).lines[0]
    free_on_card = card - gpu.held() - context_bytes(gpu)
    one_context = context_bytes(gpu) // 2
    assert value(info, "total") == card - GIB
    # The asking program's own context was there, too, when it asked.
    assert value(info, "free") == free_on_card - one_context
    nvml = run([program("nvml_memory")], env).lines[1]
    assert value(nvml, "total") == card - GIB
    assert value(nvml, "used") == GIB
    assert value(nvml, "free") == free_on_card
    assert value(nvml, "reserved") == card - GIB - GIB - free_on_card


@pytest.mark.parametrize("limit", [None, 1 << 50])
def test_without_a_lower_limit_the_card_s_numbers_are_returned(gpu, program, slice_env, limit):
    """All but NVML's used: that is the slice's own use all the same."""
    env = slice_env(gpu, limit)
    assert run([program("memory_info")], env) == run([program("memory_info")], gpu.env)
    bare = run([program("nvml_memory")], gpu.env)
    limited = run([program("nvml_memory")], env)
    for name in ("total", "free"):
        told = [value(line, name) for line in limited.lines[:2]]
        assert told == [value(line, name) for line in bare.lines[:2]]
    assert [value(line, "used") for line in limited.lines[:2]] == [0, 0]


def test_free_memory_is_never_negative(gpu, program, preload, slice_dir, tenants):
    """A limit that shrinks below what is held leaves nothing free, and not a huge number."""
    from hami_py._native import LimitsPage

    uuid = gpu.uuids()[0]
    ours = slice_dir({uuid: 4 * GIB})
    tenants(gpu, (ours, 3072, 0))
    LimitsPage.open(ours / "limits").set_memory_limits({uuid: 2 * GIB})
    info = run([program("memory_info")], preload(gpu, ours)).lines[0]
    assert (value(info, "total"), value(info, "free")) == (2 * GIB, 0)
    nvml = run([program("nvml_memory")], preload(gpu, ours)).lines[1]
    assert (value(nvml, "total"), value(nvml, "free")) == (2 * GIB, 0)


@pytest.mark.parametrize(
    ("visible", "order"),
    [
        ("0,1,2", [0, 1, 2]),
        ("1", [1]),
        ("2,0", [2, 0]),
        ("{uuid1}", [1]),
        ("{uuid2},{uuid1}", [2, 1]),
    ],
)
def test_each_device_is_the_card_that_the_program_chose(
    stub_server, program, visible, order, slice_env
):
    """CUDA_VISIBLE_DEVICES renumbers the devices; limits and charges follow the card."""
    gpu = stub_server("a100,a100,a100")
    uuids = gpu.uuids()
    limits = {uuid: (index + 1) * GIB for index, uuid in enumerate(uuids)}
    names = {f"uuid{index}": uuid for index, uuid in enumerate(uuids)}
    env = {
        **slice_env(gpu, limits),
        "CUDA_VISIBLE_DEVICES": visible.format(**names),
    }
    told = [value(line, "total") for line in run([program("memory_info")], env).lines[::4]]
    assert told == [(card + 1) * GIB for card in order]
    for ordinal, card in enumerate(order):
        limit = (card + 1) * 1024
        over = run([program("allocate"), str(limit + 1), str(ordinal)], env)
        assert over.out.endswith(" -> 2 pointer=untouched\n")
        before = gpu.peak(card)
        whole = run([program("allocate"), str(limit), str(ordinal)], env)
        assert whole.out.endswith(" -> 0 pointer=p0\n")
        assert (before, gpu.peak(card)) == (0, limit * MIB)


@pytest.mark.parametrize("visible", ["", "-1", "9", "1,9,0", "0,0", "GPU-none", "none"])
def test_the_driver_parses_the_list_of_visible_devices(trace_pair, visible):
    bare, limited = trace_pair(
        "initialise", GIB, cards="a100,a100", env={"CUDA_VISIBLE_DEVICES": visible}
    )
    assert limited == bare


@pytest.mark.parametrize("by_uuid", [False, True])
def test_a_mig_slice_is_a_card(stub_server, program, slice_env, probe, by_uuid):
    gpu = stub_server("a100-mig-1g,a100-mig-1g")
    first, second = gpu.uuids()
    assert first.startswith("MIG-")
    env = slice_env(gpu, {first: GIB, second: 2 * GIB})
    if by_uuid:
        env["CUDA_VISIBLE_DEVICES"] = second
        told = run([program("memory_info")], env).lines[0]
        assert value(told, "total") == 2 * GIB
    slice_probe = probe(env)
    size = 2048 if by_uuid else 1024
    assert slice_probe.grants(size)
    assert not slice_probe.grants(size + 1)
    assert gpu.peak(int(by_uuid)) == size * MIB
