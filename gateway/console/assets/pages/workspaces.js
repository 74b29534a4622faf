// Workspaces and what their owners and managers may set.
import { $, h, text, set, keyed, hear } from "../dom.js";
import { call } from "../session.js";

// again is how often what is shown is read anew while the page is open.
const again = 5000;
const field = "inference_queueing_enabled";
const held = new Map(); // what is known of each workspace by id: {doc, busy, note, bad}
let timer, denied = () => {}, failed = false;

export function start(onDenied) { denied = onDenied; }

// open begins to follow the workspaces, close ends it.
export function open() {
  close();
  read();
  timer = setInterval(read, again);
}

export function close() { clearInterval(timer); }

// forget is for when somebody else signs in.
export function forget() {
  held.clear();
  failed = false;
  draw();
}

async function read() {
  if (document.hidden) return;
  let answer;
  try { answer = await call("/api/workspaces"); } catch { answer = { status: 0 }; }
  if (answer.status === 401) return denied(401);
  failed = !answer.ok && answer.status !== 404;
  if (answer.ok || answer.status === 404) {
    const list = answer.body?.data ?? [];
    const there = new Set(list.map((d) => d.id));
    for (const id of held.keys()) if (!there.has(id)) held.delete(id);
    for (const doc of list) {
      const w = held.get(doc.id);
      if (!w) held.set(doc.id, { doc });
      else if (!w.busy) w.doc = doc;
    }
  }
  draw();
}

// flip sets the switch: at once for the eye, and back if it is not to be.
async function flip(id) {
  const w = held.get(id);
  if (!w || w.busy) return;
  const wanted = w.doc[field] === false;
  const before = w.doc;
  Object.assign(w, { busy: true, doc: { ...w.doc, [field]: wanted }, note: "Saving…", bad: false });
  draw();
  const answer = await save(id, wanted, before).catch(() => ({ status: 0 }));
  w.busy = false;
  if (answer.ok) {
    Object.assign(w, { doc: answer.body, note: "Saved. In force on all replicas within a second." });
  } else {
    Object.assign(w, { doc: answer.now ?? before, bad: true, note: excuse(answer) });
    if (answer.status === 401) denied(401);
  }
  draw();
  hear(`${w.doc.name}: ${w.note}`);
}

// save changes what was shown, and nothing else: lists have no tags, so the
// document is read for its own. Of one that is another by now it returns that
// with status 412, as the replica does if it changes only after that.
async function save(id, wanted, shown) {
  const path = `/api/workspaces/${encodeURIComponent(id)}`;
  const now = await call(path);
  if (!now.ok) return now;
  if (now.body.version !== shown.version) return { status: 412, now: now.body };
  const answer = await call(path, { method: "PATCH", body: { [field]: wanted }, extra: { "If-Match": now.etag } });
  if (answer.status !== 412) return answer;
  return { status: 412, now: (await call(path)).body };
}

function excuse({ status, body }) {
  switch (status) {
    case 0: return "Not saved: the replica cannot be reached.";
    case 403: return "Not saved: only an owner or manager may change this.";
    case 412: return "Not saved: somebody else changed this workspace meanwhile. This is how it is now.";
    case 503: return "Not saved: the store cannot be reached. Requests wait meanwhile.";
  }
  return `Not saved: ${body?.error?.message ?? `the replica answered ${status}`}`;
}

function draw() {
  const list = [...held].map(([id, w]) => ({ id, ...w })).sort((a, b) => a.id.localeCompare(b.id));
  const empty = $("workspaces-empty");
  empty.hidden = list.length > 0;
  text(empty, failed ? "The workspaces cannot be read right now. They are asked for again every few seconds." :
    "There is no workspace here that you have a role in. Workspaces are declared in the configuration.");
  keyed($("workspace-cards"), list, (w) => w.id, make, update);
}

function make({ id }) {
  const label = h("h3", { id: `ws-${id}-label` }, "Queue when the agent is busy");
  const about = h("p", { class: "hint", id: `ws-${id}-about` });
  const toggle = h("button", { type: "button", class: "switch", role: "switch", "aria-labelledby": label.id, "aria-describedby": about.id });
  toggle.addEventListener("click", () => flip(id));
  return h("div", { class: "card workspace", "data-id": id },
    h("div", { class: "title" }, h("h2"), h("span", { class: "badge" })), h("p", { class: "hint" }),
    h("div", { class: "setting" }, h("div", {}, label, about), h("div", { class: "state" }, toggle, h("span", { class: "badge" }))),
    h("p", { class: "note" }));
}

function update(card, w) {
  const [title, id, setting, note] = card.children;
  const on = w.doc[field] !== false, may = w.doc.role === "owner" || w.doc.role === "manager";
  text(title.firstChild, w.doc.name);
  text(title.lastChild, w.doc.role);
  text(id, w.doc.name === w.id ? "" : w.id);
  text(setting.firstChild.lastChild, on ?
    "While all agents are busy, requests wait for a slot, up to the queue timeout." :
    "While all agents are busy, requests are refused at once with 429, so that callers can fall back.");
  const [toggle, readonly] = setting.lastChild.children;
  toggle.hidden = !may;
  set(toggle, { "aria-checked": String(on), "aria-busy": w.busy ? "true" : null });
  readonly.hidden = may;
  set(readonly, { class: `badge ${on ? "good" : "warn"}` });
  text(readonly, on ? "On" : "Off");
  set(note, { class: w.bad ? "note bad" : "note" });
  text(note, w.note ?? (may ? "" : "Only an owner or manager may change this."));
}
