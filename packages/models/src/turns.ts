/** A history of two alternating roles. Its last message stays open for the next one of the same role. */
export interface Turns {
  role: TurnRole | undefined;
}

export type TurnRole = 'user' | 'assistant';

/** How a protocol with alternating roles writes messages. */
export interface TurnForm {
  /** The start of a message, up to the opening bracket of its parts. */
  readonly open: (role: TurnRole) => string;
  /** A part with this text. */
  readonly text: (text: string) => string;
}

/** The text that a message with these parts adds. They become parts of the open message if that has the same role. */
export function addToTurns(form: TurnForm, turns: Turns, role: TurnRole, parts: readonly string[]): string {
  if (parts.length === 0) return '';
  const previousRole = turns.role;
  turns.role = role;
  const json = parts.join(',');
  if (previousRole === role) return `,${json}`;
  if (previousRole !== undefined) return `]},${form.open(role)}${json}`;
  // A conversation must start with the user.
  const beginning = role === 'user' ? '' : `,${form.open('user')}${form.text('(The conversation begins here.)')}]}`;
  return `${beginning},${form.open(role)}${json}`;
}

/** Closes the list of messages. The last one must be of the user. */
export function closeTurns(form: TurnForm, { role }: Turns): string {
  if (role === undefined) return ']';
  return role === 'user' ? ']}]' : `]},${form.open('user')}${form.text('Continue.')}]}]`;
}

/** Stands for a user message without content: a message must have a part. */
export const EMPTY_MESSAGE = '(The user sent an empty message.)';
