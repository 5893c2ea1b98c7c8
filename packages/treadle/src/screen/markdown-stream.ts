import { isDeepStrictEqual } from 'node:util';
import type { Token, Tokens } from 'marked';
import { blockLines, blocksLines, tokensIn, type MarkdownOptions } from './markdown.ts';
import { lineText, type Line } from './spans.ts';

/**
 * Markdown that arrives in pieces. Blocks that cannot change any more are settled: their lines are returned once. Only the
 * last block is read again with each piece. A long one is settled in parts, so the work grows with the text.
 */
export interface MarkdownStream {
  /** Adds text. Returns the lines that are settled by it. */
  add(text: string, options: MarkdownOptions): readonly Line[];
  /** The lines of the text that may still change. */
  tail(options: MarkdownOptions): readonly Line[];
  /** No more text follows. Returns the lines of the rest. */
  end(options: MarkdownOptions): readonly Line[];
}

/** A block with more source than this is settled in parts. */
const MAX_TAIL_CHARS = 2_000;
const MAX_TAIL_LINES = 12;
/** A line of more characters without a space is cut, although that can be seen. */
const MAX_LINE_CHARS = 8_000;
/** A paragraph of more rows is settled row by row, so that its beginning can be read while it is being written. */
const MAX_TAIL_ROWS = 6;
/** What may be the beginning of a style or a link, whose end has not arrived. */
const OPEN_MARK = /[*`~[]|(?<!\w)_/;
const BLOCK_START_CHARS = 8;
/** So many lines of code that are settled are read again with those after them, because a comment may go on. */
const CONTEXT_LINES = 30;

export function markdownStream(): MarkdownStream {
  let source = '';
  /** The beginning of a code block or a table that is partly settled. It is read before `source`, and not shown again. */
  let head = '';
  /** `source` goes on with a block that is partly settled. */
  let goesOn = false;
  let hasSettled = false;
  /** Rows of a paragraph could not be settled, and are tried again when the source is longer than this. */
  let triedAt = 0;
  let cached: { readonly width: number; readonly lines: readonly Line[] } | undefined;

  const blocks = (text: string): readonly Token[] => tokensIn(text).filter(({ type }) => type !== 'space');
  /** The lines of blocks of which the first may be partly settled, with a blank line before each other. */
  const linesOf = (tokens: readonly Token[], options: MarkdownOptions): readonly Line[] => {
    const isRest = goesOn && !source.startsWith('\n');
    const [first, ...others] = tokens;
    if (!isRest || !first) {
      const lines = blocksLines(tokens, options);
      return hasSettled && lines.length > 0 ? [[], ...lines] : lines;
    }
    const more = blocksLines(others, options);
    return [...blockLines(first, options).slice(headLines(head, options)), ...(more.length > 0 ? [[], ...more] : [])];
  };
  const settle = (tokens: readonly Token[], options: MarkdownOptions): readonly Line[] => {
    const lines = linesOf(tokens, options);
    hasSettled ||= lines.length > 0;
    goesOn = false;
    head = '';
    return lines;
  };
  const settleWhole = (options: MarkdownOptions): readonly Line[] => {
    const all = head + source;
    const tokens = tokensIn(all);
    const last = tokens.findLastIndex(({ type }) => type !== 'space');
    const done = tokens.slice(0, Math.max(last, 0));
    if (done.every(({ type }) => type === 'space')) return [];
    const lines = settle(
      done.filter(({ type }) => type !== 'space'),
      options,
    );
    source = all.slice(done.reduce((sum, { raw }) => sum + raw.length, 0));
    return lines;
  };
  const settlePart = (options: MarkdownOptions): readonly Line[] => {
    const [token] = blocks(head + source);
    if (token?.type === 'list' && (token as Tokens.List).items.length > 1)
      return settleItems(token as Tokens.List, options);
    if (token?.type === 'code')
      return cut(/^ {0,3}(?:`{3,}|~{3,})[^\n]*\n/.exec(head + source)?.[0] ?? '', options, CONTEXT_LINES);
    if (token?.type === 'table') return cut(/^[^\n]*\n[^\n]*\n/.exec(head + source)?.[0] ?? '', options);
    return cut('', options);
  };
  /** Settles the first rows of a paragraph, if the rest looks the same without them. */
  const settleRows = (options: MarkdownOptions): readonly Line[] => {
    const [token, ...others] = blocks(source);
    if (head !== '' || token?.type !== 'paragraph' || others.length > 0) return [];
    const rowsOf = (text: string): readonly Line[] => blocksLines(blocks(text), options);
    const rows = rowsOf(source);
    const isOpen = (line: Line): boolean => OPEN_MARK.test(lineText(line));
    if (rows.slice(0, 1).some(isOpen)) return [];
    const spaces = [...source.matchAll(/ (?=[^ ])/g)].map(({ index }) => index + 1);
    // Chinese and Japanese have none.
    const places = spaces.length < rows.length ? [...source.matchAll(/(?!^)./gsu)].map(({ index }) => index) : spaces;
    for (let count = rows.length - 2; count > 0; count--) {
      const end = places[lastIndexWhere(places, (at) => rowsOf(source.slice(0, at)).length <= count)];
      if (end === undefined) continue;
      const [first, rest] = [rowsOf(source.slice(0, end)), rowsOf(source.slice(end))];
      if (!isDeepStrictEqual([...first, ...rest], rows)) continue;
      if (first.some(isOpen)) continue;
      const lines = settle(blocks(source.slice(0, end)), options);
      source = source.slice(end);
      goesOn = true;
      return lines;
    }
    return [];
  };
  const settleItems = (list: Tokens.List, options: MarkdownOptions): readonly Line[] => {
    const done = list.items.slice(0, -1);
    const length = done.reduce((sum, { raw }) => sum + raw.length, source.indexOf(list.items[0]!.raw));
    const lines = settle([{ ...list, items: done }], options);
    source = source.slice(length);
    goesOn = true;
    return lines;
  };
  /** Settles whole lines. What follows is read after `nextHead`, and after some of the lines before it. */
  const cut = (nextHead: string, options: MarkdownOptions, context = 0): readonly Line[] => {
    const all = head + source;
    // A line without an end is cut at a space, and a very long one without spaces anywhere.
    const inLine = nextHead === '' ? all.lastIndexOf(' ') + 1 || (all.length > MAX_LINE_CHARS ? wholeEnd(all) : 0) : 0;
    const end = all.lastIndexOf('\n') + 1 || inLine;
    if (end <= nextHead.length || end <= head.length) return [];
    const lines = settle(blocks(all.slice(0, end)), options);
    source = all.slice(end);
    const before = all
      .slice(nextHead.length, end)
      .split('\n')
      .slice(-1 - context, -1);
    head = nextHead + before.map((line) => `${line}\n`).join('');
    goesOn = true;
    return lines;
  };
  return {
    add(text, options) {
      source += text;
      cached = undefined;
      // The beginning of a line says whether it begins a block.
      const isBlockStart = text.includes('\n') || source.length - source.lastIndexOf('\n') <= BLOCK_START_CHARS;
      const lines = isBlockStart ? settleWhole(options) : [];
      if (lines.length === 0 && source.length > Math.max(MAX_TAIL_ROWS * options.width, triedAt)) {
        const rows = settleRows(options);
        triedAt = rows.length > 0 ? 0 : source.length + options.width;
        if (rows.length > 0) return rows;
      }
      const isLong = source.length > MAX_TAIL_CHARS || source.split('\n').length > MAX_TAIL_LINES;
      return isLong ? [...lines, ...settlePart(options)] : lines;
    },
    tail(options) {
      if (cached?.width !== options.width) {
        cached = { width: options.width, lines: linesOf(blocks(head + source), options) };
      }
      return cached.lines;
    },
    end(options) {
      const lines = settle(blocks(head + source), options);
      source = '';
      cached = undefined;
      return lines;
    },
  };
}

/** The last index of those at the beginning of a list for which something holds; -1: none. */
function lastIndexWhere<Value>(values: readonly Value[], holds: (value: Value) => boolean): number {
  let [from, to] = [-1, values.length - 1];
  while (from < to) {
    const middle = Math.ceil((from + to) / 2);
    if (holds(values[middle]!)) from = middle;
    else to = middle - 1;
  }
  return from;
}

/** The end of a text, or before the first half of a character whose second one has not arrived. */
function wholeEnd(text: string): number {
  return /[\ud800-\udbff]$/.test(text) ? text.length - 1 : text.length;
}

/** How many lines of a block are those of its head. */
function headLines(head: string, options: MarkdownOptions): number {
  const [token] = tokensIn(head);
  return token ? blockLines(token, options).length : 0;
}
