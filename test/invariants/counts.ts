import type { Limit, Limits, Rules, ToolResult, Usage } from '@treadle/core';
import type { Handling } from './call-handling.ts';
import { argumentsOf, type CallRecord } from './turns.ts';

/** Errors, repetitions and refused calls, counted when a turn has its results. */
export interface Counts extends Pick<Streak, 'isFull'> {
  readonly count: (call: readonly Counted[]) => void;
  /** Consecutive turns with nothing but errors. */
  readonly errors: () => number;
  /** Replies in which the calls limit refused a call. */
  readonly spent: () => number;
  readonly reached: (rules: Rules) => Limit | undefined;
}

interface Counted {
  readonly call: CallRecord;
  readonly handling: Handling;
  readonly result: ToolResult;
  readonly polling: boolean;
}

/** Limits of the loop do not count as errors of the model, and neither do the results of claimed calls. */
const COUNT: readonly Handling[] = ['runs', 'refused', 'repeated'];

export function countsOf(): Counts {
  const { isFull, follow, refusals } = streakOf();
  let [errors, spent] = [0, 0];
  return {
    isFull,
    errors: () => errors,
    spent: () => spent,
    count(calls) {
      for (const { call, handling, result, polling } of calls) follow(call, handling, result, polling);
      const counted = calls.filter(({ handling }) => COUNT.includes(handling));
      if (counted.some(({ result }) => !result.isError)) errors = 0;
      // A command that ran and ended with an exit code other than 0 is not an error of the model.
      else if (counted.some(({ result: { exitCode = 0 } }) => exitCode === 0)) errors++;
      if (calls.some(({ handling }) => handling === 'spent')) spent++;
    },
    reached({ errorLimit }) {
      if (refusals() >= 2) return 'repetition';
      if (errorLimit > 0 && errors >= errorLimit) return 'errors';
      return spent > 1 ? 'calls' : undefined;
    },
  };
}

/** How often in a row the same call had the same result. */
interface Streak {
  /** The call would exceed the limit. A limit of 0 means none. */
  readonly isFull: (call: CallRecord, limit: number) => boolean;
  readonly follow: (call: CallRecord, handling: Handling, result: ToolResult, polling: boolean) => void;
  /** How often the call was refused as repeated. */
  readonly refusals: () => number;
}

function streakOf(): Streak {
  let call: string | undefined;
  let result: string | undefined;
  let [count, refused] = [0, 0];
  return {
    isFull: (next, limit) => limit > 0 && count >= limit && call === callText(next),
    refusals: () => refused,
    follow(next, handling, { content }, polling) {
      if (handling === 'capped' || handling === 'spent') return;
      if (handling === 'repeated') {
        if (call === callText(next)) refused++;
        return;
      }
      const again = call === callText(next) && result === JSON.stringify(content);
      [call, result, refused] = [polling ? undefined : callText(next), JSON.stringify(content), 0];
      count = again ? count + 1 : 1;
    },
  };
}

function callText(call: CallRecord): string {
  return `${call.part.name} ${argumentsOf(call)}`;
}

/** Tokens and cost that a run has used. */
export interface UsageTotals {
  /** `counts`: it is the usage of a reply whose model uses tokens. */
  readonly charge: (usage: Usage, counts?: boolean) => void;
  /** The limit that ends the run before the next turn, or that cannot be enforced because the usage is unknown. */
  readonly reached: (limits: Limits) => 'tokens' | 'cost' | 'tokens-unknown' | 'cost-unknown' | undefined;
  /** Nothing remains for a closing turn. */
  readonly isOver: (limits: Limits) => boolean;
  readonly remaining: (limits: Limits, calls: number, durationMs: number) => Limits;
}

export function usageTotals(): UsageTotals {
  let tokens = 0;
  let cost: number | undefined = 0;
  let charged = false;

  function reached(limits: Limits): ReturnType<UsageTotals['reached']> {
    if (limits.tokens !== undefined && charged && tokens === 0) return 'tokens-unknown';
    if (tokens >= (limits.tokens ?? Infinity)) return 'tokens';
    if (limits.cost === undefined) return undefined;
    if (cost === undefined) return 'cost-unknown';
    return cost >= limits.cost ? 'cost' : undefined;
  }

  return {
    charge(usage, counts = false) {
      charged ||= counts;
      tokens += usage.inputTokens + usage.outputTokens;
      cost = cost === undefined || usage.cost === undefined ? undefined : cost + usage.cost;
    },
    reached,
    isOver: (limits) => reached(limits) !== undefined,
    remaining(limits, calls, durationMs) {
      const used = { calls, tokens, cost: cost ?? 0, durationMs };
      const entries = Object.entries(limits) as [keyof Limits, number][];
      return Object.fromEntries(entries.map(([name, limit]) => [name, Math.max(0, limit - used[name])]));
    },
  };
}
