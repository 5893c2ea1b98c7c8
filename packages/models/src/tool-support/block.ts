import type { Start } from './starts.ts';

/** Something that may be a call, held back until that is known. */
export interface Block {
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

export function block(start: Start): Block {
  return {
    start,
    held: start.opening,
    head: '',
    judged: false,
    json: false,
    inString: false,
    escaped: false,
    depth: 0,
    ended: 0,
  };
}

/**
 * Takes the next character: whether the block goes on, is at its end, or is plainly none. `anyEnding`: one inside a JSON
 * string counts too.
 */
export function grow(open: Block, char: string, anyEnding: boolean): 'more' | 'end' | 'plain' {
  const { start } = open;
  open.held += char;
  if (!open.judged) {
    open.head += char;
    const verdict = start.judge(open.head);
    if (verdict === 'plain') return 'plain';
    if (verdict === 'maybe') return 'more';
    open.judged = true;
    open.json = !anyEnding && start.closing !== '' && (char === '{' || char === '[');
    if (start.closing === '') for (const seen of start.opening + open.head) scan(open, seen);
    else if (open.json) scan(open, char);
    return 'more';
  }
  if (start.closing === '' || open.json) scan(open, char);
  if (start.closing === '') return open.depth === 0 && !open.inString ? 'end' : 'more';
  if (open.inString) return 'more';
  open.ended = char === start.closing[open.ended] ? open.ended + 1 : char === start.closing[0] ? 1 : 0;
  return open.ended === start.closing.length ? 'end' : 'more';
}

function scan(block: Block, char: string): void {
  if (block.inString) {
    if (block.escaped) block.escaped = false;
    else if (char === '\\') block.escaped = true;
    else if (char === '"') block.inString = false;
  } else if (char === '"') block.inString = true;
  else if (char === '{' || char === '[') block.depth++;
  else if (char === '}' || char === ']') block.depth--;
}
