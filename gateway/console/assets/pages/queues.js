// Who waits for what, and where they stand.
import { $, h, text, keyed, row } from "../dom.js";
import { Chart } from "../chart.js";
import { count, label, span, short, dimension } from "../format.js";
import { tiles } from "./overview.js";

const scopes = {
  replica: "turns are shared within each replica", gossip: "turns are shared over the fleet as gossip tells",
  exact: "turns are shared over the whole fleet by the store",
};

let chart;

// total is how many wait in the whole fleet, as far as known.
export const total = (q) => q.lines.reduce((n, l) => n + l.waiting_elsewhere, q.waiting);

export function show(live, { decisions }) {
  const q = live.queues;
  const waiting = total(q);
  text($("queues-hint"), q.enabled ? scopes[q.scope] ?? "" : "");
  tiles($("queue-tiles"), [
    { name: "Waiting here", value: count(q.waiting), note: `room for ${count(q.max_waiting)}` },
    { name: "In the fleet", value: count(waiting), note: "as far as known" },
    { name: "Asking now", value: count(q.asking), note: `at most ${count(q.max_asking)}` },
    { name: "Lines", value: count(q.lines.length), note: "one for each limit that is used up" },
  ]);
  chart ??= new Chart($("chart-waiting"), "Requests in line", count);
  chart.show(Date.parse(live.overview.at), [
    { key: "here", name: "This replica", color: "var(--s1)", points: decisions.gauges("waiting") },
    { key: "fleet", name: "Fleet", color: "var(--s4)", points: decisions.gauges("waiting in the fleet") },
  ]);
  const empty = $("lines-empty");
  empty.hidden = q.lines.length > 0;
  text(empty, q.enabled ? "Nobody waits. A line appears when a request limit is used up." :
    "The wait line is off (rate_limiting.fair_queuing.enabled), so nobody waits: what exceeds a limit is refused.");
  keyed($("lines"), q.lines, (l) => `${l.dimension} ${l.id}`, make, update);
}

function make(l) {
  const title = `${dimension(l.dimension)} ${label(l)}`;
  const head = [["Place", "place"], ["Tenant", ""], ["Weight", "num wide"], ["Waiting", "num"], ["First waits", "num"]];
  const card = h("div", { class: "card" }, h("h2", {}, title), h("p", { class: "pairs" }),
    h("table", {}, h("caption", { class: "hear" }, `Tenants that wait for ${title}, by the place of their first request`),
      h("thead", {}, h("tr", {}, ...head.map(([t, c]) => h("th", { scope: "col", class: c || false }, t)))), h("tbody")),
    h("p", { class: "empty" }, "Nobody waits here any more."));
  card.pairs_ = {};
  return card;
}

function update(card, l) {
  const [, pairs, table, empty] = card.children;
  keyed(pairs, [
    ["waiting here", count(l.waiting)], ["elsewhere", count(l.waiting_elsewhere)],
    ["between grants here", l.spacing_ms ? span(l.spacing_ms) : "–"], ["until the limit refills", span(l.rests_ms)],
  ], (p) => p[0], (p) => h("span", {}, h("b"), ` ${p[0]}`), (e, p) => text(e.firstChild, p[1]));
  table.hidden = l.tenants.length === 0;
  empty.hidden = l.tenants.length > 0;
  const order = [...l.tenants].sort((a, b) => a.position - b.position || label(a).localeCompare(label(b)));
  keyed(table.lastChild, order, (t) => t.id,
    () => row([["place", { class: "place" }], ["name", {}, "th"], ["weight", { class: "num wide" }], ["waiting", { class: "num" }], ["waited", { class: "num" }]]),
    ({ cells_: c }, t) => {
      text(c.place, `${t.position}.`);
      text(c.name, t.name || short(t.id));
      text(c.weight, t.weight);
      text(c.waiting, count(t.waiting));
      text(c.waited, span(t.waited_ms));
    });
}
