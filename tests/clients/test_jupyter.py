"""Notebooks whose kernel runs in a slice, as Jupyter itself starts, interrupts and ends them."""

import json
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, contextmanager
from importlib.metadata import requires
from pathlib import Path
from queue import Empty
from typing import Any

import pytest
import zmq
from jupyter_client.blocking.client import BlockingKernelClient
from jupyter_client.manager import KernelManager

from clients.harness import GIB, MIB, PROGRAMS, hami, launched
from support.artifacts import Artifacts
from support.running import Run, base_environment, run
from support.stub import StubServer

LIMIT = GIB

#: Seconds for one answer of a kernel; its first start imports IPython.
_DEADLINE = 90.0

#: The first cell of every notebook here: cuda-bindings, on card 0.
BEGIN = f"""
import os, sys
sys.path.insert(0, {str(PROGRAMS)!r})
from with_cuda_bindings import Bindings, CudaError
bindings = Bindings()
blocks = []
"""

FILL = """
size = 64 << 20
while size >= 1 << 20:
    try:
        bindings.allocate(size)
    except CudaError as error:
        said, size = error, size // 2
    else:
        blocks.append(size)
print(bindings.total(), sum(blocks), said)
"""


def requirement() -> str:
    """The requirement of the extra `jupyter` for ipykernel."""
    (found,) = (name for name in requires("hami-py") or () if name.startswith("ipykernel"))
    return found.partition(";")[0].strip()


class Notebook:
    """A kernel and its client."""

    def __init__(self, name: str, env: dict[str, str], log: Path) -> None:
        self._context = zmq.Context()
        # Kept open: Jupyter starts the kernel again with it.
        self._log = log.open("ab")
        self.manager = KernelManager(kernel_name=name, context=self._context)
        self._client: BlockingKernelClient | None = None
        self._options = {"env": env, "stdout": self._log, "stderr": self._log, "cwd": log.parent}

    def open(self) -> None:
        self.manager.start_kernel(**self._options)
        self._client = self._connect()

    def _connect(self) -> BlockingKernelClient:
        client: BlockingKernelClient = self.manager.client()
        client.start_channels()
        client.wait_for_ready(timeout=_DEADLINE)
        return client

    def start(self, code: str) -> Iterator[tuple[str, str]]:
        """Run a cell and yield its output as it arrives: ("stream", text) or ("error", name)."""
        assert self._client is not None
        request = self._client.execute(code)
        until = time.monotonic() + _DEADLINE
        while True:
            try:
                message = self._client.get_iopub_msg(timeout=max(0.0, until - time.monotonic()))
            except Empty as error:
                raise TimeoutError(f"the kernel does not answer: {code}") from error
            if message["parent_header"].get("msg_id") != request:
                continue
            content: dict[str, Any] = message["content"]
            if message["msg_type"] == "stream":
                yield "stream", content["text"]
            elif message["msg_type"] == "error":
                yield "error", content["ename"]
            elif message["msg_type"] == "status" and content["execution_state"] == "idle":
                return

    def run(self, code: str) -> str:
        """Run a cell to its end; returns its output and the name of its error."""
        return "".join(text for _kind, text in self.start(code)).strip()

    def restart(self) -> None:
        assert self._client is not None
        self._client.stop_channels()
        self.manager.restart_kernel()
        self._client = self._connect()

    def end(self, *, now: bool = False) -> None:
        """Shut it down as Jupyter does, or at once, by killing it."""
        if self._client:
            self._client.stop_channels()
        if self.manager.has_kernel:
            self.manager.shutdown_kernel(now=now)

    def close(self) -> None:
        """End the kernel, whatever the test did."""
        self.end(now=True)
        self._context.destroy(linger=0)
        self._log.close()


