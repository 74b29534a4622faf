// Who is entitled to what, and who gets what.
import { $, h, text, set, vars, keyed, row, busy, hear } from "../dom.js";
import { Chart } from "../chart.js";
import { count, rate, label, short, share, reason, dimension } from "../format.js";

const colors = ["--s1", "--s2", "--s3", "--s4", "--s5", "--s6"];
const taken = new Map(); // colors by tenant, for as long as the page is open
let chart, sort = { by: "name", down: false };

// shown is how long rates are averaged over: what gossip tells comes in lumps.
const shown = 10_000;

const value = {
  name: (t) => label(t).toLowerCase(), weight: (t) => t.weight, entitled: (t) => t.perSecond.entitled ?? 0,
  received: (t) => t.perSecond.received ?? 0, waiting: (t) => t.waiting + t.waiting_elsewhere, refused: (t) => t.refused,
};

export function start() {
  for (const th of document.querySelectorAll("#tenants-table [data-sort]")) {
    th.firstElementChild.addEventListener("click", () => {
      const by = th.dataset.sort;
      sort = { by, down: sort.by === by ? !sort.down : by !== "name" };
      headings();
      arrange(true);
      hear(`Sorted by ${th.textContent.trim()}, ${sort.down ? "largest" : "smallest"} first`);
    });
  }
  headings();
}

function headings() {
  for (const th of document.querySelectorAll("#tenants-table [data-sort]")) {
    set(th, { "aria-sort": th.dataset.sort === sort.by ? (sort.down ? "descending" : "ascending") : null });
  }
}

// color gives the first tenants one each; later ones have none, for lines that
// cannot be told apart say nothing.
function color(t) {
  if (!taken.has(t.id) && taken.size < colors.length) taken.set(t.id, `var(${colors[taken.size]})`);
  return taken.get(t.id);
}

export function show(live, { tenants: history }) {
  const list = live.tenants.list;
  for (const t of list) {
    t.perSecond = { entitled: history.rate(`e ${t.id}`, shown), received: history.rate(`r ${t.id}`, shown) };
    t.color = color(t);
  }
  const { counted } = live.tenants;
  text($("tenants-count"), counted > list.length ? `the busiest ${list.length} of ${count(counted)}` : counted ? `${counted} known here` : "");
  chart ??= new Chart($("chart-tenants"), "Received per second");
  chart.show(Date.parse(live.overview.at), list.filter((t) => t.color).map((t) => (
    { key: t.id, name: label(t), color: t.color, points: history.rates(`r ${t.id}`, shown) }
  )).sort((a, b) => a.name.localeCompare(b.name)));
  $("tenants-empty").hidden = list.length > 0;
  current = list;
  arrange(false);
}

let current = [];

// arrange updates the rows. They change places when that was asked for, or while
// nobody is looking at one of them.
function arrange(asked) {
  const of = value[sort.by];
  const order = [...current].sort((a, b) => (of(a) < of(b) ? -1 : of(a) > of(b) ? 1 : label(a).localeCompare(label(b))) * (sort.down ? -1 : 1));
  const rows = $("tenants-rows");
  keyed(rows, order, (t) => t.id, make, update, asked || !busy(rows));
}

function make(t) {
  const tr = row([["name", {}, "th"], ["weight", { class: "num wide" }], ["entitled", { class: "num" }], ["received", { class: "num" }],
    ["bar", { class: "bars wide" }], ["waiting", { class: "num" }], ["refused", { class: "num wide" }], ["why", { class: "wide" }]]);
  const { name, bar } = tr.cells_;
  name.append(h("span", { class: "swatch", "aria-hidden": "true" }), h("span"), h("span", { class: "sub" }));
  bar.append(h("div", { class: "bar", role: "img" }, h("i"), h("b")));
  return tr;
}

function update({ cells_: c }, t) {
  vars(c.name.children[0], { "--c": t.color ?? "transparent" });
  text(c.name.children[1], label(t));
  text(c.name.children[2], t.name ? `${dimension(t.dimension)} ${short(t.id)}` : dimension(t.dimension));
  set(c.name, { title: t.id });
  text(c.weight, t.weight);
  text(c.entitled, rate(t.perSecond.entitled));
  text(c.received, rate(t.perSecond.received));
  // A bar of twice the entitlement, with a mark where it is met.
  const part = t.perSecond.entitled > 0.05 ? t.perSecond.received / t.perSecond.entitled : NaN;
  vars(c.bar.firstChild.firstChild, { "--v": Number.isFinite(part) ? Math.min(1, part / 2) : 0, "--c": t.color ?? "var(--s1)" });
  vars(c.bar.firstChild.lastChild, { "--at": 0.5 });
  set(c.bar.firstChild, { "aria-label": Number.isFinite(part) ? `${share(part)} of what it is entitled to` : "nothing asked for" });
  text(c.waiting, count(t.waiting + t.waiting_elsewhere));
  text(c.refused, count(t.refused));
  const [most] = Object.entries(t.refused_by).sort((a, b) => b[1] - a[1]);
  text(c.why, most ? reason(most[0]) : "–");
  set(c.why, { title: Object.entries(t.refused_by).map(([r, n]) => `${reason(r)}: ${n}`).join("\n") });
}
