// The last requests that were not served, and why.
import { $, h, text, set, keyed, row, busy } from "../dom.js";
import { clock, count, reason, short, wait, dimension } from "../format.js";

// kept is how many rows there are at most, as the replica keeps.
const kept = 200;
let rows = [];

// take adds the newest; a first snapshot has all of them.
export function take(refusals, first) {
  rows = first ? refusals.list : [...refusals.list, ...rows].slice(0, kept);
}

let shown = []; // rows as they stand on the page

// show puts the newest on top, unless somebody is reading: then they are held back,
// and counted.
export function show(live) {
  const table = $("refusal-rows");
  const newer = shown.length && busy(table) ? rows.findIndex((r) => r.number === shown[0].number) : 0;
  const last = rows.length ? `the last ${rows.length} of ${count(live.refusals.total)}` : "";
  text($("refusals-count"), newer ? `${newer < 0 ? "many" : newer} newer are held back while you read` : last);
  $("refusals-empty").hidden = rows.length > 0;
  if (newer) return;
  shown = rows;
  keyed(table, rows, (r) => `${r.number} ${r.at}`, make, () => {});
}

function make(r) {
  const tr = row([["at", {}], ["why", {}], ["limit", { class: "wide" }], ["who", {}], ["model", { class: "wide" }], ["retry", { class: "num" }]]);
  const c = tr.cells_;
  const why = r.reason || r.code;
  text(c.at, clock(r.at));
  c.why.append(reason(why), h("span", { class: "sub" }, `${r.status} ${why}`));
  text(c.limit, r.limit_type ? dimension(r.limit_type) : "–");
  c.who.append(r.tenant_name || short(r.tenant ?? "") || "–", h("span", { class: "sub" }, r.dimension ? dimension(r.dimension) : ""));
  set(c.who, { title: r.tenant || null });
  text(c.model, short(r.model ?? "") || "–");
  text(c.retry, wait(r.retry_after_ms));
  return tr;
}
