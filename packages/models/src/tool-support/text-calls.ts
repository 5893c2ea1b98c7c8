import { parsed } from '../json.ts';
import { block, grow, type Block } from './block.ts';
import { callsInElements, callsInTag, callsInValue, type Tools, type WrittenCall } from './call-forms.ts';
import { FENCE, STARTS, TAGS, type Start } from './starts.ts';

/*
 * Takes a text as it arrives and finds the calls in it.
 *
 * 1. However the text is cut, the same comes out.
 * 2. Nothing is lost but calls and the white space around them. A text without calls stays as it is.
 * 3. What is plainly text is passed on at once; only what may be a call is held until it is decided.
 * 4. Tags are always a call, whatever tool they name. JSON without tags, bare or in a fence, is one only if a tool of that
 *    name is among those of its list: it may well be an answer.
 * 5. What is quoted, in a block of code or in back quotes, is no call.
 * 6. What lacks its ending, a call, a fence or a quote, hides no call in tags that follows.
 * 7. Each character is looked at a bounded number of times.
 */

/** Who hears what a text consists of, in order. */
export interface Heard {
  text(text: string): void;
  call(call: WrittenCall): void;
}

export interface TextCalls {
  feed(text: string): void;
  end(): void;
}

export function textCalls(tools: Tools, heard: Heard): TextCalls {
  return reader(tools, heard, {});
}

/** How something is read once more, or inside of something else. */
interface Way {
  /** An ending inside a JSON string counts too: what has no other ending is read so. */
  readonly anyEnding?: boolean;
  /** No beginnings here. Each time a text is read once more there are more of them, so that it comes to an end. */
  readonly without?: readonly Start[];
  /** JSON calls, whatever tool it names. */
  readonly anyName?: boolean;
  /** Back quotes mean nothing. */
  readonly inQuote?: boolean;
}

/** Text between back quotes: code of several lines, or of one, which ends with its line. */
interface Quote {
  readonly isFence: boolean;
  /** How many back quotes begin and end it. */
  readonly length: number;
  /** How many have just been seen. */
  run: number;
  /** From the first tag on all is held, and read as if it were not quoted: whether it is shows at the end. */
  kept?: { text: string; readonly inside: Reader; readonly found: (string | WrittenCall)[] };
}

interface Reader extends TextCalls {
  /** It is in the middle of what may be a call. */
  isOpen(): boolean;
}

