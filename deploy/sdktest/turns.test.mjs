// The official SDKs for Node, unmodified, against one replica in front of a provider
// that this file plays: errors in the shape of each API, streams that wait and streams
// that break. `make sdk-test` builds the program and runs it.
import assert from 'node:assert/strict';
import { spawn } from 'node:child_process';
import { mkdtemp, rm, writeFile } from 'node:fs/promises';
import { createServer } from 'node:http';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { createInterface } from 'node:readline';
import { after, before, test } from 'node:test';
import Anthropic from '@anthropic-ai/sdk';
import OpenAI from 'openai';

const sse = (data, event) => `${event ? `event: ${event}\n` : ''}data: ${JSON.stringify(data)}\n\n`;
const chunk = (delta, finish_reason = null) => sse({ id: 'c', object: 'chat.completion.chunk', choices: [{ index: 0, delta, finish_reason }] });

// The provider's agent has one slot. hold keeps it until release is called.
let release = () => {};
let held = () => {};
const script = {
  hold: (res) => {
    held();
    release = () => res.end(JSON.stringify({ choices: [] }));
  },
  tool: (res, body) => {
    if (body.messages.some((m) => m.role === 'tool')) {
      res.end(chunk({ content: 'It is x.' }) + chunk({}, 'stop') + 'data: [DONE]\n\n');
      return;
    }
    const call = { index: 0, id: 'c1', type: 'function', function: { name: 'search', arguments: '{}' } };
    res.end(chunk({ role: 'assistant', content: 'Let me look. ' }) + chunk({ tool_calls: [call] }) + chunk({}, 'tool_calls') + 'data: [DONE]\n\n');
  },
  broken: (res) => {
    const message = { id: 'm', type: 'message', role: 'assistant', model: 'broken', content: [], stop_reason: null, usage: { input_tokens: 1, output_tokens: 1 } };
    res.write(sse({ type: 'message_start', message }, 'message_start'), () => res.destroy());
  },
};

let replica, provider, baseURL, dir, whenCalled = () => {};

before(async () => {
  provider = createServer((req, res) => {
    let text = '';
    req.on('data', (part) => { text += part; });
    req.on('end', async () => {
      if (req.url === '/search') {
        await whenCalled();
        res.end('found');
        return;
      }
      const body = JSON.parse(text);
      res.setHeader('Content-Type', body.stream ? 'text/event-stream' : 'application/json');
      script[body.model](res, body);
    });
  });
  await new Promise((done) => provider.listen(0, '127.0.0.1', done));
  const url = `http://127.0.0.1:${provider.address().port}`;
  dir = await mkdtemp(join(tmpdir(), 'headway-sdk-'));
  const file = join(dir, 'headway.yaml');
  await writeFile(file, `
server: {listen: "127.0.0.1:0", admin_listen: "127.0.0.1:0"}
redis: {timeout: 2s} # on a busy machine
keys: [{id: a, key: sk-a, user: ann}, {id: b, key: sk-b, user: bob}]
upstreams: [{name: agent, url: "${url}", slots: 1, models: [hold, tool, broken]}]
routes: [{path: /v1/*, upstream: agent}]
queueing: {queue_timeout: 1s, keep_alive: 200ms}
rate_limiting: {per_user: {overrides: {bob: {requests: {limit: 1, per: 1h}}}}}
turns: [{name: look, path: /v1/turns/look, steps: [{name: reply, model: tool, tools: [search]}]}]
tools: [{name: search, url: "${url}/search"}]
`);
  replica = spawn('../../bin/headway', ['serve', '--config', file], { stdio: ['ignore', 'ignore', 'pipe'] });
  for await (const line of createInterface({ input: replica.stderr })) {
    const entry = JSON.parse(line);
    if (entry.msg === 'replica started') {
      baseURL = entry.listen;
      break;
    }
  }
  replica.stderr.resume();
  assert.ok(baseURL, 'the replica ended before it was ready');
});

after(async () => {
  release();
  const ended = new Promise((done) => replica.on('exit', done));
  replica.kill('SIGTERM');
  await ended;
  provider.closeAllConnections();
  provider.close();
  await rm(dir, { recursive: true });
});

