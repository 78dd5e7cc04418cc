"""Programs of another C library: musl, as in Alpine images.

The library is built for glibc. A musl program with the library preloaded does not start. So no
program runs without its limit, and a line on standard error names the library.
"""

import shutil

import pytest

from support.running import run


@pytest.fixture
def musl_program(program):
    """`musl_program(*flags)` is a program linked against musl."""
    if not shutil.which("musl-gcc"):
        pytest.fail("musl-gcc is missing; install it with: apt-get install musl-tools")
    return lambda *flags: program("hello", *flags, compiler="musl-gcc")


def test_a_musl_program_does_not_start_with_the_library_and_names_it(artifacts, musl_program):
    assert run([musl_program()], {}).lines == ["hello"]
    done = run([musl_program()], {"LD_PRELOAD": str(artifacts.library)})
    assert (done.code, done.out) == (127, "")
    assert str(artifacts.library) in done.err


def test_a_static_program_ignores_preloading(artifacts, musl_program):
    """No dynamic linker, so no library: it cannot load a driver either."""
    bare = run([musl_program("-static")], {})
    assert bare.lines == ["hello"]
    assert run([musl_program("-static")], {"LD_PRELOAD": str(artifacts.library)}) == bare
