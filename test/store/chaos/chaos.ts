import { mkdirSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { setTimeout as delay } from 'node:timers/promises';
import { randomFrom, type Random } from '../../random.ts';
import { startPostgres } from '../postgres-server.ts';
import { performRun, type ChaosRun, type ClientKind, type Seen } from './clients.ts';
import { startFaults, type Fault } from './faults.ts';
import { TOOLS, writeTools } from './ledger.ts';
import { startChaosModel } from './model.ts';
import { startChaosServer, type ServerEnds } from './servers.ts';
import { tcpProxy } from './tcp-proxy.ts';
import { judge, type Verdict } from './verdict.ts';

/*
 * Chaos. Three servers (`treadle serve`) behind a proxy share a store in PostgreSQL, behind another one. Official clients stream runs whose
 * tools write a ledger outside of the store, while servers, the database and connections are killed, frozen, restarted and cut. At the
 * end everything works again, every run ends, and the store is compared with the ledger and with what clients were told.
 *
 * A seed determines the runs, the faults and their pauses, but not at which moment of a run a fault happens.
 */

export interface ChaosOptions {
  readonly seed: number;
  readonly runs: number;
  /** How many runs there are at a time. */
  readonly atOnce: number;
  /** Called from time to time. */
  readonly onProgress?: (line: string) => void;
}

export interface ChaosReport extends Verdict {
  readonly faults: Readonly<Record<Fault, number>>;
  readonly failedStarts: number;
  /** How long a server took to start, on average. */
  readonly startMs: number;
  readonly failures: ReadonlyMap<string, number>;
  /** How many facts clients were told. */
  readonly told: number;
  readonly replies: number;
  readonly ms: number;
  readonly log: readonly string[];
}

/** How long clients may still wait when nothing is disturbed any more. */
const PATIENCE_MS = 180_000;

const KINDS: readonly ClientKind[] = [
  ...(['background', 'background', 'background', 'followed', 'followed'] as const),
  ...(['cancelled', 'foreground', 'foreground', 'completion'] as const),
];

export async function chaos({ seed, runs: count, atOnce, onProgress }: ChaosOptions): Promise<ChaosReport> {
  const random = randomFrom(seed);
  const folder = mkdtempSync(path.join(tmpdir(), 'treadle-chaos-'));
  const ledger = path.join(folder, 'ledger');
  await using cleanUp = new AsyncDisposableStack();
  cleanUp.defer(() => rmSync(folder, { recursive: true, force: true }));
  // Kills of its processes lose what they hold in memory. The disk of the machine does not fail here, so nothing is synced.
  const database = cleanUp.use(await startPostgres({ settings: ['fsync=off'] }));
  const storeProxy = cleanUp.use(await tcpProxy(() => Number(new URL(database.url()).port)));
  const url = new URL(database.url());
  url.port = String(storeProxy.port);
  const model = cleanUp.use(await startChaosModel(randomFrom(seed + 1)));
  // Packages inside of the working folder would have to be trusted.
  const [work, skills] = [path.join(folder, 'work'), path.join(folder, 'skills')];
  writeTools(skills, ledger);
  mkdirSync(work);
  writeFileSync(path.join(work, 'treadle.toml'), configuration(model.baseURL, url.href));
  const ends: ServerEnds = { unexpected: [], failedStarts: 0, startMs: [] };
  const servers = await Promise.all(['one', 'two', 'three'].map((name) => startChaosServer(name, work, ends)));
  cleanUp.defer(async () => void (await Promise.all(servers.map((server) => server.stop()))));
  const balance = randomFrom(seed + 2);
  const clientProxy = cleanUp.use(
    await tcpProxy(() => {
      // A balancer does not know at once that a server is frozen.
      const ports = servers.flatMap((server) => server.port() ?? []);
      return ports[Math.floor(balance() * ports.length)];
    }),
  );

  const runs = plan(count, random);
  const seen: Seen = { facts: [], wrong: [], failures: new Map(), waiting: new Map() };
  let isOver = false;
  const context = {
    baseURL: `http://127.0.0.1:${clientProxy.port}/v1`,
    seen,
    random: randomFrom(seed + 3),
    isOver: () => isOver,
  };
  const startMs = (): number => ends.startMs.reduce((sum, one) => sum + one, 0) / ends.startMs.length;
  const from = performance.now();
  const faults = startFaults({ database, servers, storeProxy, clientProxy, startMs }, randomFrom(seed + 4));
  const left = [...runs];
  let ended = 0;
  const perform = async (): Promise<void> => {
    for (let run = left.shift(); run; run = left.shift()) {
      await performRun(run, context);
      ended += 1;
      if (ended % 25 === 0)
        onProgress?.(`${ended} of ${count} runs after ${Math.round((performance.now() - from) / 1_000)} s`);
      // The last ones end in peace.
      if (left.length === 0) await calm();
    }
  };
  let calming: Promise<void> | undefined;
  const calm = (): Promise<void> => (calming ??= faults.stop());
  const all = Promise.all(Array.from({ length: atOnce }, perform));
  while (left.length > 0 && !calming) {
    const before = ended;
    await Promise.race([all, delay(PATIENCE_MS)]);
    // Nothing has ended for long, although something should: a report is better than a test that hangs.
    if (ended === before) break;
  }
  await calm();
  await Promise.race([all, delay(PATIENCE_MS)]);
  isOver = true;
  await all;
  const ms = performance.now() - from;
  await Promise.all(servers.map((server) => server.stop()));
  const verdict = await judge(database.url(), ledger, runs, seen);
  return {
    ...verdict,
    wrong: [...verdict.wrong, ...ends.unexpected],
    faults: faults.counts,
    failedStarts: ends.failedStarts,
    startMs: startMs(),
    failures: seen.failures,
    told: seen.facts.length,
    replies: model.replies(),
    ms,
    log: faults.log,
  };
}

function plan(count: number, random: Random): readonly ChaosRun[] {
  const oneOf = <T>(list: readonly T[]): T => list[Math.floor(random() * list.length)]!;
  return Array.from({ length: count }, (_, index) => ({
    tag: `r${index}`,
    kind: oneOf(KINDS),
    tools: Array.from({ length: 1 + Math.floor(random() * 4) }, () => oneOf(TOOLS)),
  }));
}

const configuration = (model: string, store: string): string => `[models.main]
provider = "openai-compatible"
model = "m"
base_url = "${model}"

[store]
url = "${store}"

[orchestrator]
max_tool_iterations = 40

[orchestrator.tools]
skills_path = "../skills"

[policy]
autonomy = 3
tools = { "*" = "allow" }
rate = { second = 1000, minute = 100000 }

[server]
tools = ["packages"]
default_tools = ["order", "wire"]
shutdown_grace_ms = 500
heartbeat_ms = 1000
log_level = "error"
`;

/** A report that people can read. */
export function describeChaos(report: ChaosReport): string {
  const { faults, failures, acted, interrupted, recovered, told, replies, failedStarts, startMs, ms, log } = report;
  const counted = Object.entries(faults).map(([fault, times]) => `${fault}: ${times}`);
  const met = [...failures].toSorted().map(([failure, times]) => `  ${failure}: ${times}`);
  const parts = (['twice', 'lost', 'stuck', 'untrue', 'wrong'] as const).map((part) => {
    const list = report[part];
    return [`${part}: ${list.length}`, ...list.slice(0, 20).map((line) => `  ${line}`)].join('\n');
  });
  const isFine = parts.every((part) => part.endsWith(': 0'));
  return [
    `${Math.round(ms / 1_000)} s; ${counted.join(', ')}; ${failedStarts} starts of servers failed, others took ${Math.round(startMs)} ms`,
    `${acted} calls acted, ${interrupted} interrupted, ${recovered} takeovers, ${replies} replies of the model, ${told} facts told`,
    'what clients met:',
    ...met,
    ...parts,
    ...(isFine ? [] : ['faults:', ...log.slice(-200).map((line) => `  ${line}`)]),
  ].join('\n');
}
