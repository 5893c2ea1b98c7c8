import {
  Finished,
  Parked,
  tool,
  type CallingRun,
  type Clock,
  type Slot,
  type Tool,
  type ToolContext,
} from '@treadle/core';
import { branchTool } from '@treadle/core/program';
import type { CompiledStep, Flow } from './definition.ts';
import { evaluate } from './evaluate.ts';
import {
  branchProgram,
  mapToolName,
  WORKFLOW_TOOLS,
  type BranchAnswer,
  type BranchInput,
  type StepResult,
  type StoppedRun,
} from './program.ts';
import { answerIn, blobsOf, chainResults } from './results.ts';
import { secondsOf, timeOf } from './step-fields.ts';

/*
 * The tools of a workflow: those that its steps name, and those that only the program calls.
 *
 * Branches of a turn (`workflow_branch` with `steps`):
 * 1. All calls of the turn begin at once. One whose steps need those of others waits in this process until these have ended, and
 *    takes a place only then. At most `limit` branches have a place. One that waits for a person has none.
 * 2. When no branch works any more, those that wait for others are parked with those that wait for people, so that the run pauses.
 *    When the run is resumed, all parked calls are made again.
 * 3. When a branch has failed, those that have not begun do not begin, and those that wait for people are stopped. If one of them
 *    has been parked already, the branch that failed parks too, and is due at once: only then the others are called again.
 */

export interface WorkflowToolsOptions {
  readonly flow: Flow;
  /** Changes with the definition. */
  readonly version: string;
  /** What steps may call: tools, and agents and workflows as tools. */
  readonly tools: readonly Tool[];
  readonly clock?: Clock | undefined;
  /** Stops the run of a workflow, and returns what it has done. Called again after a crash. */
  readonly stopRun?: ((runId: string, context: ToolContext) => Promise<StoppedRun>) | undefined;
}

/** A call that waits does so without limit: its run can be cancelled. */
const NO_TIMEOUT_MS = 2 ** 31 - 1;
/** More than a turn has calls. Branches have their own limit. */
export const MAX_BRANCHES = 128;
/** What a branch is parked on that waits for others. It has no run. */
const WAITING = 'other branches';
/** What a branch is parked on that has failed and stops the others. */
const STOPPING = 'the branches that are stopped';

const INPUT = { type: 'object' } as const;

/** The tools of the run of a workflow, and of its branches. */
export function workflowTools({ flow, version, tools, clock, stopRun }: WorkflowToolsOptions): readonly Tool[] {
  const all: Tool[] = [...tools, evaluateTool(), approveTool(), askTool(), sleepUntilTool(clock)];
  if (flow.undoes !== undefined && stopRun) all.push(stopTool(stopRun));
  const program = branchProgram(flow, version);
  const common = { program, tools: all, timeoutMs: NO_TIMEOUT_MS, touches: () => [] };
  const branch = branchTool({
    ...common,
    name: WORKFLOW_TOOLS.branch,
    description: 'Takes steps of the workflow beside others',
    maxParallel: MAX_BRANCHES,
  });
  const boards = new Map<string, Board>();
  all.push({
    ...branch,
    timeoutMs: (input) => ((input as BranchInput).timeout ?? NO_TIMEOUT_MS / 1_000) * 1_000,
    execute: (input, context) => runBranch({ branch, boards, flow }, input as BranchInput, context),
  });
  const limits = new Set(
    Array.from(flow.steps.values()).flatMap(({ action, limit }) => (action === 'map' ? limit : [])),
  );
  for (const limit of limits) {
    const description = `Takes the inner steps of a map for each entry, ${limit} at once`;
    all.push(branchTool({ ...common, name: mapToolName(limit), description, maxParallel: limit }));
  }
  return all;
}

/** The names of the tools, agents and workflows that steps name. */
export function targetsOf({ steps }: Flow, action: CompiledStep['action']): readonly string[] {
  const named = Array.from(steps.values()).flatMap((one) => (one.action === action ? (one.target ?? []) : []));
  return [...new Set(named)];
}

/* Branches */

