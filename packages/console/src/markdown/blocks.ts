import { Lexer, type Token } from 'marked';

/** The blocks of a Markdown text that grows at its end: paragraphs, lists, code. Only the end is read again when it grows. */
export interface Blocks {
  /** `text`: all of it so far. Blocks that cannot change any more are the same objects in the next result. */
  read(text: string): readonly Token[];
}

export function markdownBlocks(): Blocks {
  let settled: readonly Token[] = [];
  let length = 0;
  let before = '';
  return {
    read(text) {
      if (!text.startsWith(before)) {
        settled = [];
        length = 0;
      }
      before = text;
      const tail = new Lexer({ gfm: true }).lex(text.slice(length));
      // The last block may still grow. A blank line after it does not end it: the next line may belong to a list.
      const last = tail.findLastIndex(({ type }) => type !== 'space');
      if (last > 0) {
        const done = tail.slice(0, last);
        length += done.reduce((sum, { raw }) => sum + raw.length, 0);
        settled = [...settled, ...done.filter(({ type }) => type !== 'space')];
      }
      return last < 0 ? settled : [...settled, tail[last]!];
    },
  };
}
