import type { AgentState, Event, Rules } from '@treadle/core';
import { argumentsOf, type CallRecord } from './turns.ts';

type AgentRules = NonNullable<Rules['agent']>;

/**
 * How a typed agent claims a call. `shown`: an output that is shown to the model again. `held`: the call ends the
 * attempt, and its result is the verdict on the output. `superseded`: a later call of the same reply is held instead.
 * `early`: a submit before any output. All other calls are calls of helpers.
 */
export type Claim = 'shown' | 'held' | 'superseded' | 'early';

/** Calls of a reply beyond this number are refused. */
const MOST = 128;

/** The progress of a typed agent, derived from the events alone. */
export interface Attempts {
  readonly claimsOn: (calls: readonly CallRecord[]) => ReadonlyMap<CallRecord, Claim>;
  /** The arguments of the last output of the attempt. */
  readonly proposal: () => string | undefined;
  readonly remember: (event: Event) => void;
  /** Why the run ends with this output; undefined if there is another attempt. */
  readonly reject: (
    result: Extract<Checked, { type: 'invalid' }>,
  ) => 'exhausted attempts' | 'failed prompt-failed' | undefined;
  readonly startNext: () => void;
  readonly view: () => View;
}

export type Checked = Extract<Event, { type: 'output-checked' }>['result'];

/** The part that the state must contain. */
export type View = Pick<AgentState, 'attempt' | 'memory' | 'rejection' | 'proposal'>;

export function attemptsOf({ output, submit, maxAttempts, memory: first }: AgentRules): Attempts {
  let attempt = 1;
  let proposal: string | undefined;
  let memory = first;
  let rejection: AgentState['rejection'];

  return {
    claimsOn(calls) {
      const named = (name: string | undefined): readonly CallRecord[] =>
        calls.filter(({ part, index }) => index < MOST && part.name === name);
      const [outputs, submits] = [named(output), named(submit)];
      const claims = new Map<CallRecord, Claim>();
      if (outputs.length > 0) proposal = argumentsOf(outputs.at(-1)!);
      if (submit !== undefined) for (const call of outputs) claims.set(call, 'shown');
      const ending = submit === undefined ? outputs : submits;
      for (const call of ending) {
        if (proposal === undefined) claims.set(call, 'early');
        else claims.set(call, call === ending.at(-1) ? 'held' : 'superseded');
      }
      return claims;
    },
    proposal: () => proposal,
    remember(event) {
      if (event.type !== 'tool-settled' || event.result.type !== 'result' || !event.result.memory) return;
      memory = { ...memory, ...event.result.memory };
    },
    reject({ problems, validator, promptProblem }) {
      rejection = { problems, ...(validator !== undefined && { validator }) };
      if (attempt === maxAttempts) return 'exhausted attempts';
      return promptProblem === undefined ? undefined : 'failed prompt-failed';
    },
    startNext() {
      attempt++;
      proposal = undefined;
      const { attempt: _, ...kept } = memory ?? {};
      const again = first?.['attempt'] !== undefined && { attempt: first['attempt'] };
      memory = memory && { ...kept, ...again };
    },
    view: () => ({ attempt, memory, rejection, proposal }),
  };
}
