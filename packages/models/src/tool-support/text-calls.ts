import { callsInElements, callsInTag, callsInValue, parsed, type Tools, type WrittenCall } from './call-forms.ts';
import { FENCE, STARTS, type Start } from './starts.ts';

/** Who hears what a text consists of, in order. */
export interface Heard {
  text(text: string): void;
  call(call: WrittenCall): void;
}

/** Something that may be a call, held back until that is known. */
interface Block {
  readonly start: Start;
  /** All of it, with its opening. */
  held: string;
  /** What followed the opening, until `judge` has decided; then unused. */
  head: string;
  judged: boolean;
  /** Inside JSON an ending counts only outside of its strings. */
  json: boolean;
  inString: boolean;
  escaped: boolean;
  depth: number;
  /** How many characters of the ending have just been seen. */
  ended: number;
}

/**
 * Takes a text as it arrives and finds the calls in it. What is plainly text is passed on at once, what may be a call is
 * held until it is decided. White space around calls is dropped. However the text is cut, the same comes out, and each
 * character is looked at a bounded number of times.
 */
export function textCalls(tools: Tools, heard: Heard): { feed(text: string): void; end(): void } {
  return reader(tools, heard, {});
}

interface Way {
  /** An ending inside a JSON string counts too: what has no other ending is read so once more. */
  readonly anyEnding?: boolean;
  /** A fence is no beginning. */
  readonly inFence?: boolean;
}

function reader(
  tools: Tools,
  heard: Heard,
  { anyEnding = false, inFence = false }: Way,
): { feed(text: string): void; end(): void } {
  /** Text that is decided, not passed on yet. */
  let out = '';
  /** White space that is passed on if text follows. */
  let space = '';
  let afterCall = false;
  let lineStart = true;
  /** In a block of code that is no call: a run of back quotes ends it. */
  let quotes: number | undefined;
  let opening = '';
  let block: Block | undefined;

  const say = (): void => {
    const all = afterCall ? out.trimStart() : out;
    const text = all.trimEnd();
    out = '';
    if (text === '') {
      space += all;
      return;
    }
    heard.text(space + text);
    space = all.slice(text.length);
    afterCall = false;
  };
  const call = (calls: readonly WrittenCall[]): void => {
    say();
    space = '';
    for (const each of calls) heard.call(each);
    afterCall = true;
    lineStart = true;
  };
  const release = (text: string, char: string): void => {
    out += text;
    lineStart = char === '\n';
  };

  const mayBe = (start: Start, candidate: string): boolean =>
    start.opening.startsWith(candidate) && (lineStart || !start.atLineStart) && !(inFence && start === FENCE);

  const plain = (char: string): void => {
    if (quotes !== undefined) {
      quotes = char === '`' ? quotes + 1 : 0;
      if (quotes === 3) quotes = undefined;
      return release(char, char);
    }
    const candidate = opening + char;
    const possible = opening === '' && !FIRST.has(char) ? [] : STARTS.filter((start) => mayBe(start, candidate));
    if (possible.length === 0) {
      if (opening !== '') {
        release(opening, '');
        opening = '';
        return plain(char);
      }
      out += char;
      lineStart = char === '\n' || (lineStart && (char === ' ' || char === '\t' || char === '\r'));
      return;
    }
    const start = possible.find((each) => each.opening === candidate);
    opening = start ? '' : candidate;
    if (start) block = { start, held: candidate, head: '', judged: false, ...NOTHING_SEEN };
  };

  const within = (open: Block, char: string): void => {
    const { start } = open;
    open.held += char;
    if (!open.judged) {
      open.head += char;
      const verdict = start.judge(open.head, tools);
      if (verdict === 'plain') return giveUp(open, char);
      if (verdict === 'maybe') return;
      open.judged = true;
      open.json = !anyEnding && start.closing !== '' && (char === '{' || char === '[');
      if (start.closing === '') for (const seen of start.opening + open.head) scan(open, seen);
      else if (open.json) scan(open, char);
      return;
    }
    if (start.closing === '' || open.json) scan(open, char);
    if (start.closing === '') {
      if (open.depth === 0 && !open.inString) settle(open);
      return;
    }
    if (open.inString) return;
    open.ended = char === start.closing[open.ended] ? open.ended + 1 : char === start.closing[0] ? 1 : 0;
    if (open.ended === start.closing.length) settle(open);
  };

  const giveUp = ({ start, held, head }: Block, char: string): void => {
    block = undefined;
    if (start === FENCE) quotes = head.endsWith('`') ? 1 : 0;
    release(held, char);
  };

  const settle = ({ start, held }: Block): void => {
    block = undefined;
    const calls = callsIn(start, held, start.closing.length, tools);
    if (calls) call(calls);
    else release(held, '');
  };

  /** The text is over in the middle of a block: it may have lost its ending, or it has one where none was expected. */
  const abandon = ({ start, held }: Block): void => {
    block = undefined;
    const whole = callsIn(start, held, 0, tools);
    if (whole) return call(whole);
    const cut = start.closing === '' ? -1 : held.indexOf(start.closing, start.opening.length);
    if (cut === -1 || anyEnding) return release(held, '');
    const end = cut + start.closing.length;
    const calls = callsIn(start, held.slice(0, end), start.closing.length, tools);
    if (calls) call(calls);
    else release(held.slice(0, end), '');
    say();
    const rest = reader(tools, { text: (text) => (out += text), call: (each) => call([each]) }, { anyEnding: true });
    rest.feed(held.slice(end));
    rest.end();
  };

  return {
    feed(text) {
      for (const char of text) {
        if (block) within(block, char);
        else plain(char);
      }
      say();
    },
    end() {
      if (block) abandon(block);
      out += opening;
      opening = '';
      say();
      if (space !== '') heard.text(space);
      space = '';
    },
  };
}

const FIRST = new Set(STARTS.map(({ opening }) => opening[0]!));
const NOTHING_SEEN = { json: false, inString: false, escaped: false, depth: 0, ended: 0 };

function scan(block: Block, char: string): void {
  if (block.inString) {
    if (block.escaped) block.escaped = false;
    else if (char === '\\') block.escaped = true;
    else if (char === '"') block.inString = false;
  } else if (char === '"') block.inString = true;
  else if (char === '{' || char === '[') block.depth++;
  else if (char === '}' || char === ']') block.depth--;
}

function callsIn(start: Start, held: string, ending: number, tools: Tools): readonly WrittenCall[] | undefined {
  const { opening, closing } = start;
  if (closing === '') return callsInValue(parsed(held), tools, false);
  const inner = held.slice(opening.length, held.length - ending);
  if (start === FENCE) return callsInFence(inner.replace(/^[\w-]*/, ''), tools);
  if (opening.endsWith('>')) return callsInTag(inner, tools);
  return callsInElements(held.trim(), tools);
}

/** All of it has to be calls, in any form but another fence. */
function callsInFence(inner: string, tools: Tools): readonly WrittenCall[] | undefined {
  const calls: WrittenCall[] = [];
  const other: string[] = [];
  const inside = reader(
    tools,
    { text: (text) => other.push(text), call: (call) => calls.push(call) },
    { inFence: true },
  );
  inside.feed(inner.trim());
  inside.end();
  return other.length > 0 || calls.length === 0 ? undefined : calls;
}
