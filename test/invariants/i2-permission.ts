import { createHash } from 'node:crypto';
import type { Event } from '@treadle/core';
import { expiryOf } from './answered.ts';
import { referenceOf } from './reference.ts';
import { demand, type Trace } from './trace.ts';
import { argumentsOf, turnsOf, type CallRecord, type Chapter } from './turns.ts';

/**
 * I2: a tool runs only after a recorded verdict allowed it, and never one outside the allowed set; one that acts once
 * never runs a second time unless it was found that it had not acted.
 */
export function checkPermission(trace: Trace): void {
  const { rules } = trace.world;
  const turns = turnsOf(trace);
  const { dispositions } = referenceOf(trace, turns);
  for (const { number, calls } of turns) {
    for (const call of calls) {
      const where = `call ${call.index} (${call.part.name}) of turn ${number}`;
      const begun = call.story.findIndex((chapter) => chapter.type === 'issued' && isBeginning(chapter));
      if (begun < 0) continue;
      demand(dispositions.get(call) === 'runs', () => `${where} ran, though it is ${dispositions.get(call)}`);
      demand(!rules.judged || isLetThrough(call, begun), () => `${where} ran, and nobody had allowed it`);
      checkWhat(call, where);
      checkAgain(call, where);
    }
  }
}

function isBeginning({ effect }: Extract<Chapter, { type: 'issued' }>): boolean {
  return effect.type === 'call-tool' || effect.type === 'await-client' || effect.type === 'verify-tool';
}

/** By the verdict, or by a person who saw this very call and decided in time. */
function isLetThrough(call: CallRecord, begun: number): boolean {
  const before = call.story.slice(0, begun);
  const verdict = before.find((chapter) => chapter.type === 'judged');
  if (verdict?.type !== 'judged') return false;
  if (verdict.verdict?.type === 'allow') return true;
  const digest = createHash('sha256')
    .update(`${call.part.name}\n${argumentsOf(call)}`)
    .digest('hex');
  return before.some(
    (chapter) => chapter.type === 'told' && approves(chapter.event, digest, expiryOf(call) ?? -Infinity),
  );
}

function approves(event: Event, digest: string, expiry: number): boolean {
  return event.type === 'approval-given' && event.approved && event.digest === digest && event.at < expiry;
}

/** What runs is what was judged: the tool, the checked arguments, and by whom it is executed. */
function checkWhat(call: CallRecord, where: string): void {
  for (const chapter of call.story) {
    if (chapter.type !== 'issued' || !('call' in chapter.effect)) continue;
    const { call: run, type } = chapter.effect;
    const right =
      run.name === call.part.name && run.arguments === argumentsOf(call) && run.effect === call.facts?.effect;
    demand(right, () => `${where} is issued as something else`);
    if (type !== 'ask-approval') {
      demand((type === 'await-client') === call.facts?.client, () => `${where} is executed by the wrong side`);
    }
  }
}

/** What was lost runs again only if that does no harm. */
function checkAgain({ story, facts }: CallRecord, where: string): void {
  let mayRun = true;
  let mayVerify = false;
  for (const chapter of story) {
    if (chapter.type === 'issued') {
      if (chapter.effect.type === 'call-tool') {
        demand(mayRun, () => `${where} runs again, and it may have acted`);
        mayRun = false;
      } else if (chapter.effect.type === 'verify-tool') {
        demand(mayVerify && facts!.verifiable, () => `${where} is verified without reason`);
        mayVerify = false;
      }
    } else if (chapter.type === 'told') {
      const { event } = chapter;
      if (event.type === 'effect-lost') {
        mayVerify = facts!.verifiable && facts!.effect === 'once';
        mayRun = facts!.effect !== 'once';
      } else if (event.type === 'tool-settled') mayRun = event.result.type === 'not-done';
    }
  }
}
