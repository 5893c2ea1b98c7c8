import { execFileSync, spawnSync } from 'node:child_process';
import { once } from 'node:events';
import { mkdtempSync, readFileSync, realpathSync, rmSync, writeFileSync } from 'node:fs';
import { createServer, request, type IncomingMessage, type Server } from 'node:http';
import { createServer as createSecureServer } from 'node:https';
import type { AddressInfo } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { tool, type Tool } from '@treadle/core';
import { policy, type PolicyRules, type RulePolicy } from '@treadle/core/policy';
import { DeniedError, httpClient, urlFacts, type HttpClient } from '@treadle/tools';
import { afterAll, beforeAll, beforeEach, describe, expect, test } from 'vitest';
import { needs } from '../needs.ts';
import { attempt, explained, linesOf } from './attempt.ts';

const CANARY = 'canary-4711';

const ALLOWED =
  'docs.example *.docs.example api.example:443 bücher.example intranet.example:8080 127.0.0.2 10.20.0.0/16 ' +
  '1.1.1.1 2606:4700:4700::/48 github.com *.github.com raw.githubusercontent.com developer.mozilla.org ' +
  'nodejs.org docs.python.org pypi.org files.pythonhosted.org crates.io docs.rs doc.rust-lang.org ' +
  'pkg.go.dev proxy.golang.org go.dev www.rfc-editor.org datatracker.ietf.org *.wikipedia.org ' +
  'stackoverflow.com *.stackexchange.com www.typescriptlang.org vite.dev vitest.dev react.dev';

/** What a usual project allows. 127.0.0.2 stands for the public addresses of the listed names. */
const RULES: PolicyRules = {
  autonomy: 2,
  domains: {
    allow: ALLOWED.split(' '),
    deny: ['bad.docs.example', '93.184.216.0/24'],
  },
};

/** What the name server of the attacker answers. Other names have a private address. */
const NAMES: Readonly<Record<string, readonly string[]>> = {
  'docs.example': ['127.0.0.2'],
  'metadata.google.internal': ['169.254.169.254'],
  'loopback.docs.example': ['127.0.0.1'],
  'loopback6.docs.example': ['::1'],
  'mapped.docs.example': ['::ffff:127.0.0.1'],
  'unspecified.docs.example': ['0.0.0.0'],
  'metadata.docs.example': ['169.254.169.254'],
  'nat64.docs.example': ['64:ff9b::7f00:1'],
  'denied.docs.example': ['93.184.216.34'],
  'mixed.docs.example': ['10.0.0.1', '127.0.0.2'],
};

/** Answers with a good address at first. */
function nameServer(): (name: string) => Promise<readonly string[]> {
  let asked = 0;
  return async (name) => {
    if (name === 'changing.docs.example') return [asked++ === 0 ? '127.0.0.2' : '127.0.0.1'];
    return NAMES[name] ?? (urlFacts(`http://${name}/`).range === 'loopback' ? ['127.0.0.1'] : ['10.0.0.1']);
  };
}

let port: number;
let folder: string;
/** Requests that reached what only this machine should reach. */
let reached = 0;
const servers: Server[] = [];

/** The same port on all addresses: at 127.0.0.2 a host that redirects to whatever it is asked to, at the others the canary. */
async function listenEverywhere(): Promise<void> {
  for (;;) {
    try {
      port = 0;
      for (const address of ['127.0.0.1', '127.0.0.2', '127.255.255.254', '::1']) await listen(address);
      return;
    } catch (error) {
      if ((error as NodeJS.ErrnoException).code !== 'EADDRINUSE') throw error;
      await closeAll();
    }
  }
}

async function listen(address: string): Promise<void> {
  const server = createServer(({ url = '' }, response) => {
    const to = address === '127.0.0.2' ? /^\/to\?(.*)$/.exec(url)?.[1] : undefined;
    if (to !== undefined) return void response.writeHead(302, { location: to }).end();
    if (address !== '127.0.0.2') reached++;
    response.end(address === '127.0.0.2' ? 'harmless' : CANARY);
  });
  servers.push(server);
  server.listen(port, address);
  await once(server, 'listening');
  port = (server.address() as AddressInfo).port;
}

