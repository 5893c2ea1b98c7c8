import { agentToolName } from '@treadle/core/named-agents';
import { all, call, fail, settle, step, StepError, type Program, type Step, type Steps } from '@treadle/core/program';
import type { CompiledStep, Flow, Level } from './definition.ts';
import { celIn, MAX_ENTRIES, MissingValue, valueAt, type Template } from './expressions.ts';

/*
 * The program that takes the steps of a workflow.
 *
 * 1. It is deterministic. What CEL evaluates is the result of a pure tool, so that it is in the history.
 * 2. The steps of a block that has one chain are calls of the run itself. The chains of another block are branches: each is a child
 *    run of this program, which gets the outputs that it needs and returns the results of its steps.
 * 3. A step that fails without a handler stops its chain. What other chains have begun is done, and then the workflow fails.
 */

/** The tools that only workflows have. */
export const WORKFLOW_TOOLS = {
  evaluate: 'workflow_evaluate',
  branch: 'workflow_branch',
  approve: 'workflow_approve',
  ask: 'workflow_ask',
  sleep: 'workflow_sleep',
  stop: 'workflow_stop',
} as const;

/** The tool of the maps with this limit. */
export function mapToolName(limit: number): string {
  return `workflow_map_${limit}`;
}

export interface StepResult {
  /** `stopped`: another step had failed before it was taken, or while it was waiting. */
  readonly status: 'done' | 'failed' | 'skipped' | 'stopped';
  readonly output: unknown;
  readonly error?: StepFailure;
  /** It has failed, and may have done something before: all of it, or a part. */
  readonly mayBeDone?: boolean;
}

export interface StepFailure {
  readonly step: string;
  readonly type: string;
  readonly message: string;
}

/** What the steps of one run know. */
export interface Scope {
  readonly flow: Flow;
  readonly inputs: unknown;
  /** Such as `item` and `error`. */
  readonly variables: Readonly<Record<string, unknown>>;
  readonly results: Map<string, StepResult>;
}

/** The arguments of a branch. Outputs are arguments of their own, so that long ones are passed by reference. */
export interface BranchInput {
  /** The steps to take, one after the other. */
  readonly steps?: readonly string[];
  /** The step whose inner steps are to be taken. */
  readonly inner?: string;
  /** The step whose action is to be done, without its conditions and retries. */
  readonly only?: string;
  /** Seconds. */
  readonly timeout?: number;
  /** The step whose map this is. */
  readonly map?: string;
  readonly items?: readonly unknown[];
  /** The position in the turn of the branch that takes each of these steps. */
  readonly after?: Readonly<Record<string, number>>;
  /** How many branches of the turn work at once. */
  readonly limit?: number;
  readonly inputs?: unknown;
  readonly variables?: Readonly<Record<string, unknown>>;
  readonly results?: Readonly<Record<string, Omit<StepResult, 'output'>>>;
  readonly [output: `output ${string}`]: unknown;
}

/** What a branch answers. It does not fail: what its steps have done may have to be undone. */
export interface BranchAnswer {
  readonly results?: Readonly<Record<string, StepResult>>;
  /** Of one action, or of a map. */
  readonly value?: unknown;
  readonly failure?: StepFailure;
}

/** The steps that one turn begins. */
const CHAINS_PER_TURN = 100;

/** The program of a whole workflow. `observe` gets what its steps know, for whoever replays it. */
export function workflowProgram(
  flow: Flow,
  version: unknown,
  observe?: (scope: Scope) => void,
): Program<Readonly<Record<string, unknown>>> {
  return {
    name: flow.name,
    version,
    *run(inputs) {
      const scope: Scope = { flow, inputs, variables: {}, results: new Map() };
      observe?.(scope);
      if (flow.undoes !== undefined) return yield* undoRun(scope, flow.undoes);
      let failure = yield* takeLevel(scope, flow.top);
      let text = failure && failureText(failure);
      if (!failure) {
        try {
          return yield* outputsOf(scope);
        } catch (thrown) {
          failure = failureFrom('outputs', thrown);
          text = `The outputs cannot be returned: ${failure.message}`;
        }
      }
      const { problems = '' } = flow.undoOn.includes('failed') ? yield* undoSteps(scope, failure) : {};
      return fail('step-failed', `${text}${problems}`);
    },
  };
}

