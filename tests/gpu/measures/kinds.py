"""What each kind of memory takes of the card, and when: arrays, virtual memory, graphs, sharing."""

from collections.abc import Callable

from gpu.card import Card
from gpu.measures.growth import Growth, Sample, tried
from support.console import SUCCESS, Console
from support.slices import MIB

#: By name: the command that creates an array, named `a`.
ARRAYS = {
    "cuArrayCreate of 16 bytes": "array a 16",
    "cuArrayCreate of 64 KiB": "array a 256 256",
    "cuArrayCreate of 1 MiB": "array a 1024 1024",
    "cuArrayCreate of 3 MiB": "array a 1024 3072",
    "cuArrayCreate of 1000 x 1000 elements of 16 bytes": "array a 1000 1000 4 4",
    "cuArray3DCreate of 16 bytes": "array3d a 4 2 2",
    "cuArray3DCreate of 64 KiB": "array3d a 64 32 32",
    "cuArray3DCreate of 1 MiB": "array3d a 128 128 64",
    "cuArray3DCreate of 3 MiB": "array3d a 128 128 192",
    "cuMipmappedArrayCreate of 16 bytes, 1 level": "mipmap a 4 4 0 1",
    "cuMipmappedArrayCreate of 64 KiB, 1 level": "mipmap a 256 256 0 1",
    "cuMipmappedArrayCreate of 64 KiB, 9 levels": "mipmap a 256 256 0 9",
    "cuMipmappedArrayCreate of 3 MiB, 1 level": "mipmap a 1024 3072 0 1",
    "cuMipmappedArrayCreate of 1 MiB, 11 levels": "mipmap a 1024 1024 0 11",
}

LAUNCH = "launch cuGraphLaunch"


def arrays(card: Card) -> Sample:
    """The bytes that an array takes, and how many small arrays share them."""
    with card.console() as console:
        grown = Growth(card)
        for title, command in ARRAYS.items():
            yield from tried(title, _array(console, grown, title, command))
        yield from tried("100 arrays", _many_arrays(console, grown))


def _array(console: Console, grown: Growth, title: str, command: str) -> Sample:
    console.do(command)
    yield title, grown(), "bytes"
    console.do("mipmap_free a" if command.startswith("mipmap") else "array_free a")
    yield f"{title}, destroyed", grown(), "bytes"


def _many_arrays(console: Console, grown: Growth) -> Sample:
    for title, shape in (("16 bytes", "16"), ("64 KiB", "256 256"), ("1 MiB", "1024 1024")):
        console.do(*(f"array a{number} {shape}" for number in range(100)))
        yield f"100 times cuArrayCreate of {title}", grown(), "bytes"
        console.do(*(f"array_free a{number}" for number in range(100)))
        yield f"100 times cuArrayCreate of {title}, destroyed", grown(), "bytes"


def virtual(card: Card) -> Sample:
    """Whether physical memory is taken when it is created or mapped, and when it is released."""
    with card.console() as console:
        for option, title in enumerate(("minimum", "recommended")):
            console.do(f"granularity 0 {option}")
            yield f"cuMemGetAllocationGranularity, {title}", int(console.outputs), "bytes"
        granule = int(console.outputs)
        grown = Growth(card)
        for title, size in (("one granule", granule), ("64 MiB", 64 * MIB)):
            yield from tried(title, _mapped(console, grown, title, size))
        console.do("create h 64M")
        grown()
        console.do("release h")
        yield "cuMemRelease of 64 MiB, never mapped", grown(), "bytes"


def _mapped(console: Console, grown: Growth, title: str, size: int) -> Sample:
    for call, command in (
        ("cuMemCreate", f"create h {size}"),
        ("cuMemAddressReserve", f"reserve r {size}"),
        ("cuMemMap", f"map r h {size}"),
        ("cuMemSetAccess", f"access r {size}"),
        ("cuMemRelease while mapped", "release h"),
        ("cuMemUnmap of the released", f"unmap r {size}"),
        ("cuMemAddressFree", f"unreserve r {size}"),
    ):
        console.do(command)
        yield f"{call}, {title}", grown(), "bytes"


