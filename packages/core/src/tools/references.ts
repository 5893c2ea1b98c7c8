import type { Blobs } from '../journal/port.ts';
import type { SettledResult } from '../machine/events.ts';
import type { ResultBlock, ToolCall } from '../messages.ts';
import type { Tool } from './tool.ts';

/*
 * Long results by reference. A reference is `{ "$blob": id, "length": characters }`, where the id is the digest of the
 * content. In a result, the field `blob` says that the text is a reference; in a call, `references` says which arguments
 * are. Both are set by code and never parsed from a text, so data that looks like a reference is only data.
 */

/** Stores the text of a result as a blob of the run. Images and files stay in the result. */
export async function referringResult(
  result: Extract<SettledResult, { type: 'result' }>,
  text: string,
  blobs: Blobs,
  runId: string,
): Promise<SettledResult> {
  const blob = await blobs.put(runId, text, 'written');
  const reference = JSON.stringify({ $blob: blob, length: text.length });
  const content: ResultBlock[] = [{ type: result.isError ? 'error' : 'text', text: reference }];
  return { ...result, content: [...content, ...result.content.filter((block) => !('text' in block))], blob };
}

/** The arguments of a call, with the values that its references stand for. Only blobs of the run are found. */
export async function resolvedArguments(
  tool: Tool,
  { arguments: text, references = [] }: Pick<ToolCall, 'arguments' | 'references'>,
  blobs: Blobs | undefined,
  runId: string,
): Promise<{ readonly text: string } | { readonly problem: string }> {
  if (!tool.execute) return { problem: 'The client executes it, so its arguments cannot refer to results.' };
  const given = objectFrom(text);
  if (!given) return { problem: 'Its arguments are not a JSON object.' };
  for (const name of references) {
    const { $blob: id } = Object((given as Record<string, unknown>)[name]) as { readonly $blob?: unknown };
    const found = typeof id === 'string' ? await blobs?.read(runId, id, 0, Infinity) : undefined;
    if (found?.text === undefined) return { problem: `Its argument "${name}" refers to a result that the run lacks.` };
    Object.defineProperty(given, name, { value: valueOf(found.text), enumerable: true });
  }
  return { text: JSON.stringify(given) };
}

function objectFrom(text: string): object | undefined {
  const value = valueOf(text);
  return typeof value === 'object' && value !== null && !Array.isArray(value) ? value : undefined;
}

/** The value of a JSON text. A text that is not JSON is its own value. */
export function valueOf(text: string): unknown {
  try {
    return JSON.parse(text);
  } catch {
    return text;
  }
}
