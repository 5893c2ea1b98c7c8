import { agentTool, type AgentToolDefinition } from '../agents/agent-tool.ts';
import { messageOf, TreadleError } from '../errors.ts';
import { textOf, type ErrorType, type Message, type ToolCall, type ToolResult } from '../messages.ts';
import { NO_USAGE, type Model, type ModelReply, type ModelRequest } from '../model.ts';
import { isPlain } from '../plain.ts';
import { valueOf } from '../tools/references.ts';

export { valueOf };
import type { Tool } from '../tools/tool.ts';

/*
 * A program as the model of a run.
 *
 * 1. A program is a generator that yields steps and gets their outcomes. Each yield is a turn: its steps become the calls of
 *    a reply, and their results the outcomes. What it returns is the answer of the run.
 * 2. The history is all that a program has. After a crash it runs again from its beginning, and gets the results that are in
 *    the history, so it must be deterministic: it yields the same steps for the same outcomes.
 * 3. Steps that differ from the calls in the history are detected, and the run fails with `program-diverged`.
 * 4. Within one process, the generator continues from turn to turn, so that a turn costs the same however long the run is.
 */

/** A program. `Input` is the input of the run: the value of its JSON, or the text itself if it is not JSON. */
export interface Program<Input = unknown> {
  readonly name: string;
  /** Plain JSON that changes with the program, such as a version or the whole definition. The run records it. */
  readonly version: unknown;
  readonly run: (input: Input) => Steps<unknown>;
}

/** What a program, or a part of it, yields, gets and returns. */
export type Steps<T> = Generator<readonly Step[], T, readonly Outcome[]>;

/** A call of a tool. */
export interface Step {
  readonly tool: string;
  /** An argument that is the long result of another step is passed by reference. */
  readonly arguments: Readonly<Record<string, unknown>>;
  /** What people know the step by. The call has it. */
  readonly label?: string | undefined;
}

export type Outcome =
  | { readonly type: 'done'; readonly value: unknown }
  | { readonly type: 'failed'; readonly error: StepError };

/** A step has an error result: its tool failed, or it was denied. If the program does not catch it, the run fails. */
export class StepError extends Error {
  override readonly name = 'StepError';
  readonly tool: string;
  readonly errorType: ErrorType;

  constructor(tool: string, errorType: ErrorType, message: string) {
    super(message);
    this.tool = tool;
    this.errorType = errorType;
  }
}

/** Thrown by `fail`. */
class ProgramFailure extends Error {
  readonly code: string;

  constructor(code: string, message: string) {
    super(message);
    this.code = code;
  }
}

/** Ends the run as failed with this code. */
export function fail(code: string, message: string): never {
  throw new ProgramFailure(code, message);
}

export function step(tool: string, args: Step['arguments'] = {}, label?: string): Step {
  return { tool, arguments: args, label };
}

/** Calls a tool. Returns the value of its result, or throws `StepError`. */
export function* call<T = unknown>(tool: string, args?: Step['arguments'], label?: string): Steps<T> {
  const [value] = yield* all<T>([step(tool, args, label)]);
  return value!;
}

/** Takes steps at the same time. Returns their values in order; throws the first `StepError` when all have ended. */
export function* all<T = unknown>(steps: readonly Step[]): Steps<readonly T[]> {
  const outcomes = yield steps;
  return outcomes.map((outcome) => {
    if (outcome.type === 'failed') throw outcome.error;
    return outcome.value as T;
  });
}

/** Takes steps at the same time, and returns how each ended. Throws nothing. */
export function* settle(steps: readonly Step[]): Steps<readonly Outcome[]> {
  return yield steps;
}

/**
 * Takes steps up to `times` times, until none of them fails. Only errors of these types are repeated: a step that timed out
 * or was interrupted may have taken effect, and one that was denied would be denied again.
 */
export function* retry<T>(
  times: number,
  attempt: (count: number) => Steps<T>,
  errorTypes: readonly ErrorType[] = ['execution_failed'],
): Steps<T> {
  for (let count = 1; ; count++) {
    try {
      return yield* attempt(count);
    } catch (error) {
      if (!(error instanceof StepError) || !errorTypes.includes(error.errorType) || count >= times) throw error;
    }
  }
}

