"""Measures the web view of a large cluster in Chromium, against prepared answers.

The server of the answers and the browser run on the same processors, so a figure has their time,
too.
"""

import subprocess
import sysconfig
import tempfile
import time
from pathlib import Path

from bench.results import Row
from bench.rows import row
from bench.scheduler_programs import CHANGES_S
from cluster import waiting
from cluster.servers import accepts, free_ports
from unit.view.browser import Browser, browser

RUNS = 9

#: When the total has changed, in ms after a multiple of CHANGES_S.
CHANGES = """
const [most, period, done] = arguments;
const found = [];
new MutationObserver((_, observer) => {
  found.push(Date.now() % period);
  if (found.length === most) { observer.disconnect(); done(found); }
}).observe(
  document.querySelector('#totals'),
  {childList: true, characterData: true, subtree: true},
);
"""


def rows(command: str, kubeconfig: Path, nodes: int) -> list[Row]:
    """How long the page takes to load, and a change to be shown."""
    (port,) = free_ports(1)
    at = f"127.0.0.1:{port}"
    program = Path(sysconfig.get_path("scripts"), "hami")
    arguments = ["view", "--listen", at, "--kubeconfig", str(kubeconfig)]
    with (
        tempfile.TemporaryDirectory() as profile,
        subprocess.Popen([program, *arguments], stderr=subprocess.DEVNULL) as process,
    ):
        try:
            waiting.until(lambda: accepts(port), "the view answers", 60)
            with browser(Path(profile)) as tab:
                loads, changes = _measured(tab, f"http://{at}/", nodes)
        finally:
            process.terminate()
    return [
        row(command, f"hami view: load the page of {nodes} nodes", loads, "s", 1),
        row(command, "hami view: show a change of a node agent's figures", changes, "s", 1),
    ]


def _measured(tab: Browser, address: str, nodes: int) -> tuple[list[float], list[float]]:
    drawn = f"return document.querySelectorAll('tr.node').length === {nodes}"
    tab.go(address)
    tab.until("return document.activeElement.id === 'token'")
    tab.press("token\n")
    tab.until(drawn)
    loads = []
    for _ in range(RUNS):
        began = time.monotonic()
        tab.go(address)
        tab.until(drawn)
        loads.append(time.monotonic() - began)
    tab.driver.set_script_timeout(20 * CHANGES_S)
    changes = tab.driver.execute_async_script(CHANGES, RUNS + 1, 1000 * CHANGES_S)
    # The first one may be of a reading before.
    return loads, [ms / 1000 for ms in changes[1:]]
