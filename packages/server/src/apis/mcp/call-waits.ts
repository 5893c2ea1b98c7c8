import type { ClientCapabilities, InputRequest } from '@modelcontextprotocol/server';
import { waiting, type Answer, type State, type Waiting } from '@treadle/core';
import type { Caller } from '../../http/admission.ts';
import type { Callable } from './callables.ts';
import { answerFrom, denial, inputRequest } from './client-input.ts';

/* What the run of a call waits for, as requests to its client, and the client's answers. */

/** What a run waits for, with its key on the wire. */
export type KeyedWait = Waiting & { readonly key: string };

/** Questions of a tool have the ids that the tool gave them. An agent may call several tools, with the same ids. */
export function keyedWaits(state: State, { type }: Pick<Callable, 'type'>): readonly KeyedWait[] {
  const { phase } = state;
  return waiting(state).map((wait) => {
    const [, index, question] = /^t\d+\.question\.(\d+)\.(\d+)$/.exec(wait.effect)?.map(Number) ?? [];
    const slot = 'slots' in phase && index !== undefined ? phase.slots?.[index] : undefined;
    const asked = slot && 'asked' in slot && question !== undefined ? slot.asked?.[question] : undefined;
    return { ...wait, key: type === 'tool' && asked ? asked.key : wait.effect };
  });
}

interface Answering {
  readonly responses: Map<string, unknown>;
  /** The client was asked for these responses. */
  readonly isAsked: boolean;
  readonly capabilities: ClientCapabilities;
  readonly caller: Caller;
  /** Why the last answers were rejected. */
  readonly rejected: string | undefined;
}

/** The answers that a client has given, and those that do not need it. Each response is used once. */
export function answersTo(
  waits: readonly KeyedWait[],
  { responses, isAsked, capabilities, caller: { key: by }, rejected }: Answering,
): readonly Answer[] | 'declined' {
  const answers: Answer[] = [];
  for (const wait of waits) {
    const { key, type } = wait;
    const isSilent = type === 'approval' && !capabilities.elicitation;
    if (isSilent && !wait.approvers && rejected === undefined) answers.push(denial(wait));
    if (isSilent || !responses.has(key) || (type === 'approval' && !isAsked)) continue;
    const given = answerFrom(wait, responses.get(key), by === '' ? undefined : by);
    responses.delete(key);
    if (given === 'declined') return 'declined';
    if (given !== 'missing') answers.push(given);
  }
  return answers;
}

/** Undefined if the run waits for something that this client cannot give. */
export function requestsFor(
  waits: readonly KeyedWait[],
  { caller: { key: by }, rejected }: Answering,
): Record<string, InputRequest> | undefined {
  const requests: Record<string, InputRequest> = {};
  for (const wait of waits) {
    const isOthers =
      wait.type === 'approval' && (wait.approvers?.includes(by) === false || wait.approvedBy?.includes(by) === true);
    const request = isOthers ? undefined : inputRequest(wait, rejected);
    if (request) requests[wait.key] = request;
  }
  return Object.keys(requests).length > 0 ? requests : undefined;
}
