import { messageOf } from '../errors.ts';
import type { SettledResult } from '../machine/events.ts';
import { isNarrowing, NARROWING_FORM } from '../machine/narrowing.ts';
import type { Waiting } from '../machine/state.ts';
import { ERROR_TYPES, type ErrorFacts, type ErrorType, type ResultBlock, type Source } from '../messages.ts';

/** Converts the return value of a tool to a result for the model: a text, content blocks, or JSON. Else an error. */
export function resultOf(name: string, value: unknown): SettledResult {
  if (typeof value === 'string') return textResult(value);
  if (value === undefined) return textResult('(no output)');
  const output = outputOf(name, value);
  if (output) return output;
  if (value instanceof Error) return errorResult(`The tool "${name}" failed: ${messageOf(value)}`, errorFactsOf(value));
  try {
    const plain = JSON.stringify(value);
    // Only what became an empty object may be a Map or a Set, and a replacer takes several times as long.
    const json = plain?.includes('{}') ? JSON.stringify(value, withEntries) : plain;
    if (json === '{}' && !isPlainObject(value))
      return noJsonForm(name, `a ${Object.prototype.toString.call(value).slice(8, -1)}`);
    if (json !== undefined) return textResult(json);
  } catch (error) {
    return noJsonForm(name, messageOf(error));
  }
  return noJsonForm(name, `a ${typeof value}`);
}

/** A Map or a Set is its entries, which JSON would drop. */
function withEntries(_key: string, value: unknown): unknown {
  return value instanceof Map || value instanceof Set ? [...value] : value;
}

/** A generator and a regular expression become `{}` in JSON, which is not their value. */
function isPlainObject(value: unknown): boolean {
  const prototype: unknown = Object.getPrototypeOf(value);
  return prototype === Object.prototype || prototype === null;
}

export function errorResult(message: string, facts?: ErrorFacts): SettledResult {
  return { type: 'result', content: [{ type: 'error', text: message }], isError: true, ...facts };
}

/** What a thrown value, or the output of a tool, tells about an error. Anything else is ignored. Never throws. */
export function errorFactsOf(thrown: unknown): ErrorFacts {
  try {
    const given = (thrown ?? {}) as Readonly<Record<string, unknown>>;
    const { errorType, stderr, code } = given;
    const type = ERROR_TYPES.find((known) => known === errorType) ?? SYSTEM_ERRORS[String(code)];
    const numbers = NUMBERS.flatMap((key) => (Number.isSafeInteger(given[key]) ? [[key, given[key]]] : []));
    return {
      ...(type && { errorType: type }),
      ...Object.fromEntries(numbers),
      ...(typeof stderr === 'string' && { stderr }),
    };
  } catch {
    return {};
  }
}

const NUMBERS = ['exitCode', 'httpStatus', 'protocolCode'] as const;

/** Errors of the operating system. */
const SYSTEM_ERRORS: Readonly<Record<string, ErrorType>> = {
  ENOENT: 'not_found',
  EACCES: 'permission_denied',
  EPERM: 'permission_denied',
  ETIMEDOUT: 'timeout',
};

function textResult(text: string): SettledResult {
  return { type: 'result', content: [{ type: 'text', text }], isError: false };
}

function noJsonForm(name: string, what: string): SettledResult {
  return errorResult(`The tool "${name}" returned something that has no JSON form (${what}). Its result is lost.`);
}

/**
 * An object with `content`, optionally `isError` and `narrow`, with an error its facts, and no other key is a
 * `ToolOutput`.
 */
function outputOf(name: string, value: unknown): SettledResult | undefined {
  if (typeof value !== 'object' || value === null || !('content' in value)) return undefined;
  const { content, isError, narrow, ...others } = value as Record<string, unknown>;
  const failed = isError === true;
  if (Object.keys(others).some((key) => !failed || !ERROR_KEYS.includes(key as keyof ErrorFacts))) return undefined;
  const blocks = blocksOf(content);
  if (!blocks) return undefined;
  const facts = failed ? errorFactsOf(others) : undefined;
  const output = { type: 'result', content: blocks, isError: failed, ...facts } as const;
  if (narrow === undefined) return output as SettledResult;
  if ([narrow].flat().every(isNarrowing)) return { ...output, narrow: structuredClone(narrow) } as SettledResult;
  return errorResult(
    `The tool "${name}" returned a "narrow" that is not valid. ${NARROWING_FORM}. Its result is lost.`,
  );
}

export const ERROR_KEYS: readonly (keyof ErrorFacts)[] = ['errorType', 'stderr', ...NUMBERS];

/** A text or content blocks as content blocks; undefined for anything else. */
export function blocksOf(content: unknown): readonly ResultBlock[] | undefined {
  if (typeof content === 'string') return [{ type: 'text', text: content }];
  const blocks: readonly unknown[] = Array.isArray(content) ? content.map(blockOf) : [undefined];
  return blocks.includes(undefined) ? undefined : (blocks as readonly ResultBlock[]);
}

