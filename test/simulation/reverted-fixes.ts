import { expect } from 'vitest';
import type { CheckName } from './violation.ts';
import { simulateMany } from './farm.ts';
import type { Patch } from './worker.ts';
import { WRITE_PATH_MUTANTS } from './write-path-mutants.ts';

/** A defect that Treadle had, or could have: the change that brings it back, and the checks that may find it. */
export interface RevertedFix {
  readonly name: string;
  readonly checks: readonly CheckName[];
  readonly patches: readonly Patch[];
  /** It takes hundreds or thousands of schedules to find it. `npm run test:long` tries it. */
  readonly rare?: true;
  /** A few seeds before one that finds it, which saves the schedules up to there. Default: 1. */
  readonly firstSeed?: number;
}

/** The schedules of `npm test`. test/long/simulation.test.ts has many times as many. */
export const SCHEDULES = 200;

/** How many schedules it takes at most to find a defect that is not rare. Most take a few. */
const TO_FIND = 1_000;

const LEASES = 'store/src/sqlite/leases.ts';
const DRIVEN = 'store/src/sqlite/driven-runs.ts';
const ENTRIES = 'store/src/sqlite/entries.ts';
const APPENDS = 'store/src/sqlite/appends.ts';
const SHELL = 'core/src/driver/shell.ts';

