// Small parts of the page: elements, figures, bars and lines. All text becomes text nodes, never markup.

const SVG = "http://www.w3.org/2000/svg";
const GIB = 2 ** 30;

// Made once: `toLocaleString` with options costs as much as all else in an update of 1,600 cards.
const WHOLE = new Intl.NumberFormat("en", { maximumFractionDigits: 0 });
const TENTHS = new Intl.NumberFormat("en", { maximumFractionDigits: 1 });

/** An element. `attributes` may have `class`, `text` and any attribute; children may be strings. */
export function make(tag, attributes = {}, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (name === "text") element.textContent = value;
    else if (value !== null && value !== undefined) element.setAttribute(name, value);
  }
  element.append(...children);
  return element;
}

/** Sets a text, unless it is there already: a changed node costs layout, and a selection in it is lost. */
export function write(element, text) {
  if (element.textContent !== text) element.textContent = text;
}

/** Memory in GiB; `–` is unknown. */
export function gib(bytes) {
  if (bytes === null || bytes === undefined) return "–";
  const value = bytes / GIB;
  return value < 100 ? decimal(value) : WHOLE.format(value);
}

/** A number with at most one decimal. */
export function decimal(value) {
  return TENTHS.format(value);
}

/** A part of 1 as percent. */
export function percent(part) {
  return part === null || part === undefined ? "–" : `${Math.round(100 * part)} %`;
}

/** Seconds, such as `1.5 s` and `3 min`. */
export function seconds(value) {
  if (value === null || value === undefined) return "–";
  if (value < 10) return `${value.toFixed(1)} s`;
  if (value < 120) return `${Math.round(value)} s`;
  return value < 7200 ? `${Math.round(value / 60)} min` : `${Math.round(value / 3600)} h`;
}

/** How long ago a time in seconds since 1970 is, by the clock of the browser. */
export function ago(instant) {
  const age = Date.now() / 1000 - instant;
  return age < 2 ? "now" : `${seconds(age)} ago`;
}

/** Such as `1 node` and `2 nodes`. */
export function counted(number, what) {
  return `${number.toLocaleString("en")} ${what}${number === 1 ? "" : "s"}`;
}

/** The sum of a field; null if one of the values is unknown. */
export function sum(items, field) {
  let total = 0;
  for (const item of items) {
    if (item[field] === null || item[field] === undefined) return null;
    total += item[field];
  }
  return total;
}

/** Keeps one element for each item of a list, in the order of the items. */
export class Keyed {
  /** `create(item)` returns a part: an object with `element` and `update(item)`. */
  constructor(parent, keyOf, create) {
    Object.assign(this, { parent, keyOf, create, parts: new Map() });
  }

  show(items) {
    const seen = new Set();
    let next = this.parent.firstChild;
    for (const item of items) {
      const key = this.keyOf(item);
      seen.add(key);
      let part = this.parts.get(key);
      if (!part) this.parts.set(key, (part = this.create(item)));
      part.update(item);
      for (const element of part.elements ?? [part.element]) {
        // An element that stays where it is keeps the focus.
        if (element === next) next = next.nextSibling;
        else this.parent.insertBefore(element, next);
      }
    }
    for (const [key, part] of this.parts) {
      if (seen.has(key)) continue;
      for (const element of part.elements ?? [part.element]) element.remove();
      this.parts.delete(key);
    }
  }
}

/** A row of plain cells. `cells(item)` returns their texts; `classes` are those of the columns. */
export function plainRow(cells, classes = []) {
  return () => {
    const element = make("tr");
    let shown = [];
    return {
      element,
      update(item) {
        const texts = cells(item);
        if (!shown.length) {
          element.append(...texts.map((_, i) => make(i ? "td" : "th", rowCell(i, classes[i]))));
        }
        texts.forEach((text, i) => text === shown[i] || write(element.children[i], text));
        shown = texts;
      },
    };
  };
}

function rowCell(index, style) {
  return index ? { class: style } : { scope: "row", class: style };
}

/** A bar of a part of 1, with a second, paler one behind it. */
export class Bar {
  constructor(style) {
    this.element = make("i", { class: `bar-of ${style}` });
    this.isUpright = style.startsWith("upright");
  }

  update(front, behind = 0) {
    const sizes = [front, behind].map((part) => `${(100 * clamp(part)).toFixed(1)}%`);
    const value = sizes.map((size) => (this.isUpright ? `100% ${size}` : `${size} 100%`)).join();
    if (value === this.value) return;
    this.value = value;
    // Custom properties in the gradients would cost the browser ten times as much for each bar.
    this.element.style.backgroundSize = value;
  }
}

function clamp(part) {
  return Math.min(1, Math.max(0, part || 0));
}

/** The last hour as a line. A gap is time of which nothing is known. */
export class Line {
  constructor(style, what) {
    this.what = what;
    this.element = document.createElementNS(SVG, "svg");
    this.element.setAttribute("class", `line ${style}`);
    this.element.setAttribute("viewBox", "0 0 180 24");
    this.element.setAttribute("preserveAspectRatio", "none");
    this.element.setAttribute("role", "img");
    this.area = this.element.appendChild(document.createElementNS(SVG, "path"));
    this.path = this.element.appendChild(document.createElementNS(SVG, "path"));
    this.area.setAttribute("class", "area");
    this.path.setAttribute("class", "stroke");
  }

  /** `most` is the value at the top; `tell` writes a value as text. */
  update(values, most, tell) {
    const known = values.filter((value) => value !== null);
    const label = known.length
      ? `${this.what} in the last hour: ${tell(known.at(-1))} at last, at most ${tell(Math.max(...known))}`
      : `${this.what} in the last hour: unknown`;
    this.element.setAttribute("aria-label", label);
    const top = Math.max(most || 0, ...known) || 1;
    let stroke = "";
    let area = "";
    let start = null;
    const begin = 180 - values.length;
    values.forEach((value, i) => {
      const x = begin + i + 0.5;
      if (value !== null) {
        const at = `${x} ${(23 - (22 * value) / top).toFixed(1)}`;
        if (start === null) area += `M${x} 24`;
        stroke += `${start === null ? "M" : "L"}${at}`;
        area += `L${at}`;
        start ??= x;
      }
      if (start !== null && (value === null || i === values.length - 1)) {
        area += `L${value === null ? x - 1 : x} 24Z`;
        start = null;
      }
    });
    this.path.setAttribute("d", stroke);
    this.area.setAttribute("d", area);
  }
}
