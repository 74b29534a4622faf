// What was seen in the last minutes, for charts and for rates.

// History keeps samples of named counters or gauges for span milliseconds.
export class History {
  constructor(span = 120_000) {
    this.span = span;
    this.samples = []; // {at, values}, oldest first
  }

  // add keeps a sample. An instant not after the last one, or a counter that
  // falls (the replica was started again), begins anew.
  add(at, values, counters = []) {
    const last = this.samples.at(-1);
    if (last && (at <= last.at || counters.some((c) => (values[c] ?? 0) < (last.values[c] ?? 0)))) this.samples = [];
    this.samples.push({ at, values });
    // One more than the span is kept, so that the oldest point has a rate.
    while (this.samples.length > 2 && this.samples[1].at < at - this.span) this.samples.shift();
  }

  // rate is the growth of a counter per second over about the last window
  // milliseconds, null if it is not known. Counters that are given back a little
  // never have a negative one.
  rate(name, window = 3000) {
    return this.rateAt(this.samples.length - 1, name, window);
  }

  rateAt(i, name, window) {
    const now = this.samples[i];
    let j = i - 1;
    while (j > 0 && now.at - this.samples[j].at < window - 100) j--;
    if (j < 0) return null;
    const before = this.samples[j];
    // Who was not there before has begun at zero.
    const grown = (now.values[name] ?? 0) - (before.values[name] ?? 0);
    return Math.max(0, grown / ((now.at - before.at) / 1000));
  }

  // rates is the course of rate: [{at, value}], oldest first.
  rates(name, window = 3000) {
    const all = [];
    for (let i = 1; i < this.samples.length; i++) all.push({ at: this.samples[i].at, value: this.rateAt(i, name, window) });
    return all;
  }

  // gauges is the course of a gauge.
  gauges(name) {
    return this.samples.map(({ at, values }) => ({ at, value: values[name] ?? 0 }));
  }
}

// ceiling is the least number not below x whose quarters are round: 1, 2, 4, 6 or 8
// times a power of ten.
export function ceiling(x) {
  if (!(x > 0)) return 1;
  const power = 10 ** Math.floor(Math.log10(x));
  for (const step of [1, 2, 4, 6, 8, 10]) if (step * power >= x * (1 - 1e-9)) return step * power;
  return 10 * power;
}

// stand is what a course was, for those who do not see it: its last, least, mean
// and greatest value.
export function stand(points) {
  const values = points.map((p) => p.value).filter((v) => v !== null);
  if (!values.length) return null;
  return {
    now: values.at(-1), least: Math.min(...values), most: Math.max(...values),
    mean: values.reduce((a, b) => a + b, 0) / values.length,
  };
}
