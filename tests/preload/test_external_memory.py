"""Memory of other APIs is charged to the importing process, until its last buffer is freed."""

from support.console import OUT_OF_MEMORY, SUCCESS
from support.memory_use import agreed, refusals, wait_for_use
from support.slices import GIB, MIB


def test_an_import_is_charged_until_it_is_destroyed(gpu, start):
    script = start(gpu, 64 * MIB)
    script.do("external e 48M")
    assert agreed(gpu, script.slice) == 48 * MIB
    assert script("external f 20M") == OUT_OF_MEMORY
    assert refusals(script.slice) == 1
    script.do("external_destroy e")
    assert agreed(gpu, script.slice) == 0
    assert gpu.peak() == 48 * MIB


def test_buffers_keep_the_memory_of_a_destroyed_import(gpu, start):
    """HAMi-core: a free of such a buffer failed."""
    script = start(gpu, GIB)
    script.do("external e 8M", "external_buffer a e", "external_buffer b e 4M 2M")
    script.do("external_destroy e")
    assert agreed(gpu, script.slice) == 8 * MIB
    script.do("free b")
    assert agreed(gpu, script.slice) == 8 * MIB
    script.do("free a")
    assert agreed(gpu, script.slice) == 0
    assert script("free a") != SUCCESS


def test_it_ends_with_its_context_and_its_process(gpu, start):
    script = start(gpu, GIB)
    script.do("external e 8M", "context c 0", "external f 16M", "external_buffer b f")
    script.do("destroy c")
    assert agreed(gpu, script.slice) == 8 * MIB
    script.kill()
    wait_for_use(gpu, script.slice, 0)


def test_below_the_limit_it_makes_no_difference(trace_pair):
    script = """
        init\nexternal e 4M\ndevice 0\nexternal e 4M\nexternal_buffer b e\nfill b 4M\nattributes b
        external_buffer c e 2M 4M\nexternal_destroy e\nexternal_destroy e\nfree b\nfree b\ninfo
    """
    lines = [line.strip() for line in script.strip().splitlines()]
    bare, limited = trace_pair("console", GIB, input="\n".join(lines))
    assert limited[:-1] == bare[:-1]
