// How numbers, times and identities are written.

const whole = new Intl.NumberFormat("en", { maximumFractionDigits: 0 });
const compact = new Intl.NumberFormat("en", { notation: "compact", maximumFractionDigits: 1 });

// count writes a number of things.
export const count = (n) => (n < 100_000 ? whole.format(n) : compact.format(n));

// rate writes a number per second, with as many digits as mean something.
export function rate(n) {
  if (n === null || !Number.isFinite(n)) return "–";
  if (n >= 1000) return compact.format(n);
  return n.toFixed(n >= 100 ? 0 : 1);
}

// share writes a part of one.
export const share = (x) => (Number.isFinite(x) ? `${Math.round(x * 100)} %` : "–");

// span writes milliseconds with a unit.
export function span(ms) {
  if (ms < 1000) return `${Math.round(ms)} ms`;
  if (ms < 10_000) return `${(ms / 1000).toFixed(1)} s`;
  if (ms < 120_000) return `${Math.round(ms / 1000)} s`;
  if (ms < 7_200_000) return `${Math.round(ms / 60_000)} min`;
  if (ms < 172_800_000) return `${Math.round(ms / 3_600_000)} h`;
  return `${Math.round(ms / 86_400_000)} d`;
}

// wait writes what a caller was told of a retry.
export function wait(ms) {
  if (ms < 0) return "never";
  return ms === 0 ? "–" : span(ms);
}

// clock writes an instant of today, by this computer's zone.
export const clock = (iso) => new Date(iso).toLocaleTimeString("en-GB");

// short is enough of a hash to tell it from others.
export const short = (id) => (/^[0-9a-f]{32}$/.test(id) ? `${id.slice(0, 8)}…` : id);

// label is the name of an identity, or the beginning of its hash.
export const label = (x) => x.name || short(x.id);

// dimensions in words.
const words = {
  global: "fleet", client: "client address", api_key: "API key", user: "user", team: "team",
  model: "model", backend: "upstream", descriptor: "descriptor",
};
export const dimension = (d) => words[d] ?? d;

// reasons say shortly why a request was not served; README.md has the long form.
const reasons = {
  requests: "too many requests", tokens: "token budget used up", inflight: "too many at once",
  exceeds_burst: "larger than the limit ever allows", blocked: "the limit is zero",
  provider_paused: "provider pauses", provider_quota: "provider's quota", provider_stopped: "provider stopped the account",
  queue_full: "queue full", tenant_queue_full: "tenant's queue full", tenant_table_full: "too many tenants wait",
  wait_exceeds_budget: "wait would be too long", deadline_exceeded: "waited too long",
  client_gone: "caller left", draining: "replica is leaving", limiter_unavailable: "store is out",
  overloaded: "replica is full", canceled: "caller left", capacity_exceeded: "agents are busy", queue_timeout: "waited too long for an agent",
};
export const reason = (r) => reasons[r] ?? r.replaceAll("_", " ");
