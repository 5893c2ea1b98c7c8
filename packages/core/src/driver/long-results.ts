import { messageOf } from '../errors.ts';
import type { SettledResult } from '../machine/events.ts';
import { isReadResult } from '../machine/narrowing.ts';
import { textOf } from '../messages.ts';
import { referringResult } from '../tools/references.ts';
import { truncateResult } from '../tools/result.ts';
import { factsOf } from '../tools/tool.ts';
import type { RunContext, Settle } from './perform.ts';

/* Results that are too long for the history. Loaded with the first one. */

/** Records a result that is too long, of a run that has references or blobs. */
export function recordLong(context: RunContext, effect: string, result: SettledResult, settle: Settle): Promise<void> {
  const { references } = context.opening.rules;
  return (references ? settleByReference : storeLongResult)(context, effect, result, settle);
}

/** Stores a result that is too long as a blob, and offers the tool that pages through it. */
async function storeLongResult(
  { runId, opening, blobs, readResult, clock, state }: RunContext,
  effect: string,
  result: SettledResult,
  settle: Settle,
): Promise<void> {
  const text = result.type === 'result' ? textOf(result.content) : '';
  let note: string;
  try {
    const id = await blobs!.put(runId, text, 'written');
    note = partialResultNote(readResult!.name, id, text.length);
    const { tools, nextTools } = state();
    const at = clock.now();
    // Also into a change that waits for the next turn, and there first, because the process may die in between.
    if (nextTools && !nextTools.some(isReadResult)) {
      settle({ type: 'tools-changed', at, tools: [...nextTools, factsOf(readResult!)], from: 'next-turn' });
    }
    if (!tools.some(isReadResult)) {
      settle({ type: 'tools-changed', at, tools: [...tools, factsOf(readResult!)] });
    }
  } catch (error) {
    note = `The whole result could not be stored: ${messageOf(error)}`;
  }
  const cut = truncateResult(result, opening.rules.maxResultChars) as Extract<SettledResult, { type: 'result' }>;
  const content = [...cut.content, { type: 'text', text: note } as const];
  settle({ type: 'tool-settled', at: clock.now(), effect, result: { ...cut, content } });
}

/** The note after a result that was cut. `isPagedResult` recognises it by its text, so the text must stay the same. */
function partialResultNote(name: string, id: string, length: number): string {
  return `The whole result has ${length} characters. Read on with ${name}: {"id":"${id}","offset":0}`;
}

/** A result that is too long is stored as a blob, and recorded as a reference to it. It is never cut. */
async function settleByReference(
  { runId, blobs, clock }: RunContext,
  effect: string,
  result: SettledResult,
  settle: Settle,
): Promise<void> {
  let recorded = result;
  // Without a store, or if it fails, the event has the whole result.
  if (blobs && result.type === 'result') {
    recorded = await referringResult(result, textOf(result.content), blobs, runId).catch(() => result);
  }
  settle({ type: 'tool-settled', at: clock.now(), effect, result: recorded });
}
