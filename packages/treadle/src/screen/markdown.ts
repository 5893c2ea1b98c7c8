import { Lexer, type Token, type Tokens } from 'marked';
import { printable } from '../terminal/printable.ts';
import { clipLine, lineColumns, lineOf, span, styled, wrapLine, type Line, type Span, type Style } from './spans.ts';

/** Colours code. Undefined: the language is not known. Each line of the result is a line of the code. */
export type Highlight = (code: string, language: string) => readonly Line[] | undefined;

export interface MarkdownOptions {
  readonly width: number;
  readonly highlight?: Highlight | undefined;
}

export function tokensIn(text: string): readonly Token[] {
  try {
    return new Lexer({ gfm: true }).lex(text);
  } catch {
    // Thousands of quotes or lists inside each other are more than the stack holds. The text is shown as it is.
    return [{ type: 'text', raw: text, text, escaped: false }];
  }
}

/** The lines of a block, without the blank line after it. */
export function blockLines(token: Token, options: MarkdownOptions): readonly Line[] {
  const { width } = options;
  switch (token.type) {
    case 'space':
    case 'def':
      return [];
    case 'heading': {
      const { tokens = [], depth } = token as Tokens.Heading;
      const styles: readonly Style[] = depth < 3 ? ['bold', 'underline'] : ['bold'];
      return inlineLines(tokens, styles).flatMap((line) => wrapLine(line, width));
    }
    case 'code':
      return codeLines(token as Tokens.Code, options);
    case 'blockquote': {
      const { tokens = [] } = token as Tokens.Blockquote;
      const inner = blocksLines(tokens, { ...options, width: Math.max(width - 2, 1) });
      return inner.map((line) => [span('│ ', 'dim'), ...styled(line, 'dim')]);
    }
    case 'list':
      return listLines(token as Tokens.List, options);
    case 'table':
      return tableLines(token as Tokens.Table, options);
    case 'hr':
      return [lineOf('─'.repeat(Math.max(1, Math.min(width, 40))), 'dim')];
    case 'html':
      return plainLines(token.raw.replace(/\n+$/, ''), width);
    case 'paragraph':
    case 'text': {
      const { tokens, text } = token as Tokens.Paragraph;
      if (!tokens) return plainLines(text, width);
      return inlineLines(tokens).flatMap((line) => wrapLine(line, width));
    }
    default:
      return plainLines(token.raw, width);
  }
}

/** The lines of several blocks, with blank lines between them. */
export function blocksLines(tokens: readonly Token[], options: MarkdownOptions): readonly Line[] {
  const lines: Line[] = [];
  for (const token of tokens) {
    const block = blockLines(token, options);
    if (block.length === 0) continue;
    if (lines.length > 0) lines.push([]);
    lines.push(...block);
  }
  return lines;
}

function plainLines(text: string, width: number): readonly Line[] {
  return text.split('\n').flatMap((line) => wrapLine([span(shown(line))], width));
}

/** Text of the model, without control characters and tabs. */
function shown(text: string): string {
  return printable(text).replaceAll('\t', '  ');
}

/** Inline tokens as lines: a hard line break ends one, and so does a line break of the source. */
function inlineLines(tokens: readonly Token[], styles: readonly Style[] = []): readonly Line[] {
  const lines: Span[][] = [[]];
  const put = (text: string, own: readonly Style[]): void => {
    for (const [index, part] of text.split('\n').entries()) {
      if (index > 0) lines.push([]);
      if (part !== '') lines.at(-1)!.push(span(shown(part), ...own));
    }
  };
  const walk = (some: readonly Token[], own: readonly Style[]): void => {
    for (const token of some) {
      const inner = (token as { readonly tokens?: readonly Token[] }).tokens;
      switch (token.type) {
        case 'strong':
          walk(inner ?? [], [...own, 'bold']);
          break;
        case 'em':
          walk(inner ?? [], [...own, 'italic']);
          break;
        case 'del':
          walk(inner ?? [], [...own, 'strikethrough']);
          break;
        case 'codespan':
          put(unescaped((token as Tokens.Codespan).text), [...own, 'cyan']);
          break;
        case 'br':
          lines.push([]);
          break;
        case 'link': {
          const { href, text } = token as Tokens.Link;
          walk(inner ?? [], [...own, 'underline']);
          // The address is always shown: a text that looks like another address misleads.
          if (href !== text && href !== `mailto:${text}`) put(` (${href})`, [...own, 'dim']);
          break;
        }
        case 'image': {
          const { href, text } = token as Tokens.Image;
          put(`[image: ${text || href}]`, [...own, 'dim']);
          if (text !== '') put(` (${href})`, [...own, 'dim']);
          break;
        }
        case 'escape':
          put((token as Tokens.Escape).text, own);
          break;
        default:
          if (inner) walk(inner, own);
          else put(unescaped((token as Tokens.Text).text ?? token.raw), own);
      }
    }
  };
  walk(tokens, styles);
  return lines;
}

