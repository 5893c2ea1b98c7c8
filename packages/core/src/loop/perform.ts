import { compact } from './perform/compact.ts';
import { inputs as callInputs } from './perform/inputs.ts';
import { judge } from './perform/judge.ts';
import { callModel } from './perform/model.ts';
import { checkOutput } from './perform/output.ts';
import { prepare } from './perform/prepare.ts';
import type { Done, Stage } from './perform/stage.ts';
import { cancelChild, runTool, type RunningTools } from './perform/tool.ts';
import type { Effect } from './effects.ts';
import type { Call } from './state.ts';

export interface Performer {
  /**
   * Begins an effect and calls `done` with the event that settles it, at once or later, unless it is aborted. What
   * waits for somebody outside is not begun at all.
   */
  readonly perform: (effect: Effect, done: Done) => void;
  /** Ends the runs that these calls were parked on. */
  readonly cancelChildren: (calls: readonly Call[]) => Promise<void>;
  /** Tells everything under way to stop, and why. */
  readonly abort: (reason?: unknown) => void;
}

/** `controller`: of the stage's signal. */
export function performer(stage: Stage, controller: AbortController): Performer {
  const inputs = callInputs(stage);
  const running: RunningTools = new Set();
  return {
    perform(effect, done) {
      switch (effect.type) {
        case 'call-model':
          return callModel(stage, inputs, effect, done);
        case 'prepare-turn':
          return prepare(stage, effect, done);
        case 'compact-history':
          return compact(stage, effect, done);
        case 'validate-output':
          return checkOutput(stage, effect, done);
        case 'judge-calls':
          return judge(stage, inputs, effect, done);
        case 'call-tool':
        case 'verify-tool':
          return runTool(stage, inputs, running, effect, done);
        case 'ask-approval':
        case 'await-client':
          return;
        default:
          effect satisfies never;
      }
    },
    async cancelChildren(calls) {
      await Promise.allSettled(calls.map((call) => cancelChild(stage, inputs, call)));
    },
    abort(reason) {
      controller.abort(reason);
      for (const abort of running) abort(reason);
    },
  };
}
