import {
  messagesOf,
  NEW,
  replay,
  step,
  type Call,
  type JournalEntry,
  type LoopResult,
  type Message,
  type State,
} from '@treadle/core';
import { entriesOf, runsOf, type Logged } from './logged-store.ts';

/** The key that a tool receives for a call: `runId/effectId`. */
function keyOf(runId: string, { turn, index }: Pick<Call, 'turn' | 'index'>): string {
  return `${runId}/t${turn}.tool.${index}`;
}

/** Calls that may have started and have no result, by their keys: now, or when their run ended. */
export function startedCalls(log: readonly Logged[], when: 'now' | 'when it ended' = 'now'): ReadonlyMap<string, Call> {
  const started = new Map<string, Call>();
  for (const runId of runsOf(log)) {
    const entries = entriesOf(log, runId);
    const { phase } = stateAfter(when === 'now' ? entries : entries.slice(0, -1));
    if (phase.type !== 'tools') continue;
    for (const slot of phase.slots) {
      const isBegun = slot.type === 'running' || slot.type === 'verifying' || (slot.type === 'queued' && slot.verify);
      if (isBegun) started.set(keyOf(runId, slot.call), slot.call);
    }
  }
  return started;
}

/** Keys of calls that have a result, and of outputs and guardrails that were checked. */
export function settledCalls(log: readonly Logged[]): ReadonlySet<string> {
  const settled = new Set<string>();
  for (const item of log) {
    if (item.type !== 'entry') continue;
    const { event } = item.entry;
    if (event.type === 'output-checked' || event.type === 'guardrails-checked') {
      settled.add(`${item.runId}/${event.effect}`);
    }
    if (event.type !== 'tool-settled') continue;
    const { effect, result } = event;
    if (result.type === 'result') settled.add(`${item.runId}/${effect.replace('.verify.', '.tool.')}`);
  }
  return settled;
}

/** Keys of calls that were parked, so they have acted. */
export function parkedCalls(log: readonly Logged[]): ReadonlySet<string> {
  const parked = new Set<string>();
  for (const item of log) {
    if (item.type !== 'entry' || item.entry.event.type !== 'tool-parked') continue;
    parked.add(`${item.runId}/${item.entry.event.effect.replace('.verify.', '.tool.')}`);
  }
  return parked;
}

/** Keys of calls that were answered "interrupted, effect unknown", derived from the events alone. */
export function interruptedCalls(log: readonly Logged[]): ReadonlySet<string> {
  const interrupted = new Set<string>();
  for (const runId of runsOf(log)) {
    let state: State = NEW;
    for (const { event } of entriesOf(log, runId)) {
      const effect = 'effect' in event ? event.effect : undefined;
      const index = Number(effect?.slice(effect.lastIndexOf('.') + 1));
      const call = state.phase.type === 'tools' ? state.phase.slots[index]?.call : undefined;
      const unknown = event.type === 'tool-settled' && event.result.type === 'unknown';
      if (call && (unknown || (event.type === 'effect-lost' && call.effect === 'once' && !call.verifiable))) {
        interrupted.add(keyOf(runId, call));
      }
      state = step(state, event).state;
    }
  }
  return interrupted;
}

/** Without the comparisons of a replay. */
function stateAfter(entries: readonly JournalEntry[]): State {
  return entries.reduce((state, { event }) => step(state, event).state, NEW);
}

export function stateOf(entries: readonly JournalEntry[]): State {
  const replayed = replay(entries);
  if (replayed.type === 'diverged') throw new Error(`entry ${replayed.seq}: ${replayed.difference}`);
  return replayed.state;
}

/** The end of a run, without times. */
export interface End extends Pick<LoopResult, 'outcome' | 'messages' | 'usage' | 'turns' | 'calls' | 'output'> {
  readonly memory: LoopResult['memory'] | undefined;
}

export function endsOf(log: readonly Logged[]): Readonly<Record<string, End>> {
  return Object.fromEntries(runsOf(log).map((runId) => [runId, endOf(stateOf(entriesOf(log, runId)))]));
}

function endOf({ phase, history, usage, turn, calls, output, memory }: State): End {
  const outcome = phase.type === 'ended' ? { outcome: phase.outcome } : {};
  return { ...outcome, messages: messagesOf(history), usage, turns: turn, calls, output, memory };
}

/** The same end, with the results that calls with an unknown effect have. */
export function withInterruptedResults(runId: string, end: End, keys: ReadonlySet<string>): End {
  const messages = end.messages.map((message): Message => {
    if (message.role !== 'tool') return message;
    const content = message.content.map((result) => {
      const [, turn, index] = /^t(\d+)\.model\.\d+\.(\d+)$/.exec(result.callId) ?? [];
      if (!keys.has(keyOf(runId, { turn: Number(turn), index: Number(index) }))) return result;
      const text = `The call of "${result.name}" was interrupted, and it is not known whether it took effect. Find out before you call it again.`;
      return {
        ...result,
        content: [{ type: 'error' as const, text }],
        isError: true,
        errorType: 'interrupted' as const,
      };
    });
    return { ...message, content };
  });
  return { ...end, messages };
}
