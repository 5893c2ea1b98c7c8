/**
 * Counts work, so that a test can compare the work for two inputs without measuring time.
 *
 * V8 counts how often each block of the code runs. It does not see what built-in functions do: a `join` or a spread is one
 * step, however long the text or the list is. So the functions that visit or copy a whole value are replaced by ones that
 * count its elements and characters. A concatenation alone is not counted, because V8 copies its parts only when the text is
 * read, and that is counted.
 *
 * The counts of V8 are exact only for code that has not run before, so a test file that uses this needs a process of its own:
 * see `ISOLATED` in vitest.config.ts.
 */
import { Session, type Profiler } from 'node:inspector';

export interface Work {
  /** How often blocks of code were entered, which includes iterations of loops, by function. */
  readonly blocks: ReadonlyMap<string, readonly Block[]>;
  /** Elements that built-in functions visited or copied, by the place that called them. */
  readonly elements: ReadonlyMap<string, number>;
  /** Characters that were written to or read from JSON, by place. */
  readonly json: ReadonlyMap<string, number>;
  /** Characters and bytes that other built-in functions read or wrote, by place. */
  readonly chars: ReadonlyMap<string, number>;
}

interface Block {
  readonly start: number;
  readonly end: number;
  readonly count: number;
}

export interface WorkCounter extends Disposable {
  /** Forgets what was counted so far. */
  reset(): void;
  /** What was counted since the last `reset` or `read`. */
  read(): Work;
}

interface CounterOptions {
  /** Matches the paths of the files whose work is counted. */
  readonly files: RegExp;
  /**
   * Counts what built-in functions do for each place in `files` that calls them, without calls with a few elements or characters:
   * finding the place takes long. By default everything is counted for one place.
   */
  readonly places?: boolean;
}

/** With places, calls with fewer elements or characters are not counted. V8 counts the block that makes many of them. */
const FEW = { elements: 8, json: 64, chars: 64 };

/** Starts counting. The built-in functions are restored when the counter is disposed. */
export function countWork({ files, places = false }: CounterOptions): WorkCounter {
  const session = blockCounts();
  const noCounts = () => ({ elements: new Map<string, number>(), json: new Map<string, number>(), chars: new Map() });
  let counts = noCounts();
  const restore = replaceBuiltIns((kind, count) => {
    if (places && count < FEW[kind]) return;
    const place = places ? callingPlace(files) : '';
    if (place !== undefined) counts[kind].set(place, (counts[kind].get(place) ?? 0) + count);
  });

  return {
    reset() {
      blocksIn(session, files);
      counts = noCounts();
    },
    read() {
      const counted = counts;
      counts = noCounts();
      const blocks = blocksIn(session, files);
      // Without what reading the blocks has added.
      counts = noCounts();
      return { blocks, ...counted };
    },
    [Symbol.dispose]() {
      for (const one of restore.reverse()) one();
    },
  };
}

let started: Session | undefined;

/** V8 counts until the process ends: it does not count blocks again in functions that it had stopped counting in. */
function blockCounts(): Session {
  if (started) return started;
  started = new Session();
  started.connect();
  started.post('Profiler.enable');
  started.post('Profiler.startPreciseCoverage', { callCount: true, detailed: true });
  return started;
}

/** The blocks that were executed since the last call. */
function blocksIn(session: Session, files: RegExp): Work['blocks'] {
  const blocks = new Map<string, Block[]>();
  // The callback is called before `post` returns.
  session.post('Profiler.takePreciseCoverage', (error, taken: Profiler.TakePreciseCoverageReturnType) => {
    if (error) throw error;
    for (const { url, functions } of taken.result) {
      if (!files.test(url)) continue;
      for (const { functionName, ranges } of functions) {
        const own = ranges.map(({ startOffset: start, endOffset: end, count }) => ({ start, end, count }));
        blocks.set(`${url} ${functionName} ${own[0]!.start}`, own);
      }
    }
  });
  return blocks;
}

/** The place in `files` that has called a built-in function; undefined if another one has. */
function callingPlace(files: RegExp): string | undefined {
  const { prepareStackTrace, stackTraceLimit } = Error;
  Error.stackTraceLimit = 8;
  Error.prepareStackTrace = (_, frames) => frames;
  const frames = new Error().stack as unknown as readonly NodeJS.CallSite[] | string;
  Error.prepareStackTrace = prepareStackTrace;
  Error.stackTraceLimit = stackTraceLimit;
  // While a stack trace is prepared, V8 prepares no other one.
  if (typeof frames === 'string') return undefined;
  for (let at = 0; at < frames.length; at++) {
    const frame = frames[at]!;
    const file = frame.getFileName();
    if (file === OWN_FILE || file === null || file === undefined) continue;
    if (!files.test(file)) return undefined;
    return `${file} ${frame.getFunctionName() ?? ''} ${frame.getLineNumber()}:${frame.getColumnNumber()}`;
  }
  return undefined;
}

const OWN_FILE = import.meta.filename;

// ── Built-in functions ───────────────────────────────────────────────────────────────────────────────────────────────

type Count = (kind: 'elements' | 'json' | 'chars', count: number) => void;
type Method = (this: never, ...all: never[]) => unknown;
/** Counts a call, from what it was called on and with, and what it returned. */
type Measure = (self: never, all: readonly never[], result: never) => void;

