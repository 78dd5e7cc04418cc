"""The pictures of the docs: the web view, `hami top` and `kubectl hami inspect`.

    make screenshots

Each picture is of the real program. `hami top` runs on a machine with stub cards and two CUDA
programs. The others read prepared answers of an API server and of its node agents, because a real
cluster of this size with an hour behind it would be a day's work.
"""

from __future__ import annotations

import contextlib
import dataclasses
import math
import multiprocessing
import os
import pty
import re
import select
import subprocess
import sys
import sysconfig
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
from rich.console import Console
from rich.text import Text

from bench.scheduler_programs import Pages, kubeconfig_of, pages_of, serve
from bench.scheduler_state import cards, limits
from cluster import extended, objects, waiting
from cluster.servers import accepts, free_ports
from hami_py.model import NodeCard, SliceUse, pods
from hami_py.model.pods import wire
from hami_py.monitor import (
    Histories,
    NodeFigures,
    Reading,
    encode,
    readings_of,
)
from support import artifacts
from support.artifacts import ROOT
from support.slice_uses import container
from support.stub import StubServer
from unit.view.browser import Browser, browser

IMAGES = ROOT / "docs" / "images"
AGENTS = "/api/v1/namespaces/hami-system/pods"
REVIEWS = "/apis/authentication.k8s.io/v1/selfsubjectreviews"
MIB = 1 << 20
NAMES = ("train", "serve", "notebook", "embed", "tune")

#: Rich's frame of a terminal, without its fonts: those are on another host.
FRAME = """<svg viewBox="0 0 {width} {height}" xmlns="http://www.w3.org/2000/svg">
<style>
.{unique_id}-matrix {{
  font-family: monospace;
  font-size: {char_height}px;
  line-height: {line_height}px;
}}
{styles}
</style>
<defs>
<clipPath id="{unique_id}-clip-terminal">
<rect x="0" y="0" width="{terminal_width}" height="{terminal_height}" />
</clipPath>
{lines}
</defs>
<rect fill="#14191a" width="{width}" height="{height}" rx="8"/>
<g transform="translate({terminal_x}, 16)" clip-path="url(#{unique_id}-clip-terminal)">
{backgrounds}
<g class="{unique_id}-matrix">
{matrix}
</g>
</g>
</svg>
"""


def main() -> None:
    """Draws all of them."""
    IMAGES.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="hami-shots-") as temporary:
        folder = Path(temporary)
        _top(folder)
        with _answers(_pages(4, 2)) as port:
            kubeconfig = kubeconfig_of(port, folder)
            command = [_program("kubectl-hami"), "inspect", "--kubeconfig", kubeconfig]
            done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=60)
            _draw("inspect", "kubectl hami inspect", done.stdout)
        with _answers(_pages(12, 8)) as port:
            kubeconfig = kubeconfig_of(port, folder)
            with _view(kubeconfig) as address, browser(folder / "profile") as tab:
                _photograph(tab, address)


def _photograph(tab: Browser, address: str) -> None:
    tab.go(address)
    tab.until("return document.activeElement.id === 'token'")
    tab.press("token\n")
    tab.until("return document.querySelectorAll('tr.node').length > 0")
    for scheme in ("light", "dark"):
        tab.color_scheme(scheme)
        tab.size(1360, 860)
        tab.run("scrollTo(0, 0); document.activeElement.blur()")
        tab.picture(IMAGES / f"view-{scheme}.png")
    tab.color_scheme("light")
    tab.find("tr.node button").click()
    tab.until("return document.querySelectorAll('ul.cards tbody tr').length > 0")
    tab.until("return document.querySelector('td.lines .stroke').getAttribute('d')")
    tab.run("document.querySelector('#nodes').scrollIntoView(); document.activeElement.blur()")
    tab.picture(IMAGES / "view-node.png")


def _program(name: str) -> Path:
    return Path(sysconfig.get_path("scripts"), name)


@contextlib.contextmanager
def _view(kubeconfig: Path) -> Iterator[str]:
    """The address of `hami view`."""
    (port,) = free_ports(1)
    at = f"127.0.0.1:{port}"
    command = [_program("hami"), "view", "--listen", at, "--title", "gpu-cluster"]
    with subprocess.Popen([*command, "--kubeconfig", kubeconfig]) as process:
        try:
            waiting.until(lambda: accepts(port), "the view answers", 60)
            yield f"http://{at}/"
        finally:
            process.terminate()


@contextlib.contextmanager
def _answers(pages: Pages) -> Iterator[int]:
    (port,) = free_ports(1)
    server = multiprocessing.Process(target=serve, args=(port, pages), daemon=True)
    server.start()
    try:
        waiting.until(lambda: accepts(port), "the server accepts connections", 60)
        yield port
    finally:
        server.kill()
        server.join()


