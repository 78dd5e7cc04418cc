"""Ways in which HAMi-core, the closest peer, counts memory wrongly or breaks a program.

Each test is named after what fails there; its docstring names HAMi-core's report, if there is one.
What other files test already is not repeated here. The stub's ledger says what programs really
hold, and its peak proves that a limit was never passed.
"""

import pytest

from support import slices
from support.console import OUT_OF_MEMORY, SUCCESS, Console
from support.memory_use import accounted, agreed, held, refusals, wait_for_use
from support.slices import GIB, MIB

CONTEXT = 413 * MIB
"""Bytes that a context takes on the stub's a100."""


def on(gpu, slice, cards=2):
    """The bytes held on each card, where account and ledger agree."""
    return [agreed(gpu, slice, card) for card in range(cards)]


# Virtual memory.


@pytest.mark.parametrize("before", ["current -", "on t current -", "device 0"])
def test_physical_memory_is_charged_on_the_device_of_its_location(stub_server, start, before):
    """Without a context, and with that of another device.

    HAMi-core: "Illegal device id: 850725928", then a crash (Project-HAMi/HAMi-core#169, #276).
    """
    gpu = stub_server("a100,a100")
    script = start(gpu, GIB)
    script.do(before)
    prefix = "on t " if before.startswith("on t") else ""
    script.do(f"{prefix}create h 600M 1", f"{prefix}create i 200M 0")
    assert on(gpu, script.slice) == [200 * MIB, 600 * MIB]
    assert script(f"{prefix}create j 600M 1") == OUT_OF_MEMORY
    script.do(f"{prefix}create j 600M 0", "device 1", "release j", "release h")
    assert on(gpu, script.slice) == [200 * MIB, 0]


@pytest.mark.parametrize("location", ["host", "numa", "numa_current"])
@pytest.mark.parametrize("device", [0, None])
def test_physical_memory_of_the_host_is_not_charged(gpu, start, location, device):
    """HAMi-core: a host location is an index out of bounds (Project-HAMi/HAMi-core#187)."""
    script = start(gpu, 2 * MIB, device=device)
    script.do("init", f"create h 1G {location}", "properties h")
    assert agreed(gpu, script.slice) == 0
    script.do("reserve r 2G", "map r h", "release h")
    assert agreed(gpu, script.slice) == 0
    script.do("unmap r 1G", "create d 2M")
    assert agreed(gpu, script.slice) == 2 * MIB
    assert refusals(script.slice) == 0


def test_a_handle_and_an_address_of_the_same_number_are_two_things(gpu, start):
    """HAMi-core keeps handles of physical memory in its list of addresses."""
    script = start(gpu, GIB)
    script.do("create h 256M", "alloc a 256M")
    script.do("reserve r 256M", "map r h")
    assert script("free r") != SUCCESS
    assert script("free_async r -") != SUCCESS
    assert agreed(gpu, script.slice) == 512 * MIB
    script.do("release h")
    assert script("free r") != SUCCESS
    assert agreed(gpu, script.slice) == 512 * MIB
    script.do("unmap r 256M", "free a")
    assert agreed(gpu, script.slice) == 0


def test_memory_that_a_process_exports_to_itself_is_charged_once(gpu, start):
    script = start(gpu, GIB)
    script.do("create h 512M 0 fd", "reserve r 1G")
    number = script.value("export h", "fd")
    script.do(f"import i self {number}", "map r i", "map r+512M h", f"close_fd {number}")
    assert agreed(gpu, script.slice) == 512 * MIB
    script.do("release h", "unmap r+512M 512M", "release i")
    assert agreed(gpu, script.slice) == 512 * MIB
    script.do("unmap r 512M", "info")
    assert agreed(gpu, script.slice) == 0


def test_memory_that_a_process_imports_again_from_itself_is_charged_once(gpu, start):
    """It has released its handle, and the descriptor keeps the memory."""
    script = start(gpu, GIB)
    script.do("create h 512M 0 fd", "reserve r 512M")
    number = script.value("export h", "fd")
    script.do("release h", f"import i self {number}")
    assert agreed(gpu, script.slice) == 512 * MIB
    script.do("map r i")
    assert agreed(gpu, script.slice) == 512 * MIB


