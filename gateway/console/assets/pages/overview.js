// The replica as a whole, and the fleet that it sees.
import { $, h, text, set, vars, keyed, row } from "../dom.js";
import { Chart } from "../chart.js";
import { count, rate, span } from "../format.js";

let chart;

// tiles fills a list of terms with a value and a note each.
export function tiles(list, all) {
  keyed(list, all, (t) => t.name,
    (t) => h("div", {}, h("dt", {}, t.name), h("dd", { class: "value" }), h("dd", { class: "note" })),
    (div, t) => {
      set(div, { class: t.state ?? "" });
      text(div.children[1], t.value);
      text(div.children[2], t.note);
    });
}

export function show(live, { decisions }) {
  const o = live.overview;
  badges(o);
  const counters = ["admitted", "refused", "unavailable", "overloaded"];
  const turned = rate(counters.slice(1).reduce((sum, c) => sum + (decisions.rate(c) ?? 0), 0));
  tiles($("tiles"), [
    { name: "Fleet", value: count(o.fleet.members), note: fleetNote(o), state: o.fleet.fresh ? "" : "warn" },
    { name: "Store", value: o.store.usable ? "Up" : "Out", note: o.store.usable ? o.store.mode : o.store.state, state: o.store.usable ? "" : "bad" },
    { name: "Running", value: count(o.running), note: `${count(o.serving)} served or waiting` },
    { name: "Waiting", value: count(o.waiting), note: `room for ${count(o.max_waiting)}` },
    { name: "Admitted", value: rate(decisions.rate("admitted")), note: "per second" },
    { name: "Refused", value: turned, note: "per second" },
  ]);
  chart ??= new Chart($("chart-decisions"), "Requests per second");
  chart.show(Date.parse(o.at), [
    { key: "admitted", name: "Admitted", color: "var(--s1)", points: decisions.rates("admitted") },
    { key: "refused", name: "Refused", color: "var(--s2)", points: decisions.rates("refused") },
  ]);
  members(o);
  providers(o);
}

function fleetNote(o) {
  if (o.fleet.members === 1) return "no other replica";
  return o.fleet.fresh ? `news ${span(o.fleet.age_ms)} old` : "not all heard of";
}

// badges name what is wrong, or that nothing is.
function badges(o) {
  const all = o.reasons.map((r) => ({ word: r, kind: o.ready ? "warn" : "bad" }));
  if (!all.length) all.push({ word: "ready", kind: "good" });
  keyed($("health"), all, (b) => b.word, (b) => h("span", { class: `badge ${b.kind}` }, b.word), () => {});
}

function members(o) {
  const drifted = new Set(o.fleet.replicas.map((m) => m.config)).size > 1;
  keyed($("members"), o.fleet.replicas, (m) => m.name,
    () => row([["name", {}, "th"], ["running", { class: "num" }], ["waiting", { class: "num" }], ["build", { class: "wide" }], ["config", {}]]),
    ({ cells_: c }, m) => {
      text(c.name, m.name + (m.self ? " (this one)" : ""));
      set(c.name, { title: m.name });
      text(c.running, count(m.in_flight));
      text(c.waiting, count(m.waiting));
      text(c.build, m.build || "–");
      set(c.build, { title: m.build });
      text(c.config, m.config + (drifted && m.config !== o.config ? " differs" : ""));
    });
}

function providers(o) {
  $("providers-empty").hidden = o.providers.length > 0;
  keyed($("providers"), o.providers, (p) => `${p.upstream} ${p.model}`,
    (p) => h("div", { class: "provider" }, h("div", {}, h("h3", {}, p.upstream), h("p", { class: "hint" }), h("span", { class: "badge" })), h("div")),
    (div, p) => {
      const badge = div.firstChild.lastChild;
      const kind = { open: "good", paused: "warn", overloaded: "warn", stopped: "bad" }[p.state];
      set(badge, { class: `badge ${kind}` });
      text(badge, p.state + (p.until_ms ? `, ${span(p.until_ms)}` : ""));
      text(div.firstChild.children[1], [p.model, p.waiting && `${count(p.waiting)} wait`, p.batch && `${count(p.batch)} batch`].filter(Boolean).join(" · "));
      keyed(div.lastChild, p.quotas, (q) => `${q.unit} ${q.window_ms}`,
        () => h("div", { class: "quota" }, h("span"), h("div", { class: "bar", "aria-hidden": "true" }, h("i"), h("b")), h("span")),
        (line, q) => {
          text(line.children[0], q.unit + (q.window_ms ? ` per ${span(q.window_ms)}` : ""));
          vars(line.children[1].children[0], { "--v": Math.min(1, q.left / q.limit) });
          vars(line.children[1].children[1], { "--at": Math.min(0.995, q.reserve / q.limit) });
          text(line.children[2], `${count(q.left)} of ${count(q.limit)} left`);
        });
    });
}
