// The table of nodes. A node that is open has a second row with its cards and the containers on them.

import { Bar, Keyed, Line, ago, gib, make, percent, seconds, sum, write } from "./parts.js";

const ORDERS = {
  name: (node) => node.name,
  memory: (node) => -(sum(node.cards, "memory_used") ?? sum(node.cards, "memory_allocated") ?? 0),
  share: (node) => -(sum(node.cards, "share_used") ?? 0),
  containers: (node) => -node.containers,
};

/** How the values of a column are written, by its unit. */
const UNITS = { text: String, bytes: gib, seconds, time: ago, part: percent, number: String };

export class Nodes {
  /** `opened()` is called when a node was opened, to fetch what it shows. */
  constructor(section, opened) {
    this.section = section;
    this.opened = opened;
    this.order = "name";
    this.nodes = [];
    this.filter = section.querySelector("#filter");
    this.nothing = section.querySelector("#no-nodes");
    this.body = section.querySelector("tbody");
    this.rows = new Keyed(this.body, (node) => node.name, () => new Node(this));
    this.filter.addEventListener("input", () => this.draw());
    this.body.addEventListener("keydown", (event) => this.pressed(event));
    this.body.addEventListener("focusin", (event) => this.reached(event.target));
    for (const head of section.querySelectorAll("th[data-sort]")) {
      head.querySelector("button").addEventListener("click", () => {
        this.order = head.dataset.sort;
        this.draw();
      });
    }
    document.addEventListener("keydown", (event) => {
      const typing = event.target.closest?.("input, textarea");
      if (event.key === "/" && !typing && !event.ctrlKey && !event.metaKey) {
        event.preventDefault();
        this.filter.focus();
      }
    });
  }

  /** The names of the open nodes that are there. */
  get open() {
    return [...this.rows.parts.values()].filter((row) => row.isOpen).map((row) => row.name);
  }

  /** `columns` are those of the table of containers. */
  show(nodes, isMachine, columns) {
    this.nodes = nodes;
    this.isMachine = isMachine;
    this.columns = columns;
    this.draw();
    // The only node needs no click.
    if (nodes.length === 1 && !this.wasOpened) {
      this.wasOpened = true;
      this.rows.parts.get(nodes[0].name)?.toggle();
    }
  }

  draw() {
    const text = this.filter.value.trim().toLowerCase();
    const key = ORDERS[this.order];
    const found = this.nodes.filter((node) => !text || node.name.toLowerCase().includes(text));
    found.sort((a, b) => (key(a) < key(b) ? -1 : key(a) > key(b) ? 1 : a.name < b.name ? -1 : 1));
    this.rows.show(found);
    this.nothing.hidden = found.length > 0;
    write(this.nothing, this.nodes.length ? "No node has such a name." : "There is no node with cards.");
    for (const head of this.section.querySelectorAll("th[data-sort]")) {
      const isChosen = head.dataset.sort === this.order;
      if (isChosen) head.setAttribute("aria-sort", this.order === "name" ? "ascending" : "descending");
      else head.removeAttribute("aria-sort");
    }
    // One row can be reached by Tab, and arrow keys move between rows.
    const buttons = this.buttons;
    if (buttons.length && !buttons.some((button) => button.tabIndex === 0)) buttons[0].tabIndex = 0;
  }

  /** What a node that is open shows. */
  detail(detail) {
    this.rows.parts.get(detail.name)?.detail(detail);
  }

  get buttons() {
    return [...this.body.querySelectorAll("tr.node button")];
  }

  reached(target) {
    if (!target.matches("tr.node button")) return;
    for (const button of this.buttons) button.tabIndex = button === target ? 0 : -1;
  }

  pressed(event) {
    const buttons = this.buttons;
    const at = buttons.indexOf(event.target);
    if (at < 0) return;
    const to = { ArrowDown: at + 1, ArrowUp: at - 1, Home: 0, End: buttons.length - 1 }[event.key];
    const isOpen = event.target.getAttribute("aria-expanded") === "true";
    if (to !== undefined) buttons[Math.min(Math.max(to, 0), buttons.length - 1)].focus();
    else if ((event.key === "ArrowRight" && !isOpen) || (event.key === "ArrowLeft" && isOpen)) event.target.click();
    else return;
    event.preventDefault();
  }
}

/** A node's row, and the row with its cards. */
class Node {
  constructor(table) {
    this.table = table;
    this.isOpen = false;
    this.button = make("button", { type: "button", "aria-expanded": "false", tabindex: "-1" });
    this.button.addEventListener("click", () => this.toggle());
    this.address = make("small");
    this.badge = make("span", { class: "badge" });
    this.memory = new Group("memory");
    this.share = new Group("time");
    this.count = make("td", { class: "number" });
    const row = make("tr", { class: "node" });
    row.append(make("th", { scope: "row" }, this.button, this.address, this.badge));
    row.append(make("td", {}, this.memory.element), make("td", {}, this.share.element), this.count);
    this.cell = make("td", { colspan: "4" });
    this.details = make("tr", { class: "details", hidden: "" }, this.cell);
    this.elements = [row, this.details];
  }

