"""Every launch function under a share: the driver's answers, and every kernel on the card once."""

import pytest

from support.launcher import launched

KERNELS = [
    "cuLaunchKernel",
    "cuLaunchKernel_ptsz",
    "cuLaunchKernelEx",
    "cuLaunchKernelEx_ptsz",
    "cuLaunchCooperativeKernel",
    "cuLaunchCooperativeKernel_ptsz",
    "cuLaunch",
    "cuLaunchGrid",
    "cuLaunchGridAsync",
]
ON_MADE_STREAMS = "cuLaunchCooperativeKernelMultiDevice"
GRAPHS = ["cuGraphLaunch", "cuGraphLaunch_ptsz"]
STREAMLESS = {"cuLaunch", "cuLaunchGrid"}

#: A stream that does not wait for the default one, one that does, and those that are always there.
STREAMS = ["s", "b", "-", "L", "P"]
MAKE_STREAMS = ["stream s 1", "stream b 0"]

#: A graph of three kernels in a row, one of which is another.
MAKE_GRAPH = [
    "stream c",
    "begin c",
    "launch cuLaunchKernel k c",
    "launch cuLaunchKernel l c",
    "launch cuLaunchKernel k c",
    "end c g",
    "instantiate x g",
]


def streams_of(function):
    if function in STREAMLESS:
        return ["-"]
    return ["s", "b"] if function == ON_MADE_STREAMS else STREAMS


@pytest.mark.parametrize("lookup", ["link", "dlsym", "proc_address"])
def test_every_kernel_reaches_the_card_once(unchanged, lookup):
    """One launch, then enough launches for several budgets and batches, then another grid."""
    lines = [f"lookup {lookup}", *MAKE_STREAMS, "kernel k m short_20us", "kernel l m other_30us"]
    for function in [*KERNELS, ON_MADE_STREAMS]:
        for stream in streams_of(function):
            lines += [
                f"launch {function} k {stream}",
                f"launch {function} l {stream} 1 40",
                f"launch {function} k {stream} 2 3",
                f"sync {stream}",
            ]
    answers = unchanged([*lines, "sync_context"])
    assert all(answer.endswith(" -> 0") for answer in answers)


@pytest.mark.parametrize("lookup", ["link", "dlsym", "proc_address"])
def test_every_graph_reaches_the_card_once(unchanged, lookup):
    lines = [f"lookup {lookup}", *MAKE_STREAMS, "kernel k m short_20us", "kernel l m other_30us"]
    lines += MAKE_GRAPH
    for function in GRAPHS:
        for stream in STREAMS:
            lines += [f"launch {function} x {stream} 1 7", f"sync {stream}"]
    answers = unchanged([*lines, "sync_context"])
    assert all(answer.endswith(" -> 0") for answer in answers)


@pytest.mark.parametrize("wrong", ["nothing", "no blocks", "no stream", "no kernel", "unloaded"])
def test_the_driver_s_refusals_are_returned(unchanged, wrong):
    lines = [*MAKE_STREAMS, "kernel k m short_20us", "kernel l m other_30us", *MAKE_GRAPH]
    lines += ["launch cuLaunchKernel k s 1 5"]
    stream, blocks = "s", 1
    if wrong == "nothing":
        lines += ["current -"]
    if wrong == "no blocks":
        blocks = 0
    if wrong == "no stream":
        lines += ["destroy_stream s"]
    if wrong == "no kernel":
        lines += ["sync_context", "destroy_executable x"]
    if wrong == "unloaded":
        lines += ["sync_context", "unload m"]
    for function in [*KERNELS, ON_MADE_STREAMS]:
        kernel = "z" if wrong == "no kernel" else "k"
        lines += [f"launch {function} {kernel} {stream} {blocks}"]
    lines += [f"launch {function} x {stream}" for function in GRAPHS]
    # Refused calls do not affect later ones.
    lines += ["current a", "module m", "kernel k m short_20us"]
    lines += ["launch cuLaunchKernel k b 1 5", "sync_context"]
    unchanged(lines)


def test_a_kernel_on_several_devices_is_on_each_once(unchanged, stub_server):
    lines = ["context b 1", "module n", "kernel l n there_20us", "stream t", "current a"]
    lines += ["kernel k m here_20us", "stream s"]
    lines += ["launch_on_two k s l t"] * 20
    # The second is refused, and so is the first.
    lines += ["launch_on_two k s l s", "launch_on_two k s k -"]
    unchanged([*lines, "sync s", "sync t"], cards="a100,a100")


def test_launches_before_anything_is_initialised(program, gpu, unchanged, launcher):
    script = launcher(gpu, begin=False)
    for function in [*KERNELS, ON_MADE_STREAMS, *GRAPHS]:
        assert script(f"launch {function} k -") == 3
    script.do("init", "device 0 a", "module m", "kernel k m short_20us")
    script.do("launch cuLaunchKernel k -", "sync_context")
    assert launched(gpu) == {"short_20us": 1}
