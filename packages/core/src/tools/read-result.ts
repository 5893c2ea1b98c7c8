import type { Blobs } from '../journal/port.ts';
import { isReadResult, READ_RESULT, READ_RESULT_DESCRIPTION } from '../machine/narrowing.ts';
import type { Rules, ToolFacts } from '../machine/rules.ts';
import { duplicateTool, tool, type Tool } from './tool.ts';

/** The name of the loop's own tool: the one that the run uses already, or else one that no other tool has. */
export function readResultName(had: readonly ToolFacts[], tools: Iterable<string>): string {
  const own = had.find(isReadResult);
  if (own) return own.name;
  const taken = new Set([...tools, ...had.map(({ name }) => name)]);
  let name = READ_RESULT;
  for (let next = 2; taken.has(name); next++) name = `${READ_RESULT}_${next}`;
  return name;
}

/** Adds the loop's own tool to other tools. Throws `duplicate-tool` if one of them has its name. */
export function withReadResult(tools: readonly ToolFacts[], own: readonly ToolFacts[]): readonly ToolFacts[] {
  for (const { name } of own) {
    if (!tools.some((other) => other.name === name)) continue;
    throw duplicateTool(name, 'tools', 'the run itself, which pages through long results with it', 'the new tools');
  }
  return [...tools, ...own];
}

/** Pages through results that were cut. It is offered from the first of them on. */
export function readResultTool(name: string, runId: string, { maxResultChars }: Rules, blobs: Blobs): Tool {
  const page = Math.max(1, maxResultChars - 200);
  return tool({
    name,
    description: READ_RESULT_DESCRIPTION,
    unnarrowed: true,
    touches: () => [],
    input: {
      type: 'object',
      properties: {
        id: { type: 'string', description: 'The id in the note where the result was cut' },
        offset: { type: 'integer', description: 'The character to start with; default 0' },
        limit: { type: 'integer', description: `The number of characters; at most ${page}` },
      },
      required: ['id'],
    },
    effect: 'pure',
    execute: async ({ id, offset = 0, limit = page }) =>
      readPage(blobs, runId, id as string, { offset: Number(offset), limit: Math.min(Number(limit), page) }),
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
  if (found.text === undefined) {
    return {
      content: `"${id}" is not a text. It has ${found.length} bytes of type ${found.mediaType}.`,
      isError: true,
    };
  }
  const end = from + found.text.length;
  const rest = end < found.length ? `Continue with {"id":"${id}","offset":${end}}.` : 'This is the end.';
  return `${found.text}\n[${from} to ${end} of ${found.length} characters. ${rest}]`;
}
