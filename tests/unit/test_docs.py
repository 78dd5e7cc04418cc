"""Links lead somewhere; the examples of docs/python.md and the README run as they stand there."""

import re
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from support.artifacts import ROOT, Artifacts
from support.running import Run, run
from support.stub import StubServer

# What an example calls train.py: it takes what it can get, and ends well.
TRAIN = """import runpy, sys
sys.argv = ["probe", "allocate"]
runpy.run_module("hami_py.gpu.probe", run_name="__main__")
"""


def examples(path: Path) -> Iterator[tuple[str, str]]:
    """The Python examples of a page, with the heading that each stands under."""
    heading = ""
    for found in re.finditer(
        r"^#+ ([^\n]*)$|^```python\n(.*?)^```$", path.read_text(), re.DOTALL | re.MULTILINE
    ):
        if found[1] is not None:
            heading = found[1]
        else:
            yield heading, found[2]


PYTHON_PAGE = list(examples(ROOT / "docs" / "python.md"))
README = list(examples(ROOT / "README.md"))


@pytest.fixture
def script(
    stub_server: Callable[..., StubServer], artifacts: Artifacts, runtime: Path, tmp_path: Path
) -> Callable[[str], Run]:
    """``script(text)`` runs a program where ``train.py`` is, on two stub GPUs."""
    gpu = stub_server("a100,a100")
    (tmp_path / "train.py").write_text(TRAIN)

    def start(text: str) -> Run:
        (tmp_path / "example.py").write_text(text)
        variables = {
            **gpu.env,
            "PATH": f"{Path(sys.executable).parent}:/usr/bin:/bin",
            "PYTHONPATH": str(ROOT),
            "XDG_RUNTIME_DIR": str(runtime),
            "HAMI_LIBRARY": str(artifacts.library),
        }
        return run(
            [sys.executable, "-W", "error", "example.py"], variables, cwd=tmp_path, deadline=100
        )

    return start


def test_there_are_examples() -> None:
    assert len(PYTHON_PAGE) >= 8
    assert len(README) >= 1


@pytest.mark.parametrize(
    ("heading", "text"), PYTHON_PAGE + README, ids=[heading for heading, _ in PYTHON_PAGE + README]
)
def test_an_example_runs(
    script: Callable[[str], Run], slices_of: Callable[[], list[Path]], heading: str, text: str
) -> None:
    done = script(text)
    assert (done.code, done.err) == (0, "")


def test_a_refusal_is_seen_as_the_page_shows_it(script: Callable[[str], Run]) -> None:
    (text,) = [text for heading, text in PYTHON_PAGE if heading == "Events"]
    assert re.search(r"^\d+ was refused \d+ requests on GPU-", script(text).out, re.MULTILINE)


def test_the_limit_on_a_program_is_what_the_page_says(script: Callable[[str], Run]) -> None:
    (text,) = [text for heading, text in PYTHON_PAGE if heading == "A limit on this program"]
    assert script(text).out == f"{[1 << 30] * 2}\n"


def anchors(page: Path) -> set[str]:
    """What a link may name of a page, as GitHub makes it of headings."""
    text = re.sub(r"^```.*?^```$", "", page.read_text(), flags=re.M | re.S)
    headings = [heading.lower() for heading in re.findall(r"^#+ (.*)$", text, re.M)]
    return {re.sub(r"[^\w -]", "", heading).replace(" ", "-") for heading in headings}


LINKED = [*sorted(ROOT.glob("*.md")), *sorted((ROOT / "docs").glob("*.md"))]


@pytest.mark.parametrize("page", LINKED, ids=lambda page: page.name)
def test_every_link_leads_somewhere(page: Path) -> None:
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