def test_imported_memory_that_its_owner_drops_is_charged_to_the_importer(gpu, start):
    """HAMi-core: cuMemImportFromShareableHandle is not counted."""
    owner = start(gpu, GIB)
    importer = start(gpu, owner.slice)
    for name in "hi":
        if owner(f"create {name} 768M 0 fd") != SUCCESS:
            break
        number = owner.value(f"export {name}", "fd")
        importer.do(f"import {name} {owner.pid} {number}")
        owner.do(f"release {name}", f"close_fd {number}")
    assert gpu.peak() <= GIB


@pytest.mark.parametrize("visible", ["1", "2,1,0", "{uuid1},{uuid0}"])
def test_memory_is_charged_on_the_card_that_a_device_s_number_means(
    stub_server, program, preload, slice_dir, visible
):
    """HAMi-core: device 0 is card 0, whatever CUDA_VISIBLE_DEVICES says
    (Project-HAMi/HAMi-core#225, Project-HAMi/HAMi#1218).
    """
    gpu = stub_server("a100,a100,a100")
    uuids = gpu.uuids()
    visible = visible.format(uuid0=uuids[0], uuid1=uuids[1])
    devices = [uuids.index(word) if word in uuids else int(word) for word in visible.split(",")]
    ours = slice_dir({uuid: (card + 1) * GIB for card, uuid in enumerate(uuids)})
    env = {**preload(gpu, ours), "CUDA_VISIBLE_DEVICES": visible}
    expected = [0, 0, 0]
    with Console(program("console"), env, ours) as script:
        script.do("init", "device 0")
        for device, card in enumerate(devices):
            rest = (card + 1) * GIB - 512 * MIB
            script.do(f"create h{device} 256M {device}", f"pool m {device}")
            script.do(f"from_pool a{device} 256M m -")
            assert script(f"create i {rest + 2 * MIB} {device}") == OUT_OF_MEMORY
            script.do(f"create i{device} {rest} {device}")
            expected[card] = (card + 1) * GIB
        assert on(gpu, ours, 3) == expected


# Frees of what the counting does not know.


FOREIGN = {
    "external": ["external e 64M", "external_buffer a e"],
    "graph": [
        "graph g",
        "alloc_node n g 64M",
        "instantiate x g",
        "launch cuGraphLaunch x -",
        "sync -",
    ],
}


@pytest.mark.parametrize("free", ["free", "free_async"])
@pytest.mark.parametrize("kind", FOREIGN)
def test_a_free_of_other_memory_reaches_the_driver(trace_pair, kind, free):
    """HAMi-core: freeing external buffers and graph memory returns -1, and frees nothing
    (Project-HAMi/HAMi-core#67, #257, #321).
    """
    name = "n" if kind == "graph" else "a"
    stream = " -" if free == "free_async" else ""
    lines = ["init", "device 0", *FOREIGN[kind], f"fill {name} 1M", f"{free} {name}{stream}"]
    lines += ["sync -", f"fill {name} 1M", f"{free} {name}{stream}", f"attributes {name}"]
    bare, limited = trace_pair("console", GIB, input="\n".join(lines))
    assert limited == bare
    assert f"fill {name} 1M -> 0" in bare


def test_freed_graph_memory_can_be_allocated_again(gpu, start):
    """HAMi-core: cudaFree of a graph's memory returns -1 (Project-HAMi/HAMi-core#67)."""
    script = start(gpu, GIB)
    script.do("graph g", "alloc_node n g 768M", "instantiate x g")
    for _ in range(3):
        script.do("launch cuGraphLaunch x -", "sync -")
        assert agreed(gpu, script.slice) == 768 * MIB
        assert script("alloc a 512M") == OUT_OF_MEMORY
        script.do("free n", "sync -", "graph_trim 0")
        assert agreed(gpu, script.slice) == 0
        script.do("alloc a 1024M", "free a")
    assert gpu.peak() == GIB


