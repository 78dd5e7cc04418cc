"""docs/settings.md and docs/operate.md list exactly what the code has."""

import ast
import base64
import io
import json
import re
import sys
from collections.abc import Iterator
from dataclasses import fields
from pathlib import Path

import click
import msgspec
import pytest
import yaml

from cluster.monitoring.pages import names
from hami_py._native import Allocator
from hami_py.agent.reports import REPORTS
from hami_py.cli import hami
from hami_py.cluster.nodes import NO_CARDS
from hami_py.errors import InvalidValue
from hami_py.kube import check_annotations, read_settings
from hami_py.model import pods
from hami_py.model.pods import wire
from hami_py.webhook.certificates import Certificates, Lifetimes, step
from support.artifacts import ROOT

SETTINGS_PAGE = (ROOT / "docs" / "settings.md").read_text()
OPERATE = (ROOT / "docs" / "operate.md").read_text()
ALLOCATOR = ROOT / "native" / "allocator" / "src"


def section(heading: str, page: str = OPERATE) -> str:
    """The text under a heading, up to the next one."""
    found = re.search(rf"^#+ {re.escape(heading)}\n(.*?)(?=^#+ |\Z)", page, re.M | re.S)
    assert found, heading
    return found[1]


def rows(text: str) -> list[list[str]]:
    """The rows of tables whose first cell is one text in backquotes, without the backquotes."""
    lines = [line for line in text.splitlines() if line.startswith("| `")]
    cells = [[cell.strip() for cell in line.split("|")[1:-1]] for line in lines]
    return [[row[0].strip("`"), *row[1:]] for row in cells]


def bare(text: str) -> str:
    """A format string of Rust's or Python's as the page writes it."""
    return re.sub(r"\{[^}]*\}", "…", text)


def source(text: str) -> str:
    """The file of the allocator that contains this text."""
    (found,) = [each for path in ALLOCATOR.rglob("*.rs") if text in (each := path.read_text())]
    return found


def said_of_nodes() -> set[str]:
    """All that a node may be refused with in a pod's condition, from the source."""
    cards = source("const TEXTS: ")
    words = re.search(r"const TEXTS: [^=]*= \[(.*?)\];", cards, re.S)
    assert words
    tally = re.findall(r'"([^"]+)"', words[1])
    assert len(tally) == 18
    tally += re.findall(r'map_or\("([^"]+)", \|kind\| TEXTS', cards)
    display = source("impl fmt::Display for NodeReason").split("impl fmt::Display for NodeReason")[
        1
    ]
    nodes, quota = display.split("impl fmt::Display for QuotaReason")
    texts = [bare(text) for text in re.findall(r'"([^"]+)"', nodes)]
    # `brief` leaves figures out, and has a node's cards in the words of above.
    texts = [re.sub(r" \((the best has )?…\)$", "", text) for text in texts]
    texts = [text for text in texts if not text.startswith(("container …", "never fits: … cards"))]
    never, *parts = map(bare, re.findall(r'"([^"]+)"', quota))
    assert never == "never fits: "
    return {*tally, *texts, "".join(parts)}


def test_every_reason_of_the_extender_is_on_the_page() -> None:
    table, errors = section("Messages of the extender").split("An error of the filter")
    with pytest.raises(InvalidValue) as no_room:
        check_annotations(1 << 20, {})
    of_the_pod = re.sub(r"\d+", "…", str(no_room.value)).partition(" bytes and")[0]
    nodes = (ROOT / "hami_py" / "cluster" / "nodes.py").read_text()
    blocks = re.findall(r'^_[A-Z_]+ = "([^"]+)"$', nodes, re.M)
    assert len(blocks) == 4
    assert NO_CARDS in said_of_nodes()
    assert {row[0] for row in rows(table)} == {*said_of_nodes(), *blocks, of_the_pod}
    verbs = (ROOT / "hami_py" / "scheduler" / "verbs.py").read_text()
    texts = {bare(text) for text in re.findall(r'^_[A-Z_]+ = "([^"]+)"$', verbs, re.M)}
    assert len(texts) >= 4
    assert {row[0] for row in rows(errors)} == texts


def test_every_query_on_the_page_uses_existing_metrics() -> None:
    kinds = "scheduler|webhook|card|container|node|pod"
    asked = set(re.findall(rf"\bhami_(?:{kinds})_\w+", OPERATE + SETTINGS_PAGE))
    assert len(asked) > 5
    assert asked <= names()


#: The page describes these once, for all commands.
OF_ALL = {"--kubeconfig": "", "--context": ""}


def options_of(command: str) -> dict[str, str]:
    """The defaults of a command's options as the page writes them."""

    def written(param: click.Option) -> str:
        default = param.default
        if isinstance(default, tuple):
            return ", ".join(map(str, default))
        if isinstance(default, str | int | Path) and not isinstance(default, bool):
            return str(default)
        return "required" if param.required else ""

    found = hami.get_command(click.Context(hami), command)
    assert found is not None
    return {each.opts[0]: written(each) for each in found.params if isinstance(each, click.Option)}


@pytest.mark.parametrize("command", ["scheduler", "webhook"])
def test_every_option_is_on_the_page_with_its_default(command: str) -> None:
    text = (
        section("Options", SETTINGS_PAGE)
        .split(f"`hami {command}`")[1]
        .split("\n`hami webhook`:")[0]
    )
    assert {row[0]: row[1].strip("`") for row in rows(text)} | OF_ALL == options_of(command)


