"""Physical memory stops at the limit, mapped or not, and also where a descriptor shares it.

The oracle is NVML, read by a process outside the slice.
"""

import pytest

from support.console import OUT_OF_MEMORY, SUCCESS
from support.slices import GIB, MIB

LIMIT = 256 * MIB
COUNT, STEP = 16, 16 * MIB

each_lookup = pytest.mark.parametrize("lookup", ["dlsym", "proc_address"])


def agrees(console, limited, expected):
    """The slice is charged these bytes, and the program sees the rest of the limit as free."""
    assert limited.charged() == expected
    assert console.value("info", "free") == LIMIT - expected


@each_lookup
def test_physical_memory_fills_the_limit_and_no_more(card, lookup):
    limited = card.slice(LIMIT)
    with limited.console(lookup) as console:
        before = card.used()
        for round in range(3):
            for number in range(COUNT):
                console.do(f"create h{number} {STEP}")
            assert console("create g 2M") == OUT_OF_MEMORY
            assert console("alloc a 1M") == OUT_OF_MEMORY
            assert limited.refusals() == 2 * (round + 1)
            agrees(console, limited, LIMIT)
            assert LIMIT <= card.used() - before <= LIMIT + card.slack
            console.do(*(f"release h{number}" for number in range(COUNT)))
            agrees(console, limited, 0)
        card.wait_until(lambda: card.used() <= before + card.slack, "the memory is free")


def test_memory_that_is_released_while_mapped_stays_charged(card):
    limited = card.slice(LIMIT)
    with limited.console() as console:
        before = card.used()
        console.do("reserve r 1G")
        for _ in range(3):
            for offset in range(0, LIMIT, STEP):
                console.do(f"create h {STEP}", f"map r+{offset} h", "release h")
            console.do(f"access r {LIMIT}")
            assert console("create h 2M") == OUT_OF_MEMORY
            agrees(console, limited, LIMIT)
            assert LIMIT <= card.used() - before <= LIMIT + card.slack
            console.do(f"unmap r {LIMIT}")
            agrees(console, limited, 0)


def test_the_segments_of_pytorch_stop_at_the_limit(card):
    """`expandable_segments:True`: pieces of 20 MiB are added to a range, and removed again."""
    limited = card.slice(LIMIT)
    piece, most = 20 * MIB, 2 * LIMIT
    with limited.console() as console:
        before = card.used()
        console.do("reserve r 1G")
        for _ in range(2):
            mapped = 0
            while mapped < most and console(f"create h{mapped // piece} {piece}") == SUCCESS:
                at = f"r+{mapped}"
                console.do(f"map {at} h{mapped // piece}", f"access {at} {piece}", f"write {at} 7")
                mapped += piece
            assert mapped == LIMIT // piece * piece
            agrees(console, limited, mapped)
            assert mapped <= card.used() - before <= LIMIT + card.slack
            for offset in range(0, mapped, piece):
                console.do(f"unmap r+{offset} {piece}", f"release h{offset // piece}")
            agrees(console, limited, 0)


def test_every_kind_of_memory_shares_one_limit(card):
    limited = card.slice(LIMIT)
    with limited.console() as console:
        before = card.used()
        console.do("alloc a 64M", "create h 64M", "array d 4096 4096 4")
        agrees(console, limited, 192 * MIB)
        assert limited.usage() == 192 * MIB
        for command in ("alloc b 65M", "create g 66M", "array e 4160 4096 4", "pitch b 65M 1 4"):
            assert console(command) == OUT_OF_MEMORY, command
        console.do("create g 64M")
        agrees(console, limited, LIMIT)
        assert LIMIT <= card.used() - before <= LIMIT + card.slack
        console.do("release h", "release g", "array_free d", "free a")
        agrees(console, limited, 0)


