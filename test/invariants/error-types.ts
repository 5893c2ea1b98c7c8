import type { ErrorFacts, ErrorType, Event, Message, Rules, ToolChoice } from '@treadle/core';
import type { Claim } from './agent-attempts.ts';
import type { Handling } from './call-handling.ts';
import { ensure, same } from './trace.ts';
import { answerIn, type CallRecord, type Turn } from './turns.ts';

/** Why the loop refuses a call that it does not run. */
export function refusalType(
  { part, facts, check }: CallRecord,
  handling: Handling,
  required: ToolChoice,
  isAllowed: (name: string) => boolean,
): ErrorType {
  if (handling !== 'refused' || required === 'none') return 'denied';
  if (!facts) return 'not_found';
  if (!isAllowed(part.name)) return 'permission_denied';
  return typeof required === 'object' && required.tool !== part.name
    ? 'denied'
    : (check?.errorType ?? 'invalid_params');
}

/** Every error result of a turn has the one type that its cause requires, and the facts that its tool reported. */
export function checkErrorTypes(
  { calls, number, position }: Turn,
  final: readonly Message[],
  rules: Rules,
  { claims, handlings, refusals }: Causes,
): void {
  const message = final[position + 1];
  if (message?.role !== 'tool') return;
  for (const call of calls) {
    const { isError, errorType, exitCode, stderr, httpStatus, protocolCode } = message.content[call.index]!;
    const due = isError ? errorFactsOf(call, claims.get(call), handlings.get(call), refusals.get(call)) : {};
    const recorded = { errorType, exitCode, stderr, httpStatus, protocolCode };
    const expected = {
      errorType: rules.errorTypes ? due.errorType : undefined,
      exitCode: due.exitCode,
      stderr: due.stderr,
      httpStatus: due.httpStatus,
      protocolCode: due.protocolCode,
    };
    ensure(
      same(recorded, expected),
      () =>
        `call ${call.index} of turn ${number} has ${JSON.stringify(recorded)} instead of ${JSON.stringify(expected)}`,
    );
  }
}

export interface Causes {
  readonly claims: ReadonlyMap<CallRecord, Claim>;
  readonly handlings: ReadonlyMap<CallRecord, Handling>;
  readonly refusals: ReadonlyMap<CallRecord, ErrorType>;
}

function errorFactsOf(
  call: CallRecord,
  claim: Claim | undefined,
  handling: Handling | undefined,
  refusal: ErrorType | undefined,
): ErrorFacts {
  const answer = answerIn(call);
  if (answer) {
    const facts: ErrorFacts = answer.type === 'client-result-given' ? answer : (answer.result as ErrorFacts);
    const { errorType = 'execution_failed', exitCode, stderr, httpStatus, protocolCode } = facts;
    return {
      errorType,
      ...(exitCode !== undefined && { exitCode }),
      ...(stderr !== undefined && { stderr }),
      ...(httpStatus !== undefined && { httpStatus }),
      ...(protocolCode !== undefined && { protocolCode }),
    };
  }
  if (handling === 'faulty') return { errorType: 'invalid_params' };
  if (handling === 'early') return { errorType: 'denied' };
  // The validation rejected it, or the run ended before that.
  if (claim === 'held') return { errorType: refusal ?? 'interrupted' };
  if (handling !== 'runs') return { errorType: refusal! };
  if (isExpired(call)) return { errorType: 'timeout' };
  return { errorType: isDenied(call) ? 'denied' : 'interrupted' };
}

/** It was parked, or waited for the client, and had no result in time. */
function isExpired({ log }: CallRecord): boolean {
  return log.some((record) => {
    if (record.type !== 'reported') return false;
    return record.parking === 'expired' || isCallOverdue(record.event);
  });
}

/** The deadline of a call has passed, and not that of its approval or of one of its questions. */
function isCallOverdue(event: Event): boolean {
  return event.type === 'deadline-passed' && event.question === undefined && !event.effect?.includes('.approval.');
}

/** The policy or a person denied it, or nobody approved it in time. */
function isDenied({ log, permissions }: CallRecord): boolean {
  if (permissions.at(-1)?.permission.type === 'denied') return true;
  return log.some(
    (record) =>
      record.type === 'reported' && record.event.type === 'deadline-passed' && record.event.question === undefined,
  );
}
