"""The frameworks of this machine, in its own Python, in a slice of 2 GiB.

Each must raise its own out-of-memory error at the limit, and below it return the same numbers as
without a limit. The report lists each test whose framework is not installed.
"""

import contextlib
import json
import threading
from pathlib import Path

import pytest

from support.running import run
from support.slices import GIB, MIB

LIMIT = 2 * GIB

SCRIPTS = Path(__file__).parent / "frameworks"

#: Seconds for one process: importing takes most of it, and JAX compiles.
DEADLINE = 110.0

#: The part of the limit that a framework must get; it rounds and keeps workspaces.
ENOUGH = 0.85

#: Bytes of code and workspaces that PyTorch loads for other jobs than `fill`.
CODE = 128 * MIB

#: Seconds between two looks at the card while a framework runs.
LOOK = 0.05

QUIET_JAX = {"XLA_PYTHON_CLIENT_PREALLOCATE": "false", "TF_CPP_MIN_LOG_LEVEL": "3"}

TORCH_ALLOCATORS = {
    "default": "",
    "expandable segments": "expandable_segments:True",
    "cudaMallocAsync": "backend:cudaMallocAsync",
}

#: Results so far: a framework takes seconds to import, so one process does several jobs.
_ran: dict[tuple, dict] = {}


@pytest.fixture
def ask(card, card_kind, machine_python):
    """`ask("torch", "fill", jobs)`: a job's result in the process that did all these jobs.

    The job "grown" is the most bytes by which NVML's "used" grew meanwhile.
    """

    def framework(name, job, jobs, env=None, limit=LIMIT):
        _require(name, card_kind, machine_python)
        interpreter, path = machine_python
        env = {**path, **(env or {})}
        key = (name, jobs, tuple(env.items()), limit)
        if key not in _ran:
            command = [interpreter, SCRIPTS / f"with_{name}.py", *jobs]
            where = card.slice(limit).env if limit else card.env
            with _peak(card) as grown:
                done = run(command, {**where, **env}, deadline=DEADLINE)
            lines = [json.loads(line) for line in done.lines if line.startswith('{"job"')]
            _ran[key] = {line["job"]: line for line in lines}
            _ran[key]["grown"] = {"result": max(grown)}
            _ran[key]["stderr"] = done.err[-1000:]
        answer = _ran[key].get(job)
        assert answer, f"{name} did not get to {job}: {_ran[key]['stderr']}"
        assert "error" not in answer, answer
        return answer["result"]

    return framework


@contextlib.contextmanager
def _peak(card):
    """A list of the bytes by which the card's use has grown, at each look."""
    before, over = card.used(), threading.Event()
    seen = [0]

    def look():
        while not over.wait(LOOK):
            seen.append(card.used() - before)

    looking = threading.Thread(target=look)
    looking.start()
    try:
        yield seen
    finally:
        over.set()
        looking.join()


def _require(name, card_kind, machine_python):
    """Skips the test, with the reason, if the framework does not run here."""
    interpreter, path = machine_python
    look = f"import importlib.util, sys; sys.exit(not importlib.util.find_spec({name!r}))"
    if run([interpreter, "-c", look], path).code != 0:
        pytest.skip(f"not installed: {name}")
    if card_kind == "stub":
        pytest.skip(f"{name} is installed, but NVIDIA's runtime works with NVIDIA's driver alone")


def conf(value):
    """PyTorch's allocator setting, under its old and its new name."""
    return {"PYTORCH_CUDA_ALLOC_CONF": value, "PYTORCH_ALLOC_CONF": value} if value else {}


TORCH_JOBS = ("total", "fill", "recover", "graphs")

SAME = {
    "torch": ("matmul", "graph", "fork", "spawn"),
    "cupy": ("matmul",),
    "jax": ("matmul",),
}


@pytest.mark.parametrize(
    ("name", "job"), [(name, job) for name, jobs in SAME.items() for job in jobs]
)
def test_below_the_limit_it_computes_the_same(ask, name, job):
    limited = ask(name, job, SAME[name], QUIET_JAX)
    bare = ask(name, job, SAME[name], QUIET_JAX, limit=None)
    assert limited == bare


def holds(seen, error):
    """Nearly the whole limit was allocated before the framework's own error."""
    assert error in seen["error"], seen
    assert LIMIT * ENOUGH <= seen["got"] <= LIMIT


@pytest.mark.parametrize("allocator", TORCH_ALLOCATORS)
def test_torch_sees_the_limit_and_stops_at_it(ask, allocator):
    env = conf(TORCH_ALLOCATORS[allocator])
    assert ask("torch", "total", TORCH_JOBS, env) == [LIMIT, LIMIT]
    holds(ask("torch", "fill", TORCH_JOBS, env), "OutOfMemoryError")


@pytest.mark.parametrize("allocator", TORCH_ALLOCATORS)
def test_torch_continues_after_an_out_of_memory_error(ask, allocator):
    env = conf(TORCH_ALLOCATORS[allocator])
    assert ask("torch", "recover", TORCH_JOBS, env) == float(1 << 20)


@pytest.mark.parametrize("allocator", TORCH_ALLOCATORS)
def test_torch_with_cuda_graphs_stays_within_the_limit(ask, allocator, note):
    """Either the graphs share their memory, or one of them is out of memory."""
    seen = ask("torch", "graphs", TORCH_JOBS, conf(TORCH_ALLOCATORS[allocator]))
    note("graphs", [seen["graphs"], seen["text"]])
    assert seen["sums"] == [256 * MIB]
    assert seen["graphs"] == 16 or "out of memory" in seen["text"]


@pytest.mark.parametrize("allocator", TORCH_ALLOCATORS)
def test_torch_takes_no_more_of_the_card_than_its_limit(ask, card, allocator, note):
    """The driver's own part is that of the same program without a limit."""
    filled = ask("torch", "fill", ("fill",), limit=None)["got"]
    driver = ask("torch", "grown", ("fill",), limit=None) - filled
    grown = ask("torch", "grown", TORCH_JOBS, conf(TORCH_ALLOCATORS[allocator]))
    note("bytes by NVML, bytes of the driver", [grown, driver])
    assert grown <= LIMIT + driver + CODE + card.slack


@pytest.mark.parametrize("job", ["fill", "fill_async"])
def test_cupy_sees_the_limit_and_stops_at_it(ask, job):
    assert ask("cupy", "total", ("total", job)) == [LIMIT]
    holds(ask("cupy", job, ("total", job)), "OutOfMemoryError")


def test_jax_sees_the_limit_and_stops_at_it(ask):
    jobs = ("total", "fill")
    (bytes_limit,) = ask("jax", "total", jobs, QUIET_JAX)
    seen = ask("jax", "fill", jobs, QUIET_JAX)
    assert LIMIT // 2 <= bytes_limit <= LIMIT
    assert "RESOURCE_EXHAUSTED" in seen["text"], seen
    assert LIMIT // 2 <= seen["got"] <= bytes_limit
