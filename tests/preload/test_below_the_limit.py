"""One long program below its limit: every kind of memory, and wrong calls between.

With and without the library it gets the same answers from each version of the driver. Addresses
are numbered anew in each answer, because the driver may choose others; and the totals that a limit
is there to change are left out.

The same calls with a low limit, and with a driver that is out of memory now and then, show that the
account equals the ledger after every call.
"""

import contextlib
import re

import pytest

from support import drivers
from support.console import Console
from support.memory_use import accounted, held
from support.slices import GIB, MIB
from support.traces import comparable

LINEAR = """
    alloc a 3M; fill a 3M; attributes a; free a+1M; free a+256; free a; free a; attributes a
    free z; alloc a 0
    alloc a 999G; attributes a; alloc a 1; alloc b 513; free b; free a; ptsz alloc a 2M; free a
    thread alloc b 1M; attributes b; thread free b; thread alloc d 1K
    pitch a 1000 50 8; attributes a; free a; pitch a 1 1 4; pitch b 0 1 4; pitch b 1 1 5; free a
    pitch_v1 a 1000 7 16; free_v1 a; pitch_v1 a 0 1 4; pitch a 1M 999999 4
    managed a 5M 1; attributes a; is_managed a; fill a 5M; free a; managed b 5M 2; free b
    managed a 5M 3; managed a 0 1; managed a 1M 1; free_async a s; sync s; attributes a
    managed a 2M 2; free a
"""
HOST = """
    host h 64K 0; on_device h; attributes h; host i 1M 7; on_device i; free_host h; free_host h
    free_host i; host_plain h 3M; on_device h; free_host h; register j 64K 2; on_device j
    attributes j; register j 0; host k 0; host k 1K 99; unregister h; host h 90G; free_host h
"""
POOLS = """
    default_pool D; current_pool C; get D 4; get D 5; get D 7; async a 3M s; attributes a; get D 5
    get D 6; get D 7; get D 8; free a; sync s; get D 5; async b 40M s; fill b 40M; free_async b s
    free_async b s; get D 7; sync s; get D 5; set D 4 64M; async b 40M t; free_async b s; sync s
    get D 5; trim D 1M; get D 5; set D 4 0; set D 6 0; get D 6; async b 0 s; async b 999G s
    pool m 0; from_pool c 5M m s; attributes c; access m 0; access m 7; get m 5; get m 1; set m 1 1
    free_async c t; sync t; get m 5; from_pool c 1M m -; from_pool d 2M m L; from_pool e 3M m P
    ptsz from_pool f 4M m s; free c; free_async d -; ptsz free_async e P; get m 7; use_pool m
    current_pool C; async g 1M s; get m 7; destroy_pool m; current_pool C; free_async f s; free g
    sync s; from_pool c 1M m s; get m 5; pool n 7; use_pool D; trim m 0; destroy_pool D
    alloc l 1M; free_async l s; sync s; attributes l; async a 1M q; free_async z s; sync_context
    begin s; async a 2M s; fill a 2M; free_async a s; end s g; show g; instantiate x g
    launch cuGraphLaunch x s; launch cuGraphLaunch x s; sync s; destroy_executable x
    destroy_graph g; get D 7; begin s; alloc b 1M; end s g; begin s 2; alloc b 1M; end s h; show h
    destroy_graph g; destroy_graph h; free b; graph_trim 0
"""
ARRAYS = """
    array a 1000 30 4 4; array_size a; array_check a; array_free a; array_free a; array a 0
    array_v1 a 100 30 2 2; array_size a; array_free a; array3d a 64 64 6 4; array_check a
    array_free a; array3d_v1 a 100 20 7 0 1 2; array_free a; array3d a 64 64 12 5 1 4
    array_check a; array_free a; array3d a 100 0 7 1; array_free a; array a 1 1 3
    array3d a 99999999 1 1; array3d a 8 8 7 4; array a 999999 1; array_size a
    mipmap m 1024 512 0 11 0 4; level a m 3; array_size a; array_check a; array_free a; level b m 11
    mipmap_free m; mipmap_free m; level a m 1; mipmap m 64 64 0 99; mipmap m 8 4 3 2 1
    mipmap_free m; array a 64 64; fork array_free a; array_check a; array_free a
"""
VIRTUAL = """
    granularity 0; granularity 7; create k 2M numa; create k 2M numa_current
    create h 4M; properties h; create i 3M; create j 2M 7; create j 0
    create k 2M host; properties k; create j 999G; reserve r 16M; attributes r; write r 1; map r h
    write r 1; access r 4M; write r+3M 7; read r+3M; attributes r; map r h; map r+4M h; read r+7M
    access r+4M 4M; read r+7M; retain p r; same_handle p h; retain q r+9M; release h; read r
    release p; release p; read r; retain p r+4M; release p; map r+8M h; unmap r 2M; unmap r 4M
    read r; read r+7M; unmap r+12M 4M; unmap r+4M 4M; read r+4M; map r+2M k; unmap r+2M 2M
    release k; release k; release z; unreserve r 4M; unreserve r; unreserve r; retain p r
    create h 2M; reserve r 4M; map r h 1M; map r+1M h; map r+2M h; release h; access r+2M 2M 0 1
    write r+2M 1; free r+2M; free r; free_async r s; unmap r+2M 2M; unreserve r; access r 2M
"""
SHARED = """
    create e 4M 0 fd; export e as f; import i self {f}; same_handle i e; reserve r 8M; map r i
    access r 4M; write r+1M 9; release e; read r+1M; release i; read r+1M; unmap r 4M; read r
    import i self {f}; map r+4M i; access r+4M 4M; read r+5M; unmap r+4M 4M; release i; unreserve r
    close_fd {f}; create e 2M; export e as f; release e; import i self 9999; alloc a 1M
    ipc_handle a as hex; ipc_open b {hex}; other ipc_open b {hex}; other write b+9K 5
    read a+9K; other attributes b; other free b; free a; other read b; other ipc_close b
    other ipc_close b; other ipc_open b {hex}; export_pool_of m 0 as f
    from_pool a 1M m s; sync s; export_pointer a as hex; other import_pool m {pid} {f}
    other import_pointer c m {hex}; other write c+1K 6; read a+1K; other attributes c
    other get m 5; other from_pool d 1M m -; other free_async c -; other sync -
    other import_pointer c m {hex}; other free c; free_async a s; sync s; other destroy_pool m
    destroy_pool m; close_fd {f}; create e 6M 0 fd; export e as f; other import i {pid} {f}
    release e; other properties i; other reserve r 6M; other map r i; other release i
    other access r 6M; other write r 1; other unmap r 6M; other unreserve r; close_fd {f}
    external e 4M; external_buffer b e; write b+1M 3; read b+1M; attributes b
    external_buffer c e 1M 1M; read c; external_buffer d e 3M 2M; free c; external_destroy e
    read b+1M; free b; external_destroy e; free b; external e 3K; external_destroy e
    external e 0
"""
GRAPHS = """
    module m; kernel k m work; graph g; alloc_node n g 4M; kernel_node w g k n; free_node f g n w
    show g; attributes n; instantiate x g; graph_attribute 0 0; graph_attribute 0 2; upload x s
    graph_attribute 0 0; graph_attribute 0 2; launch cuGraphLaunch x s; ptsz upload x s; sync s
    launch cuGraphLaunch x s 1 5; sync s; graph_attribute 0 1; graph_attribute 0 3; graph_trim 0
    graph_attribute 0 2; destroy_executable x; graph_trim 0; graph_attribute 0 2
    reset_graph_attribute 0 3; graph_attribute 0 3; graph_trim 7; destroy_graph g
    graph g; alloc_node n g 6M; instantiate x g; launch cuGraphLaunch x s; sync s; fill n 6M
    launch cuGraphLaunch x s; free n; sync s; launch cuGraphLaunch x s; free_async n s; sync s
    attributes n; destroy_executable x; instantiate y g 1; launch cuGraphLaunch y s
    launch cuGraphLaunch y s; sync s; destroy_executable y; instantiate_uploaded y g s
    destroy_executable y; destroy_graph g; graph_trim 0
    graph_attribute 0 2; graph g; alloc_node n g 999G; instantiate x g; upload x s; destroy_graph g
    alloc_node n g 1M; graph g; alloc_node_on 1 n g 4M; free_node f g n n; instantiate x g
    launch cuGraphLaunch x s; sync s; graph_attribute 1 2; destroy_executable x; graph_trim 1
    destroy_graph g; unload m
"""
DRIVER = """
    version; total 0; total 1; total 7; info; limit_get stack; limit stack 2K; limit_get stack
    limit heap 64M; limit_get heap; limit printf 8M; limit_get printf; limit heap 999G
    limit stack 999M; limit heap 8M; limit printf 1M; limit stack 1K; module m; kernel k m work
    launch cuLaunchKernel k s 1 3; launch cuLaunchKernelEx k s; launch cuLaunchCooperativeKernel k s
    sync s; global a m nothing; unload m; unload m; library l; library_module m l
    library_kernel k l work; launch cuLaunchKernel k s; sync s; kernel_function f k
    library_global a l nothing; library_unload l; library_unload l
    green g 16; green_context c g; green_sms g; green_stream t g; current c; info; alloc a 1M
    async b 1M t; create h 2M; sync t; free_async b t; free a; release h; destroy_stream t
    green_free g; green_free g; device 0; green g 9999; green g 8 7
"""
CONTEXTS = """
    context c 0; alloc a 1M; array b 64 64; managed d 1M 1; module m; host h 64K; limit heap 16M
    async e 1M -; destroy c; attributes a; attributes e; free a; array_free b; free_host h; free e
    context_v3 c 0; context_v4 d 0; context_v4 e 7; alloc a 1M; destroy d; alloc b 1M; destroy c
    device 0; context c 7; device 7; pop; alloc a 1M; create h 2M; release h; async a 1M -
    pool p 0; destroy_pool p; reserve r 2M; unreserve r; host h 64K; info; limit heap 16M
    array a 64; graph g; alloc_node n g 4M; destroy_graph g; device 1; alloc a 1M; create h 2M 0
    create i 2M 1; array b 64 64; async d 1M -; get D 7; attributes a; device 0; free a
    array_free b; free_async d -; sync -; release h; release i; release 1; alloc a 1M; async b 1M s
    array d 64 64; reset 0; attributes a; attributes b; free a; device 0; free a; info
    fork alloc a 1M; fork free a; fork info; fork create h 2M; fork device 0; alloc a 1M
    fork free a; attributes a; free a; stream s; alloc a 1M; release 0; release 0; release 0
    release 0; free a; info; device 0; alloc a 1M; free a
"""

