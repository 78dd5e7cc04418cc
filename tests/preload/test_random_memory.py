"""Random programs with device memory of all kinds: account and ledger agree after each command.

The seed is the test's parameter. On failure the program is made small and printed.
"""

import pytest

from support import slices
from support.console import OUT_OF_MEMORY, SUCCESS, Console
from support.memory_rules import Execution, Setting, execute
from support.memory_use import accounted, agreed, see_closed_descriptors
from support.random_memory import Generator, shrink
from support.slices import GIB, KIB, MIB
from support.tiers import amount
from support.traces import value

COMMANDS = 150

SETTINGS = {
    "exact": ("a100,a100", Setting(limits=(1 * GIB, 700 * MIB))),
    "bytes": ("a100,a100", Setting(limits=(600 * MIB + 512, 1 * GIB), is_whole=False)),
    "coarse": (
        "h200-coarse,h200-coarse",
        Setting(limits=(3 * GIB, 2 * GIB + 512 * KIB), context=527 * MIB),
    ),
}


class Slices:
    """Executes programs on one stub GPU, each in a slice of its own."""

    def __init__(self, gpu, folder, env_of, console, setting):
        self._gpu, self._folder, self._env_of = gpu, folder, env_of
        self._console, self._setting = console, setting
        self._count = 0

    def execution(self):
        self._count += 1
        self._gpu.control({"command": "reset-peaks"})
        context = self._setting.context or None
        slice = slices.make(
            self._folder / f"slice{self._count}",
            dict(zip(self._gpu.uuids(), self._setting.limits, strict=True)),
            context_memory=context,
            granule=context and 2 * MIB,
        )
        env = self._env_of(self._gpu, slice)
        return Execution(
            self._gpu, slice, lambda: Console(self._console, env, slice), self._setting
        )

    def explore(self, seed):
        """A random program, as far as it got, and the rule that it breaks."""
        generator = Generator(seed, self._setting.limits, self._setting.is_whole)
        commands = []

        def next_command(result):
            if commands:
                generator.told(commands[-1], result)
            if len(commands) == COMMANDS:
                return None
            commands.append(generator.next())
            return commands[-1]

        return commands, execute(self.execution(), next_command)

    def repeat(self, commands, *, to_the_end=True):
        """The rule that a program breaks."""
        rest = iter(commands)
        return execute(self.execution(), lambda _: next(rest, None), to_the_end=to_the_end)

    def smallest(self, commands, rule):
        """A small part of a program that breaks a rule."""

        def breaks(part):
            broken = self.repeat(part, to_the_end=to_the_end)
            return broken is not None and broken.rule == rule

        to_the_end = False
        to_the_end = not breaks(commands)
        return shrink(commands, breaks)


@pytest.mark.tier("fast", "ci")
@pytest.mark.parametrize("seed", range(amount("random memory programs")))
def test_account_and_ledger_agree_in_random_programs(seed, stub_server, program, preload, tmp_path):
    cards, setting = list(SETTINGS.values())[seed % len(SETTINGS)]
    tester = Slices(stub_server(cards), tmp_path, preload, program("console"), setting)
    commands, broken = tester.explore(seed)
    if broken is not None:
        print(f"seed {seed}: {broken}", *commands, sep="\n")
        small = tester.smallest(commands, broken.rule)
        pytest.fail(f"seed {seed}: {tester.repeat(small)}\n" + "\n".join(small), pytrace=False)


# What random programs have found, made small.


@pytest.fixture
def pair(stub_server, slice_dir, start):
    """Two programs in one slice of 1 GiB on each of two cards."""
    gpu = stub_server("a100,a100")
    first = start(gpu, slice_dir(dict.fromkeys(gpu.uuids(), GIB)))
    return gpu, first, start(gpu, first.slice)


def exported(script, name):
    """A descriptor of physical memory, as `import` takes it."""
    script.do(f"export {name}")
    return f"{value(script.outputs, 'pid')} {value(script.outputs, 'fd')}"


def test_a_pool_that_shrinks_while_a_graph_waits_is_uncharged(pair):
    """The pool is on the other card. Its memory is returned by the library's own wait."""
    gpu, script, _ = pair
    script.do("pool p 1", "stream s", "from_pool b 36M p s", "free b")
    script.do("begin s 2", "async n 2G s", "end s g", "instantiate w g 0")
    assert script("launch cuGraphLaunch w s") == OUT_OF_MEMORY
    assert agreed(gpu, script.slice, 1) == 0


@pytest.mark.parametrize("last", [0, 1])
def test_each_descriptor_keeps_memory_charged(pair, last):
    gpu, script, _ = pair
    script.do("create h 512M 0 fd")
    descriptors = [exported(script, "h") for _ in range(2)]
    script.do("release h")
    charged = []
    for descriptor in sorted(descriptors, key=lambda it: it == descriptors[last]):
        see_closed_descriptors(script)
        charged.append(sum(accounted(script.slice).values()))
        script.do(f"close_fd {descriptor.split()[1]}")
    see_closed_descriptors(script)
    assert charged == [512 * MIB] * 2
    assert agreed(gpu, script.slice) == 0


@pytest.mark.xfail(strict=True, reason="cuMemFreeAsync looks among linear memory only")
def test_a_buffer_of_external_memory_that_is_freed_on_a_stream_is_uncharged(gpu, start):
    """NVIDIA's documentation names cuMemFree for such buffers; the stub allows both."""
    script = start(gpu, GIB)
    script.do("external e 4M", "external_buffer x e", "external_destroy e", "stream s")
    freed = script("free_async x s")
    assert agreed(gpu, script.slice) == (0 if freed == SUCCESS else 4 * MIB)
