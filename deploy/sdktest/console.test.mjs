// The console in a browser, as people use it, at two replicas under load that share a
// real Redis. Every page that a test opens is held to this: no error on its console,
// no broken policy, nothing asked for but of its replica. deploy/consoletest has what
// needs a closer look; this is what the program as it is built, started and signed in
// to has to do. HEADWAY_SHOTS=dir keeps the pictures.
import assert from 'node:assert/strict';
import { accessSync, constants } from 'node:fs';
import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { delimiter, join } from 'node:path';
import { after, before, test } from 'node:test';
import { chromium } from 'playwright-core';
import { patience, provide, serve } from './replica.mjs';

const token = 'token-of-the-operators';
const keys = { web: 'sk-web', nightly: 'sk-nightly', mobile: 'sk-mobile' };
const limits = { timeout: 4 * patience };

// config is that of a replica. Twice the requests that the limit lets pass are sent, so
// that some wait and some are refused; the agent has work all the time. Database 1 is
// not that of the fleet which serves other tests.
const config = (name, provider) => `
server: {listen: "127.0.0.1:0", admin_listen: "127.0.0.1:0", admin_token: ${token}, drain: {grace: 1s}}
redis: {mode: standalone, address: "${process.env.HEADWAY_REDIS}", database: 1, timeout: 2s}
fleet: {bind: "127.0.0.1:0", name: ${name}}
workspaces: [{id: acme, name: Acme research}, {id: beta, name: Beta}]
keys:
  - {id: web, key: ${keys.web}, user: web-app, workspaces: [{id: acme, role: owner}]}
  - {id: nightly, key: ${keys.nightly}, user: nightly-import, workspaces: [{id: acme, role: member}]}
  - {id: mobile, key: ${keys.mobile}, user: mobile-app}
upstreams:
  - {name: provider, url: "${provider}", models: [large]}
  - {name: gpu-1, url: "${provider}", models: [small], slots: 4}
routes: [{path: "/v1/*", upstreams: [provider, gpu-1]}]
rate_limiting:
  per_model: {overrides: {large: {requests: {limit: 10, per: 1s, burst: 3}}}}
  fair_queuing: {enabled: true, max_wait_ms: 1000, max_queue_depth_per_tenant: 4, weights: [{identity: web-app, weight: 3}]}
`;

let provider, replicas = [], browser, shots, stop = () => {};

before(async () => {
  assert.ok(process.env.HEADWAY_REDIS, 'HEADWAY_REDIS is not set: run make sdk-test, which starts one');
  shots = process.env.HEADWAY_SHOTS || await mkdtemp(join(tmpdir(), 'headway-shots-'));
  provider = await provide((req, res) => {
    res.setHeader('Content-Type', 'application/json');
    setTimeout(() => res.end(JSON.stringify({ choices: [], usage: { prompt_tokens: 4, completion_tokens: 8, total_tokens: 12 } })), 150);
  });
  for (const name of ['gateway-a', 'gateway-b']) replicas.push(await serve(config(name, provider.url)));
  browser = await chromium.launch({
    executablePath: installed('chromium'), timeout: patience,
    chromiumSandbox: process.getuid() !== 0,
    // Whatever has a name leads nowhere, so that a request to elsewhere is seen and fails.
    args: ['--disable-gpu', '--disable-component-update', '--no-pings', '--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1'],
  });
  stop = load();
}, limits);

after(async () => {
  await browser?.close();
  await stop();
  await Promise.all(replicas.map((r) => r.end()));
  provider?.end();
  if (!process.env.HEADWAY_SHOTS && shots) await rm(shots, { recursive: true });
}, limits);

// installed is the path of a command.
function installed(command) {
  const found = process.env.PATH.split(delimiter).map((dir) => join(dir, command)).find((path) => {
    try { accessSync(path, constants.X_OK); return true; } catch { return false; }
  });
  assert.ok(found, `there is no ${command}: make sdk-test installs it`);
  return found;
}

