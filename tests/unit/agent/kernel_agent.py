"""An agent of a node with the stub's cards, as far as it limits memory by the driver.

    python kernel_agent.py FOLDER POD MIB LEAST SETTING

It prepares a container of this pod with so many MiB of the first card, and then does what each line
of standard input says: `show`, `follow`, or a number of MiB to resize to. Its answer is a line of
JSON.
"""

import json
import sys
from itertools import chain
from pathlib import Path
from typing import Any

import pynvml
from msgspec.structs import replace

from hami_py.agent.hook_server import HookServer
from hami_py.agent.kernel_limits import KernelLimits, grow, shrink, why_none
from hami_py.errors import HamiError
from hami_py.gpu.nvml import session
from hami_py.kube import Event
from hami_py.model.pods.wire import CardAllocation
from unit.agent import build


def main() -> None:
    folder, uid, mib, least, setting = sys.argv[1:]
    of = build.settings(Path(folder))
    with session():
        card = pynvml.nvmlDeviceGetUUID(pynvml.nvmlDeviceGetHandleByIndex(0))
    node, events = build.state(of, card), list[Event]()
    has: Any = why_none(setting)  # type: ignore[arg-type]
    node.no_kernel = has
    limits = KernelLimits(node, events.append)
    server = HookServer(of.paths.hook_socket, limits.start)
    server.thread.start()
    allocated = CardAllocation(card, int(mib), 0)
    node.pods.changed(build.pod(uid, {"main": allocated}))
    entry = build.entry(uid, allocated, isolation=least)
    node.ledger.put(entry)
    error = None
    try:
        node.prepare(entry)
    except HamiError as failed:
        error = str(failed)
    for line in chain(["show"], sys.stdin):
        entry = node.ledger.entries[uid]
        match line.strip():
            case "show":
                pass
            case "follow":
                limits.follow()
            case amount:
                after = replace(entry, cards=(CardAllocation(card, int(amount), 0),))
                node.ledger.put(after)
                grow(entry, after)
                shrink(after)
        entry = node.ledger.entries[uid]
        said = [[event.reason, event.message] for event in events]
        answer = {"by": str(node.enforcement_of(entry)), "events": said, "error": error}
        levels = [card.level for card in node.published_cards()]
        print(json.dumps({**answer, "levels": levels}), flush=True)
    server.stop()


main()