def graphs(card: Card) -> Sample:
    """When graphs take and return their memory, and what the driver reports of it."""
    with card.console() as console:
        grown = Growth(card)
        console.do("stream s", "stream t")
        grown()
        yield from tried("graph that frees", _freeing_graph(console, grown))
        yield from tried("graph that does not free", _keeping_graph(console, grown))


def _graph_state(console: Console, grown: Growth, title: str) -> Sample:
    yield f"graph of 64 MiB, {title}: card", grown(), "bytes"
    for attribute, name in enumerate(("used", "used high", "reserved", "reserved high")):
        console.do(f"graph_attribute 0 {attribute}")
        value = int(console.outputs.partition(":")[2])
        yield f"graph of 64 MiB, {title}: {name}", value, "bytes"


def _freeing_graph(console: Console, grown: Growth) -> Sample:
    build = "graph G", "alloc_node g G 64M", "free_node f G g g"
    other = "graph H", "alloc_node h H 64M", "free_node f H h h", "instantiate h H"
    for title, commands in (
        ("nodes added", build),
        ("instantiated", ("instantiate g G",)),
        ("uploaded", ("upload g s", "sync s")),
        ("launched", (f"{LAUNCH} g s", "sync s")),
        ("launched again", (f"{LAUNCH} g s", "sync s")),
        ("second graph instantiated", other),
        ("second graph launched on the same stream", (f"{LAUNCH} h s", "sync s")),
        ("second graph launched on another stream", (f"{LAUNCH} h t", "sync t")),
        ("both launched at once", (f"{LAUNCH} g s", f"{LAUNCH} h t", "sync s", "sync t")),
        ("first executable destroyed", ("destroy_executable g",)),
        ("trimmed with one executable", ("graph_trim 0",)),
        ("second graph launched after the trim", (f"{LAUNCH} h s", "sync s")),
        ("both executables destroyed", ("destroy_executable h",)),
        ("trimmed without executables", ("graph_trim 0",)),
    ):
        console.do(*commands)
        yield from _graph_state(console, grown, title)


def _keeping_graph(console: Console, grown: Growth) -> Sample:
    for title, commands in (
        ("without a free node, instantiated", ("graph K", "alloc_node k K 64M", "instantiate k K")),
        ("without a free node, launched", (f"{LAUNCH} k s", "sync s")),
        ("without a free node, trimmed", ("graph_trim 0",)),
        ("without a free node, executable destroyed", ("destroy_executable k", "graph_trim 0")),
        ("without a free node, cuMemFreeAsync", ("free_async k s", "sync s")),
        ("without a free node, trimmed at the end", ("graph_trim 0",)),
    ):
        console.do(*commands)
        yield from _graph_state(console, grown, title)


class Processes:
    """NVML's bytes of a process, also where NVML knows it under another PID."""

    def __init__(self, card: Card) -> None:
        self._card = card
        self._known = set(card.observe()["processes"])

    def newest(self) -> Callable[[], int | None]:
        """The bytes of the process that has begun to use the card since the last call."""
        found = set(self._card.observe()["processes"])
        names, self._known = found - self._known, found

        def now() -> int | None:
            return self._card.observe()["processes"].get(min(names)) if names else None

        return now


class Pair:
    """An owner and an importer, with the growth of the card and of each of them."""

    def __init__(self, card: Card, owner: Console, other: Console, known: Processes) -> None:
        self.owner, self.other = owner, other
        self._grown = Growth(card)
        owner.do("device 0")
        self._owners = known.newest()
        other.do("device 0")
        self._others = known.newest()
        self._grown()
        self._last = [self._owners(), self._others()]

    @property
    def listed(self) -> bool:
        return None not in self._last

    def state(self, title: str) -> Sample:
        """The growth since the last call, of the card and by process."""
        yield f"{title}: card", self._grown(), "bytes"
        now = [self._owners(), self._others()]
        for who, was, is_now in zip(("owner", "importer"), self._last, now, strict=True):
            if was is not None and is_now is not None:
                yield f"{title}: {who} by NVML", is_now - was, "bytes"
        self._last = now