def test_an_open_descriptor_keeps_the_memory_charged(card):
    limited = card.slice(LIMIT)
    with limited.console() as console:
        before = card.used()
        console.do("create h 128M 0 fd")
        descriptor = console.value("export h", "fd")
        console.do("release h")
        # Whatever the driver keeps for a descriptor, the slice must be charged for.
        kept = card.used() - before
        assert limited.charged() >= kept - card.slack
        # The next request finds that the descriptor is closed.
        console.do(f"close_fd {descriptor}", f"create h {LIMIT}")
        agrees(console, limited, LIMIT)
        assert card.used() - before <= LIMIT + card.slack


def test_a_loop_of_exports_stays_within_the_limit(card):
    limited = card.slice(LIMIT)
    with limited.console() as console:
        before = card.used()
        for _ in range(2 * COUNT):
            if console(f"create h {STEP} 0 fd") == SUCCESS:
                console.do("export h", "release h")
            assert card.used() - before <= LIMIT + card.slack


def test_imported_memory_is_charged_and_can_be_used_again(card):
    limited = card.slice(LIMIT)
    with limited.console() as owner, limited.console() as other:
        before = card.used()
        owner.do("create h 128M 0 fd")
        descriptor = owner.value("export h", "fd")
        other.do("receive_fd_later")
        owner.do(f"send_fd {other.pid} {descriptor}")
        received = other.value("receive_fd", "fd")
        other.do(f"import g {other.pid} {received}", f"close_fd {received}", "reserve r 128M")
        other.do("map r g 128M", "access r 128M", "write r 7")
        owner.do("release h", f"close_fd {descriptor}")
        grown = card.used() - before
        assert 128 * MIB <= grown <= 128 * MIB + card.slack
        assert limited.charged() == 128 * MIB
        other.do("unmap r 128M", "release g")
        owner.do(f"create h {LIMIT}")
        agrees(owner, limited, LIMIT)
        assert card.used() - before <= LIMIT + card.slack


def test_imported_memory_over_the_limit_is_refused(card):
    small = card.slice(64 * MIB)
    with card.slice(GIB).console() as owner, small.console() as other:
        owner.do("create h 128M 0 fd")
        descriptor = owner.value("export h", "fd")
        other.do("receive_fd_later", "reserve r 128M")
        owner.do(f"send_fd {other.pid} {descriptor}")
        received = other.value("receive_fd", "fd")
        results = [other(f"import g {other.pid} {received}")]
        if results == [SUCCESS]:
            results.append(other("map r g 128M"))
        assert results[-1] == OUT_OF_MEMORY
        assert small.refusals() == 1


# IPC handles.


def opened(owner, other, bytes):
    """The owner allocates, and the other process opens; its result."""
    owner.do(f"alloc a {bytes}", "ipc_handle a")
    return other(f"ipc_open b {owner.outputs.split()[-1]}")


def test_memory_opened_by_its_ipc_handle_is_charged_once(card):
    limited = card.slice(LIMIT)
    with limited.console() as owner, limited.console() as other:
        before = card.used()
        assert opened(owner, other, 192 * MIB) == SUCCESS
        assert limited.charged() == 192 * MIB
        assert 192 * MIB <= card.used() - before <= 192 * MIB + 2 * card.slack
        owner.do("free a")
        # The driver may keep the memory for the importer; the slice must be charged for it then.
        assert limited.charged() >= card.used() - before - 2 * card.slack
        other.do("ipc_close b")
        card.wait_until(lambda: limited.charged() == 0, "the memory is no longer charged")
        owner.do(f"alloc a {LIMIT}")
        assert card.used() - before <= LIMIT + 2 * card.slack


def test_opening_memory_of_another_slice_stops_at_the_limit(card):
    small = card.slice(64 * MIB)
    with card.slice(GIB).console() as owner, small.console() as other:
        assert opened(owner, other, 65 * MIB) == OUT_OF_MEMORY
        owner.do("free a")
        assert opened(owner, other, 64 * MIB) == SUCCESS
        assert small.charged() == 64 * MIB
        assert other("alloc c 2M") == OUT_OF_MEMORY
        other.do("ipc_close b", "alloc c 64M")
