// Asks the server for what has changed, three times a second while the page is visible, and shows it.

import { Nodes } from "./nodes.js";
import { Bar, Keyed, counted, decimal, gib, make, percent, plainRow, sum, write } from "./parts.js";

const PERIOD_MS = 300;
const FIRST_MS = 150;
const PAUSE_MS = 3000;
const DEADLINE_MS = 10_000;
const HISTORY_MS = 10_000;
const STALE_S = 5;
const SHORT = 8;
const TOKEN = "hami-token";
const NAMESPACE = "hami-namespace";

const $ = (id) => document.getElementById(id);
const nodes = new Nodes($("nodes"), () => refresh());
const totals = new Keyed($("totals"), (each) => each.name, () => new Total());
const notes = new Keyed($("notes"), (text) => text, note);
const waiting = rowsOf("waiting", (each) => `${each.namespace}/${each.pod}`, (each) => [
  each.pod,
  each.namespace,
  each.nodes === null ? each.reason : `${each.reason} (${each.nodes} of ${each.of} nodes)`,
]);
const namespaces = rowsOf(
  "namespaces",
  (each) => `${each.namespace}/${each.quota}`,
  (each) => [
    each.namespace,
    each.quota ?? "–",
    limited(each.cards, each.cards_limit, String),
    `${limited(each.memory, each.memory_limit, gib)} GiB`,
    `${limited(each.share, each.share_limit, decimal)} cards`,
    each.memory_peak === null ? "–" : `${gib(Math.max(0, each.memory - each.memory_peak))} GiB`,
  ],
  ["", "", "number", "number", "number", "number"],
);
const events = rowsOf("events", (each) => JSON.stringify([each.at, each.name, each.reason, each.message]), (each) => [
  each.at ? new Date(each.at).toLocaleTimeString() : "–",
  each.namespace ? `${each.namespace}/${each.name}` : each.name,
  each.count > 1 ? `${each.reason} (${each.count} times)` : each.reason,
  each.message,
]);

let tag = null;
let timer = null;
let generation = 0;
let histories = new Map();

class Refused extends Error {
  constructor(status, why) {
    super(why);
    this.status = status;
  }
}

/** Fetches a path; the token is sent to this server only, and kept in this tab only. */
async function get(path, query = {}, headers = {}) {
  const token = sessionStorage.getItem(TOKEN);
  if (token) headers = { ...headers, Authorization: `Bearer ${token}` };
  const asked = new URLSearchParams(query);
  const namespace = sessionStorage.getItem(NAMESPACE);
  if (namespace) asked.set("namespace", namespace);
  const signal = AbortSignal.timeout(DEADLINE_MS);
  const answer = await fetch(`${path}?${asked}`, { headers, cache: "no-store", credentials: "same-origin", signal });
  if (answer.ok || answer.status === 304) return answer;
  const problem = await answer.json().catch(() => ({}));
  throw new Refused(answer.status, problem.error ?? `the server answers ${answer.status}`);
}

/** One round: the picture, and the nodes that are open. Then the next one, unless the page is hidden. */
async function refresh() {
  const own = ++generation;
  clearTimeout(timer);
  let pause = PERIOD_MS;
  try {
    const answer = await get("api/picture", {}, tag ? { "If-None-Match": tag } : {});
    if (own !== generation) return;
    if (answer.status === 202) {
      pause = FIRST_MS;
      const { error: why } = await answer.json();
      if (why) pause = PAUSE_MS;
      say(why ? `Reading: ${why}` : "Reading …");
    } else {
      if (answer.status === 200) {
        const picture = await answer.json();
        tag = answer.headers.get("ETag");
        if (own !== generation) return;
        show(picture);
      }
      const age = Number(answer.headers.get("Age") ?? 0);
      const isLate = age > STALE_S;
      pulse(isLate ? "late" : "live");
      if (isLate) say(`The figures are old: ${reason(answer)}.`, `They are ${age} s old.`);
      else say("");
      await Promise.all(nodes.open.map(openNode));
    }
  } catch (error) {
    if (own !== generation) return;
    if (error.status === 401 || error.status === 403) return signIn(error);
    pause = PAUSE_MS;
    pulse("late");
    say(error.status ? `${error.message}.` : "The server does not answer.");
  }
  if (own === generation && !document.hidden) timer = setTimeout(refresh, pause);
}

/** Why there was no later reading. */
function reason(answer) {
  const problem = decodeURIComponent(answer.headers.get("hami-problem") ?? "");
  const silent = nodes.nodes.filter((node) => node.silent).length;
  return problem || (silent ? `the agents of ${counted(silent, "node")} do not answer` : "reading takes long");
}

async function openNode(name) {
  const own = generation;
  const isDue = Date.now() - (histories.get(name) ?? 0) > HISTORY_MS;
  const answer = await get("api/node", isDue ? { name, history: "1" } : { name }).catch((error) => {
    // It has just gone; the next picture says so.
    if (error.status !== 404) throw error;
  });
  if (answer?.status !== 200) return;
  const detail = await answer.json();
  if (own !== generation) return;
  if (detail.history) histories.set(name, Date.now());
  nodes.detail(detail);
}