def _pages(nodes: int, each: int) -> Pages:
    """So many nodes with so many cards: their objects, and what their agents answer."""
    pages: Pages = {
        "/api/v1/nodes": pages_of(_node(at, each) for at in range(nodes)),
        "/api/v1/resourcequotas": pages_of([_quota()]),
        "/api/v1/events": pages_of(map(_event, range(3))),
        AGENTS: pages_of(map(_agent, range(nodes))),
        REVIEWS: [b'{"status":{"userInfo":{"username":"ada"}}}'],
    }
    running = []
    for at in range(nodes):
        proxy, containers = f"{AGENTS}/agent-{at}%3A9382/proxy", []
        for card in cards(at)[:each]:
            for _ in range((at * 5 + (card.index or 0) * 3) % 4):
                number = len(running)
                running.append(_pod(number, at, card))
                containers.append(_container(number, card))
        figures = _figures(at, containers, each)
        pages[f"{proxy}/figures"] = [encode(figures)]
        pages[f"{proxy}/history"] = [_history(figures)]
    pages["/api/v1/pods"] = pages_of([*running, *map(_waits, range(2))])
    return pages


def _node(at: int, each: int) -> dict[str, Any]:
    made = extended.node(f"gpu-{at + 1:02}", cards(at)[:each])
    made["status"] = {
        **made.get("status", {}),
        "addresses": [{"type": "InternalIP", "address": f"10.0.0.{at + 11}"}],
    }
    return made


def _shape(number: int) -> tuple[int, int]:
    """MiB and cores of a pod."""
    return ((24_576, 40), (16_384, 30), (8_192, 10), (20_480, 25))[number % 4]


def _pod(number: int, at: int, card: wire.Card) -> dict[str, Any]:
    mib, cores = _shape(number)
    uid, node = f"uid-{number}", f"gpu-{at + 1:02}"
    given = {"main": (wire.CardAllocation(card.uuid, mib, cores),)}
    written = pods.encode_assignment(wire.Assignment(1, uid, node, given))
    metadata = {
        "namespace": _namespace(number),
        "uid": uid,
        "labels": {"hami.io/pod": "true"},
        "annotations": {pods.annotations.ASSIGNMENT: written},
    }
    made = objects.pod(_name(number), limits(mib, cores, 1), metadata=metadata, nodeName=node)
    return {**made, "status": {"phase": "Running"}}


def _container(number: int, card: wire.Card) -> SliceUse:
    mib, cores = _shape(number)
    size, part = mib * MIB, 0.45 + 0.5 * abs(math.sin(number))
    return container(
        *(_namespace(number), _name(number), "main", card.uuid),
        limit=size,
        share=cores,
        index=card.index,
        share_used=cores / 100 * (0.5 + 0.5 * abs(math.cos(number))),
        memory_used=int(size * part),
        memory_peak=int(size * min(1.0, part * 1.15)),
        throttled=number % 7 * 41.0,
        refusals=3 if number % 29 == 5 else 0,
        processes=1,
    )


def _quota() -> dict[str, Any]:
    hard = {"limits.nvidia.com/gpumem": str(1_024 * 1_024)}
    return {"metadata": {"name": "gpus", "namespace": "vision"}, "spec": {"hard": hard}}


def _figures(at: int, containers: list[SliceUse], each: int) -> NodeFigures:
    seen = []
    for card in cards(at)[:each]:
        on = (one.use for one in containers if one.use.uuid == card.uuid)
        used = sum(use.memory_used for use in on) + 571 * MIB
        size = card.memory_mib * MIB
        seen.append(NodeCard(card.uuid, card.index or 0, card.model, size, used, 0, 0.0, 0, True))
    name = f"gpu-{at + 1:02}"
    here = tuple(dataclasses.replace(one, node=name) for one in containers)
    return NodeFigures(name, tuple(seen), here, registered=True, level="preload")


def _history(figures: NodeFigures) -> bytes:
    histories = Histories()
    for step in range(180):
        moved = []
        for at, each in enumerate(readings_of(figures)):
            wave = 0.8 + 0.2 * math.sin(step / (7 + at % 11) + at)
            begun = step > at * 37 % 120 or not each.key[1]
            memory, share = (each.memory or 0) * wave * begun, (each.share or 0) * wave**3 * begun
            moved.append(Reading(each.key, int(memory), share))
        histories.take(moved, 20.0 * step)
    return msgspec.json.encode(histories.history(180 * 20.0 - 8))


def _namespace(at: int) -> str:
    return ("vision", "speech", "search")[at % 3]


