import {
  childRuns,
  messagesOf,
  replay,
  type AssistantPart,
  type Blobs,
  type Journal,
  type JournalEntry,
  type RunStore,
  type Slot,
  type State,
} from '@treadle/core';
import { programModel, valueOf, type Program } from '@treadle/core/program';
import type { CompiledStep, Flow, Level } from './definition.ts';
import { namesIn } from './expressions.ts';
import {
  branchProgram,
  lookedUp,
  WORKFLOW_TOOLS,
  workflowProgram,
  type BranchAnswer,
  type BranchInput,
  type Scope,
  type StepFailure,
  type StepResult,
  type StoppedRun,
} from './program.ts';

/*
 * What a run of a workflow has done. The journal has calls and their results; which steps those are is found by letting the program
 * run over the history, as it does after a crash.
 */

/** A journal that lists the child runs of a run. */
export type ListedJournal = Journal & Pick<RunStore, 'list'>;

/** What the steps of a run have done, with those of its branches. */
export async function resultsOf(journal: ListedJournal, runId: string, flow: Flow): Promise<StoppedRun> {
  const { state } = replay(await journal.read(runId));
  const scope = await observed((observe) => workflowProgram(flow, '', observe), state, journal);
  const results = await branchResults(journal, { runId, state, scope, flow });
  const outcome = state.phase.type === 'ended' ? state.phase.outcome : undefined;
  const end = outcome?.type === 'exhausted' ? { limit: outcome.limit } : {};
  return { ...end, inputs: scope?.inputs ?? null, results: Object.fromEntries(results) };
}

/** What a step of a run has done, or does now. */
export interface StepStatus {
  readonly id: string;
  readonly action: string;
  /** `waiting`: for a person, a client or a time. `stopped`: the run has ended without it. */
  readonly status: StepResult['status'] | 'pending' | 'running' | 'waiting';
  /**
   * What its tool, agent or workflow was called with last. Of a `transform` or a `condition` that is done: what its expressions name,
   * with the values. Otherwise null.
   */
  readonly inputs: unknown;
  readonly output: unknown;
  readonly error: StepFailure | null;
  /** The run of its agent or workflow, or else the run that takes it; null if it has called nothing. */
  readonly run: string | null;
}

/** The steps of a run, in the order of the definition. Those inside of maps are not among them. */
export async function stepStatuses(journal: ListedJournal, runId: string, flow: Flow): Promise<readonly StepStatus[]> {
  const { state } = replay(await journal.read(runId));
  const { inputs: given, results } = await resultsOf(journal, runId, flow);
  const known = { inputs: given, variables: {}, results: new Map(Object.entries(results)) };
  const current = await currentSteps(journal, state);
  const called = await stepCalls(journal, state);
  const rest = state.phase.type === 'ended' ? 'stopped' : 'pending';
  const inMaps = new Set(
    Array.from(flow.steps.values()).flatMap((one) => (one.action === 'map' ? innerIds(flow, one) : [])),
  );
  return [...flow.steps.values()].flatMap((step) => {
    const { id, action } = step;
    if (inMaps.has(id)) return [];
    // One that may be done is tried again.
    const isAgain = results[id]?.mayBeDone && current.has(id);
    const result = isAgain ? undefined : results[id];
    const now = result ? undefined : current.get(id);
    const { output = null, error = null, status = now?.status ?? rest } = result ?? {};
    const isTaken = result !== undefined && result.status !== 'skipped';
    const named = isTaken && (action === 'transform' || action === 'condition') ? namedValues(step, known) : null;
    const { inputs = named, run = null } = called.get(id) ?? {};
    return { id, action, status, inputs, output, error, run: now?.run ?? run };
  });
}

/** What the expressions of a step name, with the values. Those of a handler that name its `error` are not known here. */
function namedValues({ templates }: CompiledStep, known: Parameters<typeof lookedUp>[0]): Record<string, unknown> {
  const { when: _, ...own } = templates;
  return Object.fromEntries(
    Object.values(own)
      .flatMap(namesIn)
      .flatMap((keys) => {
        const text = keys.join('.');
        try {
          return [[text, lookedUp(known, { type: 'path', keys, text }) ?? null]];
        } catch {
          return [];
        }
      }),
  );
}

