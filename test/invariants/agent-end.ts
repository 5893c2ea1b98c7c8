import type { Event, Rules } from '@treadle/core';
import { turnOf } from './answers.ts';
import { inWords } from './expected.ts';
import { demand, type Moment, type Trace } from './trace.ts';

type AgentRules = NonNullable<Rules['agent']>;

/**
 * How a typed agent ends, said once more and without the course of its run: by what was rejected how often, and in how
 * many turns.
 */
export function checkAgentEnd({ world, moments }: Trace, agent: AgentRules): void {
  const { maxTurns } = world.rules;
  let rejected = 0;
  let turns = new Set<number>();
  for (const moment of moments) {
    if (!moment.taken) continue;
    const { event, effects, after } = moment;
    if (isRejection(event)) {
      rejected++;
      if (after.phase.type !== 'ended') turns = new Set();
    }
    for (const { type, id } of effects) if (type === 'call-model' || type === 'prepare-turn') turns.add(turnOf(id));
    demand(turns.size <= maxTurns, () => `an attempt had ${turns.size} turns, and the limit is ${maxTurns}`);
    checkOutcome(moment, agent, rejected);
    const outOfTurns = inWords(after) === 'exhausted turns';
    demand(!outOfTurns || turns.size === maxTurns, () => `it ended after ${turns.size} of ${maxTurns} turns`);
  }
}

/** What has to end the run ends it, and nothing else ends it so. */
function checkOutcome({ event, after }: Moment, agent: AgentRules, rejected: number): void {
  const last = isRejection(event) && rejected >= agent.maxAttempts;
  const wordless = event.type === 'output-checked' && 'promptProblem' in event.result;
  const due: Readonly<Record<string, boolean>> = {
    completed: event.type === 'output-checked' && event.result.type === 'valid',
    'exhausted attempts': last,
    'failed prompt-failed': isRejection(event) && wordless && !last,
    'failed no-tool-called': isSilent(event) && agent.textOnly === 'fail',
  };
  const outcome = inWords(after)?.replace(' truncated', '');
  for (const [end, must] of Object.entries(due)) {
    const is = outcome === end;
    demand(is === must, () => `it is ${is ? '' : 'not '}${end}, and must ${must ? '' : 'not '}be: ${event.type}`);
  }
  const early = agent.earlySubmit === 'fail' && agent.submit !== undefined;
  demand(early || outcome !== 'failed submit-before-output', () => 'a submit before any output does no harm here');
}

function isRejection(event: Event): boolean {
  return event.type === 'output-checked' && event.result.type === 'invalid';
}

/** A reply without a call, which the model gave of its own accord. */
function isSilent(event: Event): boolean {
  if (event.type !== 'model-replied' || event.finish === 'content-filter') return false;
  return !event.content.some(({ type }) => type === 'tool-call');
}