/** The branches of one turn, as far as this process runs them. */
interface Board {
  /** By the position of the call. A branch without an answer works, or waits for others. */
  readonly branches: Map<number, 'working' | 'waiting' | Parked | BranchAnswer>;
  /** Looks again, of those that wait. */
  readonly watchers: Set<() => void>;
  readonly places: { free: number; readonly waiting: (() => void)[] };
  calls: number;
}

interface Branches {
  readonly branch: Tool;
  readonly boards: Map<string, Board>;
  readonly flow: Flow;
}

async function runBranch(branches: Branches, input: BranchInput, context: ToolContext): Promise<unknown> {
  const { branch, boards } = branches;
  const { run } = context;
  const [, turn, position] = /^t(\d+)\.tool\.(\d+)$/.exec(run?.effect ?? '') ?? [];
  if (!run || position === undefined || !input.steps) return branch.execute!(input, context);
  const key = `${run.runId}/${turn}`;
  const board: Board = boards.get(key) ?? {
    branches: new Map(),
    watchers: new Set(),
    places: { free: input.limit ?? 4, waiting: [] },
    calls: 0,
  };
  boards.set(key, board);
  board.calls++;
  try {
    return await takeTurn(branches, { board, position: Number(position), input, context, run });
  } finally {
    board.calls--;
    if (board.calls === 0) boards.delete(key);
  }
}

interface Turn {
  readonly board: Board;
  readonly position: number;
  readonly input: BranchInput;
  readonly context: ToolContext;
  readonly run: CallingRun;
}

async function takeTurn(branches: Branches, turn: Turn): Promise<unknown> {
  const { board, position, input, context, run } = turn;
  const { after = {} } = input;
  note(turn, Object.keys(after).length > 0 ? 'waiting' : 'working');
  // One that has failed is called again for its failure, also if another one has failed too.
  const needed = context.parked?.on === STOPPING ? {} : await whatIsNeeded(turn);
  if (needed === 'parked') return noteParked(turn, new Parked(WAITING));
  if (needed === 'stopped') return stopBranch(branches, turn);
  note(turn, 'working');
  await takePlace(board);
  let returned: unknown;
  try {
    returned = await branches.branch.execute!({ ...input, ...argumentsOf(input, needed) }, withoutRun(context));
  } finally {
    freePlace(board);
  }
  if (returned instanceof Parked) {
    return (await hasFailed(turn)) ? stopBranch(branches, turn) : noteParked(turn, returned);
  }
  if (!(returned instanceof Finished) || returned.result.type !== 'result') return returned;
  const { result } = returned;
  const answer = result.isError
    ? undefined
    : await answerIn({ ...result, blob: undefined } as never, run.runId, undefined);
  const failure = answer ? answer.failure : { step: input.steps![0]!, type: 'execution_failed', message: '' };
  if (failure && isAnyParked(turn) && context.parked?.on !== STOPPING) {
    return noteParked(turn, new Parked(STOPPING, [], { wakeAt: run.clock.now() }));
  }
  board.branches.set(position, answer ?? { failure: failure! });
  lookAgain(board);
  return returned;
}

/** The loop takes every parked call of a run for one whose run has begun. */
function withoutRun(context: ToolContext): ToolContext {
  return context.parked?.on === WAITING ? { ...context, run: { ...context.run!, child: 'unknown' } } : context;
}

function note({ board, position }: Turn, what: 'working' | 'waiting'): void {
  board.branches.set(position, what);
  lookAgain(board);
}

function noteParked({ board, position }: Turn, parked: Parked): Parked {
  board.branches.set(position, parked);
  lookAgain(board);
  return parked;
}

function lookAgain({ watchers }: Board): void {
  // One that looks again later is not asked twice.
  for (const look of watchers) look();
}

function slotsOf({ run }: Turn): readonly Slot[] {
  const { phase } = run.state();
  return phase.type === 'tools' ? phase.slots : [];
}

/** Whether a branch has failed, also in an earlier process. */
async function hasFailed(turn: Turn): Promise<boolean> {
  const { board, position, run } = turn;
  for (const [index, slot] of slotsOf(turn).entries()) {
    if (index === position) continue;
    const here = board.branches.get(index);
    if (typeof here === 'object' && 'failure' in here && here.failure) return true;
    const parked = slot.type === 'parked' ? slot.on : 'parked' in slot ? slot.parked?.on : undefined;
    if (parked === STOPPING || (here instanceof Parked && here.on === STOPPING)) return true;
    if (slot.type !== 'settled') continue;
    if (slot.result.isError || (await answerIn(slot.result, run.runId, blobsOf(run.journal))).failure) return true;
  }
  return false;
}

