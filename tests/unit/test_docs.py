"""Links lead somewhere; the examples of the README and the pages for users run as they stand."""

import re
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from support.artifacts import ROOT, Artifacts
from support.running import Run, run
from support.stub import StubServer

# The program that examples call train.py: it allocates as much as it can, and exits with 0.
TRAIN = """import runpy, sys
sys.argv = ["probe", "allocate"]
runpy.run_module("hami_py.gpu.probe", run_name="__main__")
"""


def examples(path: Path, language: str = "python") -> Iterator[tuple[str, str]]:
    """The examples of a page in one language, with the heading that each stands under."""
    heading = ""
    for found in re.finditer(
        rf"^#+ ([^\n]*)$|^```{language}\n(.*?)^```$", path.read_text(), re.DOTALL | re.MULTILINE
    ):
        if found[1] is not None:
            heading = found[1]
        else:
            yield heading, found[2]


PYTHON_PAGE = list(examples(ROOT / "docs" / "python.md"))
GET_STARTED = list(examples(ROOT / "docs" / "get-started.md"))
README = list(examples(ROOT / "README.md"))
SHELL = {
    page: [text for _, text in examples(ROOT / page, "sh") if not text.startswith("make ")]
    for page in ("README.md", "docs/get-started.md")
}


@pytest.fixture
def script(
    stub_server: Callable[..., StubServer], artifacts: Artifacts, runtime: Path, tmp_path: Path
) -> Callable[[str], Run]:
    """``script(text)`` runs a program where ``train.py`` is, on two stub GPUs."""
    variables = _machine(stub_server, artifacts, runtime, tmp_path)

    def start(text: str) -> Run:
        (tmp_path / "example.py").write_text(text)
        return run(
            [sys.executable, "-W", "error", "example.py"], variables, cwd=tmp_path, deadline=100
        )

    return start


def _machine(
    stub_server: Callable[..., StubServer], artifacts: Artifacts, runtime: Path, folder: Path
) -> dict[str, str]:
    """The environment of a user with two stub GPUs, whose programs lie in the folder."""
    for name in ("train.py", "evaluate.py"):
        (folder / name).write_text(TRAIN)
    for name, command in {"hami": f"{sys.executable} -m hami_py", "python": sys.executable}.items():
        (folder / name).write_text(f'#!/bin/sh\nexec {command} "$@"\n')
        (folder / name).chmod(0o755)
    return {
        **stub_server("a100,a100").env,
        "PATH": f"{folder}:/usr/bin:/bin",
        "PYTHONPATH": str(ROOT),
        "HAMI_RUNTIME_DIR": str(runtime),
        "HAMI_LIBRARY": str(artifacts.library),
    }


def test_there_are_examples() -> None:
    assert len(PYTHON_PAGE) >= 8
    assert len(README) >= 1
    assert len(GET_STARTED) >= 1
    assert min(map(len, SHELL.values())) >= 2


ALL = PYTHON_PAGE + GET_STARTED + README


@pytest.mark.parametrize(("heading", "text"), ALL, ids=[heading for heading, _ in ALL])
def test_an_example_runs(
    script: Callable[[str], Run], slices_of: Callable[[], list[Path]], heading: str, text: str
) -> None:
    done = script(text)
    assert (done.code, done.err) == (0, "")


@pytest.mark.parametrize("page", SHELL)
def test_the_commands_of_a_page_run(
    stub_server: Callable[..., StubServer],
    artifacts: Artifacts,
    runtime: Path,
    tmp_path: Path,
    page: str,
) -> None:
    """One after the other, as a reader types them."""
    variables = _machine(stub_server, artifacts, runtime, tmp_path)
    for text in SHELL[page]:
        script = text.replace("/path/to/libvgpu.so", str(artifacts.library))
        done = run(["sh", "-e", "-c", script], variables, cwd=tmp_path, deadline=100)
        assert (done.code, done.err) == (0, ""), text


def test_the_doctor_prints_what_the_page_shows(script: Callable[[str], Run]) -> None:
    page = (ROOT / "docs" / "get-started.md").read_text()
    command, shown = re.findall(r"^```\n\$ (hami doctor [^\n]*)\n(.*?)^```$", page, re.M | re.S)[0]
    done = script(f"import subprocess; subprocess.run({command.split()})")
    assert done.out == shown


def test_a_refusal_is_printed_as_the_page_shows_it(script: Callable[[str], Run]) -> None:
    (text,) = [text for heading, text in PYTHON_PAGE if heading == "Events"]
    assert re.search(r"^\d+ was refused \d+ requests on GPU-", script(text).out, re.MULTILINE)


def test_the_limit_on_a_program_is_that_of_the_page(script: Callable[[str], Run]) -> None:
    (text,) = [text for heading, text in PYTHON_PAGE if heading == "A limit on this program"]
    assert script(text).out == f"{[1 << 30] * 2}\n"


def anchors(page: Path) -> set[str]:
    """The anchors of a page that a link may use, as GitHub derives them from headings."""
    text = re.sub(r"^```.*?^```$", "", page.read_text(), flags=re.M | re.S)
    headings = [heading.lower() for heading in re.findall(r"^#+ (.*)$", text, re.M)]
    return {re.sub(r"[^\w -]", "", heading).replace(" ", "-") for heading in headings}


LINKED = [
    *sorted(ROOT.glob("*.md")),
    *sorted((ROOT / "docs").glob("*.md")),
    ROOT / "docs" / "results" / "README.md",
    ROOT / "tests" / "cluster" / "findings.md",
    ROOT / "tests" / "gpu" / "README.md",
    ROOT / "tests" / "stub" / "README.md",
]


@pytest.mark.parametrize("page", LINKED, ids=lambda page: str(page.relative_to(ROOT)))
def test_every_link_has_a_target(page: Path) -> None:
    text = page.read_text()
    broken = []
    for target in re.findall(r"\]\(([^)\s]+)\)", text):
        file, _, anchor = target.partition("#")
        if "://" in target:
            continue
        there = (page.parent / file) if file else page
        if not there.exists() or (anchor and anchor not in anchors(there)):
            broken.append(target)
    assert broken == []


def test_the_index_lists_every_page_of_results() -> None:
    index = ROOT / "docs" / "results" / "README.md"
    linked = re.findall(r"\]\(((?:\w+/)?\w[\w-]*\.md)\)", index.read_text())
    pages = index.parent.rglob("*.md")
    assert sorted(linked) == sorted(
        str(page.relative_to(index.parent)) for page in pages if page != index
    )


def test_the_readme_lists_every_page() -> None:
    linked = set(re.findall(r"\]\((docs/[\w-]+\.md)\)", (ROOT / "README.md").read_text()))
    assert linked >= {str(page.relative_to(ROOT)) for page in (ROOT / "docs").glob("*.md")}
