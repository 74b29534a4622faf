// What the tests that bring their own replica share.
import { spawn } from 'node:child_process';
import { mkdtemp, rm, writeFile } from 'node:fs/promises';
import { createServer } from 'node:http';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { createInterface } from 'node:readline';
import { fileURLToPath } from 'node:url';

// patience bounds whatever is waited for, in milliseconds.
export const patience = 60_000;

const program = fileURLToPath(new URL('../../bin/headway', import.meta.url));

// serve starts a replica with a configuration, and returns its addresses when it is
// ready: url of the gateway, admin and console. end waits until it has ended.
export async function serve(yaml) {
  const dir = await mkdtemp(join(tmpdir(), 'headway-sdk-'));
  const file = join(dir, 'headway.yaml');
  await writeFile(file, yaml);
  const replica = spawn(program, ['serve', '--config', file], { stdio: ['ignore', 'ignore', 'pipe'] });
  const ended = new Promise((done) => replica.on('exit', done));
  const late = setTimeout(() => replica.kill('SIGKILL'), patience);
  let log = '', ready;
  for await (const line of createInterface({ input: replica.stderr })) {
    log += `${line}\n`;
    const entry = line.startsWith('{') ? JSON.parse(line) : {};
    if (entry.msg === 'replica started') {
      ready = entry;
      break;
    }
  }
  clearTimeout(late);
  replica.stderr.resume(); // what it says from now on is not kept
  const end = async () => {
    replica.kill('SIGTERM');
    await ended;
    await rm(dir, { recursive: true });
  };
  if (!ready) {
    await end();
    throw new Error(`the replica ended before it was ready:\n${log}`);
  }
  return { url: ready.listen, admin: ready.admin, console: ready.console, end };
}

// provide plays a provider: answer gets each request with the text of its body.
export async function provide(answer) {
  const server = createServer((req, res) => {
    let text = '';
    req.on('data', (part) => { text += part; });
    req.on('end', () => answer(req, res, text));
  });
  await new Promise((done) => server.listen(0, '127.0.0.1', done));
  const end = () => {
    server.closeAllConnections();
    server.close();
  };
  return { url: `http://127.0.0.1:${server.address().port}`, end };
}

// gate is a slot of a provider that is taken for as long as a test wants: take sends a
// request, and returns when it has arrived; pass is what the provider does with it.
export function gate() {
  let arrived = () => {};
  let answer = () => {};
  return {
    pass(res) {
      answer = () => res.end(JSON.stringify({ choices: [] }));
      arrived();
    },
    async take(send) {
      const there = new Promise((done) => { arrived = done; });
      const answered = send();
      await there;
      return { answered }; // a promise alone would be waited for
    },
    open: () => answer(),
  };
}

// agent waits until an agent of a replica is in a state, as its admin listener tells
// it, in { held_here, waiting }. A slot comes free a little after its last byte was read.
export async function agent(replica, name, state) {
  const deadline = Date.now() + patience;
  for (;;) {
    const response = await fetch(`${replica.admin}/api/agents`, { signal: AbortSignal.timeout(patience) });
    const now = (await response.json()).list.find((a) => a.name === name);
    if (Object.entries(state).every(([field, value]) => now[field] === value)) return;
    if (Date.now() > deadline) throw new Error(`${name} is ${JSON.stringify(now)}, not ${JSON.stringify(state)}`);
  }
}