/** Whether another branch waits for somebody and is not called again before the run is resumed. */
function isAnyParked(turn: Turn): boolean {
  const { board, position } = turn;
  return slotsOf(turn).some((slot, index) => {
    const here = board.branches.get(index);
    return index !== position && (here ? here instanceof Parked : slot.type === 'parked' || slot.type === 'asking');
  });
}

/** What the steps of other branches have returned, when all of them have ended. */
async function whatIsNeeded(turn: Turn): Promise<Readonly<Record<string, StepResult>> | 'parked' | 'stopped'> {
  const { board, position, input, context } = turn;
  const { after = {} } = input;
  for (;;) {
    const changed = Promise.withResolvers<void>();
    const look = (): void => changed.resolve();
    board.watchers.add(look);
    context.signal.addEventListener('abort', look, { once: true });
    try {
      if (await hasFailed(turn)) return 'stopped';
      const found = await neededResults(turn, after);
      if (found) return found;
      context.signal.throwIfAborted();
      const idle = slotsOf(turn).every((slot, index) => {
        const here = board.branches.get(index);
        if (here !== undefined) return here !== 'working';
        return index === position || (slot.type !== 'queued' && slot.type !== 'running');
      });
      // A branch that waits for others may be able to go on: it looks first.
      if (idle && (await isStuck(turn))) return 'parked';
      await changed.promise;
    } finally {
      board.watchers.delete(look);
      context.signal.removeEventListener('abort', look);
    }
  }
}

/** Whether none of the branches that wait for others can go on. */
async function isStuck(turn: Turn): Promise<boolean> {
  for (const [index, slot] of slotsOf(turn).entries()) {
    if (turn.board.branches.get(index) !== 'waiting') continue;
    const { after = {} } = JSON.parse(slot.call.arguments) as BranchInput;
    if (await neededResults(turn, after)) return false;
  }
  return true;
}

async function neededResults(
  turn: Turn,
  after: Readonly<Record<string, number>>,
): Promise<Readonly<Record<string, StepResult>> | undefined> {
  const { board, run } = turn;
  const slots = slotsOf(turn);
  const found: Record<string, StepResult> = {};
  for (const [id, index] of Object.entries(after)) {
    const here = board.branches.get(index);
    const slot = slots[index];
    let answer: BranchAnswer | undefined;
    if (typeof here === 'object' && !(here instanceof Parked)) answer = here;
    else if (here === undefined && slot?.type === 'settled') {
      answer = await answerIn(slot.result, run.runId, blobsOf(run.journal));
    }
    const result = answer?.results?.[id];
    if (!result) return undefined;
    found[id] = result;
  }
  return found;
}

/** The arguments of a branch with the outputs of others. */
function argumentsOf({ results = {} }: BranchInput, needed: Readonly<Record<string, StepResult>>): BranchInput {
  const entries = Object.entries(needed);
  if (entries.length === 0) return {};
  const facts = entries.map(([id, { output: _, ...rest }]) => [id, rest] as const);
  return {
    results: { ...results, ...Object.fromEntries(facts) },
    ...Object.fromEntries(entries.map(([id, { output }]) => [`output ${id}`, output])),
  };
}

async function takePlace({ places }: Board): Promise<void> {
  if (places.free > 0) places.free--;
  else await new Promise<void>((resolve) => places.waiting.push(resolve));
}

function freePlace({ places }: Board): void {
  const next = places.waiting.shift();
  if (next) next();
  else places.free++;
}

/** Cancels the run of a branch, if it has one, and returns what it had done. */
async function stopBranch({ branch, flow }: Branches, turn: Turn): Promise<Finished> {
  const { board, position, input, context, run } = turn;
  const runId = `${run.runId}.${run.effect}`;
  let done: ReadonlyMap<string, StepResult> = new Map();
  if ((await run.journal.read(runId)).length > 0) {
    await branch.execute!(input, { ...context, signal: AbortSignal.abort() });
    done = await chainResults(run.journal, runId, flow);
  }
  const stopped: StepResult = { status: 'stopped', output: null };
  const results = Object.fromEntries(input.steps!.map((id) => [id, done.get(id) ?? stopped]));
  const answer: BranchAnswer = { results };
  board.branches.set(position, answer);
  lookAgain(board);
  const content = [{ type: 'text', text: JSON.stringify(answer) }] as const;
  return new Finished({ type: 'result', content, isError: false });
}

