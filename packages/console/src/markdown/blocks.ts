import { Lexer, type Token } from 'marked';

/** The blocks of a Markdown text: paragraphs, lists, code. */
export interface Blocks {
  /** Blocks that cannot change any more, in groups of a fixed size. A group is the same object in every later result. */
  readonly groups: readonly (readonly Token[])[];
  /** The blocks after them. Only the last one may still change. */
  readonly tail: readonly Token[];
}

/** So many blocks are rendered again when the text grows, however long it is. */
const GROUP = 32;

/** Reads the blocks of a text that grows at its end. Only its end is read again. `text`: all of it so far. */
export function blockReader(): (text: string) => Blocks {
  let groups: readonly (readonly Token[])[] = [];
  let settled: readonly Token[] = [];
  let length = 0;
  let before = '';
  return (text) => {
    if (!text.startsWith(before)) {
      groups = [];
      settled = [];
      length = 0;
    }
    before = text;
    const read = tokensIn(text.slice(length));
    // The last block may still grow. A blank line after it does not end it: the next line may belong to a list.
    const last = read.findLastIndex(({ type }) => type !== 'space');
    if (last > 0) {
      const done = read.slice(0, last);
      length += done.reduce((sum, { raw }) => sum + raw.length, 0);
      settled = [...settled, ...done.filter(({ type }) => type !== 'space')];
      for (; settled.length >= GROUP; settled = settled.slice(GROUP)) groups = [...groups, settled.slice(0, GROUP)];
    }
    return { groups, tail: last < 0 ? settled : [...settled, read[last]!] };
  };
}

function tokensIn(text: string): readonly Token[] {
  try {
    return new Lexer({ gfm: true }).lex(text);
  } catch {
    // Thousands of quotes or lists inside each other are more than the stack holds. The text is shown as it is.
    return [{ type: 'text', raw: text, text, escaped: false }];
  }
}
