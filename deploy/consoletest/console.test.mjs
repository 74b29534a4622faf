// The modules of the console that compute, without a page around them.
import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { test } from "node:test";

// load imports a module as it is embedded, whatever this version of Node makes of
// its name. Those that are tested here import nothing.
function load(name) {
  const text = readFileSync(new URL(`../../gateway/console/assets/${name}`, import.meta.url), "utf8");
  return import(`data:text/javascript,${encodeURIComponent(text)}`);
}

const { parser, backoff } = await load("sse.js");
const { History, ceiling, stand } = await load("history.js");
const format = await load("format.js");

test("events are the same however their bytes are cut", () => {
  const text = ": hello\n\nevent: state\r\ndata: {\"a\":1}\r\n\r\ndata:one\rdata: two\r\rdata\n\nevent: nothing\n\nid: 7\ndata: x\n\n";
  const want = [["state", '{"a":1}'], ["message", "one\ntwo"], ["message", ""], ["message", "x"]];
  for (let size = 1; size <= text.length; size++) {
    const got = [];
    const feed = parser((...event) => got.push(event));
    for (let i = 0; i < text.length; i += size) feed(text.slice(i, i + size));
    assert.deepEqual(got, want, `in pieces of ${size}`);
  }
});

test("tries become rarer, up to a bound, and are spread", () => {
  assert.equal(backoff(1, () => 1), 1000);
  assert.equal(backoff(3, () => 1), 4000);
  assert.equal(backoff(50, () => 1), 15000);
  assert.equal(backoff(50, () => 0), 11250);
});

test("rates are those of the window, and never negative", () => {
  const h = new History(10_000);
  assert.equal(h.rate("n"), null);
  for (let i = 0; i <= 20; i++) h.add(i * 1000, { n: 5 * i, g: i, late: i > 18 ? i - 18 : undefined });
  assert.equal(h.rate("n"), 5);
  assert.equal(h.rate("late", 1000), 1);
  assert.equal(h.rate("unknown"), 0);
  assert.ok(h.samples.length <= 12, `${h.samples.length} samples of 10 s`);
  assert.equal(h.gauges("g").at(-1).value, 20);
  h.add(21_000, { n: 98 });
  assert.equal(h.rate("n", 1000), 0);
});

test("a history begins anew where counters do, or time goes back", () => {
  const h = new History();
  h.add(1000, { n: 5 }, ["n"]);
  h.add(2000, { n: 1 }, ["n"]);
  assert.equal(h.samples.length, 1);
  h.add(1500, { n: 2 }, ["n"]);
  assert.equal(h.samples.length, 1);
});

test("scales have round quarters", () => {
  for (const [x, want] of [[0, 1], [0.3, 0.4], [1, 1], [1.01, 2], [17, 20], [25, 40], [61, 80], [99, 100], [850, 1000]]) {
    assert.ok(Math.abs(ceiling(x) - want) < 1e-9, `${x}: ${ceiling(x)}, want ${want}`);
  }
});

test("a course in words leaves out what is not known", () => {
  assert.equal(stand([{ value: null }]), null);
  assert.deepEqual(stand([{ value: null }, { value: 1 }, { value: 3 }]), { now: 3, least: 1, most: 3, mean: 2 });
});

test("numbers and times are short and have units", () => {
  assert.equal(format.rate(null), "–");
  assert.equal(format.rate(9.96), "10.0");
  assert.equal(format.rate(250.4), "250");
  assert.equal(format.span(999), "999 ms");
  assert.equal(format.span(1500), "1.5 s");
  assert.equal(format.span(3_600_000), "60 min");
  assert.equal(format.wait(-1), "never");
  assert.equal(format.wait(0), "–");
  assert.equal(format.short("0123456789abcdef0123456789abcdef"), "01234567…");
  assert.equal(format.short("gpt"), "gpt");
  assert.equal(format.reason("never_heard_of"), "never heard of");
});
