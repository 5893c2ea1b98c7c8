import type { Event } from '@treadle/core';
import type { CallRecord, Chapter } from './turns.ts';

const DAY = 86_400_000;

/** Whether a call that may run has its result at a moment, as far as facts tell. */
export function isAnswered(call: CallRecord, at: number): boolean {
  return call.story.some((chapter) => chapter.at <= at && answers(call, chapter));
}

function answers(call: CallRecord, chapter: Chapter): boolean {
  if (chapter.type === 'judged') return chapter.verdict?.type !== 'allow' && chapter.verdict?.type !== 'ask';
  return chapter.type === 'told' && settles(call, chapter.event);
}

function settles(call: CallRecord, event: Event): boolean {
  switch (event.type) {
    case 'tool-settled':
      return event.result.type !== 'not-done';
    case 'client-result-given':
    case 'deadline-passed':
      return true;
    case 'approval-given':
      return !event.approved || event.at >= (expiryOf(call) ?? -Infinity);
    case 'effect-lost':
      return call.facts?.effect === 'once' && !call.facts.verifiable;
    default:
      return false;
  }
}

/** When an approval of the call is too late; undefined if nobody is to be asked. */
export function expiryOf({ story }: CallRecord): number | undefined {
  const judged = story.find((chapter) => chapter.type === 'judged');
  if (judged?.type !== 'judged' || judged.verdict?.type !== 'ask') return undefined;
  return judged.time + (judged.verdict.ttlMs ?? DAY);
}