def test_an_external_buffer_is_charged_until_buffer_and_memory_are_gone(gpu, start):
    """HAMi-core: external memory is not counted (Project-HAMi/HAMi-core#321)."""
    script = start(gpu, GIB)
    script.do("external e 768M", "external_buffer a e", "external_buffer b e 0 1M")
    assert agreed(gpu, script.slice) == 768 * MIB
    assert script("external f 512M") == OUT_OF_MEMORY
    script.do("external_destroy e", "free a")
    assert agreed(gpu, script.slice) == 768 * MIB
    script.do("free b")
    assert agreed(gpu, script.slice) == 0


@pytest.mark.parametrize("free", ["free b", "free_async b -", "ipc_close b"])
def test_memory_of_another_process_is_charged_there_only(gpu, start, free):
    """HAMi-core: a free of an IPC pointer returns -1 (Project-HAMi/HAMi-core#257)."""
    owner = start(gpu, GIB)
    importer = start(gpu, owner.slice)
    owner.do("alloc a 768M", "ipc_handle a")
    importer.do(f"ipc_open b {owner.outputs.strip()}")
    assert agreed(gpu, owner.slice) == 768 * MIB
    result = importer(free)
    assert (result == SUCCESS) == free.startswith("ipc_close")
    assert importer("alloc c 512M") == OUT_OF_MEMORY
    importer.do("alloc c 256M")
    assert agreed(gpu, owner.slice) == GIB
    owner.do("free a")
    importer("ipc_close b")
    assert accounted(owner.slice) == held(gpu) == {importer.pid: 256 * MIB}


def test_memory_of_another_process_s_pool_is_charged_there_only(gpu, start):
    """HAMi-core: cuMemFreeAsync of a pointer that it does not know returns -1."""
    owner = start(gpu, GIB)
    importer = start(gpu, owner.slice)
    number = owner.value("export_pool_of m 0", "fd")
    owner.do("from_pool a 512M m -", "sync -", "export_pointer a")
    pointer = owner.outputs.strip()
    importer.do(f"import_pool m {owner.pid} {number}", f"import_pointer b m {pointer}", "fill b 1M")
    assert agreed(gpu, owner.slice) == 512 * MIB
    importer.do("free_async b -", "sync -", f"import_pointer b m {pointer}", "free b")
    assert agreed(gpu, owner.slice) == 512 * MIB
    importer.do("destroy_pool m")
    owner.do("free_async a -", "sync -", "trim m 0", "destroy_pool m")
    wait_for_use(gpu, owner.slice, 0)


# Results.

#: What prepares, and a call that exceeds a limit of 64 MiB.
REFUSED = {
    "linear": ([], "alloc a 65M"),
    "pitched": ([], "pitch a 1M 65 4"),
    "managed": ([], "managed a 65M 1"),
    "managed, of the host": ([], "managed a 65M 2"),
    "stream-ordered": ([], "async a 65M -"),
    "stream-ordered, per thread": ([], "ptsz async a 65M -"),
    "a pool": (["pool m 0"], "from_pool a 65M m -"),
    "a pool, per thread": (["pool m 0"], "ptsz from_pool a 65M m -"),
    "an array": ([], "array a 8192 8193"),
    "a volume": ([], "array3d a 8192 1664 5"),
    "a mipmapped array": ([], "mipmap a 1024 1024 65 1"),
    "physical": ([], "create h 66M"),
    "external": ([], "external e 65M"),
    "an upload": (["graph g", "alloc_node n g 66M", "instantiate x g"], "upload x -"),
    "an upload, per thread": (
        ["graph g", "alloc_node n g 66M", "instantiate x g"],
        "ptsz upload x -",
    ),
    "an upload at once": (["graph g", "alloc_node n g 66M"], "instantiate_uploaded x g -"),
    "a graph": (["graph g", "alloc_node n g 66M", "instantiate x g"], "launch cuGraphLaunch x -"),
    "a graph, per thread": (
        ["graph g", "alloc_node n g 66M", "instantiate x g"],
        "launch cuGraphLaunch_ptsz x -",
    ),
    "a captured allocation": (
        ["stream s", "begin s", "async a 66M s", "free_async a s", "end s g", "instantiate x g"],
        "launch cuGraphLaunch x s",
    ),
}