class Jupyter:
    """Jupyter's own directories, for one test, on one GPU."""

    def __init__(self, folder: Path, runtime: Path, artifacts: Artifacts, gpu: StubServer) -> None:
        self.runtime = runtime
        self.log = folder / "kernel.log"
        self.env = {
            **base_environment(),
            **gpu.env,
            "HAMI_RUNTIME_DIR": str(self.runtime),
            "HAMI_LIBRARY": str(artifacts.library),
            "HOME": str(folder),
            "IPYTHONDIR": str(folder / "ipython"),
            "JUPYTER_DATA_DIR": str(folder / "data"),
            "JUPYTER_RUNTIME_DIR": str(folder / "connections"),
            "JUPYTER_NO_CONFIG": "1",
        }

    def hami(self, *arguments: str) -> Run:
        return run(hami("jupyter", *arguments), self.env)

    def slices(self) -> list[Path]:
        slices = self.runtime / "hami" / "slices"
        return sorted(slices.iterdir()) if slices.exists() else []

    @contextmanager
    def notebook(self, name: str) -> Iterator[Notebook]:
        with closing(Notebook(name, self.env, self.log)) as notebook:
            notebook.open()
            yield notebook


@pytest.fixture
def jupyter(
    tmp_path: Path,
    runtime: Path,
    artifacts: Artifacts,
    gpu: StubServer,
    monkeypatch: pytest.MonkeyPatch,
) -> Jupyter:
    """With a kernel "limited" of 1 GiB."""
    jupyter = Jupyter(tmp_path, runtime, artifacts, gpu)
    # Jupyter's own part runs in this process.
    for name in ("JUPYTER_DATA_DIR", "JUPYTER_RUNTIME_DIR", "IPYTHONDIR"):
        monkeypatch.setenv(name, jupyter.env[name])
    done = jupyter.hami("install", "--gpumem", "1GiB", "--name", "limited")
    assert (done.code, done.err) == (0, "")
    return jupyter


@pytest.fixture
def notebook(jupyter: Jupyter) -> Iterator[Notebook]:
    with jupyter.notebook("limited") as notebook:
        yield notebook


def pids(notebook: Notebook) -> list[int]:
    """The kernel's and that of `hami run`, which is Jupyter's child."""
    provisioner: Any = notebook.manager.provisioner
    return [int(notebook.run("print(os.getpid())")), int(provisioner.pid)]


def test_a_notebook_gets_exactly_its_limit(notebook: Notebook, gpu: StubServer) -> None:
    assert notebook.run(BEGIN) == ""
    total, got, said = notebook.run(FILL).split()
    assert (int(total), said) == (LIMIT, "CUDA_ERROR_OUT_OF_MEMORY")
    assert LIMIT - 2 * MIB <= int(got) == gpu.held() == gpu.peak() <= LIMIT


def test_an_endless_loop_is_interrupted_once(notebook: Notebook, gpu: StubServer) -> None:
    """A second interrupt would hit the handler of the first."""
    notebook.run(BEGIN + "block = bindings.allocate(64 << 20); caught = 0")
    loop = """
try:
    print("looping", flush=True)
    while True:
        pass
except KeyboardInterrupt:
    caught += 1
    import time
    try:
        time.sleep(0.5)
    except KeyboardInterrupt:
        caught += 1
    raise
"""
    said = []
    for kind, text in notebook.start(loop):
        said.append(text.strip())
        if kind == "stream":
            notebook.manager.interrupt_kernel()
    assert said == ["looping", "KeyboardInterrupt"]
    assert notebook.run("print(caught)") == "1"
    assert gpu.held() == 64 * MIB


def test_a_notebook_has_its_share_and_is_interrupted_while_it_waits_for_it(
    jupyter: Jupyter, gpu: StubServer
) -> None:
    gpu.control({"command": "kernels", "kernels": {"spin_500us": 2000}})
    assert jupyter.hami("install", "--gpucores", "30", "--name", "shared").code == 0
    with jupyter.notebook("shared") as notebook:
        assert notebook.run(BEGIN + "bindings.launch(200)") == ""
        assert launched(gpu) == {"spin_500us": 200}
        used = "import hami_py\nwhile not hami_py.usage().cards[0].engine_time: pass"
        assert notebook.run(used) == ""
        loop = "print('looping', flush=True)\nwhile True: bindings.launch(10)"
        said = []
        for kind, text in notebook.start(loop):
            said.append(text.strip())
            if kind == "stream":
                notebook.manager.interrupt_kernel()
        assert said == ["looping", "KeyboardInterrupt"]
        assert notebook.run("bindings.launch(10)") == ""


