// The official SDKs for Node, unmodified, against one replica in front of a provider
// that this file plays: errors in the shape of each API, streams that wait and streams
// that break. `make sdk-test` builds the program and runs it.
import assert from 'node:assert/strict';
import { after, before, test } from 'node:test';
import Anthropic from '@anthropic-ai/sdk';
import OpenAI from 'openai';
import { agent, gate, provide, serve } from './replica.mjs';

const sse = (data, event) => `${event ? `event: ${event}\n` : ''}data: ${JSON.stringify(data)}\n\n`;
const chunk = (delta, finish_reason = null) => sse({ id: 'c', object: 'chat.completion.chunk', choices: [{ index: 0, delta, finish_reason }] });

// The provider's agent has one slot, which the model hold keeps until it is opened.
const slot = gate();
const script = {
  hold: (res) => slot.pass(res),
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

let replica, provider, baseURL, whenCalled = () => {};

before(async () => {
  provider = await provide(async (req, res, text) => {
    if (req.url === '/search') {
      await whenCalled();
      res.end('found');
      return;
    }
    const body = JSON.parse(text);
    res.setHeader('Content-Type', body.stream ? 'text/event-stream' : 'application/json');
    script[body.model](res, body);
  });
  replica = await serve(`
server: {listen: "127.0.0.1:0", admin_listen: "127.0.0.1:0"}
redis: {timeout: 2s} # on a busy machine
keys:
  - {id: a, key: sk-a, user: ann}
  - {id: b, key: sk-b, user: bob}
  - {id: c, key: sk-c, user: cleo, workspaces: [{id: quick, role: owner}]}
workspaces: [{id: quick, inference_queueing_enabled: false}]
upstreams: [{name: agent, url: "${provider.url}", slots: 1, models: [hold, tool, broken]}]
routes: [{path: /v1/*, upstream: agent}]
queueing: {queue_timeout: 1s, keep_alive: 200ms}
rate_limiting: {per_user: {overrides: {bob: {requests: {limit: 1, per: 1h}}}}}
turns: [{name: look, path: /v1/turns/look, steps: [{name: reply, model: tool, tools: [search]}]}]
tools: [{name: search, url: "${provider.url}/search"}]
`);
  baseURL = replica.url;
});

after(async () => {
  slot.open();
  await replica?.end();
  provider?.end();
});

const openai = (path = '/v1', apiKey = 'sk-a') => new OpenAI({ baseURL: baseURL + path, apiKey, maxRetries: 0 });
const anthropic = (apiKey = 'sk-a') => new Anthropic({ baseURL, apiKey, maxRetries: 0 });
const ask = { model: 'tool', messages: [{ role: 'user', content: 'What is it?' }], max_tokens: 16 };

// occupy takes the agent's only slot, and returns when it is taken.
const occupy = () => slot.take(() => openai().chat.completions.create({ ...ask, model: 'hold' }));

test('a turn with a tool is one stream', async () => {
  let text = '';
  for await (const part of await openai('/v1/turns/look').chat.completions.create({ ...ask, stream: true })) {
    assert.equal(part.choices[0].delta.tool_calls, undefined);
    text += part.choices[0].delta.content ?? '';
  }
  assert.equal(text, 'Let me look. It is x.');
});

// waits lets a turn find the agent taken after its tool was called, when its stream
// has begun. It returns the text, the bytes and the error that the SDK made of them.
async function waits(path, apiKey) {
  await agent(replica, 'agent', { held_here: 0 });
  let busy;
  whenCalled = async () => { busy = await occupy(); };
  let raw = '';
  const client = new OpenAI({
    baseURL: baseURL + path, apiKey, maxRetries: 0,
    fetch: async (url, init) => {
      const response = await fetch(url, init);
      const seen = response.body.pipeThrough(new TransformStream({
        transform(part, out) { raw += new TextDecoder().decode(part); out.enqueue(part); },
      }));
      return new Response(seen, { status: response.status, headers: response.headers });
    },
  });
  let text = '', error;
  try {
    for await (const part of await client.chat.completions.create({ ...ask, stream: true })) {
      text += part.choices[0]?.delta?.content ?? '';
    }
  } catch (err) {
    error = err;
  }
  whenCalled = () => {};
  slot.open();
  await busy?.answered;
  assert.ok(error instanceof OpenAI.APIError, `got ${error} after ${raw}`);
  assert.equal(text, 'Let me look. ');
  return { raw, error };
}

test('a turn whose stream waits is kept alive, and told when it waited too long', async () => {
  const { raw, error } = await waits('/v1/turns/look', 'sk-a');
  assert.equal(error.code, 'queue_timeout');
  assert.match(raw, /(: waiting\n){2,}/);
  assert.match(raw, /event: error\ndata: .*\n\n$/, 'something came after the error');
});

test('a turn that has begun waits although its workspace does not', async () => {
  const busy = await occupy();
  const refused = await openai('/v1', 'sk-c').chat.completions.create(ask).catch((err) => err);
  slot.open();
  await busy.answered;
  assert.equal(refused.code, 'capacity_exceeded', 'the workspace does wait');
  const { raw, error } = await waits('/v1/turns/look', 'sk-c');
  assert.equal(error.code, 'queue_timeout');
  assert.match(raw, /: waiting\n/);
});

test('a turn that has begun on a direct path does not wait', async () => {
  const { raw, error } = await waits('/direct/agent/v1/turns/look', 'sk-a');
  assert.equal(error.code, 'capacity_exceeded');
  assert.doesNotMatch(raw, /: waiting/);
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
  slot.open();
  await busy.answered;
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
