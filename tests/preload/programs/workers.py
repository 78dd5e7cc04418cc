"""Python programs that share their work among processes: ``python workers.py JOB [ARGUMENT]...``.

A job says "holding" and a JSON object when there is something to see, and goes on at the next line
of standard input.
"""

import json
import multiprocessing
import os
import signal
import sys
import time
from concurrent import futures

MIB = 1 << 20
WORKERS = 4
DEADLINE = 60.0

meeting = None


def cuda(name, *arguments):
    """A driver call's result and values; imported late, so that a parent can do without."""
    from cuda.bindings import driver

    result, *values = getattr(driver, name)(*arguments)
    return int(result), values


def must(name, *arguments):
    result, values = cuda(name, *arguments)
    if result:
        raise RuntimeError(f"{name}{arguments} -> {result}")
    return values[0] if values else None


def use_cuda():
    must("cuInit", 0)
    must("cuCtxSetCurrent", must("cuDevicePrimaryCtxRetain", 0))


def hold(mebibytes):
    use_cuda()
    must("cuMemAlloc", mebibytes * MIB)


def show(**values):
    print("holding", flush=True)
    print(json.dumps(values), flush=True)
    sys.stdin.readline()


def join_meeting(barrier):
    global meeting  # noqa: PLW0603 - what a pool's initialiser is for
    meeting = barrier


def hold_and_meet(mebibytes):
    """As many of these as there are workers: each must run in one of its own."""
    hold(mebibytes)
    meeting.wait(DEADLINE)
    return os.getpid()


def share(kind, method, parent):
    """Workers that hold 16, 32, ... MiB; the parent holds 8 MiB or has never heard of CUDA."""
    if parent == "cuda":
        hold(8)
    context = multiprocessing.get_context(method)
    shared = (context.Barrier(WORKERS),)
    sizes = [16 * (1 + index) for index in range(WORKERS)]
    if kind == "pool":
        with context.Pool(WORKERS, join_meeting, shared) as pool:
            show(workers=pool.map(hold_and_meet, sizes, chunksize=1))
    else:
        with futures.ProcessPoolExecutor(WORKERS, context, join_meeting, shared) as executor:
            show(workers=list(executor.map(hold_and_meet, sizes)))
    show(workers=[])


def batch(index):
    return index.to_bytes(8, "little") * 4096


def load():
    """A data loader: the parent uses CUDA, its forked workers only make the batches."""
    hold(64)
    with multiprocessing.get_context("fork").Pool(WORKERS) as pool:
        for index, data in enumerate(pool.imap(batch, range(32))):
            pointer, back = must("cuMemAlloc", len(data)), bytearray(len(data))
            must("cuMemcpyHtoD", pointer, data, len(data))
            must("cuMemcpyDtoH", back, pointer, len(data))
            must("cuMemFree", pointer)
            assert bytes(back) == batch(index)
        show()


def fork():
    """os.fork with CUDA in use: the child's attempts, and the parent's memory afterwards."""
    hold(64)
    child = os.fork()
    if child == 0:
        tried = [cuda("cuMemGetInfo"), cuda("cuMemAlloc", MIB), cuda("cuInit", 0)]
        print("child", [result for result, _ in tried], flush=True)
        os._exit(0)
    os.waitpid(child, 0)
    show()
    print("parent", cuda("cuMemAlloc", MIB)[0], flush=True)


def die(mebibytes):
    hold(mebibytes)
    os.kill(os.getpid(), signal.SIGKILL)


def ask_until_granted(mebibytes):
    """As long as the driver and the slice need to give back what a dead process held."""
    use_cuda()
    until = time.monotonic() + DEADLINE
    while time.monotonic() < until:
        result, _ = cuda("cuMemAlloc", mebibytes * MIB)
        if result != 2:
            return result
        time.sleep(0.01)
    return None


def survive(mebibytes):
    """A worker dies with memory in its hands; the next one gets as much."""
    context = multiprocessing.get_context("spawn")
    with futures.ProcessPoolExecutor(1, context) as executor:
        try:
            executor.submit(die, int(mebibytes)).result()
        except futures.process.BrokenProcessPool:
            print("broken", flush=True)
    with futures.ProcessPoolExecutor(1, context) as executor:
        print("next", executor.submit(ask_until_granted, int(mebibytes)).result(), flush=True)


def daemonise():
    """Fork, setsid, fork, as a daemon starts: the grandchild holds, its ancestors have ended."""
    if os.fork():
        return
    os.setsid()
    if os.fork():
        os._exit(0)
    hold(64)
    show(daemon=os.getpid())


if __name__ == "__main__":
    jobs = {job.__name__: job for job in (share, load, fork, survive, daemonise)}
    jobs[sys.argv[1]](*sys.argv[2:])