async function closeAll(): Promise<void> {
  for (const server of servers.splice(0)) {
    if (!server.listening) continue;
    server.closeAllConnections();
    await new Promise((resolve) => server.close(resolve));
  }
}

beforeAll(async () => {
  folder = realpathSync(mkdtempSync(join(tmpdir(), 'treadle-urls-')));
  writeFileSync(join(folder, 'canary'), CANARY);
  await listenEverywhere();
});

afterAll(async () => {
  await closeAll();
  rmSync(folder, { recursive: true });
});

beforeEach(() => {
  reached = 0;
});

function filled(url: string): string {
  return url.replaceAll('{port}', String(port)).replaceAll('{canary}', join(folder, 'canary'));
}

let really = 0;

/**
 * What a careless client does with a URL: it reads it as browsers do, guesses what is missing, asks the name server, connects
 * to the first address, and follows every redirect. Addresses that cannot be reached from here are played by this machine.
 */
async function fetchCarelessly(url: string, resolve: (name: string) => Promise<readonly string[]>): Promise<string> {
  const file = /^file:\/\/(?:localhost)?(\/.*)$/i.exec(url)?.[1];
  if (file !== undefined) return readFileSync(file, 'utf8');
  const text = url.replace(/[\t\n]/g, '').trim();
  const assumed = /^[a-z]+:(?!\d)/i.test(text) || text.startsWith('http:') ? text : `http://${text}`;
  const {
    hostname,
    port: given,
    pathname,
    search,
  } = new URL(assumed.replace(/^\w+:/, 'http:').replace(/%25\w+\]/, ']'));
  const { host, range } = urlFacts(`http://${hostname}/`);
  const [address] = range === undefined || !/[\d:]/.test(host) ? await resolve(host) : [host];
  const isHere = /^(127\.|0\.0\.0\.0$|::1?$|::ffff:127\.)/.test(address!);
  if (isHere && Number(given) === port) really++;
  const to = { host: isHere ? address! : '127.0.0.1', port, path: pathname + search, agent: false };
  const outgoing = request(to).end();
  const [incoming] = (await once(outgoing, 'response')) as [IncomingMessage];
  let body = '';
  for await (const chunk of incoming) body += String(chunk);
  const { location } = incoming.headers;
  if (location === undefined) return body;
  const isFile = location.startsWith('file:');
  return fetchCarelessly(isFile ? location : new URL(location, assumed).href, resolve);
}

function fetchTool(execute: (url: string) => Promise<string>, ran: string[] = []): Tool {
  return tool({
    name: 'fetch',
    description: 'Fetches a page',
    input: { type: 'object', properties: { url: { type: 'string' } }, required: ['url'] },
    touches: ({ url }) => [{ type: 'url', url: String(url) }],
    permissions: ['network'],
    execute: ({ url }) => {
      ran.push(String(url));
      return execute(String(url));
    },
  });
}

const usualPolicy = (): RulePolicy => policy(RULES, { analysers: { url: urlFacts } });

function guarded(rules: RulePolicy): HttpClient {
  return httpClient({
    resolve: nameServer(),
    async check(url, resolvedFrom) {
      const { verdict } = await rules.explain({ name: 'fetch', touches: [{ type: 'url', url }] });
      // The name has been allowed. Its addresses need not be listed, but must not be denied.
      if (verdict.type === 'allow' || (resolvedFrom !== undefined && verdict.type === 'ask')) return undefined;
      return verdict.reason ?? 'it is asked about';
    },
  });
}

const ATTACKS = linesOf('attack-urls.tsv') as [expected: string, url: string, trick: string][];
const ORDINARY = linesOf('ordinary-urls.tsv') as [url: string][];

test('the corpus has at least 60 attacks and 50 ordinary URLs, each once', () => {
  expect(new Set(ATTACKS.map(([, url]) => url)).size).toBe(ATTACKS.length);
  expect(new Set(ATTACKS.map(([, , trick]) => trick)).size).toBe(ATTACKS.length);
  expect(ATTACKS.length).toBeGreaterThanOrEqual(60);
  expect(new Set(ORDINARY.map(String)).size).toBe(ORDINARY.length);
  expect(ORDINARY.length).toBeGreaterThanOrEqual(50);
});

