import type { TreadleErrorCode } from '@treadle/core';
import { isExpected } from './expected-errors.ts';
import type { Parts } from './jobs.ts';
import type { Process } from './machine.ts';
import type { Told } from './told.ts';

/**
 * Programs that store requests themselves, beside the servers, with ids, runs and keys of their own. Of those that choose the
 * same one, the first is told that its request is stored, and the others that nothing of theirs is.
 */
export interface Writers {
  /** One of them stores a request now. */
  readonly act: () => void;
}

interface Written {
  readonly id: string;
  readonly runId: string;
  readonly key: string;
  /** Each has another one, so it tells whose request is stored. */
  readonly status: string;
}

const STATUSES = ['completed', 'failed', 'cancelled', 'incomplete'];

export function createWriters({ world, machines, causes, report }: Parts, told: Told): Writers {
  const { scheduler, cover } = world;
  const { random, after, log } = scheduler;
  const statuses = random.chance(0.3) ? [...STATUSES] : [];
  const written: Written[] = [];

  function oneOf(name: string): string {
    return `${name}${random.between(0, 1)}`;
  }

  function act(): void {
    const processes = machines.processes();
    const status = processes.length > 0 ? statuses.pop() : undefined;
    if (status === undefined) return;
    const process = random.pick(processes);
    const id = oneOf('given');
    const one = { id, runId: random.chance(0.5) ? id : oneOf('run of given'), key: oneOf('given key '), status };
    after(process, random.next() * 20, `somebody stores ${id} as ${status}`, () => {
      write(process, one).catch(report);
      written.push(one);
    });
  }

  async function write(process: Process, one: Written): Promise<void> {
    const { id, runId, key, status } = one;
    const now = process.clock.now();
    const times = { createdAt: now, updatedAt: now };
    const record = { id, kind: 'turns', tenant: 'given', runId, status, ...times, request: { status } };
    const stored = { key, digest: key, expiresAt: now + 1e9 };
    const error = await process.store.requests.create(record, stored).then(
      () => undefined,
      (thrown: unknown) => thrown as Error & { readonly code?: TreadleErrorCode },
    );
    if (!process.alive) return;
    log(`${process.name}: ${id} as ${status} ${error ? `rejects with ${error.code}` : 'is stored'}`);
    if (!error) {
      told.tell('request', id, status);
      told.tell('key', key, id);
      return cover('request of a program');
    }
    // What was being synced may be written.
    if (error.code !== 'store-failed') told.tellRefused('request', id, status);
    cover(`request of a program: ${error.code}`);
    const isSame = (other: Written): boolean =>
      other !== one && (other.id === id || other.runId === runId || other.key === key);
    const isExplained = error.code === 'run-exists' ? written.some(isSame) : isExpected(error.code, causes);
    if (!isExplained) throw error;
  }

  return { act };
}
