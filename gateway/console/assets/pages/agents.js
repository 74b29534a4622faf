// Backends with slots: who is busy, and who waits for them.
import { $, h, text, set, keyed } from "../dom.js";
import { count } from "../format.js";

// drawn is how many slots are drawn one by one; of more, each stands for several.
const drawn = 40;

export function show(live) {
  const list = live.agents.list;
  $("agents-empty").hidden = list.length > 0;
  keyed($("agent-cards"), list, (a) => a.name,
    (a) => h("div", { class: "card agent" }, h("div", { class: "title" }, h("h2", {}, a.name), h("span", { class: "badge" })),
      h("p", { class: "hint" }), h("div", { class: "slots", role: "img" }), h("p", { class: "pairs" })),
    (card, a) => {
      const [title, hint, slots, pairs] = card.children;
      set(title.lastChild, { class: `badge ${a.healthy ? "good" : "bad"}` });
      text(title.lastChild, a.healthy ? "healthy" : "failing");
      text(hint, [...(a.models ?? []), ...(a.tags ?? []).map((t) => `#${t}`)].join(" · ") || "any model");
      const fleet = Math.min(Math.max(a.held_fleet, a.held_here), a.slots);
      set(slots, { "aria-label": `${fleet} of ${a.slots} slots taken, ${a.held_here} by this replica` });
      const n = Math.min(a.slots, drawn), scale = n / a.slots;
      keyed(slots, [...Array(n).keys()], (i) => i, () => h("i"), (e, i) => {
        set(e, { class: i < a.held_here * scale ? "here" : i < fleet * scale ? "there" : false });
      });
      keyed(pairs, [["of " + a.slots + " taken", count(fleet)], ["by this replica", count(a.held_here)], ["waiting here", count(a.waiting)]],
        (p) => p[0], (p) => h("span", {}, h("b"), ` ${p[0]}`), (e, p) => text(e.firstChild, p[1]));
    });
}