def test_a_restarted_kernel_has_a_new_slice(
    notebook: Notebook, jupyter: Jupyter, gpu: StubServer
) -> None:
    notebook.run(BEGIN + "block = bindings.allocate(64 << 20)")
    (before,), old = jupyter.slices(), pids(notebook)
    assert gpu.held() == 64 * MIB
    notebook.restart()
    assert gpu.held() == 0
    assert notebook.run("block") == "NameError"
    (after,) = jupyter.slices()
    assert after != before
    assert not any(Path(f"/proc/{pid}").exists() for pid in old)
    assert notebook.run(BEGIN + FILL).split()[0] == str(LIMIT)


def test_a_kernel_that_is_shut_down_leaves_nothing_behind(
    notebook: Notebook, jupyter: Jupyter, gpu: StubServer
) -> None:
    notebook.run(BEGIN + "block = bindings.allocate(64 << 20)")
    running = pids(notebook)
    assert len(jupyter.slices()) == 1
    notebook.end()
    assert jupyter.slices() == []
    assert not any(Path(f"/proc/{pid}").exists() for pid in running)
    assert gpu.held() == 0
    assert "hami: " not in jupyter.log.read_text()


def test_the_slice_of_a_killed_kernel_is_removed_by_the_next_start(
    notebook: Notebook, jupyter: Jupyter, gpu: StubServer
) -> None:
    notebook.run(BEGIN + "block = bindings.allocate(64 << 20)")
    running, (killed,) = pids(notebook), jupyter.slices()
    notebook.end(now=True)
    gpu.wait_until(lambda gpu: gpu.held() == 0)
    gpu.wait_until(lambda _: not any(Path(f"/proc/{pid}").exists() for pid in running))
    with jupyter.notebook("limited"):
        (slice_of_the_next,) = jupyter.slices()
        assert slice_of_the_next != killed


def test_each_kernel_has_a_limit_of_its_own(jupyter: Jupyter, gpu: StubServer) -> None:
    with ExitStack() as stack:
        notebooks = [stack.enter_context(jupyter.notebook("limited")) for _ in range(2)]
        got = [int(notebook.run(BEGIN + FILL).split()[1]) for notebook in notebooks]
        assert sum(got) == gpu.held()
        assert all(LIMIT - 2 * MIB <= part <= LIMIT for part in got)
        assert len(jupyter.slices()) == 2


def test_added_kernels_are_listed_and_removed(jupyter: Jupyter) -> None:
    options = ["--gpumem", "0=2GiB", "--device", "0", "--display-name", "Small"]
    done = jupyter.hami("install", *options)
    assert (done.code, done.err) == (0, "")
    rows = json.loads(jupyter.hami("list", "--json").out)
    assert [(row["name"], row["gpumem"], row["devices"]) for row in rows] == [
        ("hami-0-2gib", ["0=2GiB"], ["0"]),
        ("limited", ["1GiB"], []),
    ]
    # Jupyter itself says the same.
    command = [sys.executable, "-m", "jupyter_client.kernelspecapp", "list", "--json"]
    listed = json.loads(run(command, jupyter.env).out)["kernelspecs"]
    assert listed["hami-0-2gib"]["spec"]["display_name"] == "Small"
    assert jupyter.hami("remove", "hami-0-2gib").code == 0
    assert [row["name"] for row in json.loads(jupyter.hami("list", "--json").out)] == ["limited"]


def test_a_kernel_may_have_a_share_of_the_time(jupyter: Jupyter) -> None:
    options = ["--gpucores", "30%", "--mode", "soft", "--priority", "low"]
    assert jupyter.hami("install", *options).code == 0
    (row, _limited) = json.loads(jupyter.hami("list", "--json").out)
    assert (row["name"], row["gpumem"], row["gpucores"]) == ("hami-30", [], ["30%"])
    assert (row["mode"], row["priority"]) == (["soft"], ["low"])
    listed = jupyter.hami("list").lines[0]
    assert listed.startswith("hami-30: GPU time 30%, soft, priority low, ")
    spec = json.loads((Path(row["directory"]) / "kernel.json").read_text())
    assert spec["display_name"] == "Python 3 (GPU time 30%, soft, priority low)"
    begin = spec["argv"].index("run") + 1
    assert spec["argv"][begin : spec["argv"].index("--")] == [
        *("--gpucores", "30%", "--mode", "soft", "--priority", "low")
    ]
    both = ["--gpumem", "0=2GiB", "--gpucores", "0=50"]
    assert jupyter.hami("install", *both).out.startswith("hami-0-2gib-0-50 in ")


