import { withoutNumberWords } from './arithmetic.ts';

/** One wish out of a text. Quotes in it are hidden behind marks, so that rules do not look into them. */
export interface Clause {
  readonly words: string;
  /** To be done after what comes before it, not beside it. */
  readonly after: boolean;
  /** Puts the quotes back, without their quotation marks. */
  readonly shown: (part: string) => string;
}

const QUOTES = /"([^"]*)"|“([^”]*)”|`([^`]*)`|(?<=^|[\s(])'([^']*)'(?=$|[\s).,;:!?])|(\{[^{}]*\})/g;
const MARK = /\uE000(\d+)\uE000/g;

const SEPARATOR = new RegExp(
  [
    String.raw`(?<then>\s*[,;.!?]?\s*\b(?:and\s+)?(?:then|after\s+that|afterwards)\b[,:]?\s*)`,
    String.raw`\s*[,;](?!\d)\s*(?:and\s+)?(?:also\s+)?`,
    String.raw`\s+and\s+(?:also\s+)?`,
    String.raw`[.!?]+(?:\s+|$)`,
    String.raw`\s*\n\s*`,
  ].join('|'),
  'gi',
);

const OPENERS = new RegExp(
  String.raw`^(?:please|kindly|now|first|next|finally|also|just|so|ok|okay|hey|hi|hello|well|can you|could you|would you|` +
    String.raw`will you|i'd like (?:you )?to|i would like (?:you )?to|i want (?:you )?to|i need (?:you )?to|go ahead and|` +
    String.raw`help me|let's|let us|(?:tell|show|give) me (?=what|which|where|how|the (?:current |local )?(?:time|date)))(?:\b|(?<=\s))[,:]?\s*`,
  'i',
);
const CLOSERS = /\s*(?:\bplease|\bfor me|\bthanks|\bthank you|[.?!:,]+)$/i;

export function clausesOf(text: string): Clause[] {
  const quotes: string[] = [];
  const hidden = text.replace(QUOTES, (_all, ...groups: (string | undefined)[]) => {
    quotes.push(groups.slice(0, 5).find((group) => group !== undefined) ?? '');
    return `\uE000${quotes.length - 1}\uE000`;
  });
  const shown = (part: string): string => part.replace(MARK, (_all, number: string) => quotes[Number(number)] ?? '');

  const clauses: Clause[] = [];
  const plain = withoutNumberWords(hidden.replace(/[^\S\n]+/g, ' ').replace(/ ?\n[\n ]*/g, '\n'));
  let from = 0;
  let after = false;
  const take = (to: number): void => {
    const words = trimmed(plain.slice(from, to));
    if (words !== '') clauses.push({ words, after, shown });
  };
  for (const match of plain.matchAll(SEPARATOR)) {
    take(match.index);
    after = match.groups?.['then'] !== undefined;
    from = match.index + match[0].length;
  }
  take(plain.length);
  return clauses;
}

function trimmed(words: string): string {
  let before: string;
  let after = words.trim();
  do {
    before = after;
    after = after.replace(OPENERS, '').replace(CLOSERS, '').trim();
  } while (after !== before);
  return after;
}
