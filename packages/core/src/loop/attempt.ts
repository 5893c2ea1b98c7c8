import type { AgentRules } from './pinned.ts';
import type { AgentState, State } from './state.ts';

/** The attempt after `last`, or the first: what was for one attempt begins anew, what was for the run goes on. */
export function nextAttempt({ memory }: AgentRules, last: AgentState | undefined, turn: number): AgentState {
  return {
    attempt: (last?.attempt ?? 0) + 1,
    from: turn,
    proposal: undefined,
    memory: memory && { ...memory, ...(last && { run: last.memory?.run }) },
    rejection: last?.rejection,
  };
}

/** Turns that count for `maxTurns`: of a typed agent those of the attempt that goes on. */
export function turnsUsed({ turn, agent }: State): number {
  return turn - (agent?.from ?? 0);
}