@pytest.mark.parametrize("kind", REFUSED)
@pytest.mark.parametrize("lookup", ["link", "dlsym", "proc_address"])
def test_every_refusal_is_out_of_memory(gpu, start, kind, lookup):
    """And the program can go on.

    HAMi-core returns -1 and other numbers that are no CUresult (Project-HAMi/HAMi-core#55).
    """
    before, command = REFUSED[kind]
    script = start(gpu, 64 * MIB)
    script.do(f"lookup {lookup}", *before)
    for _ in range(3):
        assert script(command) == OUT_OF_MEMORY
    assert agreed(gpu, script.slice) == 0
    assert refusals(script.slice) == 3
    script.do("sync_context", "alloc b 64M")
    assert gpu.peak() == 64 * MIB


#: Calls that the driver refuses as invalid, of more bytes than the limit of 1 GiB; and whether our
#: refusal comes first.
INVALID = {
    "an array of too many columns": (True, "array a 999999 1 4 4; array a 99999 99999 4 4"),
    "an array of three channels": (True, "array a 16384 65536 3 4"),
    "a cubemap that is no cube": (True, "array3d a 16384 16384 7 4"),
    "half a granule": (True, "create h 1025K; create h 1073741825"),
    "physical memory on a device that does not exist": (False, "create h 2G 7"),
    "external memory without bytes": (False, "external e 0"),
    "managed memory of an unknown kind": (False, "managed a 2G 0; managed a 2G 7"),
    "pitched memory of odd elements": (False, "pitch a 1M 2048 5"),
    "a pool that does not exist": (False, "from_pool a 2G z -"),
    "an executable that does not exist": (False, "upload z -; launch cuGraphLaunch z -"),
}
FIRST = pytest.mark.xfail(strict=True, reason="a size over the limit is refused before the driver")


@pytest.mark.parametrize(
    "commands",
    [
        pytest.param(commands, id=kind, marks=FIRST if refused_first else ())
        for kind, (refused_first, commands) in INVALID.items()
    ],
)
def test_a_wrong_call_over_the_limit_is_the_driver_s_to_refuse(trace_pair, commands):
    lines = ["init", "device 0", *commands.split("; ")]
    bare, limited = trace_pair("console", GIB, input="\n".join(lines))
    assert limited == bare


#: Numbers of bytes that overflow 64 bits when they are rounded up, multiplied or added.
OVERFLOWS = [
    "alloc b 0xffffffffffffffff",
    "alloc b 0xfffffffff8000000",
    "pitch b 0xffffffffffffffff 1 4",
    "pitch b 0xfffffffffffffe00 3 4",
    "pitch b 0x4000000000000000 4 4",
    "managed b 0xffffffffffffffff 1",
    "async b 0xffffffffffffffff -",
    "from_pool b 0xffffffffffe00001 m -",
    "array b 0x4000000000000000 4 4 4",
    "array3d b 0x100000000 0x80000000 2 0 1 1",
    "mipmap b 0x100000000 0x80000000 2 1",
    "create b 0xffffffffffe00000",
    "create b 0xffffffffffffffff",
    "external b 0x7fffffffffffffff",
    "alloc_node n g 0xffffffffffffffff",
    "alloc_node n g 0x7fffffffffe00000",
    "limit heap 0xffffffffffffffff",
    "limit stack 0xffffffffffffffff",
]


@pytest.mark.parametrize("command", OVERFLOWS)
@pytest.mark.parametrize("limit", [GIB, None])
def test_a_number_of_bytes_that_overflows_is_refused_and_counts_nothing(
    stub_server, start, slice_dir, command, limit
):
    """HAMi-core: "OOM 18446744073707737660" (Project-HAMi/HAMi#1181)."""
    gpu = stub_server("h200-coarse")
    script = start(gpu, slice_dir({gpu.uuids()[0]: limit}))
    script.do("alloc a 256M", "pool m 0", "graph g")
    is_node = script(command) == SUCCESS
    assert is_node <= command.startswith("alloc_node")
    if is_node and script("instantiate x g") == SUCCESS:
        assert script("launch cuGraphLaunch x -") == OUT_OF_MEMORY
    assert agreed(gpu, script.slice) == 256 * MIB
    if limit:
        assert script.value("info", "free") == limit - 256 * MIB
        assert script("alloc c 1024M") == OUT_OF_MEMORY
        script.do("alloc c 768M")
        assert gpu.peak() == limit