PARTS = {
    "linear": LINEAR,
    "host": HOST,
    "pools": POOLS,
    "arrays": ARRAYS,
    "virtual memory": VIRTUAL,
    "shared memory": SHARED,
    "graphs": GRAPHS,
    "the driver": DRIVER,
    "contexts": CONTEXTS,
}


def commands(part):
    """The commands of a part, in order."""
    return (command.strip() for line in part.strip().splitlines() for command in line.split(";"))


def numbered(outputs):
    """The addresses in an answer by their order there."""
    order: dict[str, int] = {}
    return re.sub(r"\bp\d+\b", lambda a: f"p{order.setdefault(a[0], len(order))}", outputs)


def trace(one, other, parts):
    """What the programs answer. `… as NAME` keeps an out value for the later commands."""
    kept = {"pid": str(one.pid)}
    lines = []
    for command in (command for part in parts for command in commands(part)):
        asked, _, name = command.partition(" as ")
        console = other if asked.startswith("other ") else one
        result = console(asked.removeprefix("other ").format(**kept))
        outputs = console.outputs
        if name:
            kept[name] = outputs.rpartition("fd=")[2].strip()
            outputs = re.sub(r"[0-9a-f]{64,}|\d+$|pid=\d+", "#", outputs)
        lines.append(f"{command} -> {result} {numbered(outputs)}")
    return comparable("\n".join(lines))


