import { messageOf } from '../errors.ts';
import type { SettledResult } from '../loop/events.ts';
import type { Waiting } from '../loop/state.ts';
import type { ResultBlock, Source } from '../messages.ts';

/** What a tool gave, as a result for the model: a text, its blocks, or its JSON form. Anything else is an error. */
export function resultOf(name: string, value: unknown): SettledResult {
  if (typeof value === 'string') return text(value);
  if (value === undefined) return text('(no output)');
  const output = outputOf(value);
  if (output) return output;
  if (value instanceof Error) return errorResult(`The tool "${name}" failed: ${messageOf(value)}`);
  try {
    const json = JSON.stringify(value);
    if (json === '{}' && !isPlain(value))
      return unusable(name, `a ${Object.prototype.toString.call(value).slice(8, -1)}`);
    if (json !== undefined) return text(json);
  } catch (error) {
    return unusable(name, messageOf(error));
  }
  return unusable(name, `a ${typeof value}`);
}

/** A Map, a generator or a regular expression has nothing in its JSON form, and that is no result. */
function isPlain(value: unknown): boolean {
  const prototype: unknown = Object.getPrototypeOf(value);
  return prototype === Object.prototype || prototype === null;
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

/** `{ content }` or `{ content, isError }`, and nothing else, is meant as a result. */
function outputOf(value: unknown): SettledResult | undefined {
  if (typeof value !== 'object' || value === null || !('content' in value)) return undefined;
  const { content, isError, ...others } = value as Record<string, unknown>;
  if (Object.keys(others).length > 0) return undefined;
  if (typeof content === 'string') return { ...text(content), isError: isError === true } as SettledResult;
  const blocks = Array.isArray(content) ? content.map(blockOf) : [undefined];
  return blocks.includes(undefined)
    ? undefined
    : { type: 'result', content: blocks as ResultBlock[], isError: isError === true };
}

/** A copy with what belongs to a block: what else a tool put there may have no JSON form, and change later. */
function blockOf(block: unknown): ResultBlock | undefined {
  if (typeof block !== 'object' || block === null) return undefined;
  const { type, text, mediaType, name, source } = block as Record<string, unknown>;
  if (type === 'text' || type === 'error') return typeof text === 'string' ? { type, text } : undefined;
  const from = sourceOf(source);
  if (!from || typeof mediaType !== 'string') return undefined;
  if (type === 'image') return { type, mediaType, source: from };
  return type === 'file' ? { type, mediaType, ...(typeof name === 'string' && { name }), source: from } : undefined;
}

function sourceOf(source: unknown): Source | undefined {
  if (typeof source !== 'object' || source === null) return undefined;
  const { type, data, url } = source as Record<string, unknown>;
  if (type === 'data' && typeof data === 'string') return { type, data };
  return type === 'url' && typeof url === 'string' ? { type, url } : undefined;
}

export function isTooLong(result: SettledResult, most: number): boolean {
  return result.type === 'result' && textLength(result.content) > most;
}

function textLength(content: readonly ResultBlock[]): number {
  let total = 0;
  for (let i = 0; i < content.length; i++) {
    const block = content[i]!;
    if ('text' in block) total += block.text.length;
  }
  return total;
}

/** The result with at most `most` characters of text: of what is longer, the head and the tail. */
export function fitted(result: SettledResult, most: number): SettledResult {
  if (result.type !== 'result') return result;
  const content = fittedContent(result.content, most);
  return content === result.content ? result : { ...result, content };
}

export function fittedContent(content: readonly ResultBlock[], most: number): readonly ResultBlock[] {
  if (textLength(content) <= most) return content;
  let left = most;
  let gone = 0;
  const kept: ResultBlock[] = [];
  for (const block of content) {
    if (!('text' in block)) kept.push(block);
    else if (left === 0) gone += block.text.length;
    else {
      kept.push(block.text.length <= left ? block : { ...block, text: cut(block.text, left) });
      left = Math.max(0, left - block.text.length);
    }
  }
  // One note for all the blocks that are left out: a note for each could be longer than they are.
  if (gone > 0) kept.push({ type: 'text', text: `[… ${gone.toLocaleString('en-US')} more characters left out …]` });
  return kept;
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

/** Returned by a tool whose call goes on elsewhere: the run may pause on it, and the call runs again to take it up. */
export class Parked {
  readonly on: string;
  readonly waiting: readonly Waiting[];

  /** `on`: what it is waited for, such as the id of a run; `waiting`: what that waits for itself. */
  constructor(on: string, waiting: readonly Waiting[] = []) {
    this.on = on;
    this.waiting = waiting;
  }
}

/** Returned by a tool that was a whole run: its result, and what it has used. */
export class Finished {
  readonly result: SettledResult;

  constructor(result: SettledResult) {
    this.result = result;
  }
}

/** Returned by a tool whose own run cannot be driven: the calling run stops as if its own journal had failed. */
export class Broken {
  readonly error: unknown;

  constructor(error: unknown) {
    this.error = error;
  }
}