const ENTITIES: Readonly<Record<string, string>> = {
  '&amp;': '&',
  '&lt;': '<',
  '&gt;': '>',
  '&quot;': '"',
  '&#39;': "'",
};

function unescaped(text: string): string {
  return text.replace(/&(amp|lt|gt|quot|#39);/g, (entity) => ENTITIES[entity]!);
}

function codeLines({ text, lang = '' }: Tokens.Code, { width, highlight }: MarkdownOptions): readonly Line[] {
  if (text === '') return [];
  const [language = ''] = lang.split(/\s/);
  const code = shown(text);
  const lines = highlight?.(code, language.toLowerCase()) ?? code.split('\n').map((line) => lineOf(line, 'cyan'));
  return lines.flatMap((line) =>
    wrapLine(line, Math.max(width - 2, 1), { breaks: 'anywhere' }).map((part): Line => [span('  '), ...part]),
  );
}

function listLines({ ordered, start, items, loose }: Tokens.List, options: MarkdownOptions): readonly Line[] {
  const lines: Line[] = [];
  const last = String(Number(start || 1) + items.length - 1);
  for (const [index, item] of items.entries()) {
    if (loose && index > 0) lines.push([]);
    lines.push(...itemLines(item, ordered ? `${Number(start) + index}.`.padEnd(last.length + 1) : '•', options));
  }
  return lines;
}

function itemLines(item: Tokens.ListItem, bullet: string, options: MarkdownOptions): readonly Line[] {
  const mark = item.task ? `${bullet} ${item.checked ? '[x]' : '[ ]'} ` : `${bullet} `;
  const inner: Line[] = [];
  for (const token of item.tokens) {
    // The mark says it.
    if (token.type === 'checkbox') continue;
    const block = blockLines(token, { ...options, width: Math.max(options.width - mark.length, 1) });
    if (block.length === 0) continue;
    if (inner.length > 0 && item.loose && token.type !== 'list') inner.push([]);
    inner.push(...block);
  }
  if (inner.length === 0) inner.push([]);
  return inner.map((line, index) => [index === 0 ? span(mark, 'dim') : span(' '.repeat(mark.length)), ...line]);
}

/** Columns that share the width. A table that is too wide for that is shown as its source. */
function tableLines({ header, rows, align, raw }: Tokens.Table, { width }: MarkdownOptions): readonly Line[] {
  const cellLine = ({ tokens }: Tokens.TableCell, styles: readonly Style[]): Line => inlineLines(tokens, styles).flat();
  const cells = [
    header.map((cell) => cellLine(cell, ['bold'])),
    ...rows.map((row) => row.map((cell) => cellLine(cell, []))),
  ];
  const natural = header.map((_, column) => Math.max(1, ...cells.map((row) => lineColumns(row[column] ?? []))));
  const room = width - 3 * (header.length - 1);
  const widths = shares(natural, room);
  if (!widths) return plainLines(raw.trimEnd(), width);
  const rule: Line = [span(widths.map((columns) => '─'.repeat(columns)).join('─┼─'), 'dim')];
  return cells.flatMap((row, index) => {
    const wrapped = widths.map((columns, column) => wrapLine(row[column] ?? [], columns));
    const height = Math.max(...wrapped.map((lines) => lines.length));
    const lines = Array.from({ length: height }, (_, at): Line =>
      widths.flatMap((columns, column) => {
        const line = clipLine(wrapped[column]![at] ?? [], columns);
        const space = columns - lineColumns(line);
        const left = align[column] === 'right' ? space : align[column] === 'center' ? Math.floor(space / 2) : 0;
        return [
          ...(column > 0 ? [span(' │ ', 'dim')] : []),
          ...(left > 0 ? [span(' '.repeat(left))] : []),
          ...line,
          ...(space > left ? [span(' '.repeat(space - left))] : []),
        ];
      }),
    );
    return index === 0 ? [...lines, rule] : lines;
  });
}

const MIN_COLUMN = 4;

/** The widths of columns: as they are if they fit, otherwise the wide ones share what the narrow ones leave. */
function shares(natural: readonly number[], room: number): readonly number[] | undefined {
  if (natural.reduce((sum, one) => sum + one, 0) <= room) return natural;
  let limit = Math.floor(room / natural.length);
  if (limit < MIN_COLUMN) return undefined;
  for (;;) {
    const narrow = natural.filter((one) => one <= limit);
    const wide = natural.length - narrow.length;
    const next = Math.floor((room - narrow.reduce((sum, one) => sum + one, 0)) / Math.max(1, wide));
    if (next <= limit) break;
    limit = next;
  }
  return natural.map((one) => Math.min(one, limit));
}
