// The console: who is signed in, which page is shown, and what arrives.
import { $, text, set, hear } from "./dom.js";
import { History } from "./history.js";
import { listen } from "./sse.js";
import { credential, headers, call } from "./session.js";
import { count, clock } from "./format.js";
import * as overview from "./pages/overview.js";
import * as tenants from "./pages/tenants.js";
import * as queues from "./pages/queues.js";
import * as agents from "./pages/agents.js";
import * as workspaces from "./pages/workspaces.js";
import * as refusals from "./pages/refusals.js";

const pages = { overview, tenants, queues, agents, workspaces, refusals };
const histories = { decisions: new History(), tenants: new History() };
let session = null, page = null, live = null, stream = null, retry = () => {}, wasLost = false, leaving = false, first = true;

// Signing in.

async function begin() {
  const value = credential.get();
  let answer;
  try { answer = await call("/api/session", { as: value }); } catch { return later("The replica cannot be reached."); }
  if (!answer.ok) {
    if (answer.status === 401 || answer.status === 403) return ask(value || answer.status === 403 ? said(answer) : "");
    return later(`The replica answered ${answer.status}.`);
  }
  $("banner").hidden = true;
  session = answer.body;
  text($("where"), session.replica);
  const operator = session.kind === "operator";
  text($("who"), operator ? "Operator" : `Key ${session.key}`);
  text($("sign"), operator && !session.token_needed ? "Use an API key" : "Sign out");
  $("sign").hidden = false;
  for (const a of document.querySelectorAll("#nav [data-kind=operator]")) a.parentNode.hidden = !operator;
  $("nav").hidden = false;
  stream?.abort();
  stream = null;
  workspaces.forget();
  if (operator) follow();
  else link("live", "Reads every 5 seconds");
  route();
}

// later begins again after a while.
function later(why) {
  const timer = setTimeout(begin, 5000);
  lost(5000, why, () => { clearTimeout(timer); begin(); });
}

// said is what an answer says is wrong.
const said = (answer) => answer.body?.error?.message ?? "That is not valid.";

// ask shows the sign-in page.
function ask(wrong, cancel = false) {
  stream?.abort();
  stream = null;
  workspaces.close();
  if (!cancel) {
    session = null;
    $("nav").hidden = true;
    $("sign").hidden = true;
    text($("who"), "");
    link("idle", "Signed out");
  }
  $("signin-cancel").hidden = !cancel;
  text($("signin-error"), wrong);
  set($("credential"), { "aria-invalid": wrong ? "true" : null });
  open("signin");
  $("credential").focus();
}

$("signin-form").addEventListener("submit", async (event) => {
  event.preventDefault();
  const value = $("credential").value.trim();
  const answer = await call("/api/session", { as: value }).catch(() => null);
  if (!answer?.ok) return ask(answer ? said(answer) : "The replica cannot be reached.", !$("signin-cancel").hidden);
  credential.set(value);
  live = null; // it may be more than who signs in may see
  $("credential").value = "";
  if (answer.body.kind === "key") location.hash = "#/workspaces";
  page = null;
  await begin();
});

$("signin-cancel").addEventListener("click", () => { page = null; begin(); });

$("sign").addEventListener("click", () => {
  if (session?.kind === "operator" && !session.token_needed) return ask("", true);
  credential.forget();
  live = null;
  page = null;
  begin();
});

// Pages.

function route() {
  if (!session) return;
  let name = location.hash.slice(2); // "#/name": no element has that id, so nothing scrolls
  if (!pages[name]) name = "overview";
  if (session.kind !== "operator") name = "workspaces";
  const moved = page !== null && page !== name;
  open(name);
  if (moved) $(`${name}-title`).focus();
}

function open(name) {
  page = name;
  for (const section of document.querySelectorAll(".page")) section.hidden = section.id !== name;
  for (const a of document.querySelectorAll("#nav a")) set(a, { "aria-current": a.hash === `#/${name}` ? "page" : null });
  document.title = `${$(`${name}-title`).textContent} – Headway`;
  if (name === "workspaces") workspaces.open();
  else workspaces.close();
  draw();
}

addEventListener("hashchange", route);
document.querySelector(".skip").addEventListener("click", (event) => {
  event.preventDefault(); // the address names the page
  $("main").focus();
});
document.addEventListener("visibilitychange", () => {
  if (document.hidden) return;
  retry();
  draw();
});

// What arrives.

function follow() {
  stream = new AbortController();
  first = true;
  retry = listen("/api/events", { headers: () => headers(), signal: stream.signal }, {
    live: connected, lost, event: take,
    denied: () => begin(),
  });
}

function connected() {
  first = true;
  leaving = false;
  $("banner").hidden = true;
  link("live", "Live");
  if (wasLost) hear("Connected again");
  wasLost = false;
}

function lost(wait, why, again = () => retry()) {
  if (leaving) why = "This replica is shutting down.";
  link("lost", `Trying again in ${Math.ceil(wait / 1000)} s`);
  text($("banner-title"), "Not connected.");
  text($("banner-text"), live ? `${why} What you see is of ${clock(live.overview.at)}.` : why);
  $("banner").hidden = false;
  $("banner-retry").onclick = again;
  wasLost = true;
}

function link(state, words) {
  set($("link"), { "data-state": state });
  text($("link-text"), words);
}

function take(name, data) {
  if (name === "draining") {
    leaving = true;
    hear("This replica is shutting down");
    return;
  }
  if (name !== "state") return;
  live = JSON.parse(data);
  const at = Date.parse(live.overview.at);
  const { decisions } = live.overview;
  histories.decisions.add(at, { ...decisions, waiting: live.overview.waiting, "waiting in the fleet": queues.total(live.queues) }, Object.keys(decisions));
  const values = {};
  for (const t of live.tenants.list) {
    values[`e ${t.id}`] = t.entitled;
    values[`r ${t.id}`] = t.received;
  }
  histories.tenants.add(at, values);
  refusals.take(live.refusals, first);
  first = false;
  draw();
}

function draw() {
  if (!live) return;
  set($("main"), { "aria-busy": null });
  text($("where"), live.overview.replica);
  text($("nav-queues"), live.queues.waiting ? count(live.queues.waiting) : "");
  if (page && page !== "workspaces" && page !== "signin" && !document.hidden) pages[page].show(live, histories);
}

tenants.start();
workspaces.start(() => begin());
begin();
