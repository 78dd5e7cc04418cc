"""When a kernel's local memory is taken of the card, and how much: the steps of `kernel_steps.py`.

Local memory is the memory of a thread that does not fit into registers.
"""

import json
import sys

from gpu.card import Card, python_path
from gpu.measures.growth import Growth, Sample, settle, tried
from support.running import Started

#: Bytes of local memory of each thread. Each size has a context of its own, because a context keeps
#: what its largest kernel needed.
SIZES = (0, 1024, 4096, 16384, 65536)

#: Bytes of local memory for which a context has room from the start: the default of the stack.
INCLUDED = 1024


def modules(card: Card) -> Sample:
    """Kernels of modules, which the driver loads when they are needed."""
    for size in SIZES:
        yield from _measured(card, "module", str(size))


def libraries(card: Card) -> Sample:
    """The same kernels in libraries."""
    for size in SIZES:
        yield from _measured(card, "library", str(size))


def others(card: Card) -> Sample:
    """Several kernels in one context, a stack of unknown depth, and kernels that load at once."""
    yield from _measured(card, "module", *(str(size) for size in SIZES[1:]))
    yield from _measured(card, "module", str(SIZES[-2]), str(SIZES[1]), str(SIZES[-2]))
    yield from _measured(card, "module", "recursion")
    yield from _measured(card, "module", str(SIZES[-2]), loading="EAGER")


GROUPS = (modules, libraries, others)


def _measured(card: Card, how: str, *kernels: str, loading: str = "LAZY") -> Sample:
    title = f"local memory, {how}, {loading.lower()}, {'+'.join(kernels)}"
    yield from tried(title, _steps(card, title, how, kernels, loading))


def _steps(card: Card, title: str, how: str, kernels: tuple[str, ...], loading: str) -> Sample:
    command = [sys.executable, "-m", "gpu.kernel_steps", how, *kernels]
    env = {**card.env, **python_path(), "CUDA_MODULE_LOADING": loading}
    settle(card)
    with Started(command, env) as program:
        card_has = json.loads(program.next_line())
        grown = Growth(card)
        yield f"{title}: CU_LIMIT_STACK_SIZE before", card_has["stack"], "bytes"
        threads = card_has["multiprocessors"] * card_has["threads"]
        yield "local memory: multiprocessors of the card", card_has["multiprocessors"], "SMs"
        yield "local memory: threads of a multiprocessor", card_has["threads"], "threads"
        for place, kernel in enumerate(kernels, 1):
            which = title if len(kernels) == 1 else f"{title}, kernel {place} ({kernel})"
            yield from _kernel(program, grown, which, threads)


def _kernel(program: Started, grown: Growth, title: str, threads: int) -> Sample:
    local = taken = 0
    step = ""
    while step != "cuCtxSetLimit(stack) to what it is":
        program.tell("")
        values = json.loads(program.next_line())
        step = values.pop("step")
        growth = grown()
        local = values.get("local", local)
        if step.startswith("first launch"):
            taken += growth
        yield f"{title}: {step}", growth, "bytes"
        for name, value in values.items():
            unit = "(1 = yes)" if name == "loaded" else "bytes"
            yield f"{title}: {step}: {_SAID[name]}", value, unit
    yield f"{title}: first launch less local x threads", taken - local * threads, "bytes"
    beyond = max(0, local - INCLUDED) * threads
    yield f"{title}: first launch less (local - {INCLUDED}) x threads", taken - beyond, "bytes"
    yield f"{title}: first launch, for each thread of the card", taken / threads, "bytes"


_SAID = {
    "loaded": "cuFuncIsLoaded after it",
    "local": "CU_FUNC_ATTRIBUTE_LOCAL_SIZE_BYTES",
    "stack": "CU_LIMIT_STACK_SIZE after it",
}