function show(picture) {
  $("sign-in").hidden = true;
  $("view").hidden = false;
  $("sign-out").hidden = !sessionStorage.getItem(TOKEN) || picture.is_machine;
  document.title = `${picture.title} · hami`;
  write($("title"), picture.title);
  write($("user"), picture.user);
  $("view").classList.toggle("machine", picture.is_machine);
  write($("nodes-title"), picture.is_machine ? "Cards" : "Nodes");
  const all = picture.nodes.map((node, i) => ({ ...node, containers: picture.containers[i] }));
  totals.show(totalsOf(picture, all));
  notes.show(picture.notes);
  nodes.show(all, picture.is_machine, picture.columns);
  waiting(picture.waiting);
  namespaces(picture.namespaces);
  events(picture.events);
}

function totalsOf(picture, all) {
  const cards = all.flatMap((node) => node.cards);
  const off = cards.filter((card) => card.state && card.state !== "schedulable").length;
  const [total, used, allocated] = ["memory", "memory_used", "memory_allocated"].map((field) => sum(cards, field));
  const [share, given] = ["share_used", "share_allocated"].map((field) => (cards.length ? sum(cards, field) : null));
  const containers = picture.containers.reduce((a, b) => a + b, 0);
  const found = [
    {
      name: "Memory",
      style: "memory",
      value: total && used !== null ? `${gib(used)} GiB` : "–",
      about: total ? `used of ${gib(total)} GiB${allocated === null ? "" : `, ${gib(allocated)} allocated`}` : "",
      parts: total ? [used / total, allocated / total] : null,
    },
    {
      name: "GPU time",
      style: "time",
      value: share === null ? "–" : percent(share / (cards.length || 1)),
      about: share === null ? "" : `used${given === null ? "" : `, ${percent(given / (cards.length || 1))} allocated`}`,
      parts: share === null ? null : [share / cards.length, given / cards.length],
    },
    {
      name: "Cards",
      value: cards.length.toLocaleString("en"),
      about: off ? `${off} for no new pods` : picture.is_machine ? "" : `on ${counted(all.length, "node")}`,
    },
    { name: picture.is_machine ? "Slices" : "Containers", value: containers.toLocaleString("en"), about: "" },
  ];
  if (!picture.is_machine) {
    found.push({ name: "Waiting pods", value: String(picture.waiting.length), about: "", warns: picture.waiting.length > 0 });
  }
  return found;
}

/** A figure of the whole cluster. */
class Total {
  constructor() {
    this.name = make("dt");
    this.value = make("dd", { class: "value" });
    this.about = make("dd", { class: "about" });
    this.element = make("div", {}, this.name, this.value, this.about);
  }

  update(each) {
    write(this.name, each.name);
    write(this.value, each.value);
    write(this.about, each.about);
    this.value.classList.toggle("warning", Boolean(each.warns));
    if (each.parts && !this.bar) {
      this.bar = new Bar(each.style);
      this.element.append(make("dd", { "aria-hidden": "true" }, this.bar.element));
    }
    this.bar?.update(...(each.parts ?? [0, 0]));
  }
}

function note() {
  const element = make("li");
  return { element, update: (text) => write(element, text) };
}

/** A table of a section: hidden while it is empty, and short until a person asks for all of it. */
function rowsOf(id, keyOf, cells, classes) {
  const section = $(id);
  const rows = new Keyed(section.querySelector("tbody"), keyOf, plainRow(cells, classes));
  const more = section.appendChild(make("button", { type: "button", class: "more" }));
  let isLong = false;
  let items = [];
  const draw = () => {
    section.hidden = items.length === 0;
    rows.show(isLong ? items : items.slice(0, SHORT));
    more.hidden = items.length <= SHORT;
    more.setAttribute("aria-expanded", String(isLong));
    write(more, isLong ? "Show less" : `Show all ${items.length}`);
  };
  more.addEventListener("click", () => {
    isLong = !isLong;
    draw();
  });
  return (shown) => {
    items = shown;
    draw();
  };
}

function limited(value, limit, tell) {
  return limit === null ? tell(value) : `${tell(value)} / ${tell(limit)}`;
}

/** The age is not spoken by a screen reader, because it changes each second. */
function say(text, age = "") {
  write($("status"), text);
  write($("age"), age);
}

function pulse(state) {
  $("pulse").className = state;
}

function signIn(error) {
  generation++;
  tag = null;
  histories = new Map();
  nodes.show([], false, []);
  const tried = sessionStorage.getItem(TOKEN);
  $("view").hidden = true;
  $("sign-in").hidden = false;
  $("sign-out").hidden = true;
  pulse("");
  say("");
  write($("refusal"), tried && error ? error.message : "");
  write($("title"), "hami");
  write($("user"), "");
  sessionStorage.removeItem(TOKEN);
  $("token").focus();
}

$("sign-in").querySelector("form").addEventListener("submit", (event) => {
  event.preventDefault();
  sessionStorage.setItem(TOKEN, $("token").value.trim());
  sessionStorage.setItem(NAMESPACE, $("namespace").value.trim());
  $("token").value = "";
  refresh();
});
$("sign-out").addEventListener("click", () => {
  sessionStorage.clear();
  location.reload();
});
document.addEventListener("visibilitychange", () => document.hidden || refresh());

// `hami view --local` prints an address with its token behind the #, which browsers do not send.
const given = new URLSearchParams(location.hash.slice(1)).get("token");
if (given) {
  sessionStorage.setItem(TOKEN, given);
  history.replaceState(null, "", location.pathname);
}
refresh();
