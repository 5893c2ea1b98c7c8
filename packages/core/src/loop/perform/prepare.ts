import { messageOf } from '../../errors.ts';
import type { TurnChanges } from '../options.ts';
import { isToolChoice } from '../rules.ts';
import type { TurnDecision } from '../pinned.ts';
import type { Done, EffectOf, Stage } from './stage.ts';

/** Asks the program what this turn shall be like. What it throws, or asks for that is not there, fails the run. */
export function prepare(stage: Stage, { id, turn, history }: EffectOf<'prepare-turn'>, done: Done): void {
  const { runId, prepareTurn, clock, state, context } = stage;
  const settle = (changes: TurnChanges): void => {
    done({ type: 'turn-prepared', at: clock.now(), effect: id, decision: decisionOf(stage, changes) });
  };
  const failed = (thrown: unknown): void => {
    const problem = `prepareTurn failed: ${messageOf(thrown)}`;
    done({ type: 'turn-prepared', at: clock.now(), effect: id, decision: {}, problem });
  };
  const { usage, calls } = state();
  const info = { runId, turn, messages: history.items, usage, calls, context };
  void (async () => {
    if (!prepareTurn) throw new Error('the run was started with one, and there is none now');
    return prepareTurn(info);
  })()
    .then(settle)
    .catch(failed);
}

function decisionOf({ models, state }: Stage, changes: TurnChanges): TurnDecision {
  const { model, tools, toolChoice, instructions } = changes ?? {};
  if (model !== undefined && !models.has(model)) {
    throw new Error(
      `it chose the model "${model}", which is none of "models" (${[...models.keys()].join(', ') || 'none'})`,
    );
  }
  if (toolChoice !== undefined && !isToolChoice(toolChoice))
    throw new Error(`${JSON.stringify(toolChoice)} is no toolChoice`);
  if (tools !== undefined && !Array.isArray(tools)) throw new Error('its tools are no list of names');
  const known = new Set(state().tools.map(({ name }) => name));
  const demanded = typeof toolChoice === 'object' ? [toolChoice.tool] : [];
  for (const name of [...(tools ?? []), ...demanded])
    if (!known.has(name)) throw new Error(`there is no tool "${name}"`);
  return {
    ...(model !== undefined && { model }),
    ...(tools && { tools: [...tools] }),
    ...(toolChoice !== undefined && { toolChoice }),
    ...(instructions !== undefined && { instructions }),
  };
}
