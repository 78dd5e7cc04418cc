"""Random programs of two to six processes that share memory, pass descriptors on, and are killed.

The test's model says which memory exists: what a process has, or a descriptor keeps. The account
must say the same after each command, and the ledger must never see more than the limit. The seed is
the test's parameter.
"""

import random
import time
from collections import Counter
from itertools import count

import pytest

from support.console import OUT_OF_MEMORY, SUCCESS
from support.slices import MIB
from support.tiers import amount
from support.traces import value

COMMANDS = 80
LIMIT = 256 * MIB


class Memory:
    """Memory that a process has allocated; the model of it."""

    def __init__(self, size):
        self.size = size
        self.holders = Counter()  # by process
        self.descriptors = []  # process and number, of each that is open
        self.handle = None  # for IPC: the owner's name for it, and the handle

    def exists(self):
        return self.holders.total() > 0 or bool(self.descriptors)


class Process:
    def __init__(self, console):
        self.console = console
        self.held = []  # memory, its name here, and the command that gives it back


class Program:
    """Commands of several processes, one after the other."""

    def __init__(self, gpu, start, seed):
        self.random = random.Random(seed)  # noqa: S311 - no secret
        self.gpu, self.start_console, self.slice = gpu, start, None
        self.memories, self.processes, self.names = [], [], count()
        self.most = self.random.randint(2, 6)
        self.log = []

    def run(self):
        self.start()
        for _ in range(COMMANDS):
            choices = [self.start, self.allocate, self.allocate, self.export, self.send]
            choices += [self.import_, self.import_, self.give_back, self.give_back, self.close]
            choices += [self.open, self.kill_any] if self.random.random() < 0.5 else []
            self.random.choice(choices)()
            self.check()
        for process in [*self.processes]:
            self.kill(process)
            self.check()
        assert self.charged() == self.gpu.held() == 0, self.log

    def check(self):
        assert self.gpu.peak() <= LIMIT, self.log
        expected = sum(memory.size for memory in self.memories if memory.exists())
        if self.charged() != expected:
            # A query looks for closed descriptors, once in 10 ms at most.
            time.sleep(0.011)
            self.do(self.processes[0], "info")
        assert self.charged() == expected, self.log
        assert self.gpu.held() <= expected, self.log

    def charged(self):
        from hami_py._native import Account

        return Account.open(self.slice / "account").snapshot().memory_used[0]

    # Commands.

    def call(self, process, command):
        result = process.console(command)
        self.log.append(f"{process.console.pid} {command} -> {result}")
        return result

    def do(self, process, command):
        assert self.call(process, command) == SUCCESS, self.log

    def any(self):
        return self.random.choice(self.processes)

    def name(self):
        return f"m{next(self.names) % 400}"

    def start(self):
        if len(self.processes) < self.most:
            console = self.start_console(self.gpu, self.slice or LIMIT)
            self.slice = console.slice
            console.do("receive_fd_later")
            self.processes.append(Process(console))

    def allocate(self):
        process, name = self.any(), self.name()
        size = self.random.choice([2, 4, 10, 32, 64, 128]) * MIB
        is_linear = self.random.random() < 0.3
        command = f"alloc {name} {size}" if is_linear else f"create {name} {size} 0 fd"
        result = self.call(process, command)
        if result == OUT_OF_MEMORY:
            exists = sum(memory.size for memory in self.memories if memory.exists())
            assert exists + size > LIMIT, self.log
            return
        assert result == SUCCESS, self.log
        memory = Memory(size)
        self.memories.append(memory)
        if is_linear:
            self.do(process, f"ipc_handle {name}")
            memory.handle = (process, process.console.outputs.split()[-1])
        self.hold(process, memory, name, "free" if is_linear else "release")

    def hold(self, process, memory, name, end):
        memory.holders[process] += 1
        process.held.append((memory, name, end))

    def export(self):
        process = self.any()
        mapped = [(memory, name) for memory, name, end in process.held if end == "release"]
        if mapped:
            memory, name = self.random.choice(mapped)
            result = self.call(process, f"export {name}")
            # The driver exports no memory that was imported.
            if result == SUCCESS:
                memory.descriptors.append((process, value(process.console.outputs, "fd")))

    def descriptor(self):
        found = [(memory, it) for memory in self.memories for it in memory.descriptors]
        return self.random.choice(found) if found else (None, (None, None))

    def send(self):
        memory, (owner, number) = self.descriptor()
        to = self.any()
        if memory and to is not owner:
            self.do(owner, f"send_fd {to.console.pid} {number}")
            if self.random.random() < 0.7:
                self.do(owner, f"close_fd {number}")
                memory.descriptors.remove((owner, number))
            self.do(to, "receive_fd")
            memory.descriptors.append((to, value(to.console.outputs, "fd")))

    def import_(self):
        memory, (owner, number) = self.descriptor()
        if memory:
            process, name = self.any(), self.name()
            self.do(process, f"import {name} {owner.console.pid} {number}")
            self.hold(process, memory, name, "release")

    def open(self):
        found = [it for it in self.memories if it.handle and it.handle[0] in self.processes]
        found = [it for it in found if it.holders[it.handle[0]]]
        process, name = self.any(), self.name()
        found = [it for it in found if it.handle[0] is not process and not it.holders[process]]
        if found:
            memory = self.random.choice(found)
            self.do(process, f"ipc_open {name} {memory.handle[1]}")
            self.hold(process, memory, name, "ipc_close")

    def give_back(self):
        process = self.any()
        if process.held:
            held = self.random.choice(process.held)
            memory, name, end = held
            process.held.remove(held)
            self.do(process, f"{end} {name}")
            memory.holders[process] -= 1

    def close(self):
        memory, (owner, number) = self.descriptor()
        if memory:
            self.do(owner, f"close_fd {number}")
            memory.descriptors.remove((owner, number))

    def kill_any(self):
        self.kill(self.any())

    def kill(self, process):
        self.processes.remove(process)
        process.console.kill()
        self.log.append(f"{process.console.pid} killed")
        for memory in self.memories:
            del memory.holders[process]
            memory.descriptors = [it for it in memory.descriptors if it[0] is not process]
        rows = self.gpu.ledger
        pid = process.console.pid
        self.gpu.wait_until(
            lambda _: all(it["state"] == "freed" for it in rows()["processes"] if it["pid"] == pid)
        )
        if not self.processes:
            self.start()
        # Nobody reports here what the driver has freed: the grace period decides.
        for _ in range(2):
            self.do(self.processes[0], "info")
            time.sleep(0.8)


@pytest.mark.tier("fast", "ci")
@pytest.mark.parametrize("seed", range(amount("random sharing programs")))
def test_what_processes_share_is_charged_once_and_to_the_end(seed, gpu, start):
    Program(gpu, start, seed).run()