/** Steps that are taken at the same time are sent in replies of this many calls. */
const CALLS_PER_TURN = 100;

/** A model that is a program. Throws `invalid-options` if its version is not plain JSON. */
export function programModel<Input = unknown>(program: Program<Input>): Model {
  const { name, version } = program;
  if (typeof name !== 'string' || typeof program.run !== 'function' || version === undefined || !isPlain(version)) {
    const remedy = 'Pass { name, version, run }, where the version is plain JSON and changes with the program.';
    throw new TreadleError('invalid-options', `The program ${JSON.stringify(name)} is not complete. ${remedy}`);
  }
  /** The next turn passes the same array with more messages. */
  const live = new WeakMap<readonly Message[], Execution>();
  return {
    id: name,
    usesTokens: false,
    references: true,
    program: { name, version },
    defaults: { maxTurns: 100_000, errorLimit: 0, repeatLimit: 0 },
    async reply(request) {
      const { messages } = request;
      const known = live.get(messages);
      const execution = known ?? startExecution(program as Program);
      live.delete(messages);
      try {
        const content = await advance(execution, request);
        live.set(messages, execution);
        const calls = content.some(({ type }) => type === 'tool-call');
        return { type: 'reply', content, finish: calls ? 'tool-calls' : 'stop', usage: NO_USAGE, model: name };
      } catch (thrown) {
        return failureOf(name, thrown);
      }
    },
  };
}

type Reply = Extract<ModelReply, { type: 'reply' }>;

/** A program that runs. */
interface Execution {
  readonly program: Program;
  /** Undefined until the input is known. */
  steps: Steps<unknown> | undefined;
  /** The number of messages of the history that it has used. */
  read: number;
  /** The steps that it has yielded last, as calls, and the outcomes of the first of them. */
  calls: readonly ToolCall[];
  outcomes: Outcome[];
  /** What it returned, as text. */
  answer: string | undefined;
  /** Long results that it was given, and the references to them. */
  readonly references: WeakMap<object, object>;
}

function startExecution(program: Program): Execution {
  const references = new WeakMap<object, object>();
  return { program, steps: undefined, read: 0, calls: [], outcomes: [], answer: undefined, references };
}

/** Runs the program over the messages that it has not used, and returns its next calls or its answer. */
async function advance(execution: Execution, request: ModelRequest): Promise<Reply['content']> {
  const { messages } = request;
  if (!execution.steps) {
    const { run } = execution.program;
    execution.steps = run(valueOf(textOf(messages[0]?.content ?? [])));
    resume(execution, []);
  }
  for (; execution.read < messages.length; execution.read++) {
    const message = messages[execution.read]!;
    if (message.role === 'assistant') checkSame(execution, message.content);
    if (message.role !== 'tool') continue;
    for (const result of message.content) execution.outcomes.push(await outcomeOf(execution, result, request));
    if (execution.outcomes.length === execution.calls.length) resume(execution, execution.outcomes);
  }
  if (execution.answer !== undefined) return [{ type: 'text', text: execution.answer }];
  const effect = request.key.slice(request.key.lastIndexOf('/') + 1);
  return nextCalls(execution).map((one, index) => ({ ...one, id: `${effect}.${index}` }));
}

/** Continues the program until it yields steps or returns. Yielding no steps takes no turn. */
function resume(execution: Execution, outcomes: readonly Outcome[]): void {
  let next = execution.steps!.next(outcomes);
  while (!next.done && next.value.length === 0) next = execution.steps!.next([]);
  execution.outcomes = [];
  execution.calls = next.done ? [] : next.value.map((one) => callOf(execution, one));
  if (next.done) execution.answer = answerText(next.value);
}

function answerText(value: unknown): string {
  return typeof value === 'string' && value.trim() !== '' ? value : JSON.stringify(value ?? null);
}

function nextCalls({ calls, outcomes }: Execution): readonly ToolCall[] {
  return calls.slice(outcomes.length, outcomes.length + CALLS_PER_TURN);
}