/** Returns functions that restore the built-in ones. */
function replaceBuiltIns(count: Count): (() => void)[] {
  const restore: (() => void)[] = [];
  /** What the functions below do themselves is not counted. */
  let isCounting = true;

  function countElements(visited: number): void {
    if (!isCounting) return;
    isCounting = false;
    try {
      count('elements', visited);
    } finally {
      isCounting = true;
    }
  }

  function replace(target: object, names: readonly PropertyKey[], by: (original: Method) => Method): void {
    for (const name of names) {
      const descriptor = Object.getOwnPropertyDescriptor(target, name)!;
      restore.push(() => Object.defineProperty(target, name, descriptor));
      Object.defineProperty(target, name, { ...descriptor, value: by(descriptor.value as Method) });
    }
  }

  function measure(target: object, names: readonly PropertyKey[], measured: Measure): void {
    replace(
      target,
      names,
      (original) =>
        function (this: never, ...all: never[]) {
          const result = Reflect.apply(original, this, all) as never;
          if (!isCounting) return result;
          isCounting = false;
          try {
            measured(this, all, result);
          } finally {
            isCounting = true;
          }
          return result;
        },
    );
  }

  const elements = (value: unknown): void => count('elements', sizeOf(value));
  const chars = (value: unknown): void => count('chars', lengthOf(value));

  measure(Array.prototype, WHOLE_LIST, (list: readonly unknown[]) => elements(list));
  replace(Array.prototype, SEARCHES, (original) => countVisits(original, countElements));
  measure(Array.prototype, ['slice', 'concat', 'flat'], (_, _all, result) => elements(result));
  measure(Array.prototype, ['push'], (_, all) => elements(all.length > 1 ? all : []));
  measure(Array.prototype, ['join'], (list: readonly unknown[], _, result) => {
    elements(list);
    chars(result);
  });
  measure(Array, ['from'], (_, _all, result) => elements(result));
  replace(
    Array.prototype,
    ['values', 'entries', 'keys', Symbol.iterator],
    (original) =>
      function* (this: never, ...all: never[]) {
        let visited = 0;
        try {
          for (const iterator = Reflect.apply(original, this, all) as Iterator<unknown>; ; visited++) {
            const next = iterator.next();
            if (next.done) return;
            yield next.value;
          }
        } finally {
          countElements(visited);
        }
      },
  );
  for (const { prototype } of [Map, Set]) {
    measure(prototype, ['values', 'entries', 'keys', 'forEach', Symbol.iterator], elements);
  }
  measure(Object, ['keys', 'values', 'entries', 'assign', 'fromEntries', 'freeze'], (_, all) => all.forEach(elements));

  measure(String.prototype, WHOLE_TEXT, (text: string, _, result) => {
    chars(text);
    chars(result);
  });
  measure(String.prototype, ['slice', 'substring', 'repeat', 'padStart', 'padEnd'], (_, _all, result) => chars(result));
  measure(String.prototype, ['indexOf'], (text: string, [, from = 0], at: number) =>
    count('chars', (at === -1 ? text.length : at) - from),
  );
  measure(RegExp.prototype, ['exec', 'test'], (pattern: RegExp, [text]) => count('chars', readBy(pattern, text)));
  const json = (value: unknown): void => count('json', lengthOf(value));
  measure(JSON, ['stringify'], (_, _all, result) => json(result));
  measure(JSON, ['parse'], (_, [text]) => json(text));
  measure(globalThis, ['structuredClone'], (_, [value]) => json(JSON.stringify(value)));

  measure(Buffer, ['concat', 'from'], (_, _all, result) => chars(result));
  measure(Buffer, ['byteLength'], (_, [text]) => chars(text));
  measure(Buffer.prototype, ['toString', 'write', 'copy'], (_, _all, result) => chars(result));
  measure(Object.getPrototypeOf(Uint8Array.prototype) as object, ['set', 'slice', 'includes'], (bytes) => chars(bytes));
  measure(TextDecoder.prototype, ['decode'], (_, _all, result) => chars(result));
  measure(TextEncoder.prototype, ['encode'], (_, _all, result) => chars(result));
  return restore;
}

const WHOLE_LIST = (
  'splice map filter flatMap forEach reduce reduceRight indexOf lastIndexOf includes with toSpliced toSorted toReversed sort ' +
  'reverse fill shift unshift'
).split(' ');

/** They may end before the end of the list. */
const SEARCHES = 'some every find findIndex findLast findLastIndex'.split(' ');

const WHOLE_TEXT = (
  'includes lastIndexOf replace replaceAll split search match matchAll trim trimStart trimEnd toLowerCase toUpperCase ' +
  'normalize isWellFormed toWellFormed localeCompare'
).split(' ');

function countVisits(original: Method, count: (visited: number) => void): Method {
  return function (this: never, test: (...all: unknown[]) => unknown, self: never) {
    let visited = 0;
    const result = Reflect.apply(original, this, [
      function (this: unknown, ...all: unknown[]) {
        visited++;
        return Reflect.apply(test, this, all);
      },
      self,
    ] as never);
    count(visited);
    return result;
  } as Method;
}

function sizeOf(value: unknown): number {
  if (Array.isArray(value) || typeof value === 'string') return value.length;
  if (value instanceof Map || value instanceof Set) return value.size;
  return typeof value === 'object' && value !== null ? Reflect.ownKeys(value).length : 1;
}

function lengthOf(value: unknown): number {
  if (typeof value === 'number') return value;
  return typeof value === 'string' || value instanceof Uint8Array ? value.length : 0;
}

/** At most the whole text; a sticky pattern reads at one place. */
function readBy({ sticky }: RegExp, text: unknown): number {
  return sticky ? 1 : lengthOf(text);
}
