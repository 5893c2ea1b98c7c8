import { setTimeout as delay } from 'node:timers/promises';
import type { Random } from '../../random.ts';
import type { PostgresServer } from '../postgres-server.ts';
import type { ChaosServer } from './servers.ts';
import type { TcpProxy } from './tcp-proxy.ts';

/** What is disturbed. */
export interface Victims {
  readonly database: PostgresServer;
  readonly servers: readonly ChaosServer[];
  /** Between the servers and the database. */
  readonly storeProxy: TcpProxy;
  /** Between the clients and the servers. */
  readonly clientProxy: TcpProxy;
  /** How long a server takes to start. On a slow machine, faults are as much further apart. */
  readonly startMs: () => number;
}

export const FAULTS = [
  'a server is killed',
  'a server is stopped',
  'a server is frozen',
  'connections to the database are cut',
  'connections of clients are cut',
  'the database is silent',
  'the database is killed',
  'the database is restarted',
  'the database is frozen',
] as const;
export type Fault = (typeof FAULTS)[number];

/** How often each is chosen. */
const WEIGHTS: Readonly<Record<Fault, number>> = {
  'a server is killed': 10,
  'a server is stopped': 2,
  'a server is frozen': 6,
  'connections to the database are cut': 6,
  'connections of clients are cut': 4,
  'the database is silent': 2,
  'the database is killed': 3,
  'the database is restarted': 2,
  'the database is frozen': 2,
};

/** On a machine with nothing else to do. */
const START_MS = 1_000;

export interface Faults {
  readonly counts: Record<Fault, number>;
  /** When what was done, for a report. */
  readonly log: string[];
  /** Resolves when everything works again. */
  readonly stop: () => Promise<void>;
}

/** Disturbs until `stop`, in an order that depends only on the random numbers. Several things may be disturbed at a time. */
export function startFaults(victims: Victims, random: Random): Faults {
  const { database, servers, storeProxy, clientProxy, startMs } = victims;
  const counts = Object.fromEntries(FAULTS.map((fault) => [fault, 0])) as Record<Fault, number>;
  const log: string[] = [];
  const startedAt = performance.now();
  const underWay = new Set<Promise<void>>();
  let isOver = false;
  /** One fault of the database at a time. */
  let isDatabaseBusy = false;
  let failure: unknown;

  const between = (least: number, most: number): number => Math.round(least + random() * (most - least));
  const cut = (proxy: TcpProxy, share: number): void => proxy.cut(() => random() < share);

  /** Each of them once, and then by their weights. */
  function choose(): Fault {
    const missing = FAULTS.filter((fault) => counts[fault] === 0);
    if (missing.length > 0) return missing[Math.floor(random() * missing.length)]!;
    let left = random() * Object.values(WEIGHTS).reduce((sum, weight) => sum + weight, 0);
    for (const fault of FAULTS) {
      left -= WEIGHTS[fault];
      if (left < 0) return fault;
    }
    return FAULTS[0];
  }

  /** Undefined: it cannot be done now. */
  function begin(fault: Fault): Promise<void> | undefined {
    const server = servers[Math.floor(random() * servers.length)]!;
    const [ms, share] = [random(), random()];
    const scaled = (least: number, most: number): number => Math.round(least + ms * (most - least));
    const isOfServer = fault.startsWith('a server');
    // One is left, or on a slow machine all of them would be starting most of the time.
    const running = servers.filter((one) => one.state() === 'running');
    if (isOfServer && (running.length < 2 || !running.includes(server))) return undefined;
    if (fault.startsWith('the database') && isDatabaseBusy) return undefined;
    counts[fault] += 1;
    const at = `${Math.round(performance.now() - startedAt)} ms: ${fault}`;
    log.push(isOfServer ? `${at}: ${server.name}, ${ms}` : `${at}, ${ms}`);
    switch (fault) {
      case 'a server is killed':
        return server.end('SIGKILL', scaled(0, 1_000));
      case 'a server is stopped':
        return server.end('SIGTERM', 0);
      case 'a server is frozen':
        return server.freeze(scaled(100, 8_000));
      case 'connections to the database are cut':
        return Promise.resolve(cut(storeProxy, share));
      case 'connections of clients are cut':
        return Promise.resolve(cut(clientProxy, share));
      case 'the database is silent':
        return withDatabase(async () => {
          storeProxy.hold(true);
          await delay(scaled(100, 4_000));
          storeProxy.hold(false);
        });
      case 'the database is killed':
        return withDatabase(async () => {
          await database.kill();
          await delay(scaled(0, 1_000));
          await database.start();
        });
      case 'the database is restarted':
        return withDatabase(async () => {
          await database.stop();
          await database.start();
        });
      case 'the database is frozen':
        return withDatabase(async () => {
          await database.freeze();
          await delay(scaled(100, 6_000));
          await database.thaw();
        });
      default:
        return fault satisfies never;
    }
  }

  async function withDatabase(work: () => Promise<void>): Promise<void> {
    isDatabaseBusy = true;
    await work();
    isDatabaseBusy = false;
  }

  async function disturb(): Promise<void> {
    while (!isOver) {
      const work = begin(choose())?.catch((error: unknown) => void (failure ??= error));
      if (work) underWay.add(work.finally(() => underWay.delete(work)));
      await delay(between(100, 1_500) * Math.max(1, startMs() / START_MS));
    }
  }

  const disturbed = disturb();
  return {
    counts,
    log,
    async stop() {
      isOver = true;
      await disturbed;
      await Promise.all(underWay);
      if (failure !== undefined) throw failure;
    },
  };
}