// load sends from three tenants, in turn to both replicas, until it is stopped.
function load() {
  const offered = [['web', 'large', 150], ['nightly', 'large', 100], ['mobile', 'large', 400], ['mobile', 'small', 100]]; // one each so many ms
  const running = new Set();
  const timers = offered.map(([who, model, every]) => {
    let n = 0;
    return setInterval(() => {
      const sent = fetch(`${replicas[n++ % 2].url}/v1/chat/completions`, {
        method: 'POST', headers: { 'Authorization': `Bearer ${keys[who]}`, 'Content-Type': 'application/json' },
        body: JSON.stringify({ model, max_tokens: 8, messages: [{ role: 'user', content: 'Hello' }] }),
      }).then((r) => r.arrayBuffer()).catch(() => {}).finally(() => running.delete(sent)); // most are refused: it is load
      running.add(sent);
    }, every);
  });
  return async () => {
    timers.forEach(clearInterval);
    await Promise.all(running);
  };
}

// visit lets use have the console of a replica in a browser of its own, signed in to
// with a credential. When it is done, nothing must have gone wrong.
async function visit(replica, credential, options, use) {
  const context = await browser.newContext({ viewport: { width: 1280, height: 900 }, ...options });
  context.setDefaultTimeout(patience);
  const trouble = [], own = new URL(replica.console);
  try {
    const page = await context.newPage();
    page.on('console', (said) => { if (['error', 'warning'].includes(said.type())) trouble.push(`${said.text()} at ${said.location().url}`); });
    page.on('pageerror', (err) => trouble.push(`exception: ${err.stack}`));
    page.on('websocket', (socket) => trouble.push(`asked for ${socket.url()}`));
    context.on('request', (r) => { if (new URL(r.url()).origin !== own.origin) trouble.push(`asked for ${r.url()}`); });
    await page.addInitScript(() => addEventListener('securitypolicyviolation', (v) => console.error(`policy: ${v.violatedDirective} ${v.blockedURI}`)));
    await page.goto(own.href);
    await page.locator('#credential').fill(credential);
    // Before somebody signs in they are told 401, which browsers call an error.
    const excused = trouble.filter((what) => what.includes('401') && what.includes(own.origin));
    assert.ok(excused.length > 0, 'the page was not asked for a credential, or its console is not heard');
    await page.locator('#signin-form').getByRole('button', { name: 'Sign in' }).click();
    await page.locator('#signin').waitFor({ state: 'hidden' });
    await use(page, trouble);
    assert.deepEqual(trouble.filter((what) => !excused.includes(what)), []);
  } finally {
    await context.close();
  }
}

const card = (page) => page.locator('[data-id=acme]');
const toggle = (page) => card(page).getByRole('switch', { name: 'Queue when the agent is busy' });

// workspace asks a gateway for the document of acme, or to change it.
async function workspace(replica, key, change) {
  const response = await fetch(`${replica.url}/api/workspaces/acme`, {
    method: change ? 'PATCH' : 'GET', body: change && JSON.stringify(change), signal: AbortSignal.timeout(patience),
    headers: { 'Authorization': `Bearer ${key}`, 'Content-Type': 'application/merge-patch+json' },
  });
  return { status: response.status, document: await response.json() };
}

test('an owner flips the switch, and a member sees it', limits, async () => {
  const [a, b] = replicas;
  const saved = (page) => card(page).locator('.note', { hasText: 'Saved' }).waitFor();
  const is = (page, on) => card(page).locator(`[role=switch][aria-checked=${on}]`).waitFor();
  await visit(b, keys.nightly, {}, async (member) => {
    const says = (text) => card(member).locator('.state .badge', { hasText: text }).waitFor();
    await says('On');
    await visit(a, keys.web, {}, async (owner) => {
      await is(owner, true);
      await toggle(owner).click();
      await saved(owner);
      await is(owner, false);
      for (const r of replicas) {
        const { status, document } = await workspace(r, keys.web);
        assert.equal(status, 200);
        assert.equal(document.inference_queueing_enabled, false);
      }
      await says('Off'); // by itself
      await owner.reload(); // who signed in stays signed in, in this tab
      await is(owner, false);
      await toggle(owner).press(' ');
      await saved(owner);
      await is(owner, true);
      assert.equal((await workspace(b, keys.web)).document.inference_queueing_enabled, true);
      assert.equal(await owner.locator('#workspace-cards .card').count(), 1, 'an owner of one workspace sees others');
    });
    assert.equal(await member.getByRole('switch').count(), 0, 'a member is offered a switch');
    await card(member).getByText('Only an owner or manager may change this.').waitFor();
    assert.deepEqual(await member.locator('#nav a:visible').allTextContents(), ['Workspaces']);
  });
  assert.equal((await workspace(b, keys.nightly, { inference_queueing_enabled: false })).status, 403);
});

