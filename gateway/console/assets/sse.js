// Server-sent events over fetch: unlike EventSource, it can send Authorization.

// parser returns a function that takes text in pieces of any size and calls
// onEvent(name, data) for each event in it, as the HTML standard describes (less
// ids and retry times, which the API does not send).
export function parser(onEvent) {
  let rest = "", name = "", data = [];
  const line = (l) => {
    if (l === "") {
      if (data.length) onEvent(name || "message", data.join("\n"));
      name = "";
      data = [];
      return;
    }
    const colon = l.indexOf(":");
    if (colon === 0) return; // a comment
    const field = colon < 0 ? l : l.slice(0, colon);
    let value = colon < 0 ? "" : l.slice(colon + 1);
    if (value.startsWith(" ")) value = value.slice(1);
    if (field === "event") name = value;
    if (field === "data") data.push(value);
  };
  return (piece) => {
    rest += piece;
    // A CR at the very end may be half of a CR LF.
    for (let m; (m = /\r\n|\n|\r(?!$)/.exec(rest)); ) {
      line(rest.slice(0, m.index));
      rest = rest.slice(m.index + m[0].length);
    }
  };
}

// backoff is how long to wait before try number n from 1, in milliseconds: doubled
// each time up to 15 s, and spread, so that many consoles do not come back at once.
export function backoff(n, random = Math.random) {
  const most = Math.min(15_000, 1000 * 2 ** (n - 1));
  return most * (0.75 + random() / 4);
}

// Silence is how long a stream that sends each second may be silent, in
// milliseconds, before it is taken for dead.
const silence = 6000;

// listen keeps a connection to url until signal aborts. It calls on.event(name, data),
// on.live() at the first event of a connection, on.lost(wait, why) when there is
// none for a while, and on.denied(status) where trying again is of no use.
// The function that it returns has it try at once.
export function listen(url, { headers, signal }, on) {
  let wake = () => {};
  (async () => {
    for (let tries = 0; !signal.aborted; ) {
      let why = "The connection ended.", heard = false;
      try {
        const status = await read(url, headers(), signal, (name, data) => {
          if (!heard) on.live();
          heard = true;
          tries = 0;
          on.event(name, data);
        });
        if (status === 401 || status === 403) return on.denied(status);
        if (status === 503) why = "The replica takes no listeners right now.";
        else if (status !== 200) why = `The replica answered ${status}.`;
      } catch (error) {
        if (signal.aborted) return;
        why = error.name === "TimeoutError" ? "Nothing was heard for a while." : "The replica cannot be reached.";
      }
      if (signal.aborted) return;
      const wait = backoff(++tries);
      on.lost(wait, why);
      await new Promise((resolve) => {
        const timer = setTimeout(resolve, wait);
        wake = () => { clearTimeout(timer); resolve(); };
        signal.addEventListener("abort", wake, { once: true });
      });
    }
  })();
  return () => wake();
}

// read reads one response to its end and returns its status.
async function read(url, headers, signal, onEvent) {
  const quiet = new AbortController();
  let timer = setTimeout(() => quiet.abort(new DOMException("silence", "TimeoutError")), silence);
  try {
    const response = await fetch(url, { headers, cache: "no-store", signal: AbortSignal.any([signal, quiet.signal]) });
    if (!response.ok) return response.status;
    const feed = parser(onEvent);
    const decode = new TextDecoder();
    for (const reader = response.body.getReader(); ; ) {
      const { done, value } = await reader.read();
      if (done) return response.status;
      clearTimeout(timer);
      timer = setTimeout(() => quiet.abort(new DOMException("silence", "TimeoutError")), silence);
      feed(decode.decode(value, { stream: true }));
    }
  } finally {
    clearTimeout(timer);
  }
}
