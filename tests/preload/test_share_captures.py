"""Captures in programs under a share: nothing of ours gets into a graph, or spoils one."""

import pytest

from support.launcher import launched

KERNELS = ["kernel k m work_100us", "kernel l m other_100us", "stream s", "stream o", "event e"]
MODES = pytest.mark.parametrize("mode", [0, 1, 2], ids=["global", "thread-local", "relaxed"])
FORK_AND_JOIN = [
    "record e s",
    "wait o e",
    "launch cuLaunchKernel l o 1 2",
    "launch cuLaunchKernel k s 1 2",
    "record f o",
    "wait s f",
    "launch cuLaunchKernel k s",
]


@MODES
def test_a_captured_graph_has_the_program_s_nodes(unchanged, mode):
    """Right after launches whose batch is open, with all launch functions that can be captured."""
    lines = [*KERNELS, "launch cuLaunchKernel k s 1 5", f"begin s {mode}"]
    for function in ("cuLaunchKernel", "cuLaunchKernelEx", "cuLaunchCooperativeKernel"):
        lines += [f"launch {function} k s 1 2", f"launch {function} l s 2"]
    lines += ["launch cuLaunchGridAsync k s", "callback s", "capturing s", "end s g", "show g"]
    answers = unchanged([*lines, "instantiate x g", "launch cuGraphLaunch x s 1 3", "sync s"])
    assert "show g -> 0 0 0 0 0 0 0 0 0 0 0 3 edges=10" in answers


@MODES
def test_a_stream_that_joins_a_capture_by_an_event(unchanged, mode):
    """No call says that it captures now; its batch was open when it began to."""
    lines = [*KERNELS, "event f", "launch cuLaunchKernel k o 1 5", "launch cuLaunchKernel l s 1 5"]
    lines += [f"begin s {mode}", *FORK_AND_JOIN, "capturing o", "end s g", "show g"]
    lines += ["capturing o", "launch cuLaunchKernel l o 1 5", "instantiate x g"]
    answers = unchanged([*lines, "launch cuGraphLaunch x o 1 3", "sync_context"])
    assert "show g -> 0 0 0 0 0 0 edges=4" in answers


@MODES
@pytest.mark.parametrize("stream", ["o", "-", "L", "P"])
def test_launches_of_other_threads_while_one_captures(unchanged, mode, stream):
    """Answers, graph and invalidations are the driver's own, on blocking streams too."""
    lines = [*KERNELS, f"on t launch cuLaunchKernel l {stream} 1 3", f"begin s {mode}"]
    lines += ["launch cuLaunchKernel k s"]
    lines += [f"on t launch cuLaunchKernel l {stream} 1 30", "capturing s"] * 3
    lines += ["launch cuLaunchKernel k s", "capturing s", "end s g", "show g", "sync_context"]
    unchanged(lines)


@MODES
def test_launches_of_the_capturing_thread_beside_its_capture(unchanged, mode):
    lines = [*KERNELS, "stream b 0", f"begin b {mode}", "launch cuLaunchKernel k b"]
    lines += ["launch cuLaunchKernel l o 1 30", "capturing b", "launch cuLaunchKernel k -"]
    lines += ["capturing b", "end b g", "show g", "sync_context"]
    unchanged(lines)


def test_captures_that_are_invalidated_or_refused(unchanged):
    """Those that end so, that never began, and that end in the wrong place; launches go on."""
    lines = [*KERNELS, "event f", "end s g", "begin - 0", "begin s 0", "begin s 0"]
    lines += ["launch cuLaunchKernel k s", "sync s", "capturing s", "end s g", "capturing s"]
    lines += ["begin s 1", "on t end s g", "end s g", "begin s 0", *FORK_AND_JOIN[:4], "end s g"]
    lines += ["capturing s", "capturing o", "launch cuLaunchKernel k s 1 30", "sync_context"]
    lines += ["begin s 0", "destroy_stream s", "launch cuLaunchKernel k o 1 30", "sync_context"]
    unchanged(lines)


