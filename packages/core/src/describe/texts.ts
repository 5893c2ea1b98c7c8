import type { Outcome, Waiting } from '../machine/state.ts';
import type { Usage } from '../model.ts';

/* Texts about runs, for people. */

const SECOND = 1_000;
const MINUTE = 60 * SECOND;
const HOUR = 60 * MINUTE;
const DAY = 24 * HOUR;

/** A duration: `3 ms`, `1.2 s`, `3 min 5 s`, `2 h 10 min`, `4 d 3 h`. */
export function durationText(ms: number): string {
  if (ms < 100) return `${Math.max(0, Math.round(ms))} ms`;
  if (ms < 9_950) return `${(ms / SECOND).toFixed(1)} s`;
  const seconds = Math.round(ms / SECOND) * SECOND;
  if (seconds < MINUTE) return `${seconds / SECOND} s`;
  if (seconds < HOUR) return twoUnits(seconds, [MINUTE, 'min'], [SECOND, 's']);
  const minutes = Math.round(ms / MINUTE) * MINUTE;
  return minutes < DAY ? twoUnits(minutes, [HOUR, 'h'], [MINUTE, 'min']) : twoUnits(minutes, [DAY, 'd'], [HOUR, 'h']);
}

type Unit = readonly [ms: number, name: string];

function twoUnits(ms: number, [large, name]: Unit, [small, other]: Unit): string {
  const rest = Math.floor((ms % large) / small);
  return `${Math.floor(ms / large)} ${name}${rest === 0 ? '' : ` ${rest} ${other}`}`;
}

/** `1,200 in (800 cached), 50 out (20 reasoning), $0.0031`. Unknown parts are left out. */
export function usageText({ inputTokens, outputTokens, cachedTokens, reasoningTokens, cost }: Usage): string {
  const part = (tokens: number | undefined, name: string): string => (tokens ? ` (${count(tokens)} ${name})` : '');
  return [
    `${count(inputTokens)} in${part(cachedTokens, 'cached')}`,
    `${count(outputTokens)} out${part(reasoningTokens, 'reasoning')}`,
    ...(cost ? [costText(cost)] : []),
  ].join(', ');
}

/** In US dollars, with at least two digits that say something: `$0`, `$0.0031`, `$0.25`, `$1,200.50`. */
export function costText(cost: number): string {
  if (cost === 0) return '$0';
  const digits = cost >= 0.1 ? 2 : Math.min(12, 1 - Math.floor(Math.log10(cost)));
  return cost.toLocaleString('en', { style: 'currency', currency: 'USD', maximumFractionDigits: digits });
}

function count(tokens: number): string {
  return tokens.toLocaleString('en');
}

/** `1 turn`, `2 turns`, `1,000 entries`. */
export function plural(count: number, one: string, many = `${one}s`): string {
  return `${count.toLocaleString('en')} ${count === 1 ? one : many}`;
}

/** The beginning of an id, long enough to identify the run. Lists show it, and commands accept it. */
export function shortId(runId: string): string {
  return runId.replace(/^((?:run|resp)_[0-9a-f]{8})[0-9a-f]{24}(?=$|\.)/, '$1');
}

/** What to show beside the type of an outcome. */
export function outcomeDetail(outcome: Outcome): string | undefined {
  switch (outcome.type) {
    case 'completed':
      return outcome.truncated ? TRUNCATED : undefined;
    case 'exhausted':
      return LIMITS[outcome.limit];
    case 'failed':
      return errorText(outcome.error);
    case 'cancelled':
      return CANCELLED[outcome.phase];
  }
}

export function errorText({ code, message }: { readonly code: string; readonly message: string }): string {
  return `${code}: ${message}`;
}

const TRUNCATED = 'the answer was cut off at the length limit of the model';

const LIMITS: Readonly<Record<(Outcome & { type: 'exhausted' })['limit'], string>> = {
  turns: 'the turn limit',
  attempts: 'the attempt limit',
  calls: 'the call limit',
  tokens: 'the token limit',
  cost: 'the cost limit',
  duration: 'the time limit',
  errors: 'the limit of consecutive turns with only errors',
  repetition: 'the limit of repeated identical calls',
  budget: 'the limit of a budget',
};

const CANCELLED: Readonly<Record<(Outcome & { type: 'cancelled' })['phase'], string>> = {
  model: 'while the model was replying',
  tool: 'while a tool was running',
  approval: 'while waiting for approval',
  client: 'while waiting for a client result',
  validation: 'while the answer was being validated',
};

/** What a run waits for. `shown` makes a text of a model or a tool fit for where it is shown. */
export function waitingText(waiting: Waiting, shown: (text: string) => string = (text) => text): string {
  const call = shown(`${waiting.call.name} ${waiting.call.arguments}`);
  if (waiting.type === 'question') return `the answer to "${shown(waiting.question.prompt)}" of ${call}`;
  return waiting.type === 'approval' ? `approval of ${call}` : `the result of ${call}`;
}