# Host memory.


HOST = ["host h 64M 0", "host h 64M 7", "host_plain h 64M", "register h 64M 0"]


@pytest.mark.parametrize("command", HOST)
@pytest.mark.parametrize("limit", [512 * MIB, 256 * MIB])
def test_host_memory_is_allocated_although_the_slice_is_full(gpu, start, command, limit):
    """Full, or more than full since its limit was lowered.

    HAMi-core: host memory is refused, and undone, while device memory is over its limit.
    """
    from hami_py._native import LimitsPage

    script = start(gpu, 512 * MIB)
    script.do("alloc a 512M")
    uuid = gpu.uuids()[0]
    LimitsPage.open(script.slice / "limits").set_memory_limits({uuid: limit})
    script.do(command, "create n 64M host", "on_device h")
    assert refusals(script.slice) == 0
    assert script("alloc b 512") == OUT_OF_MEMORY
    assert agreed(gpu, script.slice) == 512 * MIB


# What a context's end frees.

#: Memory that ends with its context, and how it is freed.
OF_CONTEXT = {
    "linear": (["alloc a 64M"], ["free a", "free_async a -"]),
    "pitched": (["pitch a 1M 64 4"], ["free a"]),
    "managed": (["managed a 64M 1"], ["free a"]),
    "an array": (["array a 8192 8192"], ["array_free a"]),
    "a mipmapped array": (["mipmap a 1024 1024 64 1"], ["mipmap_free a"]),
    "external": (["external e 64M", "external_buffer a e"], ["free a", "external_destroy e"]),
}


@pytest.mark.parametrize("end", ["destroy c", "reset 0", "release 0"])
@pytest.mark.parametrize("kind", OF_CONTEXT)
def test_a_free_after_the_end_of_its_context_counts_nothing_twice(gpu, start, kind, end):
    """HAMi-core: cuCtxDestroy and cuDevicePrimaryCtxReset leave phantom use, and later frees wrap
    the counter round: 17 TB in nvidia-smi (Project-HAMi/HAMi-core#60, Project-HAMi/HAMi#1181).
    """
    allocate, frees = OF_CONTEXT[kind]
    script = start(gpu, GIB)
    script.do("context k 0", "alloc z 128M")
    script.do("context c 0" if end == "destroy c" else "current !", *allocate)
    assert agreed(gpu, script.slice) == 192 * MIB
    script.do(end)
    assert agreed(gpu, script.slice) == 128 * MIB
    script.do("current k")
    for command in frees * 2:
        assert script(command) != SUCCESS
        assert agreed(gpu, script.slice) == 128 * MIB
    assert script.value("info", "free") == GIB - 128 * MIB


@pytest.mark.parametrize("kind", OF_CONTEXT)
def test_a_reset_frees_the_memory_of_its_own_device_only(stub_server, start, kind):
    """HAMi-core does not hook cuDevicePrimaryCtxReset."""
    allocate, _ = OF_CONTEXT[kind]
    gpu = stub_server("a100,a100")
    script = start(gpu, GIB)
    script.do(*allocate, "device 1", *allocate, "reset 0")
    assert on(gpu, script.slice) == [0, 64 * MIB]
    script.do("device 0", *allocate, "reset 1")
    assert on(gpu, script.slice) == [64 * MIB, 0]