describe.runIf(needs('Linux, where all of 127.0.0.0/8 is this machine', process.platform === 'linux'))(
  'attacks',
  () => {
    test.for(ATTACKS)('%s for %j: %s', async ([expected, written]) => {
      const url = filled(written);
      const rules = usualPolicy();
      const verdict = expected === 'use' ? 'allow' : expected;

      // With the policy and the guarded client: nothing is reached, and the attempt is recorded.
      const ran: string[] = [];
      const client = guarded(rules);
      const careful = fetchTool(async (one) => Buffer.from((await client.request(one)).body).toString(), ran);
      const { result, recorded } = await attempt(careful, { url }, rules);
      expect(recorded).toMatchObject({ type: verdict, touches: [{ type: 'url', url }] });
      expect(await explained(rules, careful, [{ type: 'url', url }])).toBe(verdict);
      expect(ran).toEqual(expected === 'use' ? [url] : []);
      expect(reached).toBe(0);
      if (expected === 'use') expect(result).toMatch(/^The tool "fetch" failed/);

      // With the client alone.
      await expect(guarded(rules).request(url)).rejects.toThrow(DeniedError);
      expect(reached).toBe(0);

      // Without both: it succeeds.
      const resolve = nameServer();
      const careless = fetchTool((one) => fetchCarelessly(one, resolve));
      const unchecked = await attempt(careless, { url });
      expect(unchecked.result).toBe(url.startsWith('ssh:') ? 'harmless' : CANARY);
    });

    test('most spellings of this machine were connected to as they are', () => {
      expect(really).toBeGreaterThan(35);
    });
  },
);

test.for(ORDINARY)('%s is allowed', async ([written]) => {
  const url = filled(written);
  const rules = usualPolicy();
  const ran: string[] = [];
  const recording = fetchTool(async () => 'fetched', ran);
  const { recorded, result } = await attempt(recording, { url }, rules);
  expect(recorded).toMatchObject({ type: 'allow', touches: [{ type: 'url', url }] });
  expect(await explained(rules, recording, [{ type: 'url', url }])).toBe('allow');
  expect([ran, result]).toEqual([[url], 'fetched']);
});

test('an allowed host is reached through the loop', async () => {
  const rules = usualPolicy();
  const client = guarded(rules);
  const careful = fetchTool(async (url) => Buffer.from((await client.request(url)).body).toString());
  const { result } = await attempt(careful, { url: `http://docs.example:${port}/to?/page` }, rules);
  expect(result).toBe('harmless');
});

const hasOpenssl = spawnSync('openssl', ['version']).status === 0;

test.runIf(needs('openssl', hasOpenssl))('certificates are verified against the name, or the address', async () => {
  const [key, cert] = [join(folder, 'key'), join(folder, 'cert')];
  const names = ['-subj', '/CN=test', '-addext', 'subjectAltName=DNS:docs.example,IP:127.0.0.1'];
  const options = ['-x509', '-days', '2', '-nodes', '-newkey', 'ec', '-pkeyopt', 'ec_paramgen_curve:P-256', ...names];
  execFileSync('openssl', ['req', ...options, '-keyout', key, '-out', cert], { stdio: 'ignore' });
  const ca = readFileSync(cert, 'utf8');
  let requests = 0;
  const server = createSecureServer({ key: readFileSync(key), cert: ca }, (_, response) => {
    response.end(String(++requests));
  });
  server.listen(0, '127.0.0.1');
  await once(server, 'listening');
  const at = (server.address() as AddressInfo).port;
  const anything = { check: () => undefined, resolve: async () => ['127.0.0.1'] };
  const client = httpClient({ ...anything, ca });
  try {
    expect(await client.request(`https://docs.example:${at}/`)).toMatchObject({ status: 200 });
    expect(await client.request(`https://127.0.0.1:${at}/`)).toMatchObject({ status: 200 });
    await expect(client.request(`https://api.example:${at}/`)).rejects.toThrow(/altnames/);
    await expect(httpClient(anything).request(`https://docs.example:${at}/`)).rejects.toThrow(/self-signed/);
    expect(requests).toBe(2);
  } finally {
    server.closeAllConnections();
    server.close();
    await once(server, 'close');
  }
});