/** The program of the branches of a workflow. */
export function branchProgram(flow: Flow, version: unknown, observe?: (scope: Scope) => void): Program<BranchInput> {
  return {
    name: `${flow.name} branch`,
    version,
    *run(input) {
      const scope = scopeOf(flow, input);
      observe?.(scope);
      const { map, only, inner, steps = [], items = [] } = input;
      if (map !== undefined) return yield* answered(map, mapItems(scope, flow.steps.get(map)!, items));
      if (only !== undefined) return yield* answered(only, act(scope, flow.steps.get(only)!));
      const before = new Set(scope.results.keys());
      const failure = yield* inner === undefined
        ? takeChain(scope, steps)
        : takeLevel(scope, flow.steps.get(inner)!.inner!);
      const results = Object.fromEntries([...scope.results].filter(([id]) => !before.has(id)));
      return { results, ...(failure && { failure }) } satisfies BranchAnswer;
    },
  };
}

function* answered(id: string, value: Steps<unknown>): Steps<BranchAnswer> {
  try {
    return { value: (yield* value) ?? null };
  } catch (thrown) {
    return { failure: failureFrom(id, thrown) };
  }
}

function scopeOf(flow: Flow, input: BranchInput): Scope {
  const { inputs, variables = {}, results = {} } = input;
  const known = Object.entries(results).map(
    ([id, result]) => [id, { ...result, output: input[`output ${id}`] ?? null }] as const,
  );
  return { flow, inputs, variables, results: new Map(known) };
}

/* Levels and chains */

/** Takes the steps of a level. Returns why it stopped. */
function* takeLevel(scope: Scope, { blocks }: Level): Steps<StepFailure | undefined> {
  for (const chains of blocks) {
    const failure = chains.length === 1 ? yield* takeChain(scope, chains[0]!) : yield* takeBranches(scope, chains);
    if (failure) return failure;
  }
  return undefined;
}

function* takeChain(scope: Scope, ids: readonly string[]): Steps<StepFailure | undefined> {
  for (const id of ids) {
    const failure = yield* take(scope, scope.flow.steps.get(id)!);
    if (failure) return failure;
  }
  return undefined;
}

function* takeBranches(scope: Scope, chains: readonly (readonly string[])[]): Steps<StepFailure | undefined> {
  for (let at = 0; at < chains.length; at += CHAINS_PER_TURN) {
    const now = chains.slice(at, at + CHAINS_PER_TURN);
    const indexOf = new Map(now.flatMap((ids, index) => ids.map((id) => [id, index] as const)));
    const outcomes = yield* settle(
      now.map((steps, index) => {
        const needed = steps.flatMap((id) => scope.flow.steps.get(id)!.needs);
        const other = needed.filter((id) => (indexOf.get(id) ?? index) !== index);
        const after = Object.fromEntries(other.map((id) => [id, indexOf.get(id)!]));
        return branchStep(scope, steps, {
          steps,
          limit: scope.flow.limit,
          ...(other.length > 0 && { after }),
        });
      }),
    );
    let failure: StepFailure | undefined;
    for (const [index, outcome] of outcomes.entries()) {
      const answer: BranchAnswer =
        outcome.type === 'done' ? (outcome.value as BranchAnswer) : lostBranch(now[index]!, outcome.error);
      for (const [id, result] of Object.entries(answer.results ?? {})) scope.results.set(id, result);
      failure ??= answer.failure;
    }
    failure ??= stoppedStep(scope, now);
    if (failure) return failure;
  }
  return undefined;
}

/** A step that was stopped or has failed, although no branch says why: what follows must not take it for done. */
function stoppedStep({ results, flow }: Scope, chains: readonly (readonly string[])[]): StepFailure | undefined {
  for (const id of chains.flat()) {
    const { status, error } = results.get(id) ?? {};
    const { onError } = flow.steps.get(id)!;
    const isUnhandled = onError === 'fail' || results.get(onError)?.status === 'failed';
    if (status !== 'stopped' && !(status === 'failed' && isUnhandled)) continue;
    return error ?? { step: id, type: 'interrupted', message: 'It was stopped.' };
  }
  return undefined;
}

