import { createRequire } from 'node:module';
import { createContext, Script } from 'node:vm';
import type { PatternMatcher } from '@treadle/core';
import type { RE2JS } from 're2js';

/**
 * Matches the patterns of JSON Schemas that come from others, such as MCP servers: no pattern blocks the process for long.
 *
 * 1. A pattern that RE2 supports is matched by it, in linear time. The result is that of JavaScript.
 * 2. Other patterns (lookaround, backreferences, repetitions above 1,000) are matched by JavaScript.
 * 3. All matches of a value together may take 200 ms. Then a match is stopped, and throws.
 */
export const matchPattern: PatternMatcher = (pattern, text) => {
  if (spentMs >= MAX_MS) throw tooSlow(pattern);
  if (spentMs === 0) setImmediate(() => (spentMs = 0)).unref();
  // Does not count: it happens once.
  engine ??= (load('re2js') as { readonly RE2JS: typeof RE2JS }).RE2JS;
  const started = performance.now();
  try {
    const { re2, size, expression } = cache.get(pattern) ?? compiled(pattern, engine);
    if (re2 && text.length * size <= QUICK_STEPS) return re2.test(text);
    return stoppable(pattern, () => (re2 ?? expression).test(text));
  } finally {
    spentMs += performance.now() - started;
  }
};

/** For all matches together in one turn of the event loop, because a value may contain many texts. */
const MAX_MS = 200;
let spentMs = 0;

/** Loaded when the first schema with a pattern is used. A matcher cannot wait for an import. */
const load = createRequire(import.meta.url);
let engine: typeof RE2JS | undefined;

interface CompiledPattern {
  readonly expression: RegExp;
  /** Absent: not supported. */
  readonly re2?: RE2JS;
  /** The number of instructions of `re2`. */
  readonly size: number;
}

const MAX_PATTERN_CHARS = 10_000;
/** A pattern of so many characters is prepared in a few milliseconds. */
const QUICK_CHARS = 200;
/** Takes a millisecond at most. */
const QUICK_STEPS = 20_000;
const MAX_CACHED = 500;
const cache = new Map<string, CompiledPattern>();

/** Throws a `SyntaxError` if the pattern is not an expression of JavaScript. */
function compiled(pattern: string, library: typeof RE2JS): CompiledPattern {
  if (pattern.length > MAX_PATTERN_CHARS) {
    throw new Error(`a pattern has ${pattern.length} characters, and may have ${MAX_PATTERN_CHARS}`);
  }
  const expression = new RegExp(pattern, 'u');
  const prepare = (): ReturnType<typeof re2Of> => re2Of(pattern, library);
  const made = { expression, size: 0, ...(pattern.length <= QUICK_CHARS ? prepare() : stoppable(pattern, prepare)) };
  if (cache.size >= MAX_CACHED) cache.delete(cache.keys().next().value!);
  cache.set(pattern, made);
  return made;
}

function re2Of(pattern: string, library: typeof RE2JS): Pick<CompiledPattern, 're2' | 'size'> | undefined {
  try {
    const re2 = library.compile(library.translateRegExp(withJavaScriptClasses(pattern)));
    return { re2, size: re2.programSize() };
  } catch {
    return undefined;
  }
}

const LINE_ENDS = String.raw`\n\r\x{2028}\x{2029}`;
const SPACES = String.raw`\t-\r \x{A0}\x{1680}\x{2000}-\x{200A}\x{2028}\x{2029}\x{202F}\x{205F}\x{3000}\x{FEFF}`;

/** Replaces what RE2 reads differently from JavaScript. Throws for what it cannot express. */
function withJavaScriptClasses(pattern: string): string {
  let isInClass = false;
  return pattern.replaceAll(/\\[^]|[[\].]/gu, (part) => {
    switch (part) {
      case '[':
        if (isInClass) return String.raw`\[`;
        isInClass = true;
        return part;
      case ']':
        isInClass = false;
        return part;
      case '.':
        return isInClass ? part : `[^${LINE_ENDS}]`;
      case String.raw`\s`:
        return isInClass ? SPACES : `[${SPACES}]`;
      case String.raw`\S`:
        if (isInClass) throw new Error('not supported');
        return `[^${SPACES}]`;
      // RE2 would read a letter.
      case String.raw`\k`:
        throw new Error('not supported');
      default:
        return part;
    }
  });
}

const context: { work?: () => unknown } = {};
let script: Script | undefined;

/** Throws if it takes longer than the rest of the time. */
function stoppable<T>(pattern: string, work: () => T): T {
  if (!script) {
    createContext(context);
    script = new Script('work()');
  }
  try {
    context.work = work;
    return script.runInContext(context, { timeout: Math.ceil(MAX_MS - spentMs) }) as T;
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code !== 'ERR_SCRIPT_EXECUTION_TIMEOUT') throw error;
    // It was stopped in the middle of its work.
    cache.delete(pattern);
    // The clock of the timeout may be a little ahead.
    spentMs = MAX_MS;
    throw tooSlow(pattern);
  } finally {
    delete context.work;
  }
}

function tooSlow(pattern: string): Error {
  const shown = pattern.length > 100 ? `${pattern.slice(0, 100)}…` : pattern;
  return new Error(`the pattern ${JSON.stringify(shown)} takes too long. Simplify it, or shorten the text`);
}