/* Other tools of the program */

function evaluateTool(): Tool {
  return tool({
    name: WORKFLOW_TOOLS.evaluate,
    description: 'Evaluates expressions of the workflow',
    input: INPUT,
    effect: 'pure',
    touches: () => [],
    execute(input, { signal }) {
      const { expressions = {}, inputs, variables = {}, results = {}, ...rest } = input as Evaluation;
      const outputs = Object.entries(results).map(
        ([id, facts]) => [id, { error: null, ...facts, output: rest[`output ${id}`] ?? null }] as const,
      );
      const values = { inputs, steps: Object.fromEntries(outputs), ...variables };
      return evaluate(expressions, values, signal);
    },
  });
}

interface Evaluation extends Pick<BranchInput, 'inputs' | 'variables' | 'results'> {
  readonly expressions?: Readonly<Record<string, string>>;
  readonly [output: `output ${string}`]: unknown;
}

function approveTool(): Tool {
  return tool({
    name: WORKFLOW_TOOLS.approve,
    description: 'Waits until a person has approved',
    input: { type: 'object', properties: { message: { type: 'string' } }, required: ['message'] },
    effect: 'pure',
    touches: () => [],
    needsApproval: (input) => {
      const { timeout } = input as { readonly timeout?: number };
      return timeout === undefined ? true : { ttlMs: timeout * 1_000 };
    },
    execute: () => ({ approved: true }),
  });
}

function askTool(): Tool {
  return tool({
    name: WORKFLOW_TOOLS.ask,
    description: 'Asks a person',
    input: { type: 'object', properties: { question: { type: 'string' } }, required: ['question'] },
    effect: 'pure',
    timeoutMs: NO_TIMEOUT_MS,
    touches: () => [],
    execute(input, { ask }) {
      const { question: prompt, choices, schema, timeout } = input as unknown as Question;
      const ttl = timeout === undefined ? {} : { ttlMs: timeout * 1_000 };
      return ask({ prompt, ...(choices && { choices }), ...(schema && { schema }), ...ttl } as never);
    },
  });
}

interface Question {
  readonly question: string;
  readonly choices?: readonly string[];
  readonly schema?: Readonly<Record<string, unknown>>;
  readonly timeout?: number;
}

const LONGEST_MS = 366 * 86_400_000;

function sleepUntilTool(clock: Clock | undefined): Tool {
  return tool({
    name: WORKFLOW_TOOLS.sleep,
    description: 'Waits for a number of seconds, or until a time',
    input: INPUT,
    effect: 'pure',
    polling: true,
    touches: () => [],
    execute(input, { parked }) {
      const { seconds, until } = input as { readonly seconds?: unknown; readonly until?: unknown };
      const now = clock ? clock.now() : Date.now();
      const at = parked?.wakeAt ?? (until === undefined ? now + secondsOf(seconds) * 1_000 : timeOf(until));
      if (!Number.isFinite(at) || at > now + LONGEST_MS) {
        const given = JSON.stringify(until ?? seconds);
        throw new Error(
          `It cannot wait for ${given}. Use seconds, or a time such as 2030-01-31T08:00:00Z, within a year.`,
        );
      }
      return now >= at ? null : new Parked('a time', [], { wakeAt: at });
    },
  });
}

function stopTool(stopRun: NonNullable<WorkflowToolsOptions['stopRun']>): Tool {
  return tool({
    name: WORKFLOW_TOOLS.stop,
    description: 'Cancels another run, and returns what it has done',
    input: { type: 'object', properties: { run: { type: 'string' } }, required: ['run'] },
    effect: 'idempotent',
    timeoutMs: NO_TIMEOUT_MS,
    touches: () => [],
    execute: (input, context) => stopRun((input as { readonly run: string }).run, context),
  });
}
