import { messageOf } from '../errors.ts';
import type { SettledResult } from '../loop/types.ts';
import type { ResultBlock } from '../messages.ts';

/** What a tool gave, as a result for the model: a text, its blocks, or its JSON form. Anything else is an error. */
export function resultOf(name: string, value: unknown): SettledResult {
  if (typeof value === 'string') return text(value);
  if (value === undefined) return text('(no output)');
  if (isOutput(value)) {
    const content: readonly ResultBlock[] =
      typeof value.content === 'string' ? [{ type: 'text', text: value.content }] : value.content;
    return { type: 'result', content, isError: value.isError === true };
  }
  try {
    const json = JSON.stringify(value);
    if (json !== undefined) return text(json);
  } catch (error) {
    return unusable(name, messageOf(error));
  }
  return unusable(name, `a ${typeof value}`);
}

export function errorResult(message: string): SettledResult {
  return { type: 'result', content: [{ type: 'error', text: message }], isError: true };
}

function text(words: string): SettledResult {
  return { type: 'result', content: [{ type: 'text', text: words }], isError: false };
}

function unusable(name: string, what: string): SettledResult {
  return errorResult(`The tool "${name}" returned something that has no JSON form (${what}). Its result is lost.`);
}

interface Output {
  readonly content: string | readonly ResultBlock[];
  readonly isError?: unknown;
}

function isOutput(value: unknown): value is Output {
  if (typeof value !== 'object' || value === null || !('content' in value)) return false;
  const { content, ...rest } = value;
  if (Object.keys(rest).some((key) => key !== 'isError')) return false;
  return typeof content === 'string' || (Array.isArray(content) && content.every(isBlock));
}

function isBlock(block: unknown): block is ResultBlock {
  if (typeof block !== 'object' || block === null || !('type' in block)) return false;
  if (block.type === 'text' || block.type === 'error') return 'text' in block && typeof block.text === 'string';
  if (block.type !== 'image' && block.type !== 'file') return false;
  return 'mediaType' in block && typeof block.mediaType === 'string' && 'source' in block && isSource(block.source);
}

function isSource(source: unknown): boolean {
  if (typeof source !== 'object' || source === null || !('type' in source)) return false;
  if (source.type === 'data') return 'data' in source && typeof source.data === 'string';
  return source.type === 'url' && 'url' in source && typeof source.url === 'string';
}

/** The result with at most `most` characters of text: of what is longer, the head and the tail. */
export function fitted(result: SettledResult, most: number): SettledResult {
  if (result.type !== 'result') return result;
  let total = 0;
  for (const block of result.content) if ('text' in block) total += block.text.length;
  if (total <= most) return result;
  let left = most;
  const content = result.content.map((block) => {
    if (!('text' in block)) return block;
    const kept = block.text.length <= left ? block.text : cut(block.text, left);
    left = Math.max(0, left - block.text.length);
    return { ...block, text: kept };
  });
  return { ...result, content };
}

function cut(whole: string, most: number): string {
  const tail = Math.floor(most / 4);
  const head = most - tail;
  const marker = `\n[… ${(whole.length - most).toLocaleString('en-US')} of ${whole.length.toLocaleString('en-US')} characters left out …]\n`;
  const kept = whole.slice(0, head) + marker + (tail > 0 ? whole.slice(-tail) : '');
  // A slice keeps the whole text alive; going through JSON makes a copy that does not. It also takes care of a
  // surrogate pair that was cut in two.
  return JSON.parse(JSON.stringify(kept.toWellFormed()));
}
