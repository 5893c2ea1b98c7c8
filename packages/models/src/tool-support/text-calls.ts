import { parsed } from '../json.ts';
import { callsInElements, callsInJson, callsInTag, type Tools, type WrittenCall } from './call-forms.ts';

/*
 * Finds the calls in a text while it arrives.
 *
 * 1. The result does not depend on how the text is split into chunks.
 * 2. Only calls and the white space around them are removed. A text without calls stays unchanged.
 * 3. Plain text is passed on at once. Only what may be a call is held until that is decided.
 * 4. A tag is always a call, whatever tool it names. JSON without a tag, bare or in a code block, is a call only if it
 *    names a tool: it may well be an answer.
 * 5. What is quoted, in a code block or in back quotes, is not a call.
 * 6. A call, a code block or a quote that never ends does not hide a tag that follows.
 * 7. The time grows with the length of the text.
 */

/** Receives the parts of a text in order. */
export interface PartListener {
  text(text: string): void;
  call(call: WrittenCall): void;
}

export interface TextCallReader {
  feed(text: string): void;
  end(): void;
}

/** What the characters after an opening show: possibly a call, a call unless its content is wrong, or not a call. */
type Verdict = 'maybe' | 'call' | 'text';

/** How a call starts, and where it ends. */
interface Start {
  readonly opening: string;
  /** Empty for JSON, which ends with its last bracket. */
  readonly closing: string;
  /** Called with the text after the opening, one more character each time, until it decides. */
  readonly judge: (head: string) => Verdict;
}

const TOOL_CALL: Start = { opening: '<tool_call>', closing: '</tool_call>', judge: judgeContent };
const FUNCTION: Start = { opening: '<function=', closing: '</function>', judge: judgeName };
const TAGS: readonly Start[] = [TOOL_CALL, FUNCTION];
/** JSON starts a call only at the start of a line. Llama may write `<|python_tag|>` before it, Mistral `[TOOL_CALLS]`. */
const STARTS: readonly Start[] = [
  ...TAGS,
  ...['{', '[', '<|python_tag|>'].map((opening) => ({ opening, closing: '', judge: judgeKey })),
];
const MISTRAL = 'TOOL_CALLS]';
const LANGUAGES = new Set(['', 'json', 'tool_call', 'tool_code', 'xml']);

function judgeContent(head: string): Verdict {
  const first = head.trimStart()[0];
  if (first === undefined) return head.length > 100 ? 'text' : 'maybe';
  return '{[<'.includes(first) ? 'call' : 'text';
}