/**
 * The last entry before a step, or one that follows it, was begun; steps that began together with it begin again too. Undefined: the
 * run has not come to it, or has no such step.
 */
export function entryBeforeStep(entries: readonly JournalEntry[], flow: Flow, step: string): number | undefined {
  const { ids } = flow.top;
  const withInner = (id: string): readonly string[] => [id, ...innerIds(flow, flow.steps.get(id)!)];
  const at = ids.findIndex((id) => withInner(id).includes(step) || isFor(flow, id, step));
  if (at < 0) return undefined;
  const from = new Set(ids.slice(at).flatMap((id) => [...withInner(id), flow.steps.get(id)!.onError]));
  const undos = new Set(ids.map((id) => flow.steps.get(id)!.undo));
  let before: number | undefined;
  for (const { seq, event } of entries) {
    if (event.type !== 'model-replied' && event.type !== 'model-failed') continue;
    const begun = event.type === 'model-failed' ? [] : event.content.flatMap(begunSteps);
    const isEnd = event.type === 'model-failed' || !event.content.some(({ type }) => type === 'tool-call');
    // What was undone cannot be gone on from.
    if (begun.some((id) => undos.has(id))) return undefined;
    if (isEnd || begun.some((id) => from.has(id))) return before ?? seq - 1;
    // What is only calculated belongs to a step after those before it.
    before = begun.length > 0 ? undefined : (before ?? seq - 1);
  }
  return undefined;
}

function isFor(flow: Flow, id: string, step: string): boolean {
  const { onError, undo } = flow.steps.get(id)!;
  return onError === step || undo === step;
}

function begunSteps(part: AssistantPart): readonly string[] {
  if (part.type !== 'tool-call' || part.label === undefined) return [];
  const { steps = [] } = part.name === WORKFLOW_TOOLS.branch ? (valueOf(part.arguments) as BranchInput) : {};
  return [part.label, ...steps];
}

interface StepCall {
  readonly inputs: unknown;
  readonly run: string;
}

/** The last calls of steps, with those of branches. */
async function stepCalls(journal: ListedJournal, { history, runId }: State): Promise<ReadonlyMap<string, StepCall>> {
  const children = new Set((await journal.list({ parent: runId, limit: Infinity })).map((one) => one.runId));
  const found = new Map<string, StepCall>();
  for (const message of messagesOf(history)) {
    if (message.role !== 'assistant') continue;
    for (const part of message.content) {
      if (part.type !== 'tool-call' || part.label === undefined) continue;
      // The program names its calls: t1.model.0.2 is the third call of the first turn.
      const [, turn, index] = /^t(\d+)\..*\.(\d+)$/.exec(part.id) ?? [];
      const child = `${runId}.t${turn}.tool.${index}`;
      const isChild = children.has(child);
      if (part.name !== WORKFLOW_TOOLS.branch) {
        found.set(part.label, { inputs: valueOf(part.arguments), run: isChild ? child : runId });
      } else if (isChild) {
        const inside = await stepCalls(journal, replay(await journal.read(child)).state);
        for (const [id, one] of inside) found.set(id, one);
      }
    }
  }
  return found;
}

function innerIds(flow: Flow, { inner }: { readonly inner: Level | undefined }): readonly string[] {
  return (inner?.ids ?? []).flatMap((id) => [id, ...innerIds(flow, flow.steps.get(id)!)]);
}