function reader(tools: Tools, heard: Heard, way: Way): Reader {
  const { anyEnding = false, without = [], anyName = false, inQuote = false } = way;
  /** Text that is decided, not passed on yet. */
  let out = '';
  /** White space that is passed on if text follows. */
  let space = '';
  let afterCall = false;
  let lineStart = true;
  /** Back quotes that have just been seen and may begin a quote. */
  let ticks = 0;
  let quote: Quote | undefined;
  let opening = '';
  let open: Block | undefined;

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
  const release = (text: string): void => {
    out += text;
    if (text !== '') lineStart = text.endsWith('\n');
  };

  const take = (char: string): void => {
    if (open) return within(open, char);
    if (ticks > 0 && char !== '`') {
      quote = { isFence: false, length: ticks, run: 0 };
      ticks = 0;
    }
    if (quote) quoted(quote, char);
    else plain(char);
  };

  const mayBe = (start: Start, candidate: string): boolean =>
    start.opening.startsWith(candidate) && (lineStart || !start.atLineStart) && !without.includes(start);

  const plain = (char: string): void => {
    const candidate = opening + char;
    const possible = opening === '' && !FIRST.has(char) ? [] : STARTS.filter((start) => mayBe(start, candidate));
    if (possible.length === 0 && opening !== '') return notOpening(char);
    if (possible.length === 0) {
      out += char;
      lineStart = char === '\n' || (lineStart && (char === ' ' || char === '\t' || char === '\r'));
      if (char === '`' && !inQuote) ticks++;
      return;
    }
    const start = possible.find((each) => each.opening === candidate);
    opening = start ? '' : candidate;
    if (start) open = block(start);
  };

  const notOpening = (char: string): void => {
    release(opening);
    if (opening.startsWith('`') && !inQuote) ticks = opening.length;
    opening = '';
    take(char);
  };

  const quoted = (within: Quote, char: string): void => {
    if (within.kept) return kept(within, within.kept, char);
    const candidate = opening + char;
    if (TAGS.some((tag) => tag.opening === candidate)) {
      opening = '';
      const found: (string | WrittenCall)[] = [];
      const hear = {
        text: (text: string) => void found.push(text),
        call: (each: WrittenCall) => void found.push(each),
      };
      const inside = reader(tools, hear, { without: [...without, ...LINE_STARTS], inQuote: true });
      inside.feed(candidate);
      within.kept = { text: candidate, inside, found };
    } else if (TAGS.some((tag) => tag.opening.startsWith(candidate))) opening = candidate;
    else if (opening !== '') notOpening(char);
    else {
      release(char);
      if (endsQuote(within, char) || (char === '\n' && !within.isFence)) quote = undefined;
    }
  };
  const kept = (within: Quote, held: NonNullable<Quote['kept']>, char: string): void => {
    // Back quotes and line ends inside a call are its own.
    if (!held.inside.isOpen()) {
      if (endsQuote(within, char)) {
        quote = undefined;
        return release(held.text + char);
      }
      if (char === '\n' && !within.isFence) {
        unquote(held);
        return take(char);
      }
    }
    held.text += char;
    held.inside.feed(char);
  };
  /** The quote has no end, so it was none. */
  const unquote = ({ inside, found }: NonNullable<Quote['kept']>): void => {
    quote = undefined;
    inside.end();
    for (const each of found) {
      if (typeof each === 'string') release(each);
      else call([each]);
    }
  };

  const within = (current: Block, char: string): void => {
    const state = grow(current, char, anyEnding);
    if (state === 'more') return;
    open = undefined;
    if (state === 'end') return settle(current);
    const { start, held, head } = current;
    if (start === FENCE) quote = { isFence: true, length: 3, run: head.endsWith('`') ? 1 : 0 };
    release(held);
  };

  const settle = ({ start, held }: Block): void => {
    const calls = callsIn(start, held, start.closing.length);
    if (calls) call(calls);
    else if (start === FENCE || (start.closing === '' && parsed(held) !== undefined)) release(held);
    else readAgain(start, held);
  };

  /** The text is over in the middle of a block: it may have lost its ending, or it has one where none was expected. */
  const abandon = ({ start, held }: Block): void => {
    open = undefined;
    const whole = callsIn(start, held, 0);
    if (whole) return call(whole);
    const cut = start === FENCE && !anyEnding ? held.indexOf(start.closing, start.opening.length) : -1;
    if (cut === -1) return readAgain(start, held);
    const end = cut + start.closing.length;
    const calls = callsIn(start, held.slice(0, end), start.closing.length);
    if (calls) call(calls);
    else release(held.slice(0, end));
    readRest(held.slice(end), { anyEnding: true, without, inQuote });
  };

  /** No call as a whole. Its tag may begin again inside of it, where the one before lacks its ending, and so may others. */
  const readAgain = (start: Start, held: string): void => {
    const { opening, closing } = start;
    const others: Way = { without: [...without, ...LINE_STARTS, start], inQuote };
    const pieces = start.atLineStart ? [held.slice(opening.length)] : held.split(opening).slice(1);
    for (const piece of pieces) {
      const end = piece.indexOf(closing);
      const length = end === -1 ? piece.length : end + closing.length;
      const calls = start.atLineStart
        ? undefined
        : callsIn(start, opening + piece.slice(0, length), end === -1 ? 0 : closing.length);
      if (calls) call(calls);
      else release(opening);
      readRest(calls ? piece.slice(length) : piece, others);
    }
  };
  const readRest = (text: string, others: Way): void => {
    const rest = reader(tools, { text: release, call: (each) => call([each]) }, others);
    rest.feed(text);
    rest.end();
  };

  const callsIn = (start: Start, held: string, ending: number): readonly WrittenCall[] | undefined => {
    const { opening, closing } = start;
    if (closing === '') {
      const calls = callsInValue(parsed(held), false);
      return anyName || calls?.some(({ name }) => tools.has(name)) ? calls : undefined;
    }
    const inner = held.slice(opening.length, held.length - ending);
    if (start === FENCE) return callsInFence(inner.replace(/^[\w-]*/, '').trim(), tools);
    return opening.endsWith('>') ? callsInTag(inner, tools) : callsInElements(held.trim(), tools);
  };

  return {
    feed(text) {
      for (const char of text) take(char);
      say();
    },
    end() {
      if (open) abandon(open);
      out += opening;
      opening = '';
      if (quote?.kept) unquote(quote.kept);
      say();
      if (space !== '') heard.text(space);
      space = '';
    },
    isOpen: () => open !== undefined,
  };
}

const FIRST = new Set(STARTS.map(({ opening }) => opening[0]!));
const LINE_STARTS = STARTS.filter(({ atLineStart }) => atLineStart);

function endsQuote(quote: Quote, char: string): boolean {
  quote.run = char === '`' ? quote.run + 1 : 0;
  return quote.run === quote.length;
}

/** All of it has to be calls, in any form but another fence. */
function callsInFence(text: string, tools: Tools): readonly WrittenCall[] | undefined {
  const calls: WrittenCall[] = [];
  let other = false;
  const hear: Heard = { text: () => (other = true), call: (call) => calls.push(call) };
  const inside = reader(tools, hear, { without: [FENCE], anyName: true, inQuote: true });
  inside.feed(text);
  inside.end();
  const isCall = text.startsWith('<') || calls.some(({ name }) => tools.has(name));
  return isCall && !other && calls.length > 0 ? calls : undefined;
}
