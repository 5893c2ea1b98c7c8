import { TreadleError } from '../errors.ts';
import { userText, type Message } from '../messages.ts';

/** The input of a run as messages. Throws `invalid-input` for a conversation that no provider would take. */
export function conversationOf(input: string | readonly Message[]): readonly Message[] {
  if (typeof input === 'string') return [userText(input)];
  if (!Array.isArray(input) || input.length === 0) throw invalid('it is empty. Give a text, or at least one message');
  let open: readonly string[] = [];
  for (const [index, message] of (input as readonly Message[]).entries()) {
    if (!isMessage(message)) {
      throw invalid(`message ${index} has no role of ${ROLES.join(', ')}, or no list of content blocks`);
    }
    if (message.role === 'tool') {
      const answered = message.content.map(({ callId }) => callId);
      if (answered.join('\n') !== open.join('\n')) {
        throw invalid(`message ${index} answers the calls [${answered.join(', ')}], but open are [${open.join(', ')}]`);
      }
      open = [];
      continue;
    }
    if (open.length > 0) throw invalid(`message ${index} comes before the results of the calls [${open.join(', ')}]`);
    if (message.role === 'assistant') open = message.content.flatMap((part) => (part.type === 'tool-call' ? part.id : []));
  }
  if (open.length > 0) throw invalid(`the calls [${open.join(', ')}] of its last message have no results`);
  return input;
}

const ROLES: readonly string[] = ['user', 'assistant', 'tool'];

function isMessage(message: { readonly role?: unknown; readonly content?: unknown } | undefined): boolean {
  return ROLES.includes(message?.role as string) && Array.isArray(message?.content);
}

function invalid(what: string): TreadleError {
  return new TreadleError('invalid-input', `The input is no conversation that a model could go on with: ${what}.`);
}