@pytest.mark.parametrize("create", ["context", "context_v3", "context_v4"])
@pytest.mark.parametrize("lookup", ["link", "dlsym"])
def test_memory_of_a_context_of_every_form_is_counted(gpu, start, tmp_path, create, lookup):
    """HAMi-core: a context is not counted, and its builds with CUDA 13 hook no cuCtxCreate."""
    limits = dict.fromkeys(gpu.uuids(), GIB)
    ours = slices.make(tmp_path / "slice", limits, context_memory=CONTEXT)
    script = start(gpu, ours, device=None)
    script.do(f"lookup {lookup}", "init", f"{create} c 0", f"{create} d 0")
    assert gpu.booked("context") == sum(accounted(ours).values()) == 2 * CONTEXT
    assert script(f"{create} e 0") == OUT_OF_MEMORY
    assert script.value("info", "free") == GIB - 2 * CONTEXT
    script.do("alloc a 64M", "destroy d")
    assert gpu.booked("context") == sum(accounted(ours).values()) == CONTEXT


# Graphs and captures.


def test_a_graph_that_two_threads_launch_at_once_is_charged_once(gpu, start):
    """NVIDIA asks programs not to do this."""
    script = start(gpu, GIB)
    script.do("graph g", "alloc_node n g 64M", "free_node f g n n", "instantiate x g")
    for _ in range(20):
        script.do("threads 8 launch cuGraphLaunch x - 1 5", "sync -", "graph_trim 0")
    script.do("launch cuGraphLaunch x -", "sync -", "destroy_executable x", "graph_trim 0")
    assert held(gpu) == {}
    assert accounted(script.slice) == {}


@pytest.mark.tier("torture")
@pytest.mark.xfail(strict=True, reason="graphs that share memory are charged as if they did not")
def test_a_graph_takes_over_memory_of_one_that_still_runs_on_its_stream(gpu, start):
    """The driver lets them share memory, so they fit; after two seconds the launch is refused."""
    gpu.control({"command": "kernels", "kernels": {"long": 3_000_000}})
    script = start(gpu, GIB)
    script.do("module m", "kernel k m long", "stream s")
    for name in "xy":
        script.do(f"graph {name}", f"alloc_node n {name} 600M", f"kernel_node w {name} k n")
        script.do(f"free_node f {name} n w", f"instantiate {name} {name}")
    script.do("launch cuGraphLaunch x s", "launch cuGraphLaunch y s")
    assert agreed(gpu, script.slice) == 600 * MIB == gpu.peak()


@pytest.mark.parametrize(
    "cards",
    [
        4,
        5,
    ],
)
def test_a_graph_that_allocates_on_many_devices_is_limited_on_each(stub_server, start, cards):
    """HAMi-core: graph memory is not counted (Project-HAMi/HAMi-core#67)."""
    gpu = stub_server(",".join(["a100"] * cards))
    script = start(gpu, GIB)
    script.do("graph g")
    for device in range(cards):
        size = "2G" if device == cards - 1 else "2M"
        script.do(f"alloc_node_on {device} n g {size}", "free_node f g n n")
    script.do("instantiate x g")
    assert script("launch cuGraphLaunch x -") == OUT_OF_MEMORY
    script.do("sync -")
    assert on(gpu, script.slice, cards) == [0] * cards


def test_an_allocation_beside_a_capture_is_charged_and_does_not_end_it(gpu, start):
    """HAMi-core: its hooks broke captures of vLLM and NCCL (Project-HAMi/HAMi-core#192)."""
    script = start(gpu, GIB)
    script.do("stream s", "stream t", "begin s 2", "alloc a 256M", "async b 64M t", "async c 64M s")
    assert agreed(gpu, script.slice) == 320 * MIB
    assert script("alloc d 1024M") == OUT_OF_MEMORY
    assert script("create h 1024M") == OUT_OF_MEMORY
    assert script("capturing s") == SUCCESS and script.outputs.strip() == "1"
    script.do("free a", "free_async c s", "end s g", "show g", "instantiate x g")
    script.do("launch cuGraphLaunch x s", "sync s", "free_async b t", "sync t", "graph_trim 0")
    assert agreed(gpu, script.slice) == 0


# Pools.


