import { messageOf } from '../../errors.ts';
import type { Blobs } from '../../journal/port.ts';
import { textOf } from '../../messages.ts';
import { fitted } from '../../tools/result.ts';
import { factsOf, tool, type Tool } from '../../tools/tool.ts';
import type { Event, SettledResult } from '../events.ts';
import type { ToolFacts } from '../pinned.ts';
import type { Done, Stage } from './stage.ts';

const READ_RESULT = 'read_result';

/** The loop's own tool, which is there whenever it is needed. */
export function isOwn({ name }: ToolFacts): boolean {
  return name === READ_RESULT;
}

/** Whether a fact is the result of a call that was too long, and can be paged through. */
export function isPaged(event: Event): boolean {
  if (event.type !== 'tool-settled' || event.result.type !== 'result') return false;
  const note = event.result.content.at(-1);
  return note?.type === 'text' && note.text.includes(`Read on with ${READ_RESULT}`);
}

/** Keeps the whole of a result that is too long, and offers the tool that pages through it. */
export async function keepWhole(stage: Stage, effect: string, result: SettledResult, done: Done): Promise<void> {
  const { runId, rules, blobs, clock, state } = stage;
  const whole = result.type === 'result' ? textOf(result.content) : '';
  let note: string;
  try {
    const id = await blobs!.put(runId, whole);
    note = `The whole result has ${whole.length} characters. Read on with ${READ_RESULT}: {"id":"${id}","offset":0}`;
    const { tools } = state();
    const offered = tools.some(({ name }) => name === READ_RESULT);
    if (!offered) done({ type: 'tools-changed', at: clock.now(), tools: [...tools, factsOf(readResultTool(stage))] });
  } catch (error) {
    note = `The whole result could not be kept: ${messageOf(error)}`;
  }
  const kept = fitted(result, rules.maxResultChars) as Extract<SettledResult, { type: 'result' }>;
  const content = [...kept.content, { type: 'text', text: note } as const];
  done({ type: 'tool-settled', at: clock.now(), effect, result: { ...kept, content } });
}

/** Pages through results that were cut. It is there from the first of them on. */
export function readResultTool({ runId, rules, blobs }: Pick<Stage, 'runId' | 'rules' | 'blobs'>): Tool {
  const page = Math.max(1, rules.maxResultChars - 200);
  return tool({
    name: READ_RESULT,
    description: 'Reads on in a tool result that was too long to be shown whole',
    input: {
      type: 'object',
      properties: {
        id: { type: 'string', description: 'As given where the result was cut' },
        offset: { type: 'integer', description: 'The character to begin with; default 0' },
        limit: { type: 'integer', description: `How many characters; at most ${page}` },
      },
      required: ['id'],
    },
    effect: 'pure',
    execute: async ({ id, offset = 0, limit = page }) =>
      readPage(blobs!, runId, id as string, { offset: Number(offset), limit: Math.min(Number(limit), page) }),
  });
}

async function readPage(
  blobs: Blobs,
  runId: string,
  id: string,
  { offset, limit }: { offset: number; limit: number },
): Promise<unknown> {
  const from = Math.max(0, offset);
  const found = await blobs.read(runId, id, from, from + Math.max(1, limit));
  if (!found) return { content: `There is no result with the id "${id}".`, isError: true };
  const end = from + found.text.length;
  const rest = end < found.length ? `Go on with {"id":"${id}","offset":${end}}.` : 'That is the end.';
  return `${found.text}\n[${from} to ${end} of ${found.length} characters. ${rest}]`;
}
