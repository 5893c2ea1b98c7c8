import { messageOf, TreadleError } from '../errors.ts';
import type { Journal } from '../journal/port.ts';
import { sha256 } from '../machine/sha256.ts';
import { readStart } from '../driver/open.ts';
import type {
  ContinueOptions,
  LoopOptions,
  RunEnvironment,
  RunOptions,
  StartOrResumeOptions,
} from '../driver/options.ts';
import type { AgentRules, Memory, Rules } from '../machine/rules.ts';
import { lowestAutonomy, type Narrowing } from '../machine/narrowing.ts';
import { arePartsOf, textOf, type UserBlock, type UserMessage } from '../messages.ts';
import { canonicalJson, isPlain } from '../plain.ts';
import { activateSkills, withSkillText } from '../skills/activate.ts';
import type { Skill } from '../skills/skill.ts';
import type { Tool } from '../tools/tool.ts';
import type { AgentPrompts, AnyAgent } from './define.ts';
import type { ExecuteAgentOptions } from './execute.ts';
import { agentError, withoutUndefined, type AgentError } from './result.ts';
import { submitName } from './tools.ts';

/* What a run of an agent is started or resumed with: its rules, its prompts, the options of the loop. */

/** The rules that the journal records. Throws if the initial state throws or is not plain JSON. */
export function agentRules(agent: AnyAgent, input: unknown): AgentRules {
  const { name, tools, validation, state } = agent;
  const { maxAttempts, textOnly = 'fail', earlySubmit = 'fail' } = validation;
  const submit = submitName(agent);
  const digest = inputDigest(input);
  return {
    name,
    ...(digest !== undefined && { input: digest }),
    output: tools.output.name,
    ...(submit !== undefined && { submit }),
    maxAttempts,
    textOnly,
    earlySubmit,
    ...(state && { memory: initialMemory(agent, input) }),
  };
}

function initialMemory({ name, state = {} }: AnyAgent, input: unknown): Memory {
  const { run, attempt } = state;
  try {
    const memory = {
      run: typeof run === 'function' ? (run as (input: unknown) => unknown)(input) : run,
      attempt: typeof attempt === 'function' ? (attempt as () => unknown)() : attempt,
    };
    if (!isPlain(memory)) throw new Error('it contains a value that JSON cannot represent, such as a Date or a Set');
    return JSON.parse(JSON.stringify(memory)) as Memory;
  } catch (cause) {
    const message = `The state of agent "${name}" cannot be created, or is not plain JSON: ${messageOf(cause)}`;
    throw new TreadleError('invalid-options', message, { cause });
  }
}

/** Undefined if the input is not plain JSON: then it cannot be compared with another input. */
function inputDigest(input: unknown): string | undefined {
  const json = input === undefined ? 'undefined' : canonicalJson(input);
  return json && sha256(json);
}

/** The rules of the run if it is already in the journal. Throws `run-exists` if it has another agent or input. */
export async function startedRules(
  journal: Journal | undefined,
  runId: string | undefined,
  agent: AgentRules,
): Promise<Rules | undefined> {
  const started = journal && runId !== undefined ? await readStart(journal, runId) : undefined;
  if (started) (await import('../driver/reopen.ts')).checkSameStart(started, { rules: { agent } });
  return started?.rules;
}

// ── Prompts ──────────────────────────────────────────────────────────────────────────────────────────────────────────

export interface Prompts {
  readonly type: 'prompts';
  readonly system: string | undefined;
  readonly user: readonly UserBlock[];
  /** What the skills of the agent narrow. */
  readonly narrow?: readonly Narrowing[];
}

type BuiltPrompts = Prompts | { readonly type: 'failure'; readonly error: AgentError };

/** Builds the first prompts. An abort of the signal does not wait for them. */
export async function buildPrompts(
  prompts: AgentPrompts<unknown>,
  input: unknown,
  signal: AbortSignal | undefined,
): Promise<BuiltPrompts> {
  const { promise: aborted, resolve: abort } = Promise.withResolvers<BuiltPrompts>();
  const cancel = (): void => abort({ type: 'failure', error: CANCELLED });
  signal?.addEventListener('abort', cancel, { once: true });
  if (signal?.aborted) cancel();
  try {
    return await Promise.race([aborted, signal?.aborted ? aborted : callPrompts(prompts, input)]);
  } finally {
    signal?.removeEventListener('abort', cancel);
  }
}

/**
 * With the texts of skills, and what they narrow. Those with the execution `fork` are active in the run, too: it is the agent's
 * own. Throws if one of them cannot be activated.
 */
export function promptsWithSkills(prompts: Prompts, agent: string, skills: readonly Skill[]): Prompts {
  if (skills.length === 0) return prompts;
  const message: UserMessage = { role: 'user', content: prompts.user };
  const names = skills.map(({ name }) => name);
  const active = activateSkills(skills, names, { by: 'program', task: textOf(prompts.user) });
  if (active.type === 'refused') throw new TreadleError('invalid-options', `Agent "${agent}": ${active.reason}`);
  return { ...prompts, user: withSkillText(message, active.text).content, narrow: active.narrow };
}

const CANCELLED = agentError('EXECUTION_CANCELLED', 'The execution was cancelled.', {
  attempt: 1,
  iteration: 0,
  phase: 'prompt',
});