/** The call for a step. It has its id when it is part of a reply. */
function callOf({ references }: Execution, { tool, arguments: args, label }: Step): ToolCall {
  const names: string[] = [];
  const given = Object.entries(args).map(([name, value]) => {
    const reference = typeof value === 'object' && value !== null ? references.get(value) : undefined;
    if (reference) names.push(name);
    return [name, reference ?? value];
  });
  const text = JSON.stringify(Object.fromEntries(given));
  return {
    type: 'tool-call',
    id: '',
    name: tool,
    arguments: text,
    ...(names.length > 0 && { references: names }),
    ...(label !== undefined && { label }),
  };
}

/** Throws unless a reply in the history is the one that the program gives there. */
function checkSame(execution: Execution, content: Reply['content']): void {
  const { answer } = execution;
  const made = content.filter((part) => part.type === 'tool-call');
  const calls = nextCalls(execution);
  const isSame = answer === undefined ? made.length === calls.length && calls.every(isCall) : made.length === 0;
  function isCall({ name, arguments: text }: ToolCall, index: number): boolean {
    return made[index]!.name === name && made[index]!.arguments === text;
  }
  if (isSame) return;
  const at = calls.findIndex((one, index) => !made[index] || !isCall(one, index));
  const asked = calls[Math.max(0, at)];
  const [first, second] = [asked, made[Math.max(0, at)]].map((one) => one && `${one.name} ${one.arguments}`);
  throw new Diverged(
    `it ${first === undefined ? 'ends' : `calls ${first.slice(0, 200)}`} where the run ` +
      `${second === undefined ? 'has made fewer calls' : `has called ${second.slice(0, 200)}`}`,
  );
}

class Diverged extends Error {}

async function outcomeOf(
  { references }: Execution,
  { name, content, isError, errorType = 'execution_failed', blob }: ToolResult,
  { readBlob }: ModelRequest,
): Promise<Outcome> {
  const text = blob === undefined ? textOf(content) : await readBlob?.(blob);
  if (text === undefined) throw new Error(`the result of "${name}" is not in the store`);
  if (isError) return { type: 'failed', error: new StepError(name, errorType, text) };
  const value = valueOf(text);
  if (blob !== undefined && typeof value === 'object' && value !== null) {
    references.set(deepFreeze(value), { $blob: blob, length: text.length });
  }
  return { type: 'done', value };
}

/** A value that is passed by reference must stay the one that the reference stands for. */
function deepFreeze<T extends object>(value: T): T {
  for (const part of Object.values(value)) if (typeof part === 'object' && part !== null) deepFreeze(part);
  return Object.freeze(value);
}

/** Only `fail` and a step that failed end the run. What else goes wrong can be repaired, and the run resumed. */
function failureOf(name: string, thrown: unknown): ModelReply {
  const failure = (message: string, endsWith?: string): ModelReply => ({
    type: 'failure',
    error: { code: 'program-failed', message, retryable: false, ...(endsWith !== undefined && { endsWith }) },
  });
  if (thrown instanceof ProgramFailure) return failure(thrown.message, thrown.code);
  if (thrown instanceof StepError) return failure(thrown.message, 'step-failed');
  if (!(thrown instanceof Diverged)) return failure(`The program "${name}" threw: ${messageOf(thrown)}`);
  const remedy = 'Resume it with the program that it was started with, or fork it before that call.';
  const message = `The program "${name}" differs from the run: ${thrown.message}. ${remedy}`;
  return { type: 'failure', error: { code: 'program-diverged', message, retryable: false } };
}

/** A branch of a program: a tool whose call is a child run of another program. */
export interface BranchDefinition<Input> extends Omit<AgentToolDefinition<typeof ANY>, 'model' | 'input' | 'prompt'> {
  readonly program: Program<Input>;
}

const ANY = { type: 'object' } as const;

/**
 * Creates a tool that runs a program as a child run. Its arguments are the input of the program, and the answer of the
 * program is its result. Branches that a program calls at the same time do not wait for each other's turns and approvals.
 * They draw on the ledger of the calling run, unless `share` is set.
 */
export function branchTool<Input = unknown>({ program, ...definition }: BranchDefinition<Input>): Tool {
  const model = programModel(program);
  return agentTool({ share: 'ledger', ...definition, model, input: ANY, prompt: (input) => JSON.stringify(input) });
}