/** A branch that could not end by itself: it was cancelled, or has reached a limit. */
function lostBranch([first = '']: readonly string[], error: StepError): BranchAnswer {
  const failure = failureFrom(first, error);
  return { results: { [first]: { status: 'failed', output: null, error: failure } }, failure };
}

/** A call of a branch, with what these steps name. */
function branchStep(scope: Scope, ids: readonly string[], input: BranchInput, label = ids[0]): Step {
  const { flow, inputs, variables, results } = scope;
  const named = new Set<string>();
  for (const id of ids) {
    const { names, needs, taken } = flow.steps.get(id)!;
    for (const one of [...names, ...needs, ...(taken ? [taken.condition] : [])]) named.add(one);
  }
  const known = [...named].flatMap((id) => {
    const result = results.get(id);
    return result ? [[id, result] as const] : [];
  });
  const facts = known.map(([id, { output: _, ...rest }]) => [id, rest] as const);
  const outputs = known.map(([id, { output }]) => [`output ${id}`, output] as const);
  const args = {
    ...input,
    inputs,
    ...(Object.keys(variables).length > 0 && { variables }),
    ...(facts.length > 0 && { results: Object.fromEntries(facts) }),
    ...Object.fromEntries(outputs),
  };
  return step(WORKFLOW_TOOLS.branch, args, label);
}

/* One step */

/** Takes a step, and records its result. Returns the failure if the workflow must stop. */
function* take(scope: Scope, one: CompiledStep): Steps<StepFailure | undefined> {
  const { flow, results } = scope;
  const tried = { mayBeDone: false };
  try {
    if (yield* isSkipped(scope, one)) {
      results.set(one.id, { status: 'skipped', output: null });
      return undefined;
    }
    results.set(one.id, { status: 'done', output: yield* attempts(scope, one, tried) });
    return undefined;
  } catch (thrown) {
    const error = failureFrom(one.id, thrown);
    const failed = { status: 'failed', output: null, error, ...(tried.mayBeDone && { mayBeDone: true }) } as const;
    results.set(one.id, failed);
    if (one.onError === 'continue') return undefined;
    if (one.onError === 'fail') return error;
    const handler = flow.steps.get(one.onError)!;
    const handling = { ...scope, variables: { ...scope.variables, error } };
    const failure = yield* take(handling, handler);
    // What the handler returns stands for what the step would have returned.
    const { output = null } = results.get(handler.id) ?? {};
    results.set(one.id, { ...failed, output });
    return failure;
  }
}

function* isSkipped(scope: Scope, { needs, taken, when }: CompiledStep): Steps<boolean> {
  const { results } = scope;
  if (needs.length > 0 && needs.every((id) => results.get(id)?.status === 'skipped')) return true;
  if (taken && results.get(taken.condition)?.output !== taken.if) return true;
  return when !== undefined && !(yield* decided(scope, when, 'when'));
}

function* decided(scope: Scope, given: Template, key: string): Steps<boolean> {
  const value = yield* valueOf(scope, given);
  if (typeof value === 'boolean') return value;
  throw new StepProblem('invalid_params', `"${key}" is ${shown(value)}. It has to be true or false.`);
}

/** Seconds. */
const LONGEST_DELAY = 30 * 86_400;

/** Does what a step says, again if it fails as its `retry` says. */
function* attempts(scope: Scope, one: CompiledStep, tried: { mayBeDone: boolean }): Steps<unknown> {
  const { times, delay, factor, on } = one.retry;
  for (let count = 1; ; count++) {
    try {
      return yield* attempt(scope, one);
    } catch (error) {
      const type = typeOf(error);
      tried.mayBeDone ||= mayHaveActed(one, type);
      if (type === undefined || !on.includes(type) || count >= times) throw error;
      // The run may end before it is done.
      if (tried.mayBeDone) {
        const failed = { status: 'failed', output: null, error: failureFrom(one.id, error), mayBeDone: true } as const;
        scope.results.set(one.id, failed);
      }
    }
    const seconds = Math.min(delay * factor ** (count - 1), LONGEST_DELAY);
    if (seconds > 0) yield* call(WORKFLOW_TOOLS.sleep, { seconds }, one.id);
  }
}