async function callPrompts({ system, user }: AgentPrompts<unknown>, input: unknown): Promise<BuiltPrompts> {
  let prompt: 'system' | 'user' = 'system';
  const promptFailed = (why: string): BuiltPrompts => ({
    type: 'failure',
    error: agentError('PROMPT_FAILED', `prompts.${prompt} ${why}`, { prompt }),
  });
  try {
    const instructions = typeof system === 'function' ? await system(input) : system;
    if (instructions !== undefined && typeof instructions !== 'string') return promptFailed('returned no text.');
    prompt = 'user';
    const request = typeof user === 'function' ? await user(input) : user;
    const blocks = typeof request === 'string' ? ([{ type: 'text', text: request }] as const) : request;
    if (!arePartsOf('user', blocks) || blocks.length === 0 || blocks.some(isBlank)) {
      return promptFailed('returned neither a text nor content blocks.');
    }
    return { type: 'prompts', system: instructions, user: blocks };
  } catch (thrown) {
    return promptFailed(`failed: ${messageOf(thrown)}`);
  }
}

/** Providers reject blank texts. */
function isBlank(block: UserBlock): boolean {
  return block.type === 'text' && block.text.trim() === '';
}

// ── Options of the loop ──────────────────────────────────────────────────────────────────────────────────────────────

const MAX_ITERATIONS = 15;

/** Those that a run was started with, or those of the agent. A policy may limit them further. */
export function maxIterationsOf(
  agent: AnyAgent,
  { policy, narrow = [], skills = [] }: Pick<ExecuteAgentOptions<unknown, never>, 'policy' | 'narrow' | 'skills'> = {},
  started?: Rules,
): number {
  // Skills have the same key.
  const narrowed = [agent.narrow ?? [], narrow, agent.skills ?? [], skills].flat() as readonly Narrowing[];
  const { turns = Infinity } = policy?.limits?.(started ? undefined : lowestAutonomy(narrowed)) ?? {};
  return Math.min(started?.maxTurns ?? agent.validation.maxIterationsPerAttempt ?? MAX_ITERATIONS, turns);
}

interface RunParts {
  readonly runId: string;
  readonly signal: AbortSignal | undefined;
  readonly tools: readonly Tool[];
  /** Absent: the run is resumed. */
  readonly prompts: Prompts | undefined;
}

/**
 * Where what a run is driven with comes from in the run of an agent. The compiler demands a decision for each new option.
 *
 * - `option`: the option of the execution with this name.
 * - `given`: `loopOptions` or `runAgent` gives it.
 * - Otherwise why executions do not offer it.
 */
const ENVIRONMENT: { readonly [Name in keyof Required<RunEnvironment>]: SourceOf<Name> } = {
  context: 'option',
  policy: 'option',
  verifyAnswer: 'option',
  audit: 'option',
  ledger: 'option',
  resultFilters: 'option',
  exposes: 'option',
  journal: 'option',
  killProcess: 'option',
  matchPattern: 'option',
  tracing: 'option',
  clock: 'option',
  model: 'given',
  tools: 'given',
  signal: 'given',
  onItem: 'given',
  guardrails: { why: 'Validators check the output.' },
  prepareTurn: { why: 'The definition has the model, the tools and the prompts of every turn.' },
  models: { why: 'Only prepareTurn chooses them.' },
  agents: { why: 'A run with a typed output is not handed over.' },
  summariser: { why: 'Runs of agents are not compacted.' },
  onTurnStart: { why: 'Executions have callbacks of their own.' },
  onToolCall: { why: 'As onTurnStart.' },
  onToolResult: { why: 'As onTurnStart.' },
  onFinish: { why: 'As onTurnStart.' },
  durableItems: { why: 'Items are for progress. The result is returned when it is durable.' },
  beforePause: { why: 'An execution that pauses ends, and is executed again with the answers.' },
  canAnswer: { why: 'Questions of helpers wait for the next execution with answers.' },
  startRun: { why: 'Hosts start runs for the tools of conversations and responses.' },
  holdIdleMs: { why: 'The default fits helpers.' },
  kept: { why: 'An execution is not a message of a conversation.' },
};

type SourceOf<Name> = Name extends keyof ExecuteAgentOptions<unknown, never>
  ? 'option' | 'given'
  : 'given' | { readonly why: string };

export function loopOptions(
  agent: AnyAgent,
  options: ExecuteAgentOptions<unknown, never>,
  { runId, signal, tools, prompts }: RunParts,
): RunOptions {
  const { toolChoice = 'required', parallel, maxParallel, maxResultChars, toolTimeoutMs } = agent;
  const { journal, principal, answers, acceptChangedTools, keepMissingTools, session, task, trace, labels } = options;
  const passed = Object.entries(options).filter(([name]) => ENVIRONMENT[name as keyof RunEnvironment] === 'option');
  const shared = {
    ...(withoutUndefined({ ...Object.fromEntries(passed), signal }) as Pick<RunEnvironment, 'journal' | 'signal'>),
    runId,
    tools,
    model: options.model ?? agent.model,
  };
  const resuming = { answers, acceptChangedTools, keepMissingTools };
  if (!prompts) return { ...shared, ...withoutUndefined(resuming) } as ContinueOptions;
  const narrow = [agent.narrow ?? [], options.narrow ?? [], prompts.narrow ?? []].flat();
  const isStored = journal !== undefined && options.runId !== undefined;
  return {
    ...shared,
    // Another process may start the same run while the prompts are built.
    ...(isStored && { resume: 'auto' }),
    input: [{ role: 'user', content: prompts.user }],
    ...(prompts.system !== undefined && { instructions: prompts.system }),
    maxTurns: maxIterationsOf(agent),
    errorLimit: 0,
    repeatLimit: 0,
    toolChoice,
    limits: { ...agent.limits, ...options.limits },
    settings: { ...agent.settings, ...options.settings },
    ...(narrow.length > 0 && { narrow }),
    ...withoutUndefined({ parallel, maxParallel, maxResultChars, toolTimeoutMs, principal }),
    ...withoutUndefined({ session, task, trace, labels }),
  } as LoopOptions | StartOrResumeOptions;
}
