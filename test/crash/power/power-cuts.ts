import { once } from 'node:events';
import { copyFileSync, existsSync, mkdirSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { createServer } from 'node:http';
import type { AddressInfo } from 'node:net';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { DatabaseSync } from 'node:sqlite';
import { setTimeout as delay } from 'node:timers/promises';
import { sqliteStore } from '@treadle/store';
import { treadle, type TreadleProcess } from '../../command/treadle-process.ts';
import { randomFrom, type Random } from '../../random.ts';
import { startClients, TRIGGER_SECRET, type Clients, type ToldRun } from './clients.ts';
import { lostFacts, type Fact } from './told.ts';

/*
 * Power cuts. Two servers (`treadle serve`) with one store are killed at a random time under load, and the log of the store is cut
 * to what was synced. What any client, or the receiver of webhooks, was told before must be in the store that remains, and the
 * servers start again with it.
 */

export interface PowerCutOptions {
  readonly seed: number;
  readonly cuts: number;
  /** How long a sync takes, in milliseconds on average. */
  readonly syncMs: number;
  /** Syncs do nothing, so that the test must find losses. */
  readonly isSyncDisabled?: boolean;
}

export interface PowerCuts {
  /** How many facts clients were told. */
  readonly told: number;
  /** How many cuts lost something. */
  readonly cutsWithLosses: number;
  readonly lost: readonly string[];
}

const CLIENTS = 12;
/** The load before a cut, in milliseconds. */
const [LEAST_MS, MOST_MS] = [20, 1_500];

/** As many calls as the machine can do, because runs with denied calls may end in another way. */
const settings = (hook: string): string => `[models.play]
provider = "demo"
[policy.rate]
second = 1000000
minute = 1000000
[server]
default_tools = ["read", "glob", "grep"]
log_level = "fatal"
[server.webhooks]
url = "${hook}"
secret_env = "HOOK_SECRET"
allow_private = true
[[triggers]]
name = "deploy"
webhook_secret_env = "TRIGGER_SECRET"
workflow = "notes"
`;

const HELPER = `---
name: helper
description: Answers questions about files.
inputs:
  question: { type: string, required: true, description: The question }
tools: [read, glob, grep]
---

Answer the question.
`;

const NOTES = `name: notes
description: Reads the notes
steps:
  - id: read
    action: run_tool
    tool: read
    inputs: { path: notes.txt }
  - id: files
    action: run_tool
    tool: glob
    depends_on: read
    inputs: { pattern: '*' }
outputs:
  text: \${{ steps.read.output }}
`;

export async function powerCuts({ seed, cuts, ...disk }: PowerCutOptions): Promise<PowerCuts> {
  const random = randomFrom(seed);
  const folder = mkdtempSync(path.join(tmpdir(), 'treadle-power-'));
  let clients: Clients | undefined;
  const receiver = await webhookReceiver((run) => clients?.noteRun(run));
  writeFileSync(path.join(folder, 'treadle.toml'), settings(receiver.url));
  writeFileSync(path.join(folder, 'notes.txt'), 'the word is treadle\n');
  mkdirSync(path.join(folder, 'agents'));
  writeFileSync(path.join(folder, 'agents', 'helper.md'), HELPER);
  mkdirSync(path.join(folder, 'workflows'));
  writeFileSync(path.join(folder, 'workflows', 'notes.yaml'), NOTES);
  const facts: Fact[] = [];
  let told: readonly Fact[] = [];
  const lost: string[] = [];
  let cutsWithLosses = 0;
  try {
    let file = newFile(folder, 0);
    await sqliteStore(file).close();
    for (let cut = 1; cut <= cuts; cut++) {
      const next = newFile(folder, cut);
      const onClients = (started: Clients): void => void (clients = started);
      const { denied, ...round } = await loadAndCut(folder, { file, next, before: told, random, onClients, ...disk });
      file = next;
      told = round.told;
      facts.push(...told);
      // All of it again at the end: what was durable must also survive later cuts.
      const missing = await factsLostIn(file, cut === cuts ? facts : told);
      const found = [...denied, ...missing];
      if (missing.length > 0) cutsWithLosses += 1;
      lost.push(...found.map((fact) => `cut ${cut} of seed ${seed}: ${fact}`));
    }
  } finally {
    receiver.close();
    rmSync(folder, { recursive: true });
  }
  return { told: facts.length, cutsWithLosses, lost };
}

interface Receiver {
  readonly url: string;
  close(): void;
}

async function webhookReceiver(onRun: (run: ToldRun) => void): Promise<Receiver> {
  const server = createServer(async (incoming, outgoing) => {
    const chunks = await incoming.toArray().catch(() => []);
    // Nothing is told by a request that was cut.
    if (incoming.complete) onRun((JSON.parse(Buffer.concat(chunks).toString()) as { readonly data: ToldRun }).data);
    outgoing.end();
  }).listen(0, '127.0.0.1');
  await once(server, 'listening');
  return {
    url: `http://127.0.0.1:${(server.address() as AddressInfo).port}/`,
    close() {
      server.close();
      server.closeAllConnections();
    },
  };
}

function newFile(folder: string, number: number): string {
  mkdirSync(path.join(folder, `${number}`));
  return path.join(folder, `${number}`, 'runs.db');
}

interface Round extends Pick<PowerCutOptions, 'syncMs' | 'isSyncDisabled'> {
  readonly file: string;
  /** Where the store is that the cut leaves. */
  readonly next: string;
  /** What clients were told before the last cut. */
  readonly before: readonly Fact[];
  readonly random: Random;
  readonly onClients: (clients: Clients) => void;
}

interface Ended {
  readonly told: readonly Fact[];
  /** What was told before the last cut and the servers do not know any more. */
  readonly denied: readonly string[];
}

async function loadAndCut(cwd: string, { file, next, before, random, onClients, ...disk }: Round): Promise<Ended> {
  const reader = heldReader(file);
  const database = readFileSync(file);
  const records = [`${file}-synced-1`, `${file}-synced-2`];
  const servers = records.map((record) => startServer(cwd, { file, record, ...disk }));
  let clients: Clients | undefined;
  try {
    const urls = await Promise.all(servers.map(urlOf));
    const denied = await deniedBy(urls, before);
    clients = startClients(urls, CLIENTS, random);
    onClients(clients);
    await clients.begun;
    await delay(LEAST_MS + random() * (MOST_MS - LEAST_MS));
    for (const { child } of servers) child.kill('SIGKILL');
    clients.stop();
    await Promise.all(servers.map(({ ended }) => ended));
    const told = await clients.told;
    if (!readFileSync(file).equals(database)) throw new Error('The log was moved into the database before the cut.');
    copyFileSync(file, next);
    const synced = Math.max(...records.map((record) => Number(readFileSync(record, 'utf8'))));
    if (existsSync(`${file}-wal`)) writeFileSync(`${next}-wal`, readFileSync(`${file}-wal`).subarray(0, synced));
    return { told, denied };
  } finally {
    clients?.stop();
    for (const { child } of servers) child.kill('SIGKILL');
    reader.close();
    rmSync(path.dirname(file), { recursive: true });
  }
}

/**
 * Begins a round with an empty log. As long as the reader is open, nothing is moved from the log into the database, so the log only
 * grows: what was synced is a part of it from its beginning, and the database is durable as it is.
 */
function heldReader(file: string): DatabaseSync {
  const db = new DatabaseSync(file);
  db.exec('PRAGMA wal_checkpoint(TRUNCATE); BEGIN; SELECT count(*) FROM runs');
  return db;
}

function startServer(
  cwd: string,
  {
    file,
    record,
    syncMs,
    isSyncDisabled,
  }: Pick<Round, 'file' | 'syncMs' | 'isSyncDisabled'> & { readonly record: string },
): TreadleProcess {
  const preload = new URL('recorded-syncs.ts', import.meta.url).href;
  return treadle(['serve', '--port', '0', '--store', `sqlite:${file}`], {
    cwd,
    stdin: '',
    env: {
      NODE_OPTIONS: `--import=${preload}`,
      HOOK_SECRET: 'the secret of the hook',
      TRIGGER_SECRET,
      TREADLE_SYNCED: record,
      TREADLE_SYNC_MS: String(syncMs),
      ...(isSyncDisabled && { TREADLE_SYNC_LIES: '1' }),
    },
  });
}

async function urlOf({ shows, seen }: TreadleProcess): Promise<string> {
  await shows('\n');
  return /http:\/\/\S+/.exec(seen.stdout)![0];
}

/** Asks servers that have started again for some responses that had ended. */
async function deniedBy(urls: readonly string[], facts: readonly Fact[]): Promise<readonly string[]> {
  const ended = new Map(
    facts.flatMap((fact) => (fact.type === 'response' && fact.status ? [[fact.id, fact.status]] : [])),
  );
  const denied: string[] = [];
  for (const [id, status] of [...ended].slice(-5)) {
    for (const url of urls) {
      const { status: now } = (await (await fetch(`${url}/v1/responses/${id}`)).json()) as { readonly status?: string };
      if (now !== status) denied.push(`${id} was ${status}, and the server says ${now}`);
    }
  }
  return denied;
}

async function factsLostIn(file: string, facts: readonly Fact[]): Promise<readonly string[]> {
  const store = sqliteStore(file);
  try {
    return await lostFacts(store, facts);
  } finally {
    await store.close();
  }
}