/** The steps whose calls have no result yet, with those of branches. */
async function currentSteps(
  journal: ListedJournal,
  { phase, runId }: State,
): Promise<ReadonlyMap<string, { readonly status: 'running' | 'waiting'; readonly run: string }>> {
  const found = new Map<string, { readonly status: 'running' | 'waiting'; readonly run: string }>();
  for (const slot of phase.type === 'tools' ? phase.slots : []) {
    const { label, name } = slot.call;
    if (label === undefined || slot.type === 'settled') continue;
    const child = `${runId}.${slotEffect(slot)}`;
    const entries = await journal.read(child);
    const status = slot.type === 'queued' || slot.type === 'running' ? 'running' : 'waiting';
    found.set(label, { status, run: entries.length > 0 ? child : runId });
    if (name !== WORKFLOW_TOOLS.branch || entries.length === 0) continue;
    const inside = await currentSteps(journal, replay(entries).state);
    if (inside.size > 0) found.delete(label);
    for (const [id, one] of inside) found.set(id, one);
  }
  return found;
}

function slotEffect({ call: { turn, index } }: Slot): string {
  return `t${turn}.tool.${index}`;
}

/** What the steps of a branch have done. */
export async function chainResults(
  journal: Journal,
  runId: string,
  flow: Flow,
): Promise<ReadonlyMap<string, StepResult>> {
  const entries = await journal.read(runId);
  if (entries.length === 0) return new Map();
  const { state } = replay(entries);
  const scope = await observed((observe) => branchProgram(flow, '', observe), state, journal);
  const { steps = [] } = inputOf(state);
  return new Map([...(scope?.results ?? [])].filter(([id]) => steps.includes(id)));
}

interface Observed {
  readonly runId: string;
  readonly state: State;
  readonly scope: Scope | undefined;
  readonly flow: Flow;
}

/** The results of a run, with those of branches that have no result yet, or were stopped with the run. */
async function branchResults(
  journal: ListedJournal,
  { runId, state, scope, flow }: Observed,
): Promise<ReadonlyMap<string, StepResult>> {
  const results = new Map(scope?.results);
  const slots: readonly Slot[] = state.phase.type === 'tools' ? state.phase.slots : [];
  for (const slot of slots) {
    if (slot.call.name !== WORKFLOW_TOOLS.branch || slot.type !== 'settled' || slot.result.isError) continue;
    const answer = await answerIn(slot.result, runId, blobsOf(journal));
    for (const [id, result] of Object.entries(answer.results ?? {})) results.set(id, result);
  }
  for (const child of await childRuns(journal, runId)) {
    for (const [id, result] of await chainResults(journal, child.runId, flow)) {
      if (results.get(id)?.status !== 'done') results.set(id, result);
    }
  }
  return results;
}

export function blobsOf(journal: Journal & { readonly blobs?: Blobs }): Blobs | undefined {
  return journal.blobs;
}

/** The answer of a branch that is the result of a call. */
export async function answerIn(
  { content, blob }: Extract<Slot, { type: 'settled' }>['result'],
  runId: string,
  blobs: Blobs | undefined,
): Promise<BranchAnswer> {
  const [first] = content;
  const stored = blob === undefined ? undefined : await blobs?.read(runId, blob, 0, Infinity);
  return valueOf(stored?.text ?? (first && 'text' in first ? first.text : 'null')) as BranchAnswer;
}

function inputOf({ history }: State): BranchInput {
  const [first] = messagesOf(history);
  const text = first?.content.flatMap((part) => (part.type === 'text' ? part.text : [])).join('') ?? '{}';
  return valueOf(text) as BranchInput;
}

/** Lets a program run over the history of a run, and returns what its steps know then. */
async function observed<Input>(
  make: (observe: (scope: Scope) => void) => Program<Input>,
  { history, runId }: State,
  journal: Journal,
): Promise<Scope | undefined> {
  const blobs = blobsOf(journal);
  let scope: Scope | undefined;
  const model = programModel(make((one) => (scope = one)));
  const readBlob = blobs && (async (id: string) => (await blobs.read(runId, id, 0, Infinity))?.text);
  const messages = messagesOf(history);
  // The run has not begun, and has no inputs.
  if (messages.length === 0) return undefined;
  const request = { messages, key: `${runId}/observe`, ...(readBlob && { readBlob }) };
  await model.reply(request as Parameters<typeof model.reply>[0], () => {}, new AbortController().signal);
  return scope;
}