def _pair(card: Card, body: Callable[[Pair], Sample]) -> Sample:
    known = Processes(card)
    program = card.programs("console")
    with Console(program, card.env) as owner, Console(program, card.env) as other:
        for console in (owner, other):
            console.do("lookup dlsym", "init")
        pair = Pair(card, owner, other, known)
        yield "NVML lists the bytes of two processes", float(pair.listed), "(1 = yes)"
        yield from body(pair)


def exports(card: Card) -> Sample:
    """Memory that is exported as a descriptor: what keeps it, and who NVML says has it."""
    yield from _pair(card, _exported)


def _exported(pair: Pair) -> Sample:
    owner, other = pair.owner, pair.other
    owner.do("create h 64M 0 fd", "reserve r 64M", "map r h 64M", "access r 64M")
    yield from pair.state("export of 64 MiB, created and mapped")
    first = owner.value("export h", "fd")
    second = owner.value("export h", "fd")
    yield from pair.state("export of 64 MiB, exported twice")
    yield from tried("descriptors", _files(owner, first, second))
    # The driver writes to the descriptor that it gets, so each process has its own.
    other.do("receive_fd_later")
    owner.do(f"send_fd {other.pid} {first}")
    received = other.value("receive_fd", "fd")
    owner.do("unmap r 64M", "release h", f"close_fd {second}")
    yield from pair.state("export of 64 MiB, released and unmapped, descriptors are open")
    other.do(f"import g {other.pid} {received}")
    yield from pair.state("export of 64 MiB, imported")
    other.do("reserve r 64M", "map r g 64M", "access r 64M", "write r 7")
    yield from pair.state("export of 64 MiB, mapped by the importer")
    owner.do(f"close_fd {first}")
    other.do(f"close_fd {received}")
    yield from pair.state("export of 64 MiB, descriptors closed")
    other.do("release g", "unmap r 64M")
    yield from pair.state("export of 64 MiB, released by the importer")


def _files(owner: Console, first: int, second: int) -> Sample:
    owner.do("create k 64M 0 fd")
    third = owner.value("export k", "fd")
    inodes = [owner.value(f"file_of {number}", "inode") for number in (first, second, third)]
    same = float(inodes[0] == inodes[1])
    yield "two descriptors of one allocation have the same inode", same, "(1 = yes)"
    same = float(inodes[0] == inodes[2])
    yield "descriptors of two allocations have the same inode", same, "(1 = yes)"
    devices = []
    for number in (first, second, third):
        owner.do(f"file_of {number}")
        devices.append(owner.outputs.split()[1:])
    same = float(devices[0] == devices[1])
    yield "two descriptors of one allocation have the same st_rdev", same, "(1 = yes)"
    same = float(devices[0] == devices[2])
    yield "descriptors of two allocations have the same st_rdev", same, "(1 = yes)"
    for name in ("major", "minor"):
        yield f"st_rdev of a descriptor, {name}", owner.value(f"file_of {first}", name), "number"
    owner.do(f"close_fd {third}", "release k")


def handles(card: Card) -> Sample:
    """Memory that another process opens by its IPC handle."""
    yield from _pair(card, _opened)


def _opened(pair: Pair) -> Sample:
    owner, other = pair.owner, pair.other
    owner.do("alloc a 64M", "ipc_handle a")
    handle = owner.outputs.split()[-1]
    yield from pair.state("IPC of 64 MiB, allocated")
    other.do(f"ipc_open b {handle}")
    yield from pair.state("IPC of 64 MiB, opened")
    again = other(f"ipc_open d {handle}") == SUCCESS
    yield "cuIpcOpenMemHandle succeeds a second time in the process", float(again), "(1 = yes)"
    owner.do("free a")
    yield from pair.state("IPC of 64 MiB, freed by the owner")
    other.do("ipc_close b", *(["ipc_close d"] if again else []))
    yield from pair.state("IPC of 64 MiB, closed by the importer")