def _name(at: int) -> str:
    return f"{NAMES[at % len(NAMES)]}-{at}"


def _waits(at: int) -> dict[str, Any]:
    metadata = {"namespace": "vision", "uid": f"w-{at}", "labels": {"hami.io/pod": "true"}}
    asked = limits((90_000, 80_000)[at], 0, 1)
    made = objects.pod(("huge", "train-large")[at], asked, metadata=metadata)
    return {**made, "status": {"phase": "Pending"}}


def _agent(at: int) -> dict[str, Any]:
    made = objects.pod(f"agent-{at}", nodeName=f"gpu-{at + 1:02}")
    made["metadata"]["namespace"] = "hami-system"
    return {**made, "status": {"phase": "Running"}}


def _event(at: int) -> dict[str, Any]:
    reason, message, name = (
        ("FailedScheduling", "0/12 nodes are available: 12 too little memory free.", "huge"),
        ("Resized", "The memory limit of card 1 is 24 GiB now.", _name(3)),
        ("OverLimit", "Its processes hold 1.2 GiB more than its limit.", _name(8)),
    )[at]
    return {
        "metadata": {"name": f"event-{at}", "namespace": "vision"},
        "involvedObject": {"kind": "Pod", "namespace": "vision", "name": name},
        "source": {"component": "hami-node"},
        "type": "Normal" if at == 1 else "Warning",
        "reason": reason,
        "message": message,
        "lastTimestamp": f"2026-11-27T10:0{at}:00Z",
    }


def _top(folder: Path) -> None:
    """`hami top` on a terminal, while programs fill and compute."""
    with StubServer(artifacts.find(), folder / "gpu", "a100-80,a100-80") as gpu:
        runtime = folder / "runtime"
        runtime.mkdir(mode=0o700)
        path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
        env = {**os.environ, **gpu.charging_env, "HAMI_RUNTIME_DIR": str(runtime), "PATH": path}
        with contextlib.ExitStack() as ends:
            for name, size, share, card in RUNS:
                limited = ("--gpumem", size, "--gpucores", share, "--name", name)
                (folder / f"{name}.py").write_text(WORK)
                program = (Path(sys.executable).name, f"{name}.py")
                command = [_program("hami"), "run", *limited, "--device", card, "--", *program]
                process = subprocess.Popen(command, env=env, cwd=folder, stdin=subprocess.PIPE)
                ends.enter_context(process)
                ends.callback(process.terminate)
            time.sleep(5)
            _draw("top", "hami top", _screen([str(_program("hami")), "top"], env, 30))


#: The programs: name, memory, share and card.
RUNS = (
    ("train", "24GiB", "60", "0"),
    ("serve", "12GiB", "25", "0"),
    ("notebook", "16GiB", "40", "1"),
)

#: A CUDA program that holds some memory and computes.
WORK = f"""
import sys
sys.path.insert(0, {str(ROOT / "tests" / "clients" / "programs")!r})
from with_cuda_bindings import Bindings
client = Bindings()
held = client.allocate(9 << 30)
while True:
    client.launch(40)
"""


def _screen(command: list[str], env: dict[str, str], seconds: float) -> str:
    """The last picture that a program has drawn on a terminal of 170 columns."""
    ours, theirs = pty.openpty()
    shape = {"COLUMNS": "170", "LINES": "20", "TERM": "xterm-256color"}
    with subprocess.Popen(command, env={**env, **shape}, stdin=theirs, stdout=theirs) as process:
        os.close(theirs)
        ends_at, drawn = time.monotonic() + seconds, b""
        while time.monotonic() < ends_at:
            if select.select([ours], [], [], 0.5)[0]:
                drawn += os.read(ours, 1 << 16)
        os.write(ours, b"q")
        process.wait(10)
    os.close(ours)
    last = drawn.decode().rsplit("\x1b[H", 1)[-1]
    return re.sub(r"\x1b\[\?\w+|\x1b\[\d*[JKGA]", "", last).replace("\r", "")


def _draw(name: str, title: str, text: str) -> None:
    """A terminal as a picture; `text` may have colours."""
    lines = [line.rstrip() for line in text.rstrip().splitlines()]
    shown = Text.from_ansi("\n".join([f"$ {title}", *lines]))
    width = max(len(line.plain) for line in shown.split()) + 2
    with Path(os.devnull).open("w") as nowhere:
        console = Console(record=True, width=width, file=nowhere, force_terminal=True)
        console.print(shown, no_wrap=True, overflow="ignore", crop=False)
        svg = console.export_svg(title=title, code_format=FRAME, unique_id=name)
    (IMAGES / f"{name}.svg").write_text(svg)


if __name__ == "__main__":
    main()
