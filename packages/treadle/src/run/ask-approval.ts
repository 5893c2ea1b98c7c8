import { userInfo } from 'node:os';
import type { Touch } from '@treadle/core';
import { exactLine, exactText } from '../terminal/printable.ts';
import { plural, timestampText } from '../terminal/quantities.ts';
import type { ApprovalRequest, Decision, QuestionRequest } from './drive-run.ts';

export interface Prompter {
  writeLine(line: string): void;
  /** Resolves with one line, or with undefined at Ctrl-C and Ctrl-D. */
  ask(prompt: string): Promise<string | undefined>;
}

/** The lines that explain why the policy asks. */
export type ExplainRequest = (request: ApprovalRequest) => Promise<readonly string[]>;

/** `a` is not possible if the rule asks each time. */
const QUESTION = { once: 'Allow it? [y/N/a/e] ', eachTime: 'Allow it? [y/N/e] ' } as const;
const KEYS = {
  once: 'Answer y (yes), n (no), a (yes, for the rest of this run or chat) or e (explain): ',
  eachTime: 'Answer y (yes), n (no) or e (explain); it is asked about each time: ',
} as const;

/** Shows what a call would do, exactly, and asks until the answer is yes or no. No answer means no. */
export async function askApproval(
  request: ApprovalRequest,
  { writeLine, ask }: Prompter,
  {
    explain,
    lines = requestLines(request),
  }: { readonly explain?: ExplainRequest | undefined; readonly lines?: readonly string[] } = {},
): Promise<Decision> {
  for (const line of lines) writeLine(line);
  const when = request.eachTime ? 'eachTime' : 'once';
  for (let prompt: string = QUESTION[when]; ;) {
    const answer = (await ask(prompt))?.trim().toLowerCase();
    if (answer === 'y' || answer === 'yes') return { approved: true };
    if (answer === 'a' && when === 'once') return { approved: true, forRun: true };
    if (!answer || answer === 'n' || answer === 'no') return { approved: false, reason: 'The user said no.' };
    if (answer === 'e' && explain) {
      for (const line of await explain(request)) writeLine(line);
      prompt = QUESTION[when];
    } else prompt = KEYS[when];
  }
}

/** For --yes, where the policy leaves it to people: the decision that the user has made in advance. */
export async function approveByFlag(): Promise<Decision> {
  return { approved: true, reason: 'Approved with --yes.' };
}

/**
 * Shows a question of a tool, and asks until the answer can be one. A choice is its text or its number; a value for a schema
 * is JSON. Undefined: the user gives no answer now.
 */
export async function askQuestion(
  { call, question }: QuestionRequest,
  { writeLine, ask }: Prompter,
  rejected?: string,
): Promise<unknown> {
  const { choices, schema } = question;
  for (const line of questionLines({ call, question }, rejected)) writeLine(line);
  for (const [index, choice] of (choices ?? []).entries()) writeLine(`${INDENT}${index + 1} ${exactLine(choice)}`);
  for (;;) {
    const line = (await ask(choices ? `Your choice [1-${choices.length}]: ` : 'Your answer: '))?.trim();
    if (line === undefined) return undefined;
    if (line === '') continue;
    const value = choices ? chosen(choices, line) : schema ? jsonIn(line) : line;
    if (value !== undefined) return value;
  }
}

/** A question, without its choices. `rejected`: why the last answer was rejected. */
export function questionLines(
  { call, question: { prompt, schema } }: Pick<QuestionRequest, 'call' | 'question'>,
  rejected?: string,
): readonly string[] {
  return [
    ...(rejected === undefined ? [] : [exactLine(rejected)]),
    `${exactLine(call.name)} asks: ${exactText(prompt, INDENT)}`,
    ...(schema ? [`${INDENT}as JSON: ${exactLine(JSON.stringify(schema))}`] : []),
  ];
}

function chosen(choices: readonly string[], line: string): string | undefined {
  return choices.find((choice) => choice === line) ?? choices[Number(line) - 1];
}

function jsonIn(line: string): unknown {
  try {
    return JSON.parse(line);
  } catch {
    return undefined;
  }
}

const INDENT = '  ';

/** What a call would do, exactly, with everything visible. */
function requestLines(request: ApprovalRequest): readonly string[] {
  const { sandbox } = request.call;
  return linesOf(request, {
    sandbox: sandbox && `inside a sandbox that promises ${sandbox.map(exactLine).join(', ')}`,
    showsDeadline: true,
  });
}

const HOUR_MS = 3_600_000;

/**
 * The same for a screen, on which people decide often: without the promises of a sandbox, a deadline that is far away, and what
 * would be said twice.
 */