test("the tenants' chart moves under load", limits, async () => {
  await visit(replicas[0], token, {}, async (page) => {
    await page.locator('#nav').getByRole('link', { name: 'Tenants' }).click();
    await page.locator('#tenants-rows tr').nth(2).waitFor();
    for (const who of ['web', 'nightly', 'mobile']) {
      const received = page.locator('#tenants-rows tr', { has: page.getByRole('rowheader', { name: who }) }).locator('td').nth(2);
      await received.filter({ hasText: /[1-9]/ }).waitFor();
    }
    const line = page.locator('#chart-tenants path').first();
    for (let moved = 0; moved < 3; moved++) {
      await page.locator('#chart-tenants path[d*=L]').first().waitFor({ state: 'attached' });
      const was = await line.getAttribute('d');
      await page.locator(`#chart-tenants path:first-child:not([d="${was}"])`).waitFor({ state: 'attached' });
    }
    // It is not only the time that moves: somebody got something, above the line of zero.
    const heights = (await line.getAttribute('d')).match(/(?<=,)[\d.]+/g).map(Number);
    const zero = Math.max(...await page.locator('#chart-tenants line.grid').evaluateAll((all) => all.map((e) => Number(e.getAttribute('y1')))));
    assert.ok(Math.min(...heights) < zero - 1, `nobody got anything: ${heights}, zero is at ${zero}`);
  });
});

// What each page shows when it is live.
const pages = {
  overview: '#members tr:nth-child(2)', tenants: '#tenants-rows tr:nth-child(3)', queues: '#lines tbody tr',
  agents: '.slots i.here', workspaces: '#workspace-cards .card:nth-child(2)', refusals: '#refusal-rows tr:nth-child(4)',
};

// outside lists what stands outside of the window, to the left or the right, unless
// something that fits lets it scroll or hides it.
function outside() {
  const clipped = (e) => e && e !== document.body && (getComputedStyle(e).overflowX !== 'visible' || clipped(e.parentElement));
  const width = document.documentElement.clientWidth;
  const out = [...document.body.querySelectorAll('*')].filter((e) => {
    const r = e.getBoundingClientRect();
    return e.checkVisibility() && r.width > 0 && (r.right > width + 0.5 || r.left < -0.5) && !clipped(e.parentElement);
  }).map((e) => `${e.tagName} ${e.id || e.getAttribute('class') || ''} ${e.textContent.slice(0, 40)}`);
  if (document.documentElement.scrollWidth > width) out.push(`the page is ${document.documentElement.scrollWidth - width} px wider than the window`);
  return out;
}

test('every page fits into its window, wide and narrow, light and dark', limits, async () => {
  await visit(replicas[0], token, {}, async (page) => {
    for (const [name, live] of Object.entries(pages)) {
      await page.locator(`#nav a[href="#/${name}"]`).click();
      await page.locator(`#${name} ${live}`).first().waitFor();
      for (const width of [1280, 390]) {
        await page.setViewportSize({ width, height: 900 });
        for (const colorScheme of ['light', 'dark']) {
          await page.emulateMedia({ colorScheme });
          const ground = await page.evaluate(() => getComputedStyle(document.body).backgroundColor.match(/\d+/g).map(Number));
          assert.equal(Math.max(...ground) < 128, colorScheme === 'dark', `the background is ${ground}`);
          await page.screenshot({ path: join(shots, `${name}-${colorScheme}-${width}.png`), fullPage: true, animations: 'disabled' });
          assert.equal(await page.evaluate(() => innerWidth), width);
          assert.deepEqual(await page.evaluate(outside), [], `${name} is too wide for ${width} pixels`);
        }
      }
    }
  });
});

test('what pages are held to is seen', limits, async () => {
  await visit(replicas[0], token, {}, async (page, trouble) => {
    const before = trouble.length;
    await page.evaluate(() => {
      console.error('an error');
      const image = new Image();
      image.src = 'http://elsewhere.invalid/x.png';
      const wide = document.createElement('p');
      wide.id = 'wide';
      wide.style.width = '3000px';
      document.querySelector('main').append(image, wide);
      wide.textContent = 'wide';
    });
    await page.waitForEvent('console', { predicate: (said) => said.text().startsWith('policy: img-src') });
    const seen = trouble.splice(before).join('\n');
    assert.match(seen, /an error/);
    assert.match(seen, /policy: img-src http:\/\/elsewhere.invalid/);
    assert.match((await page.evaluate(outside)).join('\n'), /P wide wide/);
  });
});