  update(node) {
    this.name = node.name;
    this.node = node;
    write(this.button, node.name);
    write(this.address, node.address);
    const why = node.blocked ?? node.silent ?? "";
    write(this.badge, node.blocked ? "no new pods" : node.silent ? "use unknown" : node.mode === "full" ? "" : node.mode);
    this.badge.title = why;
    this.badge.classList.toggle("warning", Boolean(why));
    const used = sum(node.cards, "memory_used");
    const allocated = sum(node.cards, "memory_allocated");
    const total = sum(node.cards, "memory");
    const shares = sum(node.cards, "share_used");
    const amounts = total ? `${gib(used)} / ${gib(allocated)} / ${gib(total)} GiB` : "–";
    this.memory.update(
      node.cards,
      (card) => [card.memory_used / card.memory, card.memory_allocated / card.memory],
      allocated === null && total ? `${gib(used)} / ${gib(total)} GiB` : amounts,
      (card) => `card ${card.index}: ${gib(card.memory_used)} of ${gib(card.memory)} GiB used`,
    );
    this.share.update(
      node.cards,
      (card) => [card.share_used, card.share_allocated],
      shares === null ? "–" : percent(shares / (node.cards.length || 1)),
      (card) => `card ${card.index}: ${percent(card.share_used)}`,
    );
    write(this.count, String(node.containers));
    if (this.isOpen) this.cards?.show(node.cards);
  }

  toggle() {
    this.isOpen = !this.isOpen;
    this.button.setAttribute("aria-expanded", String(this.isOpen));
    this.details.hidden = !this.isOpen;
    if (this.isOpen) {
      const why = this.node.blocked ?? this.node.silent;
      if (why) this.cell.append(make("p", { class: "why", text: why }));
      const list = make("ul", { class: "cards", "aria-label": `Cards of ${this.name}` });
      this.cards = new Keyed(list, (card) => card.uuid, () => new Card(this.table));
      this.cell.append(list);
      this.cards.show(this.node.cards);
      this.table.opened();
    } else {
      this.cards = null;
      this.cell.replaceChildren();
    }
  }

  detail(detail) {
    for (const [uuid, card] of this.cards?.parts ?? []) {
      card.detail(detail.containers.filter((each) => each.card === uuid), detail.history);
    }
  }
}

/** The bars of a node's cards, and their sum as text. */
class Group {
  constructor(style) {
    this.style = style;
    this.bars = make("span", { class: "bars", role: "img" });
    this.text = make("span", { class: "amount" });
    this.element = make("div", { class: "group" }, this.bars, this.text);
    this.parts = [];
  }

  update(cards, partsOf, text, tell) {
    while (this.parts.length > cards.length) this.parts.pop().element.remove();
    while (this.parts.length < cards.length) {
      this.parts.push(new Bar(`upright ${this.style}`));
      this.bars.append(this.parts.at(-1).element);
    }
    cards.forEach((card, i) => {
      this.parts[i].update(...partsOf(card));
      this.parts[i].element.classList.toggle("off", Boolean(card.state) && card.state !== "schedulable");
    });
    const label = cards.map(tell).join("; ");
    if (label !== this.label) this.bars.setAttribute("aria-label", (this.label = label));
    write(this.text, text);
  }
}

/** A card of a node that is open. */
class Card {
  constructor({ isMachine, columns }) {
    this.isMachine = isMachine;
    this.title = make("h3");
    this.about = make("small");
    this.badge = make("span", { class: "badge warning" });
    this.amount = make("span", { class: "amount" });
    this.shares = make("span", { class: "amount" });
    this.memory = new Bar("memory");
    this.share = new Bar("time");
    this.memoryLine = new Line("memory", "Memory");
    this.shareLine = new Line("time", "GPU time");
    this.body = make("tbody");
    const heads = columns.map((each) =>
      make("th", { scope: "col", text: each.text, title: each.help, class: styleOf(each) }),
    );
    this.table = make("table", {}, make("thead", {}, make("tr", {}, ...heads)), this.body);
    this.rows = new Keyed(
      this.body,
      (each) => `${each.namespace}/${each.pod}/${each.container}`,
      () => new Container(this, columns),
    );
    this.element = make(
      "li",
      {},
      make("div", { class: "card-head" }, this.title, this.about, this.badge),
      make(
        "div",
        { class: "card-figures" },
        make("div", {}, make("span", { text: "Memory" }), this.memory.element, this.amount, this.memoryLine.element),
        make("div", {}, make("span", { text: "GPU time" }), this.share.element, this.shares, this.shareLine.element),
      ),
      this.table,
    );
    this.table.hidden = true;
  }

