"""The page in a browser: 200 nodes with 8 cards each, by keyboard, with texts that are markup."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import msgspec
import pytest
from selenium.webdriver.common.keys import Keys

from hami_py.model import NodeCard, SliceUse
from hami_py.overview import NodeReport, Overview
from hami_py.serving import Listen, Server
from hami_py.view.application import NoToken, Viewer, application
from hami_py.view.picture import picture
from support import requirements
from support.slice_uses import container
from unit.view import browser as chromium
from unit.view.browser import Browser
from unit.view.made_up import GIB, HOSTILE, MadeUp, overview

pytestmark = [pytest.mark.timeout(300), pytest.mark.tier("ci")]

TOKEN = "good"  # noqa: S105
FOCUSED = "return document.activeElement.textContent"
ROWS = "return document.querySelectorAll('tr.node').length"


class Page:
    """The page of a made-up cluster, in a browser."""

    def __init__(self, browser: Browser) -> None:
        self.browser = browser
        self.viewer = MadeUp(overview(200, 8))
        self.step = 0
        self.server = Server(application(self._find), Listen())
        self.server.start()

    def _find(self, token: str | None, _: str) -> Viewer:
        if token != TOKEN:
            raise NoToken
        return self.viewer

    def sign_in(self) -> None:
        self.browser.go(f"http://127.0.0.1:{self.server.port}/")
        self.browser.until("return document.activeElement.id === 'token'")
        self.browser.press(TOKEN, Keys.ENTER)
        self.browser.until("return document.querySelectorAll('tr.node').length > 0")

    def change(self) -> None:
        self.step += 1
        self.viewer.show(overview(200, 8, step=self.step), time.monotonic())


@pytest.fixture(scope="module")
def tab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    if not chromium.is_here():
        requirements.skip_or_fail("chromium and chromium-driver are not here")
    with chromium.browser(tmp_path_factory.mktemp("profile")) as browser:
        yield browser


@pytest.fixture
def page(tab: Browser) -> Iterator[Page]:
    page = Page(tab)
    page.viewer.show(overview(200, 8), time.monotonic())
    page.sign_in()
    yield page
    assert tab.problems() == []
    # It asks no more.
    tab.go("about:blank")
    page.server.stop()


def test_it_is_walked_by_keyboard(page: Page) -> None:
    tab = page.browser
    assert tab.run(ROWS) == 200
    # To the first node: Sign out, the filter, the four heads.
    tab.run("document.activeElement.blur()")
    for _ in range(20):
        tab.press(Keys.TAB)
        if tab.run("return document.activeElement.matches('tr.node button')"):
            break
    assert tab.run(FOCUSED) == "gpu-000"
    tab.press(Keys.ARROW_DOWN)
    tab.press(Keys.ARROW_DOWN)
    assert tab.run(FOCUSED) == "gpu-002"
    tab.press(Keys.ENTER)
    tab.until("return document.querySelectorAll('ul.cards > li').length === 8")
    tab.until("return document.querySelectorAll('ul.cards tbody tr').length === 14")
    level = "document.querySelector('td[data-head=Level] span')"
    assert tab.run(f"return [{level}.textContent, {level}.title]") == [
        "preload / lease",
        "memory by preload, time by lease",
    ]
    assert tab.run("return document.activeElement.getAttribute('aria-expanded')") == "true"
    # The picture changes, and the focus stays.
    was = tab.run("return document.querySelector('tr.node .amount').textContent")
    page.change()
    tab.until(f"return document.querySelector('tr.node .amount').textContent !== '{was}'")
    assert tab.run(FOCUSED) == "gpu-002"
    tab.press(Keys.ARROW_LEFT)
    assert tab.run("return document.querySelectorAll('ul.cards').length") == 0
    tab.press(Keys.END)
    assert tab.run(FOCUSED) == "gpu-199"
    tab.press("/")
    tab.press("gpu-01")
    assert tab.run(ROWS) == 10
    tab.press(Keys.TAB)
    tab.press(Keys.TAB, Keys.ENTER)
    sorts = "return [...document.querySelectorAll('th[aria-sort]')].map((e) => e.dataset.sort)"
    assert tab.run(sorts) == ["memory"]


def test_a_screen_reader_is_told_all(page: Page) -> None:
    tab = page.browser
    tab.find("tr.node button").click()
    tab.until("return document.querySelectorAll('ul.cards tbody tr').length > 0")
    tab.until("return document.querySelector('svg.line').getAttribute('aria-label')")
    roles = tab.roles()
    names = {name for role, name in roles if role == "columnheader"}
    assert {"Node", "GPU time", "Containers", "Pod", "Reason", "Throttled"} <= names
    assert ("rowheader", "gpu-003 10.0.0.3") in roles
    images = [name for role, name in roles if role == "image"]
    assert any("card 1: 21 of 80 GiB used" in name for name in images)
    assert any(name.startswith("Memory in the last hour: ") for name in images)
    assert ("textbox", "Token") not in roles
    assert ("searchbox", "Filter") in roles
    # Updates are not spoken; what is wrong is.
    live = tab.run(
        "return [...document.querySelectorAll('[aria-live], [role=status]')].map(e => e.id)"
    )
    assert live == ["status"]


def test_texts_are_never_markup(page: Page) -> None:
    tab = page.browser
    shown = "return document.getElementById('events').textContent"
    assert HOSTILE in tab.run(shown)
    assert HOSTILE in tab.run("return document.getElementById('waiting').textContent")
    assert tab.run("return document.querySelectorAll('main img, main script').length") == 0
    assert tab.run("return document.title") == "gpu.example:6443 · hami"
    # The policy would refuse it, too.
    refused = "try { document.body.innerHTML = '<p>' } catch (error) { return error.name }"
    assert tab.run(refused) == "TypeError"
    assert len(tab.problems()) == 1


def test_the_token_stays_in_the_tab(page: Page) -> None:
    tab = page.browser
    assert tab.run(
        "return [localStorage.length, document.cookie, location.href.includes('good')]"
    ) == [*(0, "", False)]
    tab.find("#sign-out").click()
    tab.until("return document.activeElement.id === 'token'")
    assert tab.run("return sessionStorage.length") == 0


def test_what_is_wrong_is_said_and_passes(page: Page) -> None:
    tab = page.browser
    said = "return document.getElementById('status').textContent"
    page.viewer.problem = f"GET /api: no answer from the API server ({HOSTILE}); wait — ä"
    page.viewer.show(overview(200, 8), time.monotonic() - 60)
    assert page.viewer.problem in tab.until(f"{said}.includes('wait') && {said[7:]}")
    assert tab.run("return document.querySelectorAll('#news img, #news script').length") == 0
    # The age changes each second, so it is not spoken.
    age = "return document.getElementById('age').textContent"
    tab.until(f"{age}.includes('s old')")
    page.viewer.problem = ""
    tab.until(f"{said}.includes('the agents of 4 nodes do not answer')")
    page.change()
    tab.until(f"{said} === '' && {age[7:]} === ''")


def test_a_cluster_without_cards_is_said_to_have_none(page: Page) -> None:
    """No bar of the figures before stays."""
    tab = page.browser
    tab.find("#filter").send_keys("no such name")
    text = "document.getElementById('no-nodes').textContent"
    assert tab.run(f"return {text}") == "No node has such a name."
    tab.find("#filter").clear()
    page.viewer.show(Overview(), time.monotonic())
    tab.until(f"return {text} === 'There is no node with cards.'")
    bars = "return [...document.querySelectorAll('#totals i')].map((e) => e.style.backgroundSize)"
    assert set(tab.run(bars)) == {"0% 100%, 0% 100%"}
    values = "return [...document.querySelectorAll('#totals .value')].map((e) => e.textContent)"
    assert tab.run(values)[:3] == ["\N{EN DASH}", "\N{EN DASH}", "0"]


@pytest.mark.parametrize(("count", "said"), [(1, "on 1 node"), (3, "on 3 nodes")])
def test_the_nodes_are_counted(page: Page, count: int, said: str) -> None:
    page.viewer.show(overview(count, 2), time.monotonic())
    totals = "[...document.querySelectorAll('#totals *')].map((each) => each.textContent)"
    page.browser.until(f"return {totals}.includes('{said}')")


def test_dark_and_light_are_readable(page: Page, tmp_path: Path) -> None:
    """Every text has the contrast that WCAG asks for, 4.5 to 1."""
    tab = page.browser
    tab.find("tr.node button").click()
    tab.until("return document.querySelectorAll('ul.cards tbody tr').length > 0")
    grounds = {}
    for scheme in ("light", "dark"):
        tab.color_scheme(scheme)
        grounds[scheme] = tab.run("return getComputedStyle(document.body).backgroundColor")
        tab.picture(tmp_path / f"{scheme}.png")
        assert tab.run(CONTRASTS) == []
    assert grounds["light"] != grounds["dark"]


#: By how much the page, and each card, is wider than what shows it.
TOO_WIDE = """
const boxes = [document.documentElement, ...document.querySelectorAll('ul.cards > li')];
return boxes.map((box) => box.scrollWidth - box.clientWidth);
"""


@pytest.mark.parametrize("width", [420, 500, 768, 900, 1025, 1153, 1360])
def test_in_a_window_of_any_width_nothing_is_clipped(page: Page, width: int) -> None:
    tab = page.browser
    tab.find("tr.node button").click()
    tab.until("return document.querySelectorAll('ul.cards tbody tr').length > 0")
    tab.size(width, 900)
    assert set(tab.run(TOO_WIDE)) == {0}
    tab.size(1360, 900)


def test_a_single_machine_has_slices_and_no_words_of_a_cluster(page: Page) -> None:
    """One slice on both cards, with a limit on one of them; NVML does not know one's memory."""
    tab = page.browser

    def card(index: int, used: int | None) -> NodeCard:
        uuid, total = f"GPU-{index}", 40 * GIB
        return NodeCard(uuid, index, "GB10", total, used, share_used=0.5)

    def slice_(index: int, limit: int | None) -> SliceUse:
        found = container(
            *("", "train", "", f"GPU-{index}"),
            node="vm",
            limit=limit,
            share=None if limit is None else 30,
            share_used=0.25,
            memory_used=3 * GIB,
            memory_peak=4 * GIB,
            last_used=time.time() - 600,
        )
        return replace(found, user="ada", command="python train.py")

    node = NodeReport("vm", "", "", cards=(card(0, 30 * GIB), card(1, None)))
    found = Overview((node,), (slice_(0, None), slice_(1, 4 * GIB)))
    page.viewer.found = found
    page.viewer.shown = picture(found, time.monotonic(), title="vm", is_machine=True)
    tab.until("return document.querySelectorAll('ul.cards tbody tr').length === 2")
    totals = tab.run(
        "return Object.fromEntries([...document.querySelectorAll('#totals > div')]"
        ".map((e) => [e.querySelector('dt').textContent, e.querySelector('.value').textContent]))"
    )
    assert (totals["Cards"], totals["Slices"]) == ("2", "1")
    shown = tab.find("#view").text
    for word in ("Node", "Container", "allocated", "Filter", "Arrow keys"):
        assert word not in shown
    bars = tab.run(
        "return [...document.querySelectorAll('ul.cards tbody .memory.bar-of')]"
        ".map((e) => e.style.backgroundSize.split(' ')[0])"
    )
    # Without a limit, of the card.
    assert bars == ["7.5%", "75%"]
    rows = [row.text for row in tab.all("ul.cards tbody tr")]
    assert "3 GiB, no limit" in rows[0]
    assert "25 %, no limit" in rows[0]
    assert "3 / 4 GiB" in rows[1]
    peaks = tab.run(
        "return [...document.querySelectorAll('ul.cards tbody td:nth-child(3)')]"
        ".map((e) => e.textContent)"
    )
    assert peaks == ["4", "4"]
    # The heads, their alignment and their order come from the table of columns.
    heads = tab.run(
        "return [...document.querySelectorAll('ul.cards thead th')]"
        ".map((e) => [e.textContent, getComputedStyle(e).textAlign])"
    )
    assert [text for text, _ in heads[: len(heads) // 2]] == [
        *("Slice", "Memory", "Peak", "GPU time", "Last hour", "Throttled", "Refused"),
        *("Last used", "User"),
    ]
    assert {align for text, align in heads if text in {"Peak", "Refused"}} == {"right"}
    assert "10 min ago" in rows[0]
    assert rows[0].endswith("ada")
    assert "40 GiB, use unknown" in shown
    for width in (500, 900):
        tab.size(width, 900)
        assert set(tab.run(TOO_WIDE)) == {0}
    tab.size(1360, 900)


#: The texts with too little contrast.
CONTRASTS = """
const parse = (color) => color.match(/[\\d.]+/g).map(Number);
const light = ([r, g, b]) => [r, g, b]
  .map((v) => (v /= 255) <= 0.03928 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4)
  .reduce((sum, v, i) => sum + v * [0.2126, 0.7152, 0.0722][i], 0);
const ground = (e) => {
  for (; e; e = e.parentElement) {
    const color = parse(getComputedStyle(e).backgroundColor);
    if (color.length === 3 || color[3] > 0) return color;
  }
  return [255, 255, 255];
};
const found = [];
for (const e of document.querySelectorAll('body *')) {
  const texts = [...e.childNodes].some((n) => n.nodeType === 3 && n.textContent.trim());
  if (!texts || !e.checkVisibility()) continue;
  const [a, b] = [light(parse(getComputedStyle(e).color)), light(ground(e))].sort((x, y) => y - x);
  if ((a + 0.05) / (b + 0.05) < 4.5) found.push(e.outerHTML.slice(0, 80));
}
return found;
"""


def test_an_update_costs_little_more_than_what_it_changes(page: Page) -> None:
    """A node that is closed has no elements for its containers, and an update makes none anew."""
    tab = page.browser
    count = "return document.querySelectorAll('*').length"
    before = tab.run(count)
    assert before < 200 * 40
    kept = tab.run("window.kept = [...document.querySelectorAll('tr.node *')]; return kept.length")
    was = tab.run("return document.querySelector('tr.node .amount').textContent")
    page.change()
    tab.until(f"return document.querySelector('tr.node .amount').textContent !== '{was}'")
    assert tab.run("return window.kept.filter((e) => e.isConnected).length") == kept
    assert tab.run(count) == before


def test_a_long_table_is_short_until_it_is_asked_for(page: Page) -> None:
    tab = page.browser
    found = overview(200, 8)
    waits = [msgspec.structs.replace(found.waiting[0], pod=f"waits-{at}") for at in range(300)]
    page.viewer.show(msgspec.structs.replace(found, waiting=tuple(waits)), time.monotonic())
    tab.until("return !document.querySelector('#waiting .more').hidden")
    count = "return document.querySelectorAll('#waiting tbody tr').length"
    assert tab.run(count) < 20
    tab.find("#waiting .more").send_keys(Keys.ENTER)
    assert tab.run(count) == 300
