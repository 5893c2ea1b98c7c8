import { messageOf, TreadleError } from '../errors.ts';
import type { LoopResult } from '../driver/options.ts';
import { driveRun, RESULT } from '../driver/run.ts';
import type { Item } from '../journal/items.ts';
import { NO_USAGE } from '../model.ts';
import { systemClock } from '../platform.ts';
import { schemaProblem } from '../tools/schema-problem.ts';
import { isJsonSchema } from '../tools/schema.ts';
import { callbackDispatcher } from './callbacks.ts';
import type { Agent, AnyAgent } from './define.ts';
import type { ExecuteAgentOptions } from './execute.ts';
import { acceptedOutput, outputChecker, type Accepted } from './output.ts';
import {
  agentError,
  agentErrorOf,
  executeResult,
  lastPosition,
  metadataOf,
  type AgentError,
  type ExecuteResult,
} from './result.ts';
import {
  agentRules,
  buildPrompts,
  loopOptions,
  maxIterationsOf,
  promptsWithSkills,
  startedRules,
  type Prompts,
} from './start.ts';
import { agentTools } from './tools.ts';

/** What the caller of an agent has set up for its run. */
export interface RunSetup {
  readonly runId: string;
  readonly signal: AbortSignal | undefined;
  readonly listener: ((item: Item) => void) | undefined;
}

/** Runs an agent. Loaded when the first agent is executed. */
export async function runAgent<Input, Output, Run, Attempt, Final>(
  typed: Agent<Input, Output, Run, Attempt, Final>,
  options: ExecuteAgentOptions<Input, Output>,
  { runId, signal, listener }: RunSetup,
): Promise<ExecuteResult<Output, Final>> {
  // From here on the schemas guarantee the types.
  const agent = typed as unknown as AnyAgent;
  const { input, callbacks = {}, clock = systemClock, context, matchPattern } = options;
  let accepted: Accepted | undefined;
  const onAccepted = (output: Accepted): void => void (accepted = output);
  const rules = agentRules(agent, input);
  const started = await startedRules(options.journal, options.runId, rules);
  const dispatcher = callbackDispatcher(agent, callbacks, {
    clock,
    maxAttempts: started?.agent?.maxAttempts ?? rules.maxAttempts,
    maxIterations: maxIterationsOf(agent, options, started),
  });

  const finish = async (result: LoopResult, ending: Ending): Promise<ExecuteResult<Output, Final>> => {
    const position = lastPosition(result);
    if (ending.type === 'success') dispatcher.succeed(position, ending.output);
    else dispatcher.fail(position, ending.error);
    const metadata = metadataOf(agent, result, await dispatcher.errors());
    return executeResult({ ...ending, metadata, messages: result.messages }) as ExecuteResult<Output, Final>;
  };

  let prompts: Prompts | undefined;
  if (!started) {
    const { outputSchema } = agent.validation;
    const problem = isJsonSchema(outputSchema) ? schemaProblem(outputSchema) : undefined;
    if (problem) {
      const message = `Agent "${agent.name}": its validation.outputSchema is not a valid JSON Schema: ${problem}.`;
      throw new TreadleError('invalid-agent', message);
    }
    const built = await buildPrompts(agent.prompts, input, signal);
    if (built.type === 'failure') return finish(emptyResult(runId), built);
    prompts = promptsWithSkills(built, agent.name, [...(agent.skills ?? []), ...(options.skills ?? [])]);
  }
  const tools = agentTools(agent, { input, attempt: () => dispatcher.state().attempt, matchPattern });
  const run = driveRun(
    loopOptions(agent, options, { runId, signal, tools, prompts }),
    (item, before, after) => {
      dispatcher.onItem(item, before, after);
      listener?.(item);
    },
    { agent: { rules, check: outputChecker({ agent, input, context, matchPattern, onAccepted }) } },
  );
  const detach = (): void => void run.detach();
  options.detach?.addEventListener('abort', detach, { once: true });
  if (options.detach?.aborted) detach();
  const result = await run.result.finally(() => options.detach?.removeEventListener('abort', detach));
  if (result.outcome?.type !== 'completed') {
    const error = agentErrorOf(result, dispatcher.state().maxIterations, signal?.aborted === true);
    return finish(result, { type: 'failure', error });
  }
  accepted ??= await acceptedOutput(agent, result.output, matchPattern);
  return finish(result, await successOf(agent, input, result, accepted));
}

/** An `ExecuteResult` without the fields that all results have. */
type Ending =
  | { readonly type: 'success'; readonly output: unknown; readonly finalState?: unknown }
  | { readonly type: 'failure'; readonly error: AgentError };

/** Adds the `finalState` of `projectFinalState`. */
async function successOf(
  agent: AnyAgent,
  input: unknown,
  result: LoopResult,
  accepted: Accepted | undefined,
): Promise<Ending> {
  if (!accepted) {
    const message = `Run "${result.runId}" ended with an output that the schema of the agent now rejects.`;
    throw new TreadleError('invalid-options', `${message} Give the agent that it was executed with.`);
  }
  const { output } = accepted;
  if (!agent.projectFinalState) return { type: 'success', output };
  const { run, attempt } = result.agent?.memory ?? {};
  try {
    const finalState = await agent.projectFinalState({ input, output, run, attempt });
    return { type: 'success', output, ...(finalState !== undefined && { finalState }) };
  } catch (thrown) {
    const message = `projectFinalState failed: ${messageOf(thrown)}`;
    return { type: 'failure', error: agentError('STATE_PROJECTION_FAILED', message, lastPosition(result)) };
  }
}

/** Adds `orThrow` to the facts about a run. */
export function newResult(facts: Omit<LoopResult, 'orThrow'>): LoopResult {
  return Object.assign(Object.create(RESULT) as LoopResult, facts);
}

/** The result of a run that was not started. */
function emptyResult(runId: string): LoopResult {
  return newResult({
    runId,
    waiting: [],
    text: '',
    messages: [],
    model: '',
    toolsUsed: [],
    usage: NO_USAGE,
    turns: 0,
    calls: 0,
    durationMs: 0,
  });
}
