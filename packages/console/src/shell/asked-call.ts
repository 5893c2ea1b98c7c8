import { exactText, objectIn } from '../format.ts';

/*
 * What an approval says beside the arguments of the call. The arguments are shown as they are, so what they contain is not
 * repeated: people read a long text once, and not the same one four times.
 */

/** A call that people are asked about. */
export interface AskedCall {
  readonly arguments: string;
  readonly reason?: string | null;
  readonly touches?: readonly ShownTouch[];
}

export interface ShownTouch {
  readonly type: string;
  readonly path?: string;
  readonly command?: string;
  readonly url?: string;
  readonly session?: string;
  readonly device?: string;
  readonly on?: { readonly type: string; readonly name: string };
  readonly lines?: number;
  readonly bytes?: number;
}

const NOUNS: Readonly<Record<string, string>> = {
  read: 'this path',
  write: 'this path',
  command: 'this command',
  url: 'this address',
};

/** Why the call is asked about, as a sentence. Undefined if it is not known. */
export function whyAsked({ arguments: text, reason, touches = [] }: AskedCall): string | undefined {
  if (!reason) return undefined;
  let why = reason;
  for (const touch of touches) {
    const noun = NOUNS[touch.type];
    if (noun === undefined || !isInArguments(touch, text)) continue;
    for (const quoted of quotesOf(touch)) why = withoutQuote(why, quoted, noun);
  }
  const start = why.charAt(0).toUpperCase() + why.slice(1);
  return /[.!?]$/.test(start) ? start : `${start}.`;
}

/** What the call touches and neither its arguments nor the sentence say. */
export function otherTouches({ arguments: text, reason, touches = [] }: AskedCall): readonly ShownTouch[] {
  return touches.filter((touch) => {
    if (touch.on || !isInArguments(touch, text)) return true;
    // That a command is run is clear. Whether a path is read or written may not be.
    return touch.type !== 'command' && !quotesOf(touch).some((quoted) => reason?.includes(quoted));
  });
}

export function touchText({ path, command, url, session, device }: ShownTouch): string {
  return path ?? command ?? url ?? session ?? device ?? '';
}

/** Where a touch is, and how much, as an addition to what it is. Empty if neither is known. */
export function touchDetails({ on, lines, bytes }: ShownTouch): string {
  const amount = lines === undefined ? (bytes === undefined ? '' : ` (${bytes} bytes)`) : ` (${lines} lines)`;
  return `${amount}${on ? ` on the ${on.type} ${on.name}` : ''}`;
}

/** What the tool `bash` puts before a command that does not run in its usual folder, which is an argument too. */
const FOLDER = /^cd [^\n]* \|\| exit\n/;

/** Whether the arguments contain the text of a touch. */
function isInArguments(touch: ShownTouch, text: string): boolean {
  const touched = touchText(touch);
  const input = objectIn(text);
  if (touched === '' || !input) return false;
  if (touch.type !== 'command') return JSON.stringify(input).includes(JSON.stringify(touched));
  return touched === input['command'] || touched.replace(FOLDER, '') === input['command'];
}

/** Policies quote what they name, and shorten what is long. The server escapes what is hidden in a reason. */
function quotesOf(touch: ShownTouch): readonly string[] {
  const text = touchText(touch);
  const quotes = [text, `${text.slice(0, 200)}…`].map((one) => JSON.stringify(one));
  return [...new Set([...quotes, ...quotes.map(exactText)])];
}

/** An entry of the policy that is equal to the text stays. */
function withoutQuote(text: string, quoted: string, noun: string): string {
  const named = noun.replace('this', 'the');
  return text
    .split(`the entry ${quoted}`)
    .map((part) => part.replaceAll(`${named} ${quoted}`, noun).replaceAll(quoted, noun))
    .join(`the entry ${quoted}`);
}

/** What a call is about, in one line. */
export function callSummary(text: string): string {
  try {
    const value: unknown = JSON.parse(text);
    if (typeof value !== 'object' || value === null) return text;
    const values = Object.values(value).map((one) => (typeof one === 'string' ? one : JSON.stringify(one)));
    return values.join('  ').replaceAll(/\s+/g, ' ').slice(0, 200);
  } catch {
    return text.slice(0, 200);
  }
}