@pytest.fixture
def traces(artifacts, program, stub_server, slice_env):
    """`traces(version, lookup, parts)`: without the library, and with it."""

    def both(version, lookup, parts, more_env=None):
        found = []
        for limit in (None, 8 * GIB):
            gpu = stub_server("h200-coarse,a100")
            env = slice_env(gpu, limit) if limit else gpu.env
            env = {**env, **drivers.environment(artifacts, version), **(more_env or {})}
            with contextlib.ExitStack() as stack:
                consoles = [stack.enter_context(Console(program("console"), env)) for _ in range(2)]
                for console in consoles:
                    console.do(f"lookup {lookup}", "init", "device 0", "stream s", "stream t")
                found.append(trace(*consoles, parts))
        return found

    return both


@pytest.mark.parametrize("lookup", ["dlsym", "proc_address", "per_thread"])
@pytest.mark.parametrize("version", [drivers.NEWEST, *drivers.OLDER])
def test_a_program_that_uses_all_kinds_of_memory_sees_no_difference(traces, version, lookup):
    bare, limited = traces(version, lookup, PARTS.values())
    assert sum(" -> 0 " in line for line in bare) > 300
    assert limited == bare


@pytest.mark.parametrize("lookup", ["dlsym", "per_thread"])
def test_a_program_with_a_share_of_the_time_sees_no_difference(traces, lookup):
    """Launches of graphs that allocate take another way then."""
    share = {"CUDA_DEVICE_SM_LIMIT": "30", "GPU_CORE_UTILIZATION_POLICY": "force"}
    bare, limited = traces(drivers.NEWEST, lookup, PARTS.values(), share)
    assert limited == bare