/** Copies the known fields of a block. Other fields may have no JSON form, and the tool may change its object later. */
function blockOf(block: unknown): ResultBlock | undefined {
  if (typeof block !== 'object' || block === null) return undefined;
  const { type, text, mediaType, name, source } = block as Record<string, unknown>;
  if (type === 'text' || type === 'error') return typeof text === 'string' ? { type, text } : undefined;
  const copied = sourceOf(source);
  if (!copied || typeof mediaType !== 'string') return undefined;
  if (type !== 'image' && type !== 'file') return undefined;
  return { type, mediaType, ...(typeof name === 'string' && { name }), source: copied };
}

function sourceOf(source: unknown): Source | undefined {
  if (typeof source !== 'object' || source === null) return undefined;
  const { type, data, url } = source as Record<string, unknown>;
  if (type === 'data' && typeof data === 'string') return { type, data };
  return type === 'url' && typeof url === 'string' ? { type, url } : undefined;
}

export function isTooLong(result: SettledResult, maxChars: number): boolean {
  return result.type === 'result' && textLength(result.content) > maxChars;
}

function textLength(content: readonly ResultBlock[]): number {
  let total = 0;
  for (let i = 0; i < content.length; i++) {
    const block = content[i]!;
    if ('text' in block) total += block.text.length;
  }
  return total;
}

/** Limits the text of a result to `maxChars`. A longer text keeps its head and its tail. */
export function truncateResult(result: SettledResult, maxChars: number): SettledResult {
  if (result.type !== 'result') return result;
  const content = truncateContent(result.content, maxChars);
  const { stderr = '' } = result;
  const cut = stderr.length > maxChars && { stderr: headAndTail(stderr, maxChars) };
  return content === result.content && !cut ? result : { ...result, content, ...cut };
}

export function truncateContent(content: readonly ResultBlock[], maxChars: number): readonly ResultBlock[] {
  if (textLength(content) <= maxChars) return content;
  let remaining = maxChars;
  let omitted = 0;
  const kept: ResultBlock[] = [];
  for (const block of content) {
    if (!('text' in block)) kept.push(block);
    else if (remaining === 0) omitted += block.text.length;
    else {
      kept.push(block.text.length <= remaining ? block : { ...block, text: headAndTail(block.text, remaining) });
      remaining = Math.max(0, remaining - block.text.length);
    }
  }
  // One note for all omitted blocks: one note per block could be longer than the blocks.
  if (omitted > 0)
    kept.push({ type: 'text', text: `[… ${omitted.toLocaleString('en-US')} more characters left out …]` });
  return kept;
}

function headAndTail(whole: string, maxChars: number): string {
  const tail = Math.floor(maxChars / 4);
  const head = maxChars - tail;
  const marker = `\n[… ${(whole.length - maxChars).toLocaleString('en-US')} of ${whole.length.toLocaleString('en-US')} characters left out …]\n`;
  const kept = whole.slice(0, head) + marker + (tail > 0 ? whole.slice(-tail) : '');
  // A slice keeps the whole string in memory; a round trip through JSON makes a copy. `toWellFormed` replaces the
  // halves of a surrogate pair that was cut in two.
  return JSON.parse(JSON.stringify(kept.toWellFormed()));
}

/** When a parked call fails, and when its tool is asked again. Times are in milliseconds since 1970. */
export interface ParkedUntil {
  /** The call fails if it has no result by then. Replaces an earlier deadline of the call. */
  readonly expiresAt?: number;
  /** The same, counted from when the call is parked with it. Has no effect on a call that already has a deadline. */
  readonly ttlMs?: number;
  /** When the run should be resumed to ask the tool again. */
  readonly wakeAt?: number;
}

/**
 * Returned by a tool whose call continues elsewhere. The run may pause on it. When the run is resumed, the tool is called
 * again, or its `verify` if it has the effect `once`. A result from outside (`Answer`) settles the call, too.
 */
export class Parked {
  readonly on: string;
  readonly waiting: readonly Waiting[];
  readonly until: ParkedUntil;

  /** `on`: what the call waits for, such as the id of a run; `waiting`: what that run waits for. */
  constructor(on: string, waiting: readonly Waiting[] = [], until: ParkedUntil = {}) {
    const wrong = Object.entries(until).find(([, time]) => time !== undefined && !Number.isFinite(time));
    if (wrong) throw new TypeError(`A call cannot be parked with ${wrong[0]} ${String(wrong[1])}. Give a number.`);
    this.on = on;
    this.waiting = waiting;
    this.until = until;
  }
}

/** Returned by a tool that is a whole run: its result, with the usage of that run. */
export class Finished {
  readonly result: SettledResult;

  constructor(result: SettledResult) {
    this.result = result;
  }
}

/** Returned by a tool whose own run cannot be driven. The calling run stops, as if its own journal had failed. */
export class Broken {
  readonly error: unknown;

  constructor(error: unknown) {
    this.error = error;
  }
}