function judgeName(head: string): Verdict {
  if (!head.endsWith('>')) return head.length > 100 ? 'text' : 'maybe';
  return /^["']?[\w.-]+["']?\s*>$/.test(head) ? 'call' : 'text';
}

/** The first key shows whether an object can be a call. After Mistral's marker it always is one. */
function judgeKey(head: string): Verdict {
  if (MISTRAL.startsWith(head.slice(0, MISTRAL.length))) {
    if (/^TOOL_CALLS\]\s*(?:\[|(?:[\w.-]+\[ARGS\]\s*)?\{)$/.test(head)) return 'call';
    return head.length > 100 || !/^[\w\s.[\]-]*$/.test(head) ? 'text' : 'maybe';
  }
  const [all, key, end] = /^[\s[{]*(?:"(\w*)(")?)?/.exec(head)!;
  if (all.length < head.length || head.length > 60) return 'text';
  if (end === undefined) return 'maybe';
  return ['name', 'type', 'arguments', 'parameters'].includes(key!) ? 'call' : 'text';
}

function judgeCode(head: string): Verdict {
  const language = /^[\w-]*/.exec(head)![0];
  if (language.length === head.length) return language.length > 10 ? 'text' : 'maybe';
  return LANGUAGES.has(language.toLowerCase()) ? judgeContent(head.slice(language.length)) : 'text';
}

/** Yields when it needs the next chunk of the text. */
type Parsing<T> = Generator<void, T, string | undefined>;

/** `inCode` is for the content of a code block: back quotes are text, and JSON is a call whatever tool it names. */
export function textCallReader(tools: Tools, listener: PartListener, inCode = false): TextCallReader {
  // ── Output: white space before and after a call is dropped ──
  let out = '';
  let space = '';
  let afterCall = false;
  let lineStart = true;

  const flushText = (): void => {
    const all = afterCall ? out.trimStart() : out;
    const text = all.trimEnd();
    out = '';
    if (text === '') {
      space += all;
      return;
    }
    listener.text(space + text);
    space = all.slice(text.length);
    afterCall = false;
  };
  const releaseText = (text: string): void => {
    out += text;
    const line = text.lastIndexOf('\n');
    lineStart = (lineStart || line !== -1) && text.slice(line + 1).trim() === '';
  };
  const emitCalls = (calls: readonly WrittenCall[]): void => {
    flushText();
    space = '';
    for (const call of calls) listener.call(call);
    afterCall = true;
    lineStart = true;
  };

  // ── Input: characters that were read can be put back ──
  let input = '';
  let inputAt = 0;
  let position = 0;
  let ended = false;

  // Readers use `next() ?? (yield* more())`: a generator for each character would be slow.
  const next = (): string | undefined => {
    const char = input[inputAt];
    if (char === undefined) return undefined;
    inputAt++;
    position++;
    return char;
  };
  function* more(): Parsing<string | undefined> {
    while (!ended) {
      input = (yield) ?? '';
      inputAt = 0;
      if (input !== '') return next();
    }
    return undefined;
  }
  const putBack = (text: string): void => {
    position -= text.length;
    if (text.length <= inputAt) inputAt -= text.length;
    else {
      input = text + input.slice(inputAt);
      inputAt = 0;
    }
  };

  /**
   * The end of a block that was not a call. Up to here the text is read again, strictly: a tag ends at its first closing
   * tag or where it opens again, and JSON without a tag is text. So nothing is read more than a few times.
   */
  let strictUntil = 0;
  /** Up to here, back quotes are text. */
  let unquotedUntil = 0;

  function* parse(): Parsing<void> {
    for (let char = next() ?? (yield* more()); char !== undefined; char = next() ?? (yield* more())) {
      if (char === '`' && !inCode) yield* readBackQuotes();
      else if (char === '<' || (lineStart && (char === '{' || char === '['))) yield* readBlock(char);
      else releaseText(char);
    }
  }

  function* readBlock(first: string): Parsing<void> {
    const isStrict = position <= strictUntil;
    const { start, opening } = yield* readOpening(first, isStrict || !lineStart ? TAGS : STARTS);
    if (start === undefined) {
      releaseText(opening[0]!);
      return putBack(opening.slice(1));
    }
    const isJson = start.closing === '';
    const { head, verdict } = yield* readHead(start.judge);
    if (verdict !== 'call') {
      const read = isJson ? head.slice(0, -1) : '';
      releaseText(opening + read);
      return putBack(head.slice(read.length));
    }
    const { body, isClosed } = yield* readBody(start, head, isStrict);
    const calls = callsIn(start, body, isClosed);
    if (calls !== undefined) return emitCalls(calls);
    if (isJson && parsed(opening + body) !== undefined) return releaseText(opening + body);
    if (!isStrict) strictUntil = isClosed ? position : Infinity;
    if (!isStrict && !isJson) return putBack(opening + body);
    releaseText(opening);
    putBack(body);
  }

  /** Three or more back quotes at the start of a line open a code block, others inline code. */
  function* readBackQuotes(): Parsing<void> {
    let ticks = '`';
    let char = next() ?? (yield* more());
    for (; char === '`'; char = next() ?? (yield* more())) ticks += char;
    if (char !== undefined) putBack(char);
    if (ticks.length < 3 || !lineStart || position <= unquotedUntil) {
      releaseText(ticks);
      if (position > unquotedUntil) yield* readQuote(ticks, false);
      return;
    }
    const isStrict = position <= strictUntil;
    const { head, verdict } = yield* readHead(judgeCode);
    if (verdict !== 'call') {
      releaseText(ticks);
      putBack(head);
      return yield* readQuote(ticks, true);
    }
    const { body, isClosed } = yield* readBody({ opening: '', closing: ticks }, head, isStrict);
    const content = isClosed ? body.slice(0, -ticks.length) : body;
    const calls = callsInCode(content.replace(/^[\w-]*/, '').trim(), tools);
    if (calls !== undefined) return emitCalls(calls);
    if (isClosed) return releaseText(ticks + body);
    strictUntil = Infinity;
    if (!isStrict) return putBack(ticks + body);
    releaseText(ticks);
    putBack(body);
  }

  /**
   * Text between back quotes. From the first tag on it is held: if the quote does not end, it was not a quote, and is
   * read again without quotes. Back quotes and line breaks inside a tag belong to the tag.
   */
  function* readQuote(ticks: string, isCodeBlock: boolean): Parsing<void> {
    let held = '';
    let run = 0;
    for (;;) {
      const char = next() ?? (yield* more());
      if (char === undefined || (char === '\n' && !isCodeBlock)) {
        if (held !== '') unquotedUntil = char === undefined ? Infinity : position;
        return putBack(held + (char ?? ''));
      }
      let text = char;
      if (char === '<') {
        const { start, opening } = yield* readOpening(char, TAGS);
        if (start !== undefined) {
          const { head, verdict } = yield* readHead(start.judge);
          held += opening;
          if (verdict === 'call') held += (yield* readBody(start, head, false)).body;
          else putBack(head);
          run = 0;
          continue;
        }
        text = opening[0]!;
        putBack(opening.slice(1));
      }
      if (held === '') releaseText(text);
      else held += text;
      run = char === '`' ? run + 1 : 0;
      if (run === ticks.length) return releaseText(held);
    }
  }

  /** Reads until the text is one of the openings or cannot become one. */
  function* readOpening(
    first: string,
    starts: readonly Start[],
  ): Parsing<{ start: Start | undefined; opening: string }> {
    let opening = first;
    for (;;) {
      const possible = starts.filter((start) => start.opening.startsWith(opening));
      const start = possible.find((each) => each.opening === opening);
      const char = start !== undefined || possible.length === 0 ? undefined : (next() ?? (yield* more()));
      if (char === undefined) return { start, opening };
      opening += char;
    }
  }

  function* readHead(judge: Start['judge']): Parsing<{ head: string; verdict: Verdict }> {
    let head = '';
    for (;;) {
      const char = next() ?? (yield* more());
      if (char === undefined) return { head, verdict: 'text' };
      head += char;
      const verdict = judge(head);
      if (verdict !== 'maybe') return { head, verdict };
    }
  }

  /** Reads to the end of the block, which the body includes, or to the end of the text. */
  function* readBody(
    { opening, closing }: Pick<Start, 'opening' | 'closing'>,
    head: string,
    isStrict: boolean,
  ): Parsing<{ body: string; isClosed: boolean }> {
    const isJson = closing === '' || (!isStrict && /[[{]$/.test(head));
    const json = { depth: 0, inString: false, isEscaped: false };
    if (closing === '') for (const char of opening + head) scanJson(json, char);
    let body = head;
    let closed = 0;
    let opened = 0;
    for (;;) {
      const char = next() ?? (yield* more());
      if (char === undefined) return { body, isClosed: false };
      body += char;
      if (isJson) scanJson(json, char);
      if (json.inString) continue;
      closed = char === closing[closed] ? closed + 1 : char === closing[0] ? 1 : 0;
      if (closing === '' ? json.depth === 0 : closed === closing.length) return { body, isClosed: true };
      if (!isStrict) continue;
      opened = char === opening[opened] ? opened + 1 : char === opening[0] ? 1 : 0;
      if (opened === 0 || opened < opening.length) continue;
      putBack(opening);
      return { body: body.slice(0, -opening.length), isClosed: false };
    }
  }

  const callsIn = (start: Start, body: string, isClosed: boolean): readonly WrittenCall[] | undefined => {
    if (start === FUNCTION) return callsInElements((start.opening + body).trim(), tools);
    if (start === TOOL_CALL) return callsInTag(isClosed ? body.slice(0, -start.closing.length) : body, tools);
    const calls = callsInJson(start.opening + body);
    return inCode || calls?.some(({ name }) => tools.has(name)) ? calls : undefined;
  };

  const parser = parse();
  parser.next();
  return {
    feed(text) {
      parser.next(text);
      flushText();
    },
    end() {
      ended = true;
      parser.next();
      flushText();
      if (space !== '') listener.text(space);
      space = '';
    },
  };
}

interface JsonState {
  depth: number;
  inString: boolean;
  isEscaped: boolean;
}

function scanJson(json: JsonState, char: string): void {
  if (json.inString) {
    if (json.isEscaped) json.isEscaped = false;
    else if (char === '\\') json.isEscaped = true;
    else if (char === '"') json.inString = false;
  } else if (char === '"') json.inString = true;
  else if (char === '{' || char === '[') json.depth++;
  else if (char === '}' || char === ']') json.depth--;
}

/** The calls in a code block that consists of nothing else. */
function callsInCode(text: string, tools: Tools): readonly WrittenCall[] | undefined {
  const calls: WrittenCall[] = [];
  let hasText = false;
  const listener: PartListener = { text: () => (hasText = true), call: (call) => calls.push(call) };
  const reader = textCallReader(tools, listener, true);
  reader.feed(text);
  reader.end();
  const isCall = text.startsWith('<') || calls.some(({ name }) => tools.has(name));
  return isCall && !hasText && calls.length > 0 ? calls : undefined;
}