export function shortRequestLines(request: ApprovalRequest, now: number): readonly string[] {
  const { call, touches = [], rule, reason, ...rest } = request;
  const { sandbox } = call;
  // At its level the policy asks about everything that is not listed. The lines of what the call touches say more.
  const isSaid = rule === 'autonomy' && touches.length > 0;
  const short = {
    ...rest,
    call: { ...call, arguments: argumentsBeyond(touches, call.arguments) },
    touches,
    ...(!isSaid && reason !== undefined && { reason }),
  };
  return linesOf(short, {
    sandbox: sandbox && `inside a sandbox, which keeps ${plural(sandbox.length, 'promise')}`,
    showsDeadline: request.expiresAt < now + HOUR_MS,
  });
}

/** What the touches of a call are named in its arguments. */
const TOUCHED: readonly (readonly [name: string, isShown: (touch: Touch, value: string) => boolean])[] = [
  ['path', (touch, value) => (touch.type === 'read' || touch.type === 'write') && touch.path === value],
  ['command', (touch, value) => touch.type === 'command' && touch.command === value],
  ['url', (touch, value) => touch.type === 'url' && touch.url === value],
];

/** The arguments without those that the lines of the touches show exactly. Empty: they show all. */
function argumentsBeyond(touches: readonly Touch[], text: string): string {
  let given: Readonly<Record<string, unknown>>;
  try {
    given = JSON.parse(text) as typeof given;
  } catch {
    return text;
  }
  if (typeof given !== 'object' || given === null || Array.isArray(given)) return text;
  const isShown = ([name, value]: readonly [string, unknown]): boolean =>
    typeof value === 'string' &&
    TOUCHED.some(([one, shows]) => one === name && touches.some((touch) => shows(touch, value)));
  const entries = Object.entries(given);
  const rest = entries.filter((entry) => !isShown(entry));
  if (rest.length === entries.length) return text;
  return rest.length === 0 ? '' : JSON.stringify(Object.fromEntries(rest));
}

function linesOf(
  {
    call,
    reason,
    touches = [],
    shown,
    expiresAt,
  }: Pick<ApprovalRequest, 'reason' | 'touches' | 'shown' | 'expiresAt'> & {
    readonly call: Pick<ApprovalRequest['call'], 'name' | 'arguments'>;
  },
  { sandbox, showsDeadline }: { readonly sandbox: string | undefined; readonly showsDeadline: boolean },
): readonly string[] {
  return [
    `${exactLine(call.name)} wants to run${call.arguments === '' ? '' : ` with ${exactText(call.arguments, INDENT)}`}`,
    ...touches.map((touch) => `${INDENT}${touchText(touch)}`),
    ...(sandbox === undefined ? [] : [`${INDENT}${sandbox}`]),
    ...shownLines(shown),
    ...(reason ? [`(${exactText(reason, INDENT)})`] : []),
    ...(showsDeadline ? [`${INDENT}until ${timestampText(expiresAt)}`] : []),
  ];
}

/** The touch with its exact path, command or host, where it is, and how much. */
export function touchText(touch: Touch): string {
  const on = 'on' in touch && touch.on ? ` on the ${touch.on.type} ${exactLine(touch.on.name)}` : '';
  switch (touch.type) {
    case 'read':
      return `reads ${exactLine(touch.path)}${on}`;
    case 'write':
      return `writes ${exactLine(touch.path)}${amountText(touch.lines, 'line')}${on}`;
    case 'command':
      return `runs${on} ${exactText(touch.command, `${INDENT}     `)}`;
    case 'url': {
      const host = URL.canParse(touch.url) ? `${new URL(touch.url).host}: ` : '';
      return `connects${on} to ${exactLine(`${host}${touch.url}`)}${amountText(touch.bytes, 'byte')}`;
    }
    case 'session':
      return `uses the session ${exactLine(touch.session)}${on}`;
    case 'device':
      return `uses the device ${exactLine(touch.device)}`;
    case 'unknown':
      return 'does not say what it touches';
    default:
      return touch satisfies never;
  }
}

function amountText(amount: number | undefined, unit: string): string {
  return amount === undefined ? '' : ` (${plural(amount, unit)})`;
}

/** What the policy wants to be shown: a text, a diff, or other JSON. */
function shownLines(shown: unknown): readonly string[] {
  if (shown === undefined) return [];
  const { diff } = (shown ?? {}) as { readonly diff?: unknown };
  const text = [shown, diff].find((one) => typeof one === 'string') ?? JSON.stringify(shown, null, 2);
  return [`${INDENT}${exactText(String(text), INDENT)}`];
}

/** The name of the user of this process, which answers record. */
export function userName(): string {
  try {
    return userInfo().username;
  } catch {
    // A container may run as a user without a name.
    return `user ${process.getuid?.() ?? 'unknown'}`;
  }
}