const UNKNOWN_EFFECT: ReadonlySet<string | undefined> = new Set(['timeout', 'interrupted']);
const NOT_BEGUN: ReadonlySet<string | undefined> = new Set([
  'not_found',
  'invalid_params',
  'permission_denied',
  'denied',
]);

/** Whether an attempt that has failed may have done something. */
function mayHaveActed({ action }: CompiledStep, type: string | undefined): boolean {
  if (action === 'run_tool') return UNKNOWN_EFFECT.has(type);
  if (action === 'invoke_agent' || action === 'sub_workflow') return !NOT_BEGUN.has(type);
  // The type is that of an inner step, and others may be done.
  return action === 'parallel' || action === 'map';
}

/** Actions that wait for people or for a time have their timeout themselves. */
const OWN_TIMEOUT: ReadonlySet<string> = new Set(['wait_approval', 'ask', 'sleep']);

function* attempt(scope: Scope, one: CompiledStep): Steps<unknown> {
  if (one.timeout === undefined || OWN_TIMEOUT.has(one.action)) return yield* act(scope, one);
  const [outcome] = yield* settle([branchStep(scope, [one.id], { only: one.id, timeout: one.timeout })]);
  if (outcome!.type === 'done') return valueIn(outcome!.value as BranchAnswer);
  const { errorType, message } = outcome!.error;
  const why = errorType === 'timeout' ? `It took longer than ${one.timeout} seconds.` : message;
  throw new StepProblem(errorType, why);
}

function valueIn({ value, failure }: BranchAnswer): unknown {
  if (failure) throw new StepProblem(failure.type, failure.message);
  return value;
}

/** A step fails for a reason of its own. */
class StepProblem extends Error {
  readonly errorType: string;

  constructor(errorType: string, message: string) {
    super(message);
    this.errorType = errorType;
  }
}

function* act(scope: Scope, one: CompiledStep): Steps<unknown> {
  const { id, action, templates, target, inner } = one;
  const args = function* (): Steps<Readonly<Record<string, unknown>>> {
    return templates['inputs'] ? ((yield* valueOf(scope, templates['inputs'])) as Record<string, unknown>) : {};
  };
  switch (action) {
    case 'run_tool':
      return yield* call(target!, yield* args(), id);
    case 'invoke_agent':
    case 'sub_workflow':
      return yield* call(agentToolName(target!), yield* args(), id);
    case 'transform':
      return templates['value'] ? yield* valueOf(scope, templates['value']) : yield* args();
    case 'condition':
      return yield* decided(scope, templates['if']!, 'if');
    case 'wait_approval': {
      const message = String(yield* valueOf(scope, templates['message']!));
      const timeout = one.timeout === undefined ? {} : { timeout: one.timeout };
      return yield* call(WORKFLOW_TOOLS.approve, { message, ...(yield* args()), ...timeout }, id);
    }
    case 'ask': {
      const question = String(yield* valueOf(scope, templates['question']!));
      const timeout = one.timeout === undefined ? {} : { timeout: one.timeout };
      return yield* call(WORKFLOW_TOOLS.ask, { question, ...one.schema, ...timeout }, id);
    }
    case 'sleep': {
      const [key, given] = templates['for'] ? ['seconds', templates['for']] : ['until', templates['until']!];
      yield* call(WORKFLOW_TOOLS.sleep, { [key]: yield* valueOf(scope, given) }, id);
      return null;
    }
    case 'parallel': {
      const failure = yield* takeLevel(scope, inner!);
      if (failure) throw new StepProblem(failure.type, failureText(failure));
      return Object.fromEntries(inner!.ids.map((name) => [name, scope.results.get(name)!.output]));
    }
    case 'map': {
      const items = yield* valueOf(scope, templates['over']!);
      if (!Array.isArray(items))
        throw new StepProblem('invalid_params', `"over" is ${shown(items)}. It has to be a list.`);
      if (items.length > MAX_ENTRIES) {
        throw new StepProblem(
          'invalid_params',
          `"over" has ${items.length} entries. At most ${MAX_ENTRIES} are possible.`,
        );
      }
      if (items.length === 0) return [];
      const { arguments: given } = branchStep(scope, [id], { map: id });
      return valueIn(yield* call<BranchAnswer>(mapToolName(one.limit), { ...given, items }, id));
    }
    default:
      return action satisfies never;
  }
}

