"""Random programs that hold device memory of all kinds, and the loop that makes one small.

A program is a list of commands for the console, each after the name of the process that makes the
call: `A alloc a1 4M`, `B on t free a1`, `B killed`. `@A:h1` stands for the descriptor that
`A export h1` has returned. A command whose descriptor does not exist is left out, so that any part
of a program is a program.

The generator only knows which objects may exist, so that most calls are valid. The ledger says what
they hold.
"""

import random
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

from support.slices import GIB, KIB, MIB

THREADS = "tu"
"""Worker threads of a process, besides its first thread."""

_STREAMS = ["-", "s0", "s1", "L"]
_MOST = 20
"""How many objects of a kind a process has at most."""


@dataclass
class _Objects:
    """The objects of one process that may exist: a name's letter, and its numbers."""

    of: dict[str, list[str]] = field(default_factory=lambda: defaultdict(list))
    sizes: dict[str, int] = field(default_factory=dict)
    mappings: list[tuple[str, int, int]] = field(default_factory=list)
    exports: list[str] = field(default_factory=list)
    is_capturing: bool = False


class Generator:
    """Chooses commands one after the other; `told` has the result of each.

    `limits` are those of the two cards. With `is_whole`, every size is a multiple of 512 bytes, the
    account's unit.
    """

    def __init__(self, seed: int, limits: Sequence[int], is_whole: bool) -> None:
        self._random = random.Random(seed)  # noqa: S311 - no secret
        self._limits = limits
        self._is_whole = is_whole
        self._objects = {name: _Objects() for name in "AB"}
        # Rules for graphs are stricter while no pool was used.
        self._weight_of_pools = 0 if seed % 4 == 3 else 20
        self._planned: list[str] = []
        self._runs_b = False

    def next(self) -> str:
        """The next command."""
        if self._planned:
            return self._planned.pop(0)
        if self._random.random() < 0.008:
            self._runs_b = not self._runs_b
            if not self._runs_b:
                self._objects["B"] = _Objects()
                return "B killed"
        name = "B" if self._runs_b and self._random.random() < 0.3 else "A"
        first, *rest = list(self._choose(name))
        self._planned = rest
        return first

    def told(self, command: str, result: int | None) -> None:
        """The driver's result for a command; None if it was left out."""
        name, call, *words = without_thread(command)
        objects = self._objects[name]
        if call == "close_fd":
            objects.exports = [it for it in objects.exports if it != words[0][1:]]
        if call in {"create", "reserve"}:
            objects.sizes[words[0]] = as_bytes(words[1])
        if result != 0:
            return
        if call in _MAKES:
            new = words[_MAKES[call]]
            if new not in objects.of[new[0]]:
                objects.of[new[0]].append(new)
        if call in _ENDS and words[0] in objects.of[words[0][0]]:
            objects.of[words[0][0]].remove(words[0])
        self._told_of_mappings(name, call, words)

    def _told_of_mappings(self, name: str, call: str, words: list[str]) -> None:
        objects = self._objects[name]
        if call == "import":
            owner, _, exported = words[1][1:].partition(":")
            objects.sizes[words[0]] = self._objects[owner].sizes.get(exported, 2 * MIB)
        elif call == "retain":
            objects.sizes[words[0]] = 2 * MIB
        elif call == "export":
            objects.exports.append(f"{name}:{words[0]}")
        elif call in {"map", "unmap"}:
            base, _, offset = words[0].partition("+")
            start = int(offset or 0)
            if call == "map":
                objects.mappings.append((base, start, objects.sizes.get(words[1], 0)))
                return
            end = start + as_bytes(words[1])
            objects.mappings = [
                it for it in objects.mappings if it[0] != base or not start <= it[1] < end
            ]

    # Names and numbers.

    def _new(self, letter: str) -> str:
        return f"{letter}{self._random.randrange(_MOST)}"

    def _any(self, objects: _Objects, letter: str) -> str:
        """An object that may exist; now and then one that does not."""
        known = objects.of[letter]
        if known and self._random.random() < 0.95:
            return self._random.choice(known)
        return self._new(letter)

    def _size(self, most: int | None = None) -> int:
        """Bytes of a request; without `most` up to more than a limit."""
        limit = self._random.choice(self._limits)
        size = self._random.choice(
            [
                self._random.randint(1, 4 * KIB),
                self._random.randint(1, MIB),
                MIB + self._random.choice([-512, -1, 0, 1, 512]),
                self._random.randint(1, 40 * MIB),
                self._random.randint(1, 40) * MIB,
                self._random.randint(1, limit // 3),
                self._random.randint(limit // 3, limit + MIB),
                limit + self._random.choice([-512, 0, 1, GIB]),
            ]
        )
        size = size if most is None else min(size, most)
        return -(-size // 512) * 512 if self._is_whole else size

    def _device(self) -> int:
        return self._random.choice([0, 0, 1])

    def _stream(self) -> str:
        return self._random.choice(_STREAMS)

    # Kinds of commands.

    def _choose(self, name: str) -> Iterator[str]:
        objects = self._objects[name]
        kinds: list[tuple[int, Callable[[_Objects], Iterator[str]]]] = [
            (20, self._linear),
            (10, self._arrays),
            (self._weight_of_pools, self._pools),
            (25, self._virtual),
            (10, self._external),
            (20, self._graphs),
            (8, self._contexts),
            (3, self._wrong),
        ]
        (kind,) = self._random.choices([it for _, it in kinds], [weight for weight, _ in kinds])
        if kind == self._virtual and self._random.random() < 0.25:
            yield from self._shared(name, objects)
            return
        prefix = name
        draw = self._random.random()
        if draw < 0.2:
            prefix = f"{name} on {self._random.choice(THREADS)}"
        elif draw < 0.22:
            prefix = f"{name} fork"
        for command in kind(objects):
            yield f"{prefix} {command}"

    def _linear(self, objects: _Objects) -> Iterator[str]:
        a, size, pick = self._new("a"), self._size(), self._random.random()
        if pick < 0.25:
            yield f"alloc {a} {size}"
        elif pick < 0.35:
            yield f"managed {a} {size} {self._random.choice([1, 2])}"
        elif pick < 0.45:
            width, height = self._random.randint(1, 70000), self._random.randint(1, 3000)
            yield f"pitch {a} {width} {height} {self._random.choice([4, 8, 16])}"
        elif pick < 0.55:
            yield f"free_async {self._any(objects, 'a')} {self._stream()}"
        else:
            yield f"free {self._any(objects, 'a')}"

    def _arrays(self, objects: _Objects) -> Iterator[str]:
        pick, step = self._random.random(), 512 if self._is_whole else 1
        width = self._random.randint(1, 32) * step
        height = self._random.choice([0, self._random.randint(1, 4000)])
        channels, bytes = self._random.choice([1, 2, 4]), self._random.choice([1, 2, 4])
        if pick < 0.3:
            yield f"array {self._new('y')} {width} {height} {channels} {bytes}"
        elif pick < 0.45:
            depth = self._random.randint(1, 30)
            flags = self._random.choice([0, 1])
            height = max(height // 8, 1)
            shape = f"{width} {height} {depth} {flags} {channels} {bytes}"
            yield f"array3d {self._new('y')} {shape}"
        elif pick < 0.6:
            side = 1 << self._random.randint(6, 12) if self._is_whole else width
            levels = self._random.randint(1, 2)
            yield f"mipmap {self._new('m')} {side} {side} 0 {levels} 0 4 {bytes}"
        elif pick < 0.65:
            yield f"level {self._new('y')} {self._any(objects, 'm')} 0"
        elif pick < 0.9:
            yield f"array_free {self._any(objects, 'y')}"
        else:
            yield f"mipmap_free {self._any(objects, 'm')}"

    def _pools(self, objects: _Objects) -> Iterator[str]:
        pick, device = self._random.random(), self._device()
        if pick < 0.2:
            yield f"async {self._new('b')} {self._size()} {self._stream()}"
        elif pick < 0.35 and objects.of["p"]:
            pool = self._any(objects, "p")
            yield f"from_pool {self._new('b')} {self._size()} {pool} {self._stream()}"
        elif pick < 0.5:
            yield f"free_async {self._any(objects, 'b')} {self._stream()}"
        elif pick < 0.6:
            yield f"free {self._any(objects, 'b')}"
        elif pick < 0.68 or not objects.of["p"]:
            yield f"pool {self._new('p')} {device}"
        elif pick < 0.73:
            yield f"destroy_pool {self._any(objects, 'p')}"
        elif pick < 0.78:
            yield f"trim {self._any(objects, 'p')} {self._size(64 * MIB)}"
        elif pick < 0.8:
            yield f"use_pool {self._any(objects, 'p')} {device}"
        elif pick < 0.83:
            yield f"default_pool d0 {device}"
            yield f"trim d0 {self._size(64 * MIB)}"
        elif pick < 0.86:
            yield f"set {self._any(objects, 'p')} 4 {self._size(100 * MIB)}"
        else:
            yield self._random.choice(
                [f"sync {self._stream()}", f"query {self._stream()}", "sync_context"]
            )

    def _virtual(self, objects: _Objects) -> Iterator[str]:
        pick = self._random.random()
        if pick < 0.3:
            size = max(2 * MIB, self._size() // (2 * MIB) * (2 * MIB))
            if self._random.random() < 0.05:
                size += 512
            exportable = self._random.choice(["", " fd"])
            yield f"create {self._new('h')} {size} {self._device()}{exportable}"
        elif pick < 0.38:
            yield f"reserve {self._new('r')} {self._random.choice([128, 1024, 4096])}M"
        elif pick < 0.6:
            yield from self._map(objects)
        elif pick < 0.7:
            yield from self._unmap(objects)
        elif pick < 0.75:
            yield from self._retain(objects)
        elif pick < 0.78:
            yield f"unreserve {self._any(objects, 'r')}"
        else:
            yield f"release {self._any(objects, 'h')}"

    def _map(self, objects: _Objects) -> Iterator[str]:
        h, r = self._any(objects, "h"), self._any(objects, "r")
        size = objects.sizes.get(h, 2 * MIB)
        ends = [offset + bytes for base, offset, bytes in objects.mappings if base == r]
        at = f"{r}+{max(ends, default=0)}"
        yield f"map {at} {h}"
        if self._random.random() < 0.5:
            yield f"access {at} {size} {self._device()}"

    def _unmap(self, objects: _Objects) -> Iterator[str]:
        if not objects.mappings:
            yield f"unmap {self._new('r')} 2M"
            return
        base, offset, size = self._random.choice(objects.mappings)
        if self._random.random() < 0.2:
            # All that was mapped there, or less than a mapping.
            yield f"unmap {base}+0 {offset + size}"
        elif self._random.random() < 0.1:
            yield f"unmap {base}+{offset} {max(size // 2, 512)}"
        else:
            yield f"unmap {base}+{offset} {size}"

    def _retain(self, objects: _Objects) -> Iterator[str]:
        for base, offset, _ in objects.mappings[-1:]:
            yield f"retain {self._new('h')} {base}+{offset}"
            return
        yield f"retain {self._new('h')} {self._any(objects, 'r')}"

    def _shared(self, name: str, objects: _Objects) -> Iterator[str]:
        """Exported descriptors, in the same process or in the other one."""
        pick = self._random.random()
        others = [it for process in self._objects.values() for it in process.exports]
        if pick < 0.3 or not others:
            h = self._new("h")
            size = self._random.randint(1, 40) * 2 * MIB
            yield f"{name} create {h} {size} {self._device()} fd"
            yield f"{name} export {h}"
        elif pick < 0.5:
            yield f"{name} export {self._any(objects, 'h')}"
        elif pick < 0.8:
            h, r = self._new("h"), self._new("r")
            yield f"{name} import {h} @{self._random.choice(others)}"
            yield f"{name} reserve {r} 128M"
            yield f"{name} map {r} {h}"
        else:
            descriptor = self._random.choice(others)
            yield f"{descriptor[0]} close_fd @{descriptor}"

    def _external(self, objects: _Objects) -> Iterator[str]:
        pick = self._random.random()
        if pick < 0.3 or not objects.of["e"]:
            yield f"external {self._new('e')} {self._size()}"
        elif pick < 0.5:
            yield f"external_buffer {self._new('x')} {self._any(objects, 'e')}"
        elif pick < 0.55:
            part = "0 1M" if self._random.random() < 0.5 else "512 512"
            yield f"external_buffer {self._new('x')} {self._any(objects, 'e')} {part}"
        elif pick < 0.75:
            yield f"free {self._any(objects, 'x')}"
        else:
            yield f"external_destroy {self._any(objects, 'e')}"

    def _graphs(self, objects: _Objects) -> Iterator[str]:
        pick, stream = self._random.random(), self._random.choice(["s0", "s1"])
        if pick < 0.2 or not objects.of["w"]:
            yield from self._graph(objects)
        elif pick < 0.3:
            yield from self._capture(stream)
        elif pick < 0.55:
            yield f"launch cuGraphLaunch {self._any(objects, 'w')} {stream}"
        elif pick < 0.6:
            yield f"upload {self._any(objects, 'w')} {stream}"
        elif pick < 0.7:
            yield f"free {self._any(objects, 'n')}"
        elif pick < 0.75:
            yield f"free_async {self._any(objects, 'n')} {stream}"
        elif pick < 0.85:
            yield f"destroy_executable {self._any(objects, 'w')}"
        elif pick < 0.9:
            yield f"destroy_graph {self._any(objects, 'g')}"
        elif pick < 0.95:
            yield f"graph_trim {self._device()}"
        else:
            yield f"sync {stream}"

    def _graph(self, objects: _Objects) -> Iterator[str]:
        g, nodes = self._new("g"), self._random.sample(range(100), self._random.randint(1, 4))
        yield f"graph {g}"
        last = ""
        for number in nodes:
            n, size = f"n{number}", self._size()
            after = last if self._random.random() < 0.7 else ""
            if self._random.random() < 0.25:
                yield f"alloc_node_on 1 {n} {g} {size} {after}".strip()
            else:
                yield f"alloc_node {n} {g} {size} {after}".strip()
            last = n
            if self._random.random() < 0.75:
                # A node of another name: `n` stays the name of the memory.
                last = f"f{number}"
                yield f"free_node {last} {g} {n} {n}"
        flags = self._random.choice([0, 0, 1])
        w = self._new("w")
        yield f"instantiate {w} {g} {flags}"
        if self._random.random() < 0.7:
            yield f"launch cuGraphLaunch {w} s0"

    def _capture(self, stream: str) -> Iterator[str]:
        g, w = self._new("g"), self._new("w")
        yield f"begin {stream} 2"
        for number in self._random.sample(range(100), self._random.randint(1, 3)):
            yield f"async n{number} {self._size()} {stream}"
            if self._random.random() < 0.7:
                yield f"free_async n{number} {stream}"
        yield f"end {stream} {g}"
        yield f"instantiate {w} {g} {self._random.choice([0, 1])}"
        yield f"launch cuGraphLaunch {w} {stream}"

    def _contexts(self, objects: _Objects) -> Iterator[str]:
        pick, device = self._random.random(), self._device()
        if pick < 0.2:
            yield f"context {self._new('c')} {device}"
        elif pick < 0.35:
            yield f"destroy {self._any(objects, 'c')}"
        elif pick < 0.5:
            yield f"current {self._any(objects, 'c')}"
        elif pick < 0.65:
            yield f"device {device}"
        elif pick < 0.7:
            yield f"release {device}"
            yield f"device {device}"
        elif pick < 0.75:
            yield f"reset {device}"
            yield f"device {device}"
            yield "stream s0"
        elif pick < 0.8:
            yield f"green k{self._random.randrange(_MOST)} 16 {device}"
        elif pick < 0.85:
            c = self._new("c")
            yield f"green_context {c} {self._any(objects, 'k')}"
            yield f"current {c}"
        elif pick < 0.9:
            yield f"green_free {self._any(objects, 'k')}"
            yield f"device {device}"
        else:
            limit, value = self._random.choice(
                [
                    ("stack", self._random.choice(["512", "1K", "1536", "2K", "16K"])),
                    ("heap", f"{self._random.randint(1, 600)}M"),
                    ("printf", f"{self._random.randint(1, 600)}M"),
                ]
            )
            yield f"limit {limit} {value}"

    def _wrong(self, objects: _Objects) -> Iterator[str]:
        """Invalid arguments, and memory freed by the call of another kind."""
        yield self._random.choice(
            [
                f"alloc {self._new('a')} 0",
                f"managed {self._new('a')} 1M 0",
                f"pitch {self._new('a')} 1M 2048 5",
                f"array {self._new('y')} 0 0",
                f"array {self._new('y')} 100 100 3",
                f"array3d {self._new('y')} 100000000 100000000 100000000",
                f"mipmap {self._new('m')} 0 0 0 100",
                f"async {self._new('b')} 0 s0",
                f"create {self._new('h')} 1000",
                f"create {self._new('h')} 4M 7",
                f"create {self._new('h')} 4M host",
                f"map {self._any(objects, 'r')}+1 {self._any(objects, 'h')}",
                f"map {self._any(objects, 'r')} {self._any(objects, 'h')} 1024G",
                f"unmap {self._any(objects, 'a')} 2M",
                f"unreserve {self._any(objects, 'a')} 2M",
                f"free {self._any(objects, 'r')}",
                f"free_async {self._any(objects, 'r')} s0",
                f"free_v1 {self._any(objects, 'a')}",
                f"external {self._new('e')} 0",
                f"external_buffer {self._new('x')} {self._any(objects, 'e')} 1M 1024G",
                f"alloc_node n0 {self._any(objects, 'g')} 0",
                f"context {self._new('c')} 9",
                f"reset {9}",
                "limit stack 1024G",
            ]
        )


_MAKES = {
    **dict.fromkeys(("alloc", "managed", "pitch", "array", "array3d", "mipmap", "level"), 0),
    **dict.fromkeys(("async", "from_pool", "pool", "create", "reserve", "retain", "import"), 0),
    **dict.fromkeys(("external", "external_buffer", "graph", "alloc_node", "instantiate"), 0),
    **dict.fromkeys(("context", "green", "green_context"), 0),
    **dict.fromkeys(("end", "alloc_node_on"), 1),
}
"""Commands that make an object, and which of their words is its name."""

_ENDS = {
    *("free", "free_async", "array_free", "mipmap_free", "destroy_pool", "release", "unreserve"),
    *("external_destroy", "destroy_executable", "destroy_graph", "destroy", "green_free"),
}


def without_thread(command: str) -> list[str]:
    """The words of a command: its process, the call, the call's words."""
    name, *words = command.split()
    if words[0] == "on":
        words = words[2:]
    elif words[0] == "fork":
        words = words[1:]
    return [name, *words]


def as_bytes(text: str) -> int:
    """A size in a command."""
    units = {"K": KIB, "M": MIB, "G": GIB}
    return int(text[:-1]) * units[text[-1]] if text[-1] in units else int(text)


def shrink(program: list[str], fails: Callable[[list[str]], bool], tries: int = 400) -> list[str]:
    """A small program that still fails: parts are removed as long as it does."""
    part = len(program) // 2
    while part and tries:
        start, is_smaller = 0, False
        while start < len(program) and tries:
            shorter = program[:start] + program[start + part :]
            tries -= 1
            if fails(shorter):
                program, is_smaller = shorter, True
            else:
                start += part
        part = part if is_smaller and part == 1 else part // 2
    return program
