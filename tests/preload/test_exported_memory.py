"""Memory that processes export: the slice is charged, while any process or descriptor has it.

M1 to M5 of a review of memory limits, each as a small program. The oracle is the ledger: what the
cards have in use never exceeds the limit, and nothing stays charged.
"""

import time

import pytest

from support.console import OUT_OF_MEMORY, SUCCESS
from support.memory_use import wait_for_use
from support.slices import GIB, MIB
from support.traces import value

LIMIT = 64 * MIB


class Programs:
    """Processes of one slice, and a limit that the ledger must never see exceeded."""

    def __init__(self, gpu, start, limit=LIMIT):
        self._gpu, self._start, self._limit = gpu, start, limit
        self.slice = None

    def start(self):
        script = self._start(self._gpu, self.slice or self._limit)
        self.slice = script.slice
        return script

    def end(self, script, survivor):
        """Kill a process; the survivor then knows that its own memory is free."""
        script.kill()
        self._gpu.wait_until(lambda gpu: self._is_freed(gpu, script.pid))
        # The grace period, from when the survivor has seen the death.
        for _ in range(2):
            survivor.do("info")
            time.sleep(0.8)
        survivor.do("info")

    @staticmethod
    def _is_freed(gpu, pid):
        rows = [row for row in gpu.ledger()["processes"] if row["pid"] == pid]
        return all(row["state"] == "freed" for row in rows)

    def check(self):
        assert self._gpu.peak() <= self._limit
        assert self.charged() >= self._gpu.held()

    def charged(self):
        from hami_py._native import Account

        return Account.open(self.slice / "account").snapshot().memory_used[0]

    def fill(self, script, bytes, at_most):
        """Allocates in small steps: what is granted, and no more than there is room for."""
        granted = 0
        while script(f"alloc f{granted // bytes} {bytes}") == SUCCESS:
            granted += bytes
            assert granted <= at_most
        self.check()
        return granted


@pytest.fixture
def programs(gpu, start):
    return Programs(gpu, start)


def exported(script, name):
    """A new descriptor of memory: the process that has it, and its number there."""
    script.do(f"export {name}")
    return f"{value(script.outputs, 'pid')} {value(script.outputs, 'fd')}"


def passed(script, descriptor, other):
    """Sends a descriptor to another process and closes it here; as the other one knows it."""
    number = descriptor.split()[1]
    other.do("receive_fd_later")
    script.do(f"send_fd {other.pid} {number}", f"close_fd {number}")
    other.do("receive_fd")
    return f"{value(other.outputs, 'pid')} {value(other.outputs, 'fd')}"


def test_memory_that_is_imported_after_its_exporter_has_died_is_charged(programs):
    """Another import of the same process keeps nothing of it."""
    a, b = programs.start(), programs.start()
    a.do("create h1 16M 0 fd", "create h2 32M 0 fd")
    first = exported(a, "h1")
    second = exported(a, "h2")
    b.do(f"import i1 {first}")
    held = passed(a, second, b)
    programs.end(a, b)
    b.do(f"import i2 {held}", f"close_fd {held.split()[1]}")
    assert programs.fill(b, 4 * MIB, 16 * MIB) == 16 * MIB


def test_memory_that_its_exporter_has_imported_itself_is_charged(programs):
    a, b = programs.start(), programs.start()
    a.do("create h1 16M 0 fd", "create h2 32M 0 fd")
    b.do(f"import i1 {exported(a, 'h1')}")
    second = exported(a, "h2")
    a.do(f"import h3 {second}")
    held = passed(a, second, b)
    programs.end(a, b)
    b.do(f"import i2 {held}", f"close_fd {held.split()[1]}")
    assert programs.fill(b, 4 * MIB, 16 * MIB) == 16 * MIB


def test_a_descriptor_that_is_closed_releases_its_own_memory_only(gpu, programs):
    a, b = programs.start(), programs.start()
    a.do("create h1 32M 0 fd", "create h2 16M 0 fd")
    b.do(f"import i1 {exported(a, 'h1')}")
    held = passed(a, exported(a, "h2"), b)
    programs.end(a, b)
    b.do(f"close_fd {held.split()[1]}")
    assert programs.fill(b, 4 * MIB, 32 * MIB) == 32 * MIB
    b.do("release i1")
    wait_for_use(gpu, programs.slice, 32 * MIB)


def test_each_importer_after_the_death_of_the_exporter_shares_one_charge(gpu, programs):
    a, b, c = (programs.start() for _ in range(3))
    a.do("create h1 32M 0 fd")
    held = passed(a, exported(a, "h1"), b)
    programs.end(a, b)
    b.do(f"import i1 {held}")
    c.do(f"import i1 {held}")
    assert programs.charged() == 32 * MIB
    b.do("release i1", f"close_fd {held.split()[1]}")
    assert programs.charged() == 32 * MIB
    c.do("reserve r 32M", "map r i1", "release i1", "unmap r 32M")
    c.do("any alloc a 64M")
    programs.check()


def test_a_descriptor_on_its_way_keeps_its_memory_charged(programs):
    """No process has it as a descriptor."""
    a, b = programs.start(), programs.start()
    b.do("receive_fd_later")
    a.do("create h1 32M 0 fd")
    number = exported(a, "h1").split()[1]
    a.do(f"send_fd {b.pid} {number}", f"close_fd {number}", "release h1")
    assert a("alloc a 33M") == OUT_OF_MEMORY
    a.kill()
    assert b("alloc a 33M") == OUT_OF_MEMORY
    b.do("receive_fd")
    received = value(b.outputs, "fd")
    b.do(f"import i1 {b.pid} {received}", f"close_fd {received}")
    assert programs.fill(b, 4 * MIB, 32 * MIB) == 32 * MIB
    b.do("release i1", "alloc a 32M")


def test_without_room_in_the_table_a_descriptor_is_refused(gpu, start):
    """Nothing would tell how long it keeps the memory."""
    programs = Programs(gpu, start, 9 * GIB)
    a, b = programs.start(), programs.start()
    for _ in range(4096):
        a.do("create h 2M 0 fd", "export h")
    b.do("create h 2M 0 fd")
    assert b("export h") == OUT_OF_MEMORY
    assert programs.charged() == gpu.held() == 4097 * 2 * MIB
    b.do("release h")
    assert programs.charged() == gpu.held() == 4096 * 2 * MIB
    a.kill()
    b.do("create h 2M 0 fd")
    wait_for_use(gpu, programs.slice, 2 * MIB)
    b.do("export h")


def test_closed_descriptors_make_room_in_the_table(gpu, start):
    programs = Programs(gpu, start, 9 * GIB)
    a = programs.start()
    for _ in range(4110):
        a.do("create h 2M 0 fd")
        a.do(f"close_fd {exported(a, 'h').split()[1]}", "release h")
    programs.check()
    assert a("alloc a 8G") == SUCCESS