def test_a_kernel_without_any_limit_is_refused(jupyter: Jupyter) -> None:
    done = jupyter.hami("install", "--mode", "soft")
    assert (done.code, done.out) == (2, "")
    assert "Give at least one of --gpumem and --gpucores." in done.err


def test_a_kernel_that_is_not_ours_is_neither_replaced_nor_removed(jupyter: Jupyter) -> None:
    folder = Path(jupyter.env["JUPYTER_DATA_DIR"]) / "kernels" / "theirs"
    folder.mkdir()
    spec = json.dumps({"argv": ["true"], "display_name": "Theirs", "language": "python"})
    (folder / "kernel.json").write_text(spec)
    for command in (["install", "--gpumem", "1GiB", "--name", "theirs"], ["remove", "theirs"]):
        done = jupyter.hami(*command)
        assert (done.code, done.out) == (1, "")
        assert '"theirs" is refused' in done.err
    assert (folder / "kernel.json").read_text() == spec


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--gpumem", "1"], 'gpumem: "1" is refused'),
        (["--gpucores", "101"], 'gpucores: "101" is refused'),
        (["--gpumem", "1GiB", "--device", "7"], "device 7: there is no such card; choose from: 0"),
        (["--gpumem", "7=1GiB"], "gpumem 7: there is no such card; choose from: 0 (GPU-"),
        (["--gpumem", "1GiB", "--name", "a b"], '--name: "a b" is refused'),
        (["--gpumem", "1GiB", "--python", "/nonexistent"], '--python: "/nonexistent" is refused'),
        (["--gpumem", "1GiB", "--python", "/bin/false"], f"pip install '{requirement()}'"),
    ],
)
def test_an_invalid_kernel_is_refused(jupyter: Jupyter, options: list[str], said: str) -> None:
    done = jupyter.hami("install", *options)
    assert (done.code, done.out) == (1, "")
    assert said in done.err


def test_warnings_about_a_kernel_are_shown_when_it_is_added(jupyter: Jupyter) -> None:
    done = jupyter.hami("install", "--gpumem", "1GiB", "--mode", "soft")
    assert (done.code, done.out[:13]) == (0, "hami-1gib in ")
    assert done.err.startswith("hami: mode soft has no effect yet: ")


def test_without_a_card_a_kernel_is_added_with_a_warning(jupyter: Jupyter, tmp_path: Path) -> None:
    """As where an image is made. A folder that comes first has a pynvml that finds no NVML."""
    hidden = tmp_path / "hidden"
    hidden.mkdir()
    (hidden / "sitecustomize.py").write_text(
        "import pynvml\ndef missing(name): raise OSError(name)\npynvml.CDLL = missing\n"
    )
    command = hami("jupyter", "install", "--gpumem", "1GiB", "--device", "7")
    done = run(command, {**jupyter.env, "PYTHONPATH": str(hidden)})
    assert (done.code, done.out[:13]) == (0, "hami-1gib in ")
    assert done.err.startswith("hami: the cards will be checked when a kernel starts: NVML: ")


def test_without_jupyter_the_error_says_how_to_install_it(
    jupyter: Jupyter, tmp_path: Path, stub_server: Callable[..., StubServer]
) -> None:
    """A folder that comes first and in which jupyter_client cannot be imported."""
    hidden = tmp_path / "hidden" / "jupyter_client"
    hidden.mkdir(parents=True)
    (hidden / "__init__.py").write_text("raise ImportError('not here')")
    done = run(hami("jupyter", "list"), {**jupyter.env, "PYTHONPATH": str(hidden.parent)})
    assert (done.code, done.out) == (1, "")
    assert 'pip install "$(ls dist/hami_py-*.whl)[jupyter]"' in done.err