def test_every_option_of_the_node_agent_is_on_the_page_with_its_default() -> None:
    table = rows(section("Options of `hami node`", SETTINGS_PAGE))
    assert {row[0]: row[1].strip("`") for row in table} | OF_ALL == options_of("node")


def reasons(folder: Path) -> Iterator[str]:
    """The reasons of the node agent: of each ``Event(about, reason, …)``, and of processes."""
    yield from (reason for reason, _ in REPORTS.values())
    for path in sorted(folder.glob("*.py")):
        for call in ast.walk(ast.parse(path.read_text())):
            if isinstance(call, ast.Call) and ast.unparse(call.func) == "Event":
                reason = call.args[1]
                if ast.unparse(reason) != "reason":
                    assert isinstance(reason, ast.Constant), f"{path}: {ast.unparse(call)}"
                    yield str(reason.value)


def test_every_event_of_the_node_agent_is_on_the_page() -> None:
    lines = section("Events of the node agent").splitlines()
    cells = [line.split("|")[1] for line in lines if line.startswith("| `")]
    on_page = [reason for cell in cells for reason in re.findall(r"`(\w+)`", cell)]
    assert sorted(on_page) == sorted({*reasons(ROOT / "hami_py" / "agent")})


SETTINGS = rows(section("The settings file", SETTINGS_PAGE))


def test_every_setting_is_on_the_page_with_its_default() -> None:
    assert [row[0] for row in SETTINGS] == [field.name for field in fields(pods.PodSettings)]
    written = yaml.safe_load("".join(f"{row[0]}: {row[1].strip('`')}\n" for row in SETTINGS))
    assert pods.decode_settings(written) == pods.PodSettings()
    assert written.keys() == {row[0] for row in SETTINGS}


@pytest.mark.parametrize("row", SETTINGS, ids=lambda row: row[0])
def test_the_example_of_a_setting_sets_only_that(row: list[str]) -> None:
    said = pods.decode_settings(yaml.safe_load(row[-1].strip("`")))
    defaults = pods.PodSettings()
    names = {field.name for field in fields(said)}
    assert {n for n in names if getattr(said, n) != getattr(defaults, n)} == {row[0]}


def test_a_wrong_field_is_reported_as_on_the_page(tmp_path: Path) -> None:
    (said,) = re.findall(r"^    hami: (settings\.yaml: .*)$", SETTINGS_PAGE, re.M)
    name, value = re.findall(r"(\w+): \"([^\"]+)\" is refused", said)[0]
    (tmp_path / "settings.yaml").write_text(f"{name}: {value}")
    with pytest.raises(InvalidValue) as told:
        read_settings(tmp_path / "settings.yaml")
    assert str(told.value) == f"{tmp_path}/{said}"


def test_expired_certificates_are_replaced_step_by_step(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The program on the page; at no time is what is shown signed by what is not announced."""
    (program,) = re.findall(r"python3 -c '\n(.*?)^'", OPERATE, re.M | re.S)
    lives, names, now = Lifetimes(), ["hami-webhook.hami-system.svc"], 2_000_000_000.0
    before = step(Certificates(), names, now, lives)
    now += 2 * lives.overlap_s
    assert step(before, names, now, lives) is before

    held = base64.b64encode(msgspec.json.encode(before)).decode()
    secret = json.dumps({"data": {"certificates.json": held}})
    monkeypatch.setattr(sys, "stdin", io.StringIO(secret))
    exec(program, {})  # noqa: S102
    written = json.loads(capsys.readouterr().out)["data"]["certificates.json"]
    states = [msgspec.json.decode(base64.b64decode(written), type=Certificates)]
    for _ in range(13):
        states.append(step(states[-1], names, now, lives))
        now += 10.0
    assert [len(state.authorities) for state in (states[1], states[-1])] == [2, 1]
    assert states[1].serving == before.serving
    assert states[-1].authorities[0].certificate == states[1].authorities[1].certificate
    assert states[-1].serving != before.serving


BY_HAND = section("Try it without the node agent", (ROOT / "CONTRIBUTING.md").read_text())


def test_the_manually_created_node_takes_the_first_pod_of_the_other_page() -> None:
    (written,) = re.findall(r"hami\.io/cards='([^']+)'", BY_HAND)
    cards = pods.decode_cards(written)
    assert pods.encode_cards(cards) == written
    (patch,) = re.findall(r"--patch='([^']+)'", BY_HAND)
    status = json.loads(patch)["status"]
    assert status["capacity"] == status["allocatable"]
    assert {name: int(number) for name, number in status["capacity"].items()} == {
        "nvidia.com/gpu": sum(card.slots for card in cards),
        "nvidia.com/gpumem": sum(card.memory_mib for card in cards),
        "nvidia.com/gpucores": sum(card.cores for card in cards),
    }
    allocator = Allocator()
    allocator.set_node(wire.encode(wire.Node("n", cards)))
    ask = wire.ContainerRequest("train", "app", 1, wire.Size(mib=3000), 30)
    request = wire.PodRequest(wire.PodName("u", "default", "train"), 0, (ask,), wire.CardRequest())
    assert allocator.filter(wire.encode(request), None, 0) == (["n"], {}, {})
