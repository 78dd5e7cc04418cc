"""Sandboxes that deny a system call that the library needs.

The program gets no memory, and a line names the call. Without the library it runs in this sandbox.
"""

import pytest

from support.running import run
from support.seccomp import call_numbers
from support.slices import GIB


@pytest.mark.parametrize("call", ["fstat", "madvise", "fcntl", "openat", "pread64"])
def test_a_line_names_the_call_that_is_denied(gpu, program, run_limited, call):
    # MADV_DONTFORK: the stub needs other advice.
    denied = f"{call_numbers()[call]}{'@10' if call == 'madvise' else ''}"
    bare = run([program("denied_call"), denied], gpu.env)
    assert [line.split(" -> ")[1] for line in bare.lines] == ["0", "0", "0", "0 pointer=p0"]
    done = run_limited(gpu, GIB, "denied_call", denied)
    assert done.lines[-1].endswith("-> 2 pointer=untouched")
    (line,) = done.err.splitlines()
    assert f": {call}: Operation not permitted (os error 1); allow this system call" in line
    assert "removed or damaged" not in line
