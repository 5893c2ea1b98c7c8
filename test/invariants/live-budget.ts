import type { Amounts, Ledger, Reserved } from '@treadle/core';
import { firstReplyOf, turnOf, turnScriptOf } from './answers.ts';
import type { Core } from './core.ts';
import type { ManualScheduler } from './manual-scheduler.ts';
import type { World } from './world.ts';

/** A budget that outlives the crashes of a run, and what the calls outside of the process really used. */
export interface LiveBudget {
  readonly ledger: Ledger;
  /** Counts what an effect uses, from its start on. */
  readonly onStart: (type: string, id: string) => void;
  /** How the budget differs from what was used. */
  readonly problem: () => Promise<string | undefined>;
}

/** The output that a model of a budgeted world may have. No reply of a world uses more. */
export const MOST_TOKENS = 60;

/** What was reserved for an effect, and what its attempts used: all together, and the largest. */
interface Attempts {
  readonly reserved: number;
  readonly used: number;
  readonly largest: number;
}

const NONE: Attempts = { reserved: 0, used: 0, largest: 0 };

/** How long a reservation blocks the event loop. */
const BLOCKED_MS = 3;

/** What a model call uses that does not report it. */
const UNREPORTED = 5;

const NAME = 'all';

/** The ledger acts at once, or when the test settles it, and answers at once or later. Sometimes it fails. */
export function liveBudget(core: Core, world: World, { later, block }: ManualScheduler): LiveBudget {
  const { moves, budget: limits = {} } = world;
  const budgets = core.memoryBudgets({ [NAME]: limits });
  const inner = budgets.ledger([NAME]);
  const attempts = new Map<string, Attempts>();
  const calls = new Set<string>();
  let [asked, failures] = [0, 0];
  /** An effect that reserved tokens and cannot use any. */
  let useless: string | undefined;

  function perform<T>(act: () => T | Promise<T>): T | Promise<T> {
    const pick = moves[asked++ % Math.max(1, moves.length)]?.pick ?? 0;
    if (pick % 41 === 0 && failures++ < 2) throw new Error('the ledger is locked');
    if (pick % 3 === 0) return act();
    if (pick % 3 === 1) return later(undefined).then(act);
    const done = act();
    return later(undefined).then(() => done);
  }

  const ledger: Ledger = {
    reserve: (key, amounts, about) =>
      perform(() => {
        if (about.effect === 'call-model' && world.rules.references) useless = key;
        block(BLOCKED_MS);
        const reserved = inner.reserve(key, amounts, about) as Reserved;
        const before = attempts.get(key) ?? NONE;
        const most = reserved.type === 'reserved' ? Math.max(before.reserved, amounts.tokens ?? 0) : before.reserved;
        attempts.set(key, { ...before, reserved: most });
        return reserved;
      }),
    settle: (key, amounts) => perform(() => inner.settle(key, amounts)),
    release: (key) => perform(() => inner.release(key)),
  };

  return {
    ledger,
    onStart(type, id) {
      if (type === 'call-tool') calls.add(id);
      const used = usedBy(world, type, id);
      if (used === 0) return;
      const before = attempts.get(`run/${id}`) ?? NONE;
      const largest = Math.max(before.largest, used);
      attempts.set(`run/${id}`, { ...before, used: before.used + used, largest });
    },
    async problem() {
      if (useless !== undefined) return `${useless} reserved tokens, and its model uses none`;
      const { settled, reserved } = (await budgets.get(NAME))!;
      // A repeated effect shares a reservation with the attempt that was interrupted.
      const ofEffects = Array.from(attempts.values(), ({ reserved: most, used, largest }) =>
        Math.max(largest, Math.min(most, used)),
      );
      const tokens = ofEffects.reduce((sum, used) => sum + used, 0);
      const outside: Amounts = { tokens, calls: calls.size };
      for (const kind of ['tokens', 'calls'] as const) {
        const counted = settled[kind] + reserved[kind];
        const limit = limits[kind] ?? Infinity;
        if (counted > limit) return `${counted} ${kind} were settled and reserved; the budget has ${limit}`;
        if (counted < outside[kind]!) return `${counted} ${kind} were settled and reserved; used were ${outside[kind]}`;
      }
      return undefined;
    },
  };
}

/** The tokens that a model call uses. */
function usedBy(world: World, type: string, id: string): number {
  if (type === 'compact-history') {
    const { summary } = turnScriptOf(world, turnOf(id));
    return summary.type === 'failure' ? UNREPORTED : tokensIn(summary.usage);
  }
  // The model of a world with references uses no tokens.
  if (type !== 'call-model' || world.rules.references) return 0;
  const reply = firstReplyOf(world, id);
  if (reply.type === 'reply') return tokensIn(reply.usage);
  // The provider rejected the request, or failed while it replied.
  return reply.code === 'auth' || reply.code === 'context-length' ? 0 : UNREPORTED;
}

function tokensIn({ inputTokens, outputTokens }: { inputTokens: number; outputTokens: number }): number {
  return inputTokens + outputTokens || UNREPORTED;
}