@pytest.mark.parametrize("part", PARTS)
def test_a_program_that_is_linked_with_the_driver_sees_no_difference(traces, part):
    bare, limited = traces(drivers.NEWEST, "link", [PARTS[part]])
    assert not any("missing=1" in line for line in bare)
    assert limited == bare


MOST_ROUNDING = 8192
"""Bytes by which the account may be higher: it rounds each allocation up to 512 bytes."""


@pytest.fixture
def followed(stub_server, start):
    """`followed(limit, parts)` fails after the first call after which account and ledger differ.

    `before(gpu)` is called before each part. Returns the GPU.
    """

    def run(limit, parts, before=lambda gpu: None):
        gpu = stub_server("a100,a100")
        script = start(gpu, limit)
        script.do("stream s", "stream t")
        for part in parts:
            before(gpu)
            for command in commands(part):
                result = script(command)
                for card in range(2):
                    ours = accounted(script.slice, card).get(script.pid, 0)
                    theirs = held(gpu, card).get(script.pid, 0)
                    assert 0 <= ours - theirs < MOST_ROUNDING, f"{command} -> {result}, {card=}"
        return gpu

    return run


ALONE = [part for part in PARTS if part != "shared memory"]


@pytest.mark.parametrize("part", ALONE)
@pytest.mark.parametrize(
    "limit",
    [2 * MIB, *(pytest.param(n * MIB, marks=pytest.mark.tier("torture")) for n in (8, 36, 70))],
)
def test_with_a_low_limit_account_and_ledger_agree_after_every_call(followed, part, limit):
    gpu = followed(limit, [PARTS[part]])
    assert max(gpu.peak(card) for card in range(2)) <= limit


@pytest.mark.parametrize(
    "nth",
    [1, *(pytest.param(nth, marks=pytest.mark.tier("torture")) for nth in range(2, 14))],
)
def test_when_the_driver_is_out_of_memory_account_and_ledger_agree_after_every_call(followed, nth):
    """The nth allocation of each part fails in the driver."""
    order = {"command": "oom", "card": 0, "nth": nth}
    followed(8 * GIB, [PARTS[part] for part in ALONE], lambda gpu: gpu.control(order))
