import { mapped } from '../mapped.ts';
import type { ResultBlock, ToolCall } from '../messages.ts';
import { finishOf } from './finish/finish.ts';
import type { Claim } from './finish/strategy.ts';
import { choiceOf } from './outstanding.ts';
import { shareOf } from './share.ts';
import type { CallCheck } from './events.ts';
import type { ToolFacts } from './pinned.ts';
import type { Call, Settling, Slot, State } from './state.ts';
import { wordingOf } from './wording.ts';

/** More calls than this in one reply are a fault of the model, whatever the rules say. */
const MOST_CALLS = 128;

const NO_RESOURCES: readonly string[] = [];

/** One slot per call of a reply: queued if it may run, else settled with an error result that says why not. */
export function plan(state: State, calls: readonly ToolCall[], checks: readonly CallCheck[]): readonly Slot[] {
  let admitted = 0;
  let unshared = 1;
  let repeating = true;
  const claimOf = finishOf(state.rules).claim?.(state, calls.slice(0, MOST_CALLS));
  return mapped(calls, (part, index): Slot => {
    const facts = state.tools.find(({ name }) => name === part.name);
    const check = checks[index] ?? UNCHECKED;
    const call: Call = {
      turn: state.turn,
      index,
      id: part.id,
      name: part.name,
      arguments: check.arguments ?? part.arguments,
      resources: check.resources ?? NO_RESOURCES,
      effect: facts?.effect ?? 'once',
      exclusive: facts?.exclusive ?? false,
      client: facts?.client ?? false,
      verifiable: facts?.verifiable ?? false,
    };
    const claim = index < MOST_CALLS ? claimOf?.(index) : undefined;
    const refusal = claim ? undefined : refusalOf(state, { call, check, facts, admitted, repeating });
    repeating &&= refusal?.[1] === 'repeated';
    if (claim) return claimed(state, { ...call, claimed: true }, check, claim);
    if (refusal) return refuse(call, ...refusal);
    admitted++;
    if (facts?.share === undefined) return { type: 'queued', call };
    const limits = shareOf(state, unshared * facts.share);
    unshared *= 1 - facts.share;
    return { type: 'queued', call: { ...call, limits } };
  });
}

/** A call of the finish strategy's own: no limit and no choice concerns it. */
function claimed({ rules }: State, call: Call, { problem }: CallCheck, claim: Claim): Slot {
  switch (claim.type) {
    case 'hold':
      return { type: 'held', call };
    case 'answer':
      return settle(call, [{ type: claim.isError ? 'error' : 'text', text: claim.text }], claim.isError, 'claimed');
    case 'run':
      if (problem === undefined) return { type: 'queued', call };
      return refuse(call, wordingOf(rules).badCall(call.name, problem), 'claimed');
    default:
      return claim satisfies never;
  }
}

const UNCHECKED: CallCheck = { problem: 'Its arguments were not checked.' };

interface Candidate {
  readonly call: Call;
  readonly check: CallCheck;
  readonly facts: ToolFacts | undefined;
  /** Calls of the same reply that were let through before it. */
  readonly admitted: number;
  /** All of them before it were refused as repeated: nothing has come between it and the calls that it repeats. */
  readonly repeating: boolean;
}

function refusalOf(state: State, candidate: Candidate): [string, Settling] | undefined {
  const { call, check, facts, admitted, repeating } = candidate;
  const { rules } = state;
  const { name } = call;
  const words = wordingOf(rules);
  const choice = choiceOf(state);

  const cap = Math.min(rules.maxCallsPerTurn ?? MOST_CALLS, MOST_CALLS);
  if (call.index >= cap) return [words.tooManyCalls(cap), 'capped'];

  if (state.closing !== undefined) return [words.choiceNone, 'capped'];
  if (state.spent > 0) return [words.callsSpent(rules.limits.calls!), 'spent'];
  if (choice === 'none') return [words.choiceNone, 'ran'];

  if (!facts) return [words.unknownTool(name, allowedNames(state)), 'ran'];
  if (!isAllowed(state, name)) return [words.notAllowed(name, allowedNames(state)), 'ran'];
  if (typeof choice === 'object' && choice.tool !== name) return [words.choiceOther(name, choice.tool), 'ran'];
  if (check.problem !== undefined) return [words.badCall(name, check.problem), 'ran'];

  const { calls: limit } = rules.limits;
  if (limit !== undefined && state.calls + admitted >= limit) return [words.callsSpent(limit), 'spent'];
  if (!repeating || facts.polling || !isRepeated(state, call)) return undefined;
  return [words.repeated(name, state.streak!.count), 'repeated'];
}

function isAllowed({ rules, decision }: State, name: string): boolean {
  return (rules.allowedTools?.includes(name) ?? true) && (decision?.tools?.includes(name) ?? true);
}

function allowedNames(state: State): readonly string[] {
  return state.tools.flatMap(({ name }) => (isAllowed(state, name) ? name : []));
}

function isRepeated({ rules, streak }: State, call: Call): boolean {
  if (rules.repeatLimit === 0 || !streak || streak.count < rules.repeatLimit) return false;
  return streak.name === call.name && streak.arguments === call.arguments;
}

/** Whether the reply has done what the standing tool choice demands: `auto` and `none` demand nothing. */
export function satisfiesChoice(state: State, calls: readonly ToolCall[]): boolean {
  const choice = choiceOf(state);
  if (choice === 'auto' || choice === 'none') return true;
  const allowed = allowedNames(state);
  return calls.some(({ name }) => allowed.includes(name) && (choice === 'required' || choice.tool === name));
}

/** Calls that now may run and count for the limits. */
export function admitted(slots: readonly Slot[]): number {
  let count = 0;
  for (let index = 0; index < slots.length; index++) {
    const { type, call } = slots[index]!;
    if (type === 'queued' && !call.claimed) count++;
  }
  return count;
}

export function settle(call: Call, content: readonly ResultBlock[], isError: boolean, how: Settling = 'ran'): Slot {
  return {
    type: 'settled',
    call,
    result: { type: 'tool-result', callId: call.id, name: call.name, content, isError },
    how,
  };
}

/** Settles a call that gave nothing, with an error result that says why. */
export function refuse(call: Call, text: string, how: Settling = 'ran'): Slot {
  return settle(call, [{ type: 'error', text }], true, how);
}
