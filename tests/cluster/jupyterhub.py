"""JupyterHub with its proxy, on a machine whose users share a card.

Both are downloaded once, and kept in the user's cache. Servers are started by JupyterHub's own
spawner, as the machine's users.
"""

import contextlib
import json
import os
import shutil
import sys
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from cluster import image_cache, image_layers
from cluster.servers import free_ports
from support.artifacts import ROOT
from support.launcher import until
from support.requirements import skip_or_fail
from support.running import Started
from support.whole_machine import WholeMachine

PACKAGES = ("jupyterhub==6.1.1", "jupyter_server==2.21.1", "ipykernel==7.4.0")

#: Of npm.
PROXY = "configurable-http-proxy@4.6.3"

#: Seconds for a download.
_DEADLINE = 600.0

_TOKEN = "of-the-test"  # noqa: S105 - the hub is the test's

_CONFIG = """
c.JupyterHub.authenticator_class = "dummy"
c.Authenticator.allow_all = True
c.JupyterHub.bind_url = "http://127.0.0.1:{public}"
c.JupyterHub.hub_port = {hub}
c.ConfigurableHTTPProxy.api_url = "http://127.0.0.1:{proxy}"
c.JupyterHub.services = [{{"name": "test", "api_token": "{token}"}}]
c.JupyterHub.load_roles = [
    {{
        "name": "test",
        "services": ["test"],
        "scopes": ["admin:users", "admin:servers", "access:servers"],
    }}
]
c.Spawner.environment = {{
    "JUPYTERHUB_SINGLEUSER_APP": "jupyter_server.serverapp.ServerApp",
    "XDG_RUNTIME_DIR": lambda spawner: f"/run/{{spawner.user.name}}",
}}
"""

#: Runs in each kernel as it starts; the last line is complete when the file is.
_STARTUP = """
import os, subprocess
done = subprocess.run(["/run/memory"], capture_output=True, text=True)
with open(os.path.expanduser("~/seen.new"), "w") as file:
    file.write(done.stdout + done.stderr)
os.rename(file.name, os.path.expanduser("~/seen"))
"""


class Hub:
    """A running JupyterHub; its proxy ends with the machine.

    Args:
        machine: whose users it serves.
        settings: lines of its configuration.
        folder: for its files.
    """

    def __init__(self, machine: WholeMachine, settings: str, folder: Path) -> None:
        self._machine, self._folder, self._stack = machine, folder, contextlib.ExitStack()
        public, hub, proxy = free_ports(3)
        self._api = f"http://127.0.0.1:{public}"
        text = _CONFIG.format(public=public, hub=hub, proxy=proxy, token=_TOKEN)
        (folder / "config.py").write_text(text + settings)

    def __enter__(self) -> "Hub":
        tools = _tools()
        programs = [tools / "venv" / "bin", tools / "npm" / "bin", ROOT / ".venv" / "bin"]
        env = {"PATH": ":".join([*map(str, programs), os.environ["PATH"]])}
        log = self._folder / "log"
        command = f"cd {self._folder} && exec jupyterhub --config=config.py >log 2>&1"
        words = self._machine.enter("sh", "-c", command)
        self._stack.enter_context(Started(words, env))
        until(self._answers, lambda: f"the hub answers: {log.read_text()}")
        return self

    def __exit__(self, *unused: object) -> None:
        self._stack.close()

    @property
    def log(self) -> str:
        """What it has logged."""
        return (self._folder / "log").read_text()

    @contextlib.contextmanager
    def server(self, user: str) -> Iterator[None]:
        """The server of this user, who logs in for it."""
        home = self._machine.root / "run" / user
        startup = home / ".ipython" / "profile_default" / "startup" / "memory.py"
        startup.parent.mkdir(parents=True, exist_ok=True)
        startup.write_text(_STARTUP)
        for path in (startup, *list(startup.parents)[:4]):
            shutil.chown(path, home.stat().st_uid, home.stat().st_gid)
        self.start(user)
        until(lambda: self._is_ready(user), lambda: f"the server of {user} runs: {self.log}")
        yield
        self.ask("DELETE", f"/hub/api/users/{user}/server")
        until(lambda: self._servers(user) == {}, lambda: f"it has stopped: {self.log}")

    def start(self, user: str) -> None:
        """Let this user log in, for the first time, and start the server."""
        self.ask("POST", f"/hub/api/users/{user}")
        self.ask("POST", f"/hub/api/users/{user}/server")

    def kernel_sees(self, user: str) -> str:
        """What a program of a kernel in this user's server prints about its memory."""
        seen = self._machine.root / "run" / user / "seen"
        seen.unlink(missing_ok=True)
        self.ask("POST", f"/user/{user}/api/kernels")
        until(seen.exists, lambda: f"the kernel has started: {self.log}")
        return seen.read_text()

    def ask(self, method: str, path: str) -> Any:
        """Send a request to the hub or to a server."""
        headers = {"Authorization": f"token {_TOKEN}", "Content-Type": "application/json"}
        url = f"{self._api}{path}"
        body = b"{}" if method == "POST" else None
        request = urllib.request.Request(url, body, headers, method=method)  # noqa: S310
        with urllib.request.urlopen(request, timeout=60) as answer:  # noqa: S310
            return json.loads(answer.read() or b"null")

    def _answers(self) -> bool:
        with contextlib.suppress(OSError):
            return bool(self.ask("GET", "/hub/api/"))
        return False

    def _servers(self, user: str) -> Any:
        return self.ask("GET", f"/hub/api/users/{user}")["servers"]

    def _is_ready(self, user: str) -> bool:
        return any(each["ready"] for each in self._servers(user).values())


def _tools() -> Path:
    """JupyterHub and its proxy, which are downloaded once."""
    if shutil.which("npm") is None:
        skip_or_fail("missing: npm; install it with: apt-get install npm")
    target = image_cache.place("jupyterhub", PACKAGES, PROXY, sys.base_prefix, sys.version)
    image_cache.ensure(target, _fill, 1)
    return target


def _fill(folder: Path) -> None:
    venv = folder / "venv"
    image_layers.run(image_layers.uv(), "venv", "--relocatable", "--python", sys.executable, venv)
    install = ["pip", "install", "--only-binary", ":all:", "--link-mode", "copy"]
    image_layers.run(image_layers.uv(), *install, "--python", venv / "bin" / "python", *PACKAGES)
    image_layers.run("npm", "install", "--prefix", folder / "npm", PROXY)
    (folder / "npm" / "bin").symlink_to("node_modules/.bin")