/** Takes the inner steps of a map for each item. The output of the last one is that of the item. */
function* mapItems(scope: Scope, one: CompiledStep, items: readonly unknown[]): Steps<readonly unknown[]> {
  const { ids } = one.inner!;
  const last = ids.at(-1)!;
  const scopes = items.map((item, index): Scope => ({
    ...scope,
    variables: { ...scope.variables, [one.as]: item, index },
    results: new Map(scope.results),
  }));
  const only = ids.length === 1 ? scope.flow.steps.get(last)! : undefined;
  const direct = only && isOneCall(only) ? only : undefined;
  if (direct) {
    const steps = scopes.map((each) => {
      const given = direct.templates['inputs'];
      const args = given ? (lookedUp(each, given) as Record<string, unknown>) : {};
      return step(direct.action === 'run_tool' ? direct.target! : agentToolName(direct.target!), args, last);
    });
    const outcomes = yield* settle(steps);
    const failed = outcomes.findIndex(({ type }) => type === 'failed');
    const outcome = outcomes[failed];
    if (outcome?.type === 'failed') throw failedItem(failed, outcome.error.errorType, outcome.error.message);
    return outcomes.map((each) => (each.type === 'done' ? each.value : null));
  }
  const steps = scopes.map((each) => branchStep(each, [one.id], { inner: one.id }, last));
  const answers = (yield* all(steps)) as readonly BranchAnswer[];
  for (const [index, { failure }] of answers.entries()) {
    if (failure) throw failedItem(index, failure.type, failureText(failure));
  }
  return answers.map(({ results }) => results?.[last]?.output ?? null);
}

function failedItem(index: number, type: string, message: string): StepError {
  return new StepError(`item ${index}`, type as StepError['errorType'], `Item ${index} failed: ${message}`);
}

/** Whether a step is nothing but one call whose arguments are looked up. */
function isOneCall({ action, templates, when, timeout, retry, onError }: CompiledStep): boolean {
  const calls = action === 'run_tool' || action === 'invoke_agent' || action === 'sub_workflow';
  const plain = when === undefined && timeout === undefined && retry.times === 1 && onError === 'fail';
  return calls && plain && (!templates['inputs'] || celIn(templates['inputs']).length === 0);
}

/* Undoing */

/** Undoes what is done or may be done, the last step first. `problems`: what could not be undone, for the message of the failure. */
function* undoSteps(
  scope: Scope,
  failure: StepFailure,
): Steps<{ readonly undone: readonly string[]; readonly problems: string }> {
  const problems: string[] = [];
  const undone: string[] = [];
  for (const id of scope.flow.top.ids.toReversed()) {
    const { undo } = scope.flow.steps.get(id)!;
    const { status, mayBeDone = false } = scope.results.get(id) ?? {};
    if (undo === undefined || (status !== 'done' && !mayBeDone)) continue;
    const undoing = { ...scope, variables: { ...scope.variables, error: failure } };
    const problem = yield* take(undoing, { ...scope.flow.steps.get(undo)!, needs: [] });
    if (problem) problems.push(`"${id}" was not undone: ${problem.message}`);
    else if (scope.results.get(undo)?.status === 'done') undone.push(id);
  }
  return { undone, problems: problems.map((one) => ` ${one}`).join('') };
}

/** What a run that was stopped has done. */
export interface StoppedRun {
  /** The limit at which it has ended. Absent: it was cancelled. */
  readonly limit?: string;
  readonly inputs: unknown;
  readonly results: Readonly<Record<string, StepResult>>;
}

/** Undoes the steps of another run, which is stopped first. */
function* undoRun(scope: Scope, run: string): Steps<unknown> {
  const stopped = yield* call<StoppedRun>(WORKFLOW_TOOLS.stop, { run });
  const known = { ...scope, inputs: stopped.inputs };
  for (const [id, result] of Object.entries(stopped.results)) scope.results.set(id, result);
  const { undone, problems } = yield* undoSteps(known, endOf(run, stopped));
  if (problems !== '') return fail('undo-failed', problems.trim());
  return { undone };
}