const openai = (path = '/v1', apiKey = 'sk-a') => new OpenAI({ baseURL: baseURL + path, apiKey, maxRetries: 0 });
const anthropic = (apiKey = 'sk-a') => new Anthropic({ baseURL, apiKey, maxRetries: 0 });
const ask = { model: 'tool', messages: [{ role: 'user', content: 'What is it?' }], max_tokens: 16 };

// occupy takes the agent's only slot, and returns when it is taken.
async function occupy() {
  const there = new Promise((done) => { held = done; });
  const answer = openai().chat.completions.create({ ...ask, model: 'hold' });
  await there;
  return { answer }; // a promise alone would be waited for
}

test('a turn with a tool is one stream', async () => {
  let text = '';
  for await (const part of await openai('/v1/turns/look').chat.completions.create({ ...ask, stream: true })) {
    assert.equal(part.choices[0].delta.tool_calls, undefined);
    text += part.choices[0].delta.content ?? '';
  }
  assert.equal(text, 'Let me look. It is x.');
});

test('a turn whose stream waits is kept alive, and told when it waited too long', async () => {
  let busy;
  whenCalled = async () => { busy = await occupy(); };
  let raw = '';
  const client = new OpenAI({
    baseURL: `${baseURL}/v1/turns/look`, apiKey: 'sk-a', maxRetries: 0,
    fetch: async (url, init) => {
      const response = await fetch(url, init);
      const seen = response.body.pipeThrough(new TransformStream({
        transform(part, out) { raw += new TextDecoder().decode(part); out.enqueue(part); },
      }));
      return new Response(seen, { status: response.status, headers: response.headers });
    },
  });
  let text = '';
  await assert.rejects(async () => {
    for await (const part of await client.chat.completions.create({ ...ask, stream: true })) {
      text += part.choices[0]?.delta?.content ?? '';
    }
  }, (err) => {
    assert.ok(err instanceof OpenAI.APIError, `got ${err}`);
    assert.equal(err.code, 'queue_timeout');
    return true;
  });
  whenCalled = () => {};
  assert.equal(text, 'Let me look. ');
  assert.match(raw, /(: waiting\n){2,}/);
  release();
  await busy.answer;
});

test('a stream that waits for its first step in vain is an error with a status', async () => {
  const busy = await occupy();
  for (const path of ['/v1', '/v1/turns/look']) {
    await assert.rejects(openai(path).chat.completions.create({ ...ask, stream: true }), (err) => {
      assert.ok(err instanceof OpenAI.InternalServerError, `got ${err}`);
      assert.equal(err.status, 503);
      assert.equal(err.code, 'queue_timeout');
      return true;
    });
  }
  await assert.rejects(anthropic().messages.create({ ...ask, stream: true }), (err) => {
    assert.equal(err.status, 503);
    assert.equal(err.error.error.type, 'overloaded_error');
    return true;
  });
  release();
  await busy.answer;
});

test('errors in the shape of Anthropic', async () => {
  await assert.rejects(anthropic('sk-nobody').messages.create(ask), (err) => {
    assert.ok(err instanceof Anthropic.AuthenticationError, `got ${err}`);
    assert.equal(err.error.error.type, 'authentication_error');
    return true;
  });
  await assert.rejects(anthropic().messages.create({ ...ask, model: 'none' }), Anthropic.NotFoundError);
  await openai('/v1', 'sk-b').models.list();
  await assert.rejects(anthropic('sk-b').messages.create(ask), (err) => {
    assert.ok(err instanceof Anthropic.RateLimitError, `got ${err}`);
    assert.equal(err.error.error.type, 'rate_limit_error');
    assert.ok(Number(err.headers.get('retry-after')) > 0);
    return true;
  });
});

test('a stream of Anthropic that breaks is an error', async () => {
  await assert.rejects(async () => {
    for await (const event of await anthropic().messages.create({ ...ask, model: 'broken', stream: true })) {
      assert.equal(event.type, 'message_start');
    }
  }, (err) => {
    assert.ok(err instanceof Anthropic.APIError, `got ${err}`);
    assert.match(err.message, /upstream_broke/);
    return true;
  });
});

test('the list of models', async () => {
  const list = await openai().models.list();
  assert.deepEqual(list.data.map((m) => m.id), ['broken', 'hold', 'tool']);
  assert.equal((await openai().models.retrieve('tool')).object, 'model');
});
