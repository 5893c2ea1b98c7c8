import { argumentsOf, permissionAt, turnsOf, type CallEvent, type CallRecord } from './turns.ts';
import { referenceOf } from './reference.ts';
import { ensure, same, type Trace } from './trace.ts';

/**
 * I2: a tool runs only after a recorded verdict, enough people or a grant for the run allowed it, and never one outside
 * the allowed set. A tool with the effect `once` runs a second time only if its verification reported that it had not
 * acted and it is not parked, or because it has asked, and now has all answers. What exceeds a budget is allowed once.
 */
export function checkPermission(trace: Trace): void {
  const turns = turnsOf(trace);
  const { handlings } = referenceOf(trace, turns);
  for (const { number, calls } of turns) {
    for (const call of calls) {
      const where = `call ${call.index} (${call.part.name}) of turn ${number}`;
      const starts = call.log.filter((record) => record.type === 'issued' && isStart(record));
      if (starts.length === 0) continue;
      ensure(handlings.get(call) === 'runs', () => `${where} ran although it must be ${handlings.get(call)}`);
      for (const { at } of starts) ensure(isAllowed(call, at), () => `${where} ran without being allowed`);
      checkWhat(call, where, trace);
      checkAgain(call, where);
    }
  }
  for (const { event, before, after } of trace.moments) {
    if (event.type !== 'approval-given' || event.raises === undefined) continue;
    ensure(before.grants === after.grants, () => `${event.effect} exceeds its budget, and is allowed for the run`);
  }
}

function isStart({ effect }: Extract<CallEvent, { type: 'issued' }>): boolean {
  return effect.type === 'call-tool' || effect.type === 'await-client' || effect.type === 'verify-tool';
}

/** Allowed by the verdicts, by enough approvals of exactly this call before they expired, or by a grant. */
function isAllowed(call: CallRecord, at: number): boolean {
  const permission = permissionAt(call, at);
  return permission ? permission.type === 'allowed' : !call.mustBeJudged;
}

/** What runs is what was judged: the same tool, the checked arguments, and the same executor. */
function checkWhat(call: CallRecord, where: string, { moments, last }: Trace): void {
  for (const record of call.log) {
    if (record.type !== 'issued' || !('call' in record.effect)) continue;
    const { call: run, type } = record.effect;
    const right =
      run.name === call.part.name && run.arguments === argumentsOf(call) && run.effect === call.facts?.effect;
    ensure(right, () => `${where} is issued with another tool, arguments or effect`);
    if (record.effect.type === 'await-client') {
      const { expiresAt } = record.effect;
      const { ttlMs } = call.facts!;
      const due = ttlMs === undefined ? undefined : moments[record.at]!.observed.after.at + ttlMs;
      ensure(expiresAt === due, () => `${where} expires at ${expiresAt} instead of ${due}`);
    }
    const refers = last.after.rules.references ? call.part.references : undefined;
    ensure(same(run.references, refers), () => `${where} is issued with other references`);
    if (type !== 'ask-approval') {
      ensure((type === 'await-client') === call.facts?.client, () => `${where} is executed by the wrong side`);
    }
  }
}

/** A lost call runs again only if that is harmless. */
function checkAgain({ log, facts }: CallRecord, where: string): void {
  let mayRun = true;
  let mayVerify = false;
  let questions = 0;
  for (const record of log) {
    if (record.type === 'issued') {
      if (record.effect.type === 'call-tool') {
        ensure(mayRun, () => `${where} runs again although it may have acted`);
        mayRun = false;
      } else if (record.effect.type === 'verify-tool') {
        ensure(mayVerify && facts!.verifiable, () => `${where} is verified without reason`);
        mayVerify = false;
      }
    } else if (record.type === 'reported') {
      const { event } = record;
      if (event.type === 'effect-lost') {
        mayVerify = facts!.verifiable && facts!.effect === 'once';
        mayRun = facts!.effect !== 'once';
      } else if (event.type === 'call-rejudged' || event.type === 'budget-escalated') mayRun = true;
      else if (event.type === 'questions-asked') questions += event.questions.length;
      else if (event.type === 'question-answered' || (event.type === 'deadline-passed' && questions > 0)) {
        // It has not acted before it has its answers.
        mayRun = --questions === 0;
      } else if (event.type === 'tool-settled') mayRun = event.result.type === 'not-done' && !record.parking;
    }
  }
}
