// What somebody meets who finds an agent in a marketplace: the manifest of a workspace,
// and the agent itself on its direct path, where nobody waits. The SDK is unmodified.
import assert from 'node:assert/strict';
import { after, before, test } from 'node:test';
import OpenAI from 'openai';
import { agent, gate, patience, provide, serve } from './replica.mjs';

const ask = { messages: [{ role: 'user', content: 'Hello' }], max_tokens: 16 };
const answer = { id: 'c', object: 'chat.completion', choices: [{ index: 0, message: { role: 'assistant', content: 'Hello.' }, finish_reason: 'stop' }] };

let replica, provider;
const slot = gate();

before(async () => {
  provider = await provide((req, res, text) => {
    res.setHeader('Content-Type', 'application/json');
    if (JSON.parse(text).model === 'hold') slot.pass(res);
    else res.end(JSON.stringify(answer));
  });
  // Who waits here waits until the test ends: only what does not wait can be seen.
  replica = await serve(`
server: {listen: "127.0.0.1:0", admin_listen: "127.0.0.1:0"}
redis: {timeout: 2s} # on a busy machine
keys:
  - {id: olga, key: sk-owner, user: olga, workspaces: [{id: acme, role: owner}]}
  - {id: mark, key: sk-member, user: mark, workspaces: [{id: acme, role: member}]}
  - {id: sam, key: sk-stranger, user: sam}
workspaces: [{id: acme, name: Acme}]
upstreams: [{name: agent, url: "${provider.url}", slots: 1, models: [hold, quick]}]
routes: [{path: /v1/*, upstream: agent}]
queueing: {queue_timeout: 1h}
`);
});

after(async () => {
  slot.open();
  await replica?.end();
  provider?.end();
});

const openai = (path, apiKey = 'sk-member') => new OpenAI({ baseURL: replica.url + path, apiKey, maxRetries: 0, timeout: patience });
const idle = () => agent(replica, 'agent', { held_here: 0, waiting: 0 });

// occupy takes the agent's only slot, and returns when it is taken.
async function occupy() {
  await idle();
  return slot.take(() => openai('/v1').chat.completions.create({ ...ask, model: 'hold' }));
}

// request asks the gateway without an SDK.
function request(path, { key, ...options } = {}) {
  const headers = { ...options.headers, ...(key && { Authorization: `Bearer ${key}` }) };
  return fetch(replica.url + path, { ...options, headers, signal: AbortSignal.timeout(patience) });
}

const patch = (key, change, headers = {}) => request('/api/workspaces/acme', {
  method: 'PATCH', key, body: JSON.stringify(change), headers: { 'Content-Type': 'application/merge-patch+json', ...headers },
});

// refused holds the error of a saturated agent against what callers branch on.
function refused(err) {
  assert.ok(err instanceof OpenAI.RateLimitError, `got ${err}`);
  assert.equal(err.code, 'capacity_exceeded');
  const after = err.headers.get('retry-after');
  assert.match(after, /^[1-9][0-9]*$/);
  assert.equal(err.error.retry_after, Number(after));
  assert.equal(err.error.retry_strategy.type, 'exponential_backoff');
  return true;
}

test('a direct path never waits, although the workspace does', { timeout: 2 * patience }, async () => {
  const busy = await occupy();
  const patient = { answered: openai('/v1').chat.completions.create({ ...ask, model: 'quick' }) };
  await agent(replica, 'agent', { waiting: 1 });
  for (const stream of [false, true]) {
    await assert.rejects(openai('/direct/agent/v1').chat.completions.create({ ...ask, model: 'quick', stream }), refused);
  }
  await agent(replica, 'agent', { held_here: 1, waiting: 1 });
  slot.open();
  await busy.answered;
  assert.equal((await patient.answered).choices[0].message.content, 'Hello.');
  await idle();
  const served = await openai('/direct/agent/v1').chat.completions.create({ ...ask, model: 'quick' });
  assert.equal(served.choices[0].message.content, 'Hello.');
});

test('the SDK tries again by itself until the agent is free', { timeout: 2 * patience }, async () => {
  const busy = await occupy();
  const statuses = [];
  const watch = async (url, init) => {
    const response = await fetch(url, init);
    statuses.push(response.status);
    slot.open(); // after the first answer
    await busy.answered;
    await idle();
    return response;
  };
  const client = new OpenAI({ baseURL: `${replica.url}/direct/agent/v1`, apiKey: 'sk-member', fetch: watch });
  const served = await client.chat.completions.create({ ...ask, model: 'quick' });
  assert.equal(served.choices[0].message.content, 'Hello.');
  assert.deepEqual(statuses, [429, 200]);
});

test('a workspace that sheds refuses on every path', { timeout: 2 * patience }, async () => {
  assert.equal((await patch('sk-owner', { inference_queueing_enabled: false })).status, 200);
  const busy = await occupy();
  for (const path of ['/v1', '/workspaces/acme/v1', '/direct/agent/v1']) {
    await assert.rejects(openai(path).chat.completions.create({ ...ask, model: 'quick' }), refused);
  }
  slot.open();
  await busy.answered;
});

test('the manifest is open when the workspace publishes it', { timeout: 2 * patience }, async () => {
  const path = '/workspaces/acme/manifest';
  const error = async (response) => [response.status, (await response.json()).error.code];
  assert.deepEqual(await error(await request(path)), [401, 'invalid_api_key']);
  assert.deepEqual(await error(await request(path, { key: 'sk-nobody' })), [401, 'invalid_api_key']);
  assert.deepEqual(await error(await request(path, { key: 'sk-stranger' })), [404, 'workspace_not_found']);
  const closed = await request(path, { key: 'sk-member' });
  assert.equal(closed.status, 200);
  assert.match(closed.headers.get('cache-control'), /private/);

  assert.equal((await patch('sk-member', { published: true })).status, 403);
  assert.equal((await request(path)).status, 401, 'a member has published it');
  const document = await request('/api/workspaces/acme', { key: 'sk-owner' });
  const tag = document.headers.get('etag');
  assert.equal((await patch('sk-owner', { published: true }, { 'If-Match': tag })).status, 200);
  assert.equal((await patch('sk-owner', { published: false }, { 'If-Match': tag })).status, 412, 'the tag is of what was before');

  const open = await request(path);
  assert.equal(open.status, 200);
  assert.ok(open.headers.get('etag'));
  const manifest = await open.json();
  assert.equal(manifest.name, 'Acme');
  const again = await request(path, { headers: { 'If-None-Match': open.headers.get('etag') } });
  assert.equal(again.status, 304);

  // It leads a program to the agent.
  assert.deepEqual(manifest.agents.map((a) => [a.name, a.models]), [['agent', ['hold', 'quick']]]);
  await idle();
  const served = await openai(manifest.agents[0].base_url, 'sk-stranger').chat.completions.create({ ...ask, model: 'quick' });
  assert.equal(served.choices[0].message.content, 'Hello.');
  assert.equal((await patch('sk-owner', { published: false })).status, 200);
  assert.equal((await request(path)).status, 401);
});