  update(card) {
    this.card = card;
    write(this.title, card.index === null ? "Card" : `Card ${card.index}`);
    write(this.about, [card.model, card.uuid].filter(Boolean).join(" · "));
    write(this.badge, card.state && card.state !== "schedulable" ? card.state : "");
    this.memory.update(card.memory_used / card.memory, card.memory_allocated / card.memory);
    this.share.update(card.share_used, card.share_allocated);
    const known = card.memory_allocated !== null;
    const allocated = known ? `, ${gib(card.memory_allocated)} allocated` : "";
    const isKnown = card.memory_used !== null;
    const used = isKnown ? `${gib(card.memory_used)} of ${gib(card.memory)} GiB used` : `${gib(card.memory)} GiB, use unknown`;
    write(this.amount, card.memory ? `${used}${allocated}` : "–");
    const of = this.isMachine ? " by your slices" : "";
    const given = card.share_allocated === null ? "" : `, ${percent(card.share_allocated)} allocated`;
    write(this.shares, card.share_used === null && !given ? "–" : `${percent(card.share_used)} used${of}${given}`);
  }

  detail(containers, history) {
    const label = `${this.isMachine ? "Slices" : "Containers"} on ${this.title.textContent}`;
    this.table.setAttribute("aria-label", label);
    this.table.hidden = containers.length === 0;
    this.rows.show(containers);
    if (!history) return;
    const own = history.series.filter((each) => each.card === this.card.uuid);
    for (const each of own) {
      if (each.pod) {
        this.rows.parts.get(`${each.namespace}/${each.pod}/${each.container}`)?.history(each);
      } else {
        this.memoryLine.update(each.memory, this.card.memory, (value) => `${gib(value)} GiB`);
        this.shareLine.update(each.share, 1, percent);
      }
    }
  }
}

/** A container on a card. In a narrow window its cells stand below each other, with their heads. */
class Container {
  constructor(on, columns) {
    this.on = on;
    this.cells = columns.map((column) => (DRAWN[column.key] ?? plain)(column));
    this.element = make("tr");
    this.cells.forEach(({ children }, i) => {
      const { key, text } = columns[i];
      const attributes = key === "pod" ? { scope: "row" } : { class: styleOf(columns[i]), "data-head": text };
      this.element.append(make(key === "pod" ? "th" : "td", attributes, ...children));
    });
  }

  /** The memory that its bar and its line are a part of. */
  get most() {
    return this.each.memory_limit ?? this.on.card.memory;
  }

  update(each) {
    this.each = each;
    for (const cell of this.cells) cell.update?.(each, this.most);
  }

  history(series) {
    for (const cell of this.cells) cell.history?.(series, this.most);
  }
}

/** A cell with a value as text. */
function plain({ key, unit }) {
  const text = make("span");
  const update = ({ [key]: value }) => {
    write(text, value === null || value === "" ? "–" : UNITS[unit](value));
    text.classList.toggle("warning", key === "refusals" && value > 0);
  };
  return { children: [text], update };
}

/** A cell with a bar and a text; `read(each, most)` returns the two parts of the bar, and the text. */
function barred(style, read) {
  const [bar, amount] = [new Bar(style), make("span", { class: "amount" })];
  const update = (each, most) => {
    const [front, behind, text] = read(each, most);
    bar.update(front, behind);
    write(amount, text);
  };
  return { children: [make("div", { class: "group" }, bar.element, amount)], update };
}

/** The cells that have more than a value, by the key of their column. */
const DRAWN = {
  pod() {
    const [name, where] = [make("span"), make("small")];
    const update = (each) => {
      write(name, each.pod);
      write(where, [each.namespace, each.container, each.command].filter(Boolean).join(" · "));
      where.title = where.textContent;
    };
    return { children: [name, where], update };
  },
  memory_used: () =>
    barred("memory", ({ memory_used: used, memory_limit: limit }, most) => {
      const text = limit === null ? `${gib(used)} GiB, no limit` : `${gib(used)} / ${gib(limit)} GiB`;
      return [used / most, 0, text];
    }),
  share_used: () =>
    barred("time", ({ share_used: used, share_limit: limit }) => {
      const text = limit === null ? `${percent(used)}, no limit` : `${percent(used)} / ${percent(limit)}`;
      return [used, limit ?? 0, text];
    }),
  level() {
    const text = make("span");
    const update = (each) => {
      write(text, [each.level, each.time_level].map((level) => level ?? "–").join(" / "));
      text.title = each.enforcement ?? "";
    };
    return { children: [text], update };
  },
  history() {
    const [memory, share] = [new Line("memory", "Memory"), new Line("time", "GPU time")];
    const history = (series, most) => {
      memory.update(series.memory, most, (value) => `${gib(value)} GiB`);
      share.update(series.share, 1, percent);
    };
    return { children: [memory.element, share.element], history };
  },
};

/** The style of a column: numbers are aligned to the right, and drawn cells are wide. */
function styleOf({ key, unit }) {
  if (key === "history") return "lines";
  if (key === "memory_used" || key === "share_used") return "bar-and-text";
  return unit === "text" ? null : "number";
}
