// A line chart of up to the last two minutes: about a hundred points a line, drawn
// anew each second. It begins with half a minute, so that what there is can be seen. People who do not see it have its numbers in a table.
import { h, s, set, text, keyed, vars } from "./dom.js";
import { ceiling, stand } from "./history.js";
import { rate } from "./format.js";

const left = 38, bottom = 20, top = 6;
const spans = [30_000, 60_000, 120_000]; // in milliseconds

export class Chart {
  // card is where it goes, below its heading; what says what its lines are, and
  // write how their values are written.
  constructor(card, what, write = rate) {
    this.span = spans[0];
    this.what = what;
    this.write = write;
    this.lines = [];
    this.most = 1;
    this.pointer = null;
    this.legend = h("ul", { class: "legend" });
    this.when = h("li", { class: "when", "aria-hidden": "true" });
    this.svg = s("svg", { role: "img", "aria-label": `${what}: no data yet` });
    this.grid = s("g");
    this.paths = s("g");
    this.cross = s("line", { class: "cross", visibility: "hidden" });
    this.svg.append(this.grid, this.paths, this.cross);
    this.body = h("tbody");
    const head = ["", "Now", "Least", "Mean", "Most"].map((t, i) => h(i ? "th" : "td", i ? { scope: "col", class: "num" } : {}, t));
    this.data = h("details", { class: "data" }, h("summary", {}, "As a table"),
      h("table", {}, h("caption", { class: "hear" }, `${what}, as far as the chart goes back`), h("thead", {}, h("tr", {}, ...head)), this.body));
    card.append(this.legend, this.svg, this.data);
    this.svg.addEventListener("pointermove", (e) => this.point(e.offsetX));
    this.svg.addEventListener("pointerleave", () => this.point(null));
    new ResizeObserver(() => this.draw()).observe(this.svg);
  }

  // show takes lines {key, name, color, points: [{at, value}]} that end at now.
  show(now, lines) {
    this.now = now;
    this.lines = lines;
    this.draw();
  }

  put(value) { return value === null || value === undefined ? "–" : this.write(value); }

  point(x) {
    this.pointer = x;
    this.draw();
  }

  x(at) { return left + (1 - (this.now - at) / this.span) * (this.width - left); }
  y(value) { return top + (1 - value / this.most) * (this.height - top - bottom); }

  draw() {
    this.width = this.svg.clientWidth;
    this.height = this.svg.clientHeight;
    if (!this.now || this.width < 2 * left) return; // on a page that is hidden
    const oldest = Math.min(...this.lines.flatMap((l) => l.points.slice(0, 1).map((p) => p.at)), this.now);
    this.span = spans.find((s) => this.now - oldest <= s) ?? spans.at(-1);
    const peak = Math.max(...this.lines.flatMap((l) => l.points.map((p) => p.value ?? 0)), 0);
    this.most = ceiling(peak * 1.02);
    this.drawGrid();
    keyed(this.paths, this.lines, (l) => l.key, () => s("path"), (path, l) => {
      set(path, { d: this.course(l.points) });
      vars(path, { stroke: l.color });
    });
    this.drawLegend();
    this.drawTable();
  }

  // course is the path of a line; where a value is not known it is interrupted.
  course(points) {
    let d = "", pen = "M";
    for (const p of points) {
      if (p.value === null || p.at < this.now - this.span) { pen = "M"; continue; }
      d += `${pen}${this.x(p.at).toFixed(1)},${this.y(p.value).toFixed(1)}`;
      pen = "L";
    }
    return d;
  }

  drawGrid() {
    const marks = [0, 0.25, 0.5, 0.75, 1].map((part) => ({ key: `y${part}`, value: part * this.most }));
    const times = [1, 2 / 3, 1 / 3, 0].map((part) => ({ key: `x${part}`, t: Math.round((part * this.span) / 1000) }));
    keyed(this.grid, [...marks, ...times], (m) => m.key, (m) => {
      const g = s("g");
      if (m.t === undefined) g.append(s("line", { class: "grid" }));
      g.append(s("text"));
      return g;
    }, (g, m) => {
      const label = g.lastChild;
      if (m.t === undefined) {
        const y = this.y(m.value);
        set(g.firstChild, { x1: left, x2: this.width, y1: y, y2: y });
        set(label, { x: left - 8, y: y + 4, "text-anchor": "end" });
        text(label, +m.value.toPrecision(3));
        return;
      }
      const end = m.t === 0 ? "end" : m.t === this.span / 1000 ? "start" : "middle";
      set(label, { x: this.x(this.now - m.t * 1000), y: this.height - 3, "text-anchor": end });
      text(label, !m.t ? "now" : m.t % 60 ? `${m.t} s` : `${m.t / 60} min`);
    });
  }

  // drawLegend names the lines with their values at the pointer, else now.
  drawLegend() {
    let at = this.now, shown = "";
    if (this.pointer !== null && this.pointer >= left) {
      at = this.now - (1 - (this.pointer - left) / (this.width - left)) * this.span;
      shown = `${Math.max(0, Math.round((this.now - at) / 1000))} s ago`;
      set(this.cross, { x1: this.pointer, x2: this.pointer, y1: top, y2: this.height - bottom, visibility: "visible" });
    } else {
      set(this.cross, { visibility: "hidden" });
    }
    keyed(this.legend, this.lines, (l) => l.key, (l) => {
      const li = h("li", {}, h("span", { class: "swatch", "aria-hidden": "true" }), h("span"), h("b"));
      return li;
    }, (li, l) => {
      vars(li.children[0], { "--c": l.color });
      text(li.children[1], `${l.name}\u00a0`);
      const near = l.points.findLast((p) => p.at <= at + 500) ?? l.points[0];
      text(li.children[2], this.put(near?.value));
    });
    if (!this.when.parentNode) this.legend.append(this.when);
    text(this.when, shown);
  }

  drawTable() {
    const said = [];
    keyed(this.body, this.lines, (l) => l.key, () => h("tr", {}, h("th", { scope: "row" }), ...[1, 2, 3, 4].map(() => h("td", { class: "num" }))), (tr, l) => {
      const st = stand(l.points);
      text(tr.children[0], l.name);
      [st?.now, st?.least, st?.mean, st?.most].forEach((v, i) => text(tr.children[i + 1], this.put(v)));
      if (st) said.push(`${l.name} ${this.put(st.now)}, between ${this.put(st.least)} and ${this.put(st.most)}`);
    });
    set(this.svg, { "aria-label": `${this.what}: ${said.join("; ") || "no data yet"}` });
  }
}