function endOf(run: string, { limit }: StoppedRun): StepFailure {
  if (limit === undefined) return { step: '', type: 'cancelled', message: `The run ${run} was cancelled.` };
  return { step: '', type: 'exhausted', message: `The run ${run} ended at a limit: ${limit}.` };
}

/* Values */

function* outputsOf(scope: Scope): Steps<unknown> {
  const { flow, results } = scope;
  if (flow.outputs) return yield* valueOf(scope, flow.outputs);
  const used = new Set(flow.top.ids.flatMap((id) => flow.steps.get(id)!.needs));
  return Object.fromEntries(
    flow.top.ids.filter((id) => !used.has(id)).map((id) => [id, results.get(id)?.output ?? null]),
  );
}

/** The value of a template. What CEL has to evaluate is one call. */
function* valueOf(scope: Scope, given: Template): Steps<unknown> {
  const found = celIn(given);
  if (found.length === 0) return lookedUp(scope, given);
  const texts = [...new Set(found.map(({ text }) => text))];
  const expressions = Object.fromEntries(texts.map((text, index) => [`e${index}`, text]));
  const names = new Set(
    found.flatMap((one) => one.names.flatMap(([root, id]) => (root === 'steps' ? [String(id)] : []))),
  );
  const known = [...names].map((id) => [id, scope.results.get(id)!] as const);
  const evaluated = yield* call<Readonly<Record<string, unknown>>>(WORKFLOW_TOOLS.evaluate, {
    expressions,
    inputs: scope.inputs,
    ...(Object.keys(scope.variables).length > 0 && { variables: scope.variables }),
    results: Object.fromEntries(known.map(([id, { output: _, ...rest }]) => [id, rest])),
    ...Object.fromEntries(known.map(([id, { output }]) => [`output ${id}`, output])),
  });
  const values = new Map(texts.map((text, index) => [text, evaluated[`e${index}`]]));
  return lookedUp(scope, given, values);
}

/** The value of a template without CEL, or with what CEL has evaluated. */
export function lookedUp(scope: Values, given: Template, evaluated: ReadonlyMap<string, unknown> = NONE): unknown {
  switch (given.type) {
    case 'value':
      return given.value;
    case 'cel':
      return evaluated.get(given.text);
    case 'path':
      return valueAt(valuesOf(scope, given.keys), given.keys, given.text);
    case 'text':
      return given.parts.map((one) => asText(lookedUp(scope, one, evaluated))).join('');
    case 'list':
      return given.items.map((one) => lookedUp(scope, one, evaluated));
    case 'table':
      return Object.fromEntries(given.entries.map(([key, one]) => [key, lookedUp(scope, one, evaluated)]));
    default:
      return given satisfies never;
  }
}

const NONE: ReadonlyMap<string, unknown> = new Map();

/** What paths are looked up in. */
type Values = Pick<Scope, 'inputs' | 'variables' | 'results'>;

/** What the first keys of a path name. */
function valuesOf(
  { inputs, variables, results }: Values,
  [root, id]: readonly (string | number)[],
): Record<string, unknown> {
  if (root !== 'steps') return { inputs, ...variables };
  const result = results.get(String(id));
  return { steps: result ? { [String(id)]: { error: null, ...result } } : {} };
}

function asText(value: unknown): string {
  return typeof value === 'string' ? value : JSON.stringify(value ?? null);
}

/* Failures */

function typeOf(thrown: unknown): string | undefined {
  if (thrown instanceof StepError || thrown instanceof StepProblem) return thrown.errorType;
  return thrown instanceof MissingValue ? 'invalid_params' : undefined;
}

/** Throws what is no failure of a step. */
function failureFrom(id: string, thrown: unknown): StepFailure {
  const type = typeOf(thrown);
  if (type === undefined) throw thrown;
  return { step: id, type, message: (thrown as Error).message };
}

function failureText({ step: id, message }: StepFailure): string {
  return `The step "${id}" failed: ${message}`;
}

function shown(value: unknown): string {
  const text = JSON.stringify(value) ?? 'missing';
  return text.length > 80 ? `${text.slice(0, 80).toWellFormed()}…` : text;
}
