// The official OpenAI SDK for Node, unmodified, against a fleet. The same tests
// as in sdk_test.go. `make sdk-test` starts the fleet and runs them.
import assert from 'node:assert/strict';
import { test } from 'node:test';
import OpenAI from 'openai';

const hello = { model: 'sim', messages: [{ role: 'user', content: 'Hello' }], max_tokens: 16 };

// client makes an SDK client with the SDK's defaults but for options, and a
// list of the raw answers that it gets.
function client(apiKey, options = {}) {
  assert.ok(process.env.HEADWAY_URL, 'HEADWAY_URL is not set: run make sdk-test, which starts a fleet');
  const wire = [];
  const watch = async (url, init) => {
    const response = await fetch(url, init);
    wire.push({ status: response.status, text: response.clone().text() });
    return response;
  };
  const openai = new OpenAI({ baseURL: `${process.env.HEADWAY_URL}/v1`, apiKey, fetch: watch, ...options });
  return { openai, wire };
}

test('a completion', async () => {
  const { openai } = client('sk-local-small');
  const got = await openai.chat.completions.create(hello);
  assert.ok(got.choices[0].message.content);
  assert.ok(got.usage.total_tokens > 0);
});

test('a stream, read to its end', async () => {
  const { openai, wire } = client('sk-local-small');
  let chunks = 0;
  let text = '';
  for await (const chunk of await openai.chat.completions.create({ ...hello, stream: true })) {
    chunks++;
    text += chunk.choices[0]?.delta?.content ?? '';
  }
  assert.ok(chunks > 1, `got ${chunks} chunks`);
  assert.ok(text);
  assert.match((await wire[0].text).trim(), /data: \[DONE\]$/);
});

test('a refusal is the rate-limit error', async () => {
  const { openai } = client('sk-local-sdk-node-1', { maxRetries: 0 });
  await openai.chat.completions.create(hello);
  await assert.rejects(openai.chat.completions.create(hello), (err) => {
    assert.ok(err instanceof OpenAI.RateLimitError, `got ${err}`);
    assert.equal(err.type, 'rate_limit_error');
    assert.equal(err.code, 'rate_limited');
    assert.match(err.headers.get('retry-after'), /^[1-4]$/);
    return true;
  });
});

test('a refusal is retried and served', async () => {
  const { openai, wire } = client('sk-local-sdk-node-2');
  await openai.chat.completions.create(hello);
  const start = performance.now();
  await openai.chat.completions.create(hello);
  assert.deepEqual(wire.map((answer) => answer.status), [200, 429, 200]);
  assert.ok(performance.now() - start >= 1000, 'the retry came before its Retry-After');
});

test('an unknown key is the authentication error', async () => {
  const { openai } = client('sk-nobody');
  await assert.rejects(openai.chat.completions.create(hello), OpenAI.AuthenticationError);
});