export const REVERTED_FIXES: readonly RevertedFix[] = [
  {
    name: 'a live process of this host is taken over when its lease expires',
    firstSeed: 35,
    checks: ['takeover'],
    patches: [
      {
        file: DRIVEN,
        from: "if (state !== 'elsewhere') return state === 'dead' ? 0 : Infinity;",
        to: "if (state === 'dead') return 0;",
      },
    ],
  },
  {
    name: 'a process of another host is taken over by the wall clock',
    checks: ['takeover'],
    patches: [
      {
        file: DRIVEN,
        from: 'const { monotonic } = times();\n    const seen',
        to: 'return Math.max(0, expires_at - times().wall);\n    const { monotonic } = times();\n    const seen',
      },
    ],
  },
  {
    name: 'an effect starts without a check of the lease',
    rare: true,
    checks: ['lease', 'effect twice'],
    patches: [
      {
        file: SHELL,
        from: 'closed || detached ? undefined : lease?.confirm?.()',
        to: 'undefined as Promise<void> | undefined',
      },
    ],
  },
  {
    name: 'a driver that has lost its lease can append',
    rare: true,
    checks: ['lease'],
    patches: [
      {
        file: LEASES,
        from: "if (findToken.get(runId)?.['token'] !== lease.token) throw leaseLost(runId, leaseOf(runId));",
        to: '',
      },
    ],
  },
  {
    name: 'a lost lease aborts nothing',
    rare: true,
    checks: ['lease', 'effect twice', 'error'],
    patches: [
      {
        file: SHELL,
        from: "else lease?.lost?.addEventListener('abort'",
        to: "else lease?.lost?.addEventListener('never'",
      },
    ],
  },
  {
    name: 'an effect starts before it is durable',
    checks: ['issued', 'I8 durable', 'acknowledged'],
    patches: [{ file: SHELL, from: "if (needed === 'durable') return needed;", to: '' }],
  },
  {
    name: 'after a death, a call starts before it is written',
    checks: ['issued', 'crash loop'],
    patches: [{ file: SHELL, from: 'lease?.takenOver || ', to: '' }],
  },
  {
    name: 'a run that another process has ended is reported before it is durable',
    firstSeed: 37,
    checks: ['acknowledged'],
    patches: [{ file: SHELL, from: 'let unsynced = seq > 0;', to: 'let unsynced = false;' }],
  },
  {
    name: 'tokens are used again',
    checks: ['tokens', 'lease', 'takeover'],
    patches: [
      {
        file: 'store/src/sqlite/database.ts',
        from: 'token INTEGER PRIMARY KEY AUTOINCREMENT',
        to: 'token INTEGER PRIMARY KEY',
      },
    ],
  },
  {
    name: 'a damaged last entry is dropped',
    checks: ['damage', 'issued', 'effect twice'],
    patches: [
      {
        file: ENTRIES,
        from: 'if (problem !== undefined) throw entryDamaged(runId, count, problem);',
        to: 'if (problem !== undefined && count === run.entries - 1) return { entries, end: { count: run.entries, sum } };\n    if (problem !== undefined) throw entryDamaged(runId, count, problem);',
      },
      {
        file: APPENDS,
        from: 'const next = run?.entries ?? 0;',
        to: 'const next = entries[0]!.seq;\n      db.prepare("DELETE FROM entries WHERE run = ? AND seq >= ?").run(run?.id ?? 0, next);',
      },
    ],
  },
  {
    name: 'a write that fails is stored in part',
    rare: true,
    checks: ['lease', 'append only', 'I5 replay', 'ending', 'told'],
    patches: [
      {
        file: 'store/src/sqlite/group-commit.ts',
        from: "db.exec('ROLLBACK TO job; RELEASE job');",
        to: "db.exec('RELEASE job');",
      },
      {
        file: 'store/src/sqlite/group-commit.ts',
        from: '} catch (error) {\n      rollBack();\n      return { write, isWritten: false',
        to: '} catch (error) {\n      return { write, isWritten: false',
      },
    ],
  },
  {
    name: 'a child run that had begun and is missing starts again',
    rare: true,
    checks: ['damage', 'effect twice', 'issued'],
    patches: [
      {
        file: 'core/src/agents/child-run.ts',
        from: "if (!first && child === 'begun') {",
        to: 'if (!first && !journal) {',
      },
    ],
  },
  {
    name: 'a cancel reaches a child run before it is stored',
    rare: true,
    checks: ['cancel order'],
    patches: [
      {
        file: SHELL,
        from: "if (state.phase.type !== 'ended') return;\n    abortEffects(context);",
        to: "if (state.phase.type !== 'ended') return;\n    abortEffects(context);\n    abortChildren(context);",
      },
    ],
  },
  {
    name: 'a `once` tool that timed out is not verified',
    firstSeed: 68,
    checks: ['ledger and journal'],
    patches: [
      {
        file: 'core/src/tools/execute.ts',
        from: "if (!mode.takesEffect || tool.effect !== 'once' || !tool.verify) return stop(problem, TIMEOUT);",
        to: "if (true) return stop('timed out. Ask for less, or try something else.', TIMEOUT);",
      },
    ],
  },
  {
    name: 'a call that ends its process is repeated forever',
    checks: ['crash loop', 'I1 to I6', 'ending'],
    patches: [
      {
        file: 'core/src/machine/step.ts',
        from: "if (event.type !== 'effect-lost' || !state.rules.crashLimit) return undefined;",
        to: 'return undefined;',
      },
    ],
  },
  {
    name: 'the deadline that passes while a lease is confirmed is not written',
    firstSeed: 335,
    checks: ['ending'],
    patches: [
      {
        file: SHELL,
        from: 'startConfirmed(effect);\n        flush();',
        to: 'startConfirmed(effect);\n        closeIfDone();',
      },
    ],
  },
  ...WRITE_PATH_MUTANTS,
];

export async function expectFound({ checks, patches, rare, firstSeed = 1 }: RevertedFix): Promise<void> {
  const schedules = rare ? 20_000 : TO_FIND;
  // Loading the server takes longer than most defects do to be found.
  const about = rare ? 'everything' : 'runs';
  const workers = rare ? 2 : 1;
  const { failures } = await simulateMany({ firstSeed, schedules, patches, about, stopAtFailure: true, workers });
  expect(failures.length, `no failure in ${schedules} schedules`).toBeGreaterThan(0);
  expect(checks).toContain(failures[0]!.failure!.check);
}