def test_memory_of_each_device_s_pool_is_limited_on_that_device(stub_server, start):
    """HAMi-core: one counter of pool memory for all devices of the process."""
    gpu = stub_server("a100,a100,a100")
    script = start(gpu, GIB)
    for device in range(3):
        script.do(f"device {device}", f"async a{device} 768M -")
        assert script("async z 512M -") == OUT_OF_MEMORY
    assert on(gpu, script.slice, 3) == [768 * MIB] * 3
    script.do("free_async a2 -", "sync -", "async z 512M -")
    assert on(gpu, script.slice, 3) == [768 * MIB, 768 * MIB, 512 * MIB]


@pytest.mark.parametrize("lookup", ["link", "dlsym", "proc_address"])
def test_the_per_thread_forms_are_counted_and_stay_per_thread(gpu, start, lookup):
    """HAMi-core: a lookup of the per-thread form returns the legacy form, or bypasses the limit."""
    script = start(gpu, GIB)
    script.do(f"lookup {lookup}", "pool m 0", "ptsz async a 600M -", "ptsz free_async a -")
    script.do("ptsz sync -", "ptsz from_pool b 600M m -")
    assert script("ptsz async c 600M -") == OUT_OF_MEMORY
    calls = gpu.calls()
    assert calls["cuMemFreeAsync_ptsz"] == calls["cuStreamSynchronize_ptsz"] == 1
    assert not {"cuMemAllocAsync", "cuMemAllocFromPoolAsync", "cuMemFreeAsync"} & {*calls}
    assert agreed(gpu, script.slice) == 600 * MIB


# Processes.


CHILD = [
    "alloc z 1M",
    "async y 1M -",
    "free a",
    "free_async b -",
    "free b",
    "trim m 0",
    "array_free c",
    "release h",
    "unmap r 64M",
    "external_destroy e",
    "graph_trim 0",
    "launch cuGraphLaunch x -",
    "destroy_executable x",
    "reset 0",
    "destroy_pool m",
]


def test_a_forked_child_changes_nothing_of_its_parent_s_memory(gpu, start):
    """HAMi-core: the child inherits the lists of allocations, and uncounts by them."""
    script = start(gpu, GIB)
    script.do("alloc a 64M", "pool m 0", "from_pool b 64M m -", "array c 8192 8192", "create h 64M")
    script.do("reserve r 64M", "map r h", "external e 64M", "graph g", "alloc_node n g 64M")
    script.do("instantiate x g", "launch cuGraphLaunch x -", "sync -")
    assert agreed(gpu, script.slice) == 384 * MIB
    for command in CHILD:
        assert script(f"fork {command}") != SUCCESS
        assert script.outputs.endswith("child=0")
    assert agreed(gpu, script.slice) == 384 * MIB
    script.do("free a", "free_async b -", "array_free c", "release h", "unmap r 64M")
    script.do("external_destroy e", "free n", "sync -", "sync_context", "graph_trim 0")
    script.do("destroy_pool m")
    assert agreed(gpu, script.slice) == 0


GREEDY = {
    "physical": "create {} 64M",
    "an array": "array {} 8192 8192",
    "external": "external {} 64M",
    "a pool": "from_pool {} 64M m -",
    "a graph": "graph g; alloc_node {0} g 64M; instantiate x g; launch cuGraphLaunch x -",
}


@pytest.mark.parametrize("kind", GREEDY)
def test_processes_that_allocate_at_once_never_pass_the_limit(gpu, start, kind):
    """HAMi-core: each compares with the limit first, and counts later
    (Project-HAMi/HAMi-core#273). Each process requests all of the limit.
    """
    first = start(gpu, 2 * GIB)
    processes = [first, *(start(gpu, first.slice) for _ in range(3))]
    lines = [line for n in range(32) for line in GREEDY[kind].format(f"n{n}").split("; ")]
    for process in processes:
        process.do("pool m 0")
    for line in lines:
        for process in processes:
            process.tell(line)
    answers = [process.next_line() for process in processes for _ in lines]
    results = [answer.split(" -> ")[1].split()[0] for answer in answers]
    assert {*results} == {"0", "2"}
    assert agreed(gpu, first.slice) == 2 * GIB == gpu.peak()


# Information.
