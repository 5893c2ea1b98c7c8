import type { Answer, ContinueOptions, LoopOptions, LoopResult } from '../driver/options.ts';
import { runLoop } from '../driver/run.ts';
import { TreadleError } from '../errors.ts';
import {
  agentModel,
  agentRun,
  agentTools,
  recalledBy,
  runOwner,
  withRecalled,
  type AgentHost,
  type AgentLoopOptions,
  type InvokeOptions,
} from './agent-run.ts';
import { agentHost, pinnedAgent, type AgentHostOptions } from './calling.ts';
import { checkInputs } from './fields.ts';
import type { NamedAgent } from './named-agent.ts';
import { agentNamed } from './registry.ts';
import { agentResult, iterativeResult, type AgentResult, type IterativeResult } from './result.ts';

/** What the runs of agents have besides what their definitions say: journal, ledger, principal, listeners. */
export type AgentEnvironment = Omit<LoopOptions, keyof AgentLoopOptions | 'resume' | 'parent' | 'answered' | 'carried'>;

export interface AgentRuntimeOptions extends AgentHostOptions {
  /** For every run. Options of an invocation override it. */
  readonly environment?: AgentEnvironment;
}

/** Runs agents by name. Each invocation is one run of the loop. */
export interface AgentRuntime {
  /**
   * One model call without tools: a system message, and the inputs as JSON. Throws a `RunError` if there is no answer. An answer
   * that does not match the output schema goes back to the model once.
   */
  invoke(name: string, inputs: Inputs, options?: Invocation): Promise<AgentResult>;
  /** The loop, with the tools of the agent. How it ended is in the result. */
  invokeIterative(name: string, inputs: Inputs, options?: Invocation): Promise<IterativeResult>;
  /** Continues a run that is paused or was interrupted, by the definition that it was started with. */
  resume(runId: string, options: Resumption): Promise<IterativeResult>;
  readonly host: AgentHost;
}

type Inputs = Readonly<Record<string, unknown>>;
export interface Invocation extends InvokeOptions, AgentEnvironment {}
export interface Resumption
  extends AgentEnvironment, Partial<Pick<ContinueOptions, 'acceptChangedTools' | 'keepMissingTools'>> {
  readonly answers?: readonly Answer[];
  /** If the run was started with another model than its agent has. */
  readonly model?: string;
}

const OPTION_NAMES = Object.keys({
  model: 0,
  temperature: 0,
  max_iterations: 0,
  max_tool_calls_per_iteration: 0,
  enable_double_confirmation: 0,
  error_threshold: 0,
  tool_call_timeout_seconds: 0,
  loop_detection_threshold: 0,
  autonomy_level: 0,
  task_id: 0,
  session_id: 0,
} satisfies Record<keyof InvokeOptions, 0>) as readonly (keyof InvokeOptions)[];

export function agentRuntime(options: AgentRuntimeOptions): AgentRuntime {
  const { registry, environment = {} } = options;

  async function run(
    name: string,
    inputs: Inputs,
    mode: 'single' | 'iterative',
    given: Invocation,
  ): Promise<{ readonly agent: NamedAgent; readonly result: LoopResult; readonly maxTurns: number | undefined }> {
    const agent = agentNamed(registry, name);
    const { invoked, own } = splitOptions(given);
    const checked = await checkInputs(agent, inputs, own.matchPattern ?? environment.matchPattern);
    if (checked.type === 'invalid') {
      const all = checked.problems.map(({ message }) => message).join(' ');
      throw new TreadleError('invalid-input', `The inputs of "${agent.name}" are not valid. ${all}`, {
        cause: checked.problems,
      });
    }
    const loop = agentRun(agent, { inputs: checked.inputs, mode, options: invoked }, agentHost(options));
    const facts = { ...environment, ...own, ...loop };
    const recalled = await recalledBy(agent, options, loop.input, runOwner(facts));
    const result = await runLoop({ ...facts, ...withRecalled(loop, recalled) });
    return { agent, result, maxTurns: loop.maxTurns };
  }

  return {
    host: agentHost(options),
    async invoke(name, inputs, given = {}) {
      const { agent, result } = await run(name, inputs, 'single', given);
      return agentResult(iterativeResult(agent, result.orThrow()));
    },
    async invokeIterative(name, inputs, given = {}) {
      const { agent, result, maxTurns } = await run(name, inputs, 'iterative', given);
      return iterativeResult(agent, result, { maxTurns });
    },
    async resume(runId, { model, ...given }) {
      const { journal } = { ...environment, ...given };
      if (!journal) throw new TreadleError('invalid-options', 'There is no journal to resume the run from. Pass one.');
      const agent = await pinnedAgent(journal, runId);
      if (!agent) throw new TreadleError('unknown-run', `The journal has no run "${runId}" of an agent.`);
      const host = agentHost(options);
      const result = await runLoop({
        ...resumable(environment),
        ...resumable(given),
        ...agentTools(agent, host),
        model: agentModel(agent, host, model === undefined ? {} : { model }),
        ...(host.policy && { policy: host.policy }),
        runId,
        journal,
      });
      return iterativeResult(agent, result);
    },
  };
}

/** The options of the agents API, and those of the loop. */
function splitOptions(given: Invocation): { readonly invoked: InvokeOptions; readonly own: AgentEnvironment } {
  const isInvoked = ([name]: [string, unknown]): boolean => (OPTION_NAMES as readonly string[]).includes(name);
  const entries = Object.entries(given);
  return {
    invoked: Object.fromEntries(entries.filter(isInvoked)),
    own: Object.fromEntries(entries.filter((entry) => !isInvoked(entry))),
  };
}

/** Without options that only new runs have. */
function resumable({
  principal: _,
  memory: __,
  trace: ___,
  ...rest
}: Omit<Resumption, 'model'>): Omit<Resumption, 'model'> {
  return rest;
}
