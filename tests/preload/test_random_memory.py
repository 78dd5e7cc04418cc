"""Random programs with device memory of all kinds: account and ledger agree after each command.

The seed is the test's parameter. On failure the program is made small and printed.
"""

import pytest

from support import slices
from support.console import Console
from support.memory_rules import Broken, Execution, Setting, execute, script
from support.random_memory import Generator, shrink
from support.slices import GIB, KIB, MIB
from support.tiers import amount

COMMANDS = 150

SETTINGS = {
    "exact": ("a100,a100", Setting(limits=(1 * GIB, 700 * MIB))),
    "bytes": ("a100,a100", Setting(limits=(600 * MIB + 512, 1 * GIB), is_whole=False)),
    "coarse": (
        "h200-coarse,h200-coarse",
        Setting(limits=(3 * GIB, 2 * GIB + 512 * KIB), context=520 * MIB),
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
        program = []
        execution = self.execution()
        broken = None
        try:
            with execution:
                for _ in range(COMMANDS):
                    program.append(generator.next())
                    result = execution(program[-1])
                    generator.told(program[-1], 1 if result is None else result)
                execution.end()
        except Broken as found:
            broken = found
        except (AssertionError, TimeoutError) as ended:
            broken = Broken("ended", str(ended)[:2000])
        return program, broken

    def breaks(self, program, rule):
        broken = execute(self.execution(), program)
        return broken is not None and broken.rule == rule


@pytest.mark.parametrize("seed", range(amount("random memory programs")))
def test_account_and_ledger_agree_in_random_programs(
    seed, stub_server, program, preload, tmp_path
):
    cards, setting = list(SETTINGS.values())[seed % len(SETTINGS)]
    tester = Slices(stub_server(cards), tmp_path, preload, program("console"), setting)
    commands, broken = tester.explore(seed)
    if broken is not None:
        small = shrink(commands, lambda part: tester.breaks(part, broken.rule))
        found = execute(tester.execution(), small)
        pytest.fail(f"seed {seed}: {broken}\n{script(small)}\n{found}", pytrace=False)