def test_a_thread_s_capture_mode_is_its_own(unchanged):
    lines = [*KERNELS, "mode 1", "launch cuLaunchKernel k o 1 30", "begin s 0"]
    lines += ["launch cuLaunchKernel k o 1 30", "on t launch cuLaunchKernel k o 1 30"]
    lines += ["mode 2", "launch cuLaunchKernel k o 1 30", "mode 0", "on t mode 1", "end s g"]
    unchanged([*lines, "mode 0", "sync_context"])


def test_many_threads_capture_and_launch_at_once(launcher, gpu):
    """Each graph is whole, and each launch on the card, however the threads come between."""
    script = launcher(gpu, share=90)
    names = "cdefgh"
    script.do(*KERNELS, "start t launch cuLaunchKernel l o 1 300")
    for _ in range(5):
        for name in names:
            script.do(f"stream {name}", f"on {name} begin {name} 1")
            script.do(f"start {name} launch cuLaunchKernel k {name} 1 20")
        for name in names:
            script.do(f"finish {name}", f"on {name} end {name} {name}", f"show {name}")
            assert script.outputs == " ".join(["0"] * 20 + ["edges=19"])
            script.do(f"instantiate {name} {name}", f"launch cuGraphLaunch {name} o")
    script.do("finish t", "sync_context")
    assert launched(gpu) == {"other_100us": 300, "work_100us": 5 * len(names) * 20}
    script.is_metered(0.15, at_least_ns=60_000_000)


def test_a_launch_that_is_slower_than_another_thread_s_event_is_billed(launcher, gpu):
    """The event is recorded between the admission of the graph's launch and the launch."""
    script = launcher(gpu, share=90)
    script.do(*KERNELS, "begin s 1", "launch cuLaunchKernel k s 1 20", "end s g", "instantiate x g")
    script.do("launch cuLaunchKernel l o", "sync o")
    gpu.control({"command": "slow", "symbol": "cuGraphLaunch", "us": 50_000})
    for _ in range(5):
        before = gpu.calls()
        script.do("start t launch cuGraphLaunch x o")
        gpu.wait_until(lambda gpu, before=before: more(gpu, before, "cuGraphLaunch") == 1)
        script.do("launch cuLaunchKernel l o", "finish t", "launch cuLaunchKernel l o", "sync o")
    assert launched(gpu) == {"other_100us": 11, "work_100us": 100}
    script.is_metered(0.15, at_least_ns=10_000_000)


@MODES
def test_a_capture_that_never_ends_launches_nothing(launcher, gpu, mode):
    script = launcher(gpu)
    script.do(*KERNELS, f"begin s {mode}", "launch cuLaunchKernel k s")
    script.do("on t launch cuLaunchKernel l o 1 500")
    if mode != 0:
        script.do("on t sync o", "on t launch cuLaunchKernel l P 1 100")
    gpu.wait_until(lambda gpu: script.busy_ns() >= (50_000_000 if mode == 0 else 60_000_000))
    script.is_metered(0.15, at_least_ns=50_000_000)
    script.do("capturing s")
    assert script.outputs == "1"


def test_a_stream_that_joins_a_capture_while_its_batch_is_closed(launcher, gpu):
    """Our event gets into the stream before it captures, or not at all."""
    script = launcher(gpu)
    script.do(*KERNELS, "event f", "launch cuLaunchKernel l o 1 3", "sync o")
    gpu.control({"command": "slow", "symbol": "cuEventRecord", "us": 50_000})
    for _ in range(3):
        before = gpu.calls()
        script.do("begin s 2", "launch cuLaunchKernel l o")
        gpu.wait_until(lambda gpu, before=before: more(gpu, before, "cuEventRecord") == 2)
        script.do(*FORK_AND_JOIN)
        gpu.wait_until(lambda gpu, before=before: more(gpu, before, "cuEventQuery") > 0)
        script.do("end s g", "show g")
        assert script.outputs == "0 0 0 0 0 edges=4"
        script.do("sync_context", "destroy_graph g")
    assert launched(gpu) == {"other_100us": 6}


def more(gpu, before, symbol):
    """How often a function was called since then."""
    return gpu.calls()[symbol] - before[symbol]
