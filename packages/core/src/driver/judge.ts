import { messageOf, TreadleError } from '../errors.ts';
import { arePromised } from '../machine/approvals.ts';
import { isJudged, isUnstarted, slotEffect, toolEffectId, type UnstartedSlot } from '../machine/effects.ts';
import type { Event, RecordedVerdict } from '../machine/events.ts';
import { stableJson } from '../machine/history.ts';
import { isListed, isWithinNarrowing, lowestAutonomy, narrowingSource } from '../machine/narrowing.ts';
import type { Call, State } from '../machine/state.ts';
import { callsLimit, turnsLimit } from '../machine/step.ts';
import type { AskVerdict, JudgedCall, Policy, PolicyLimits, Touch, Verdict } from '../policy/port.ts';
import type { PolicyRules } from '../policy/rules.ts';
import { touchFrom } from '../policy/touches.ts';
import { possibleVerdict, stricterVerdict } from '../policy/verdicts.ts';
import type { Checked } from '../tools/execute.ts';
import { promisesOf, type NeedsApproval, type Tool } from '../tools/tool.ts';
import { executorOf, ignore } from './call-model.ts';
import { recordedRules } from './open.ts';
import type { ContinueOptions } from './options.ts';
import type { RunContext } from './perform.ts';

/*
 * What judges the calls of a turn:
 *
 * 1. The policy of the options. If it fails, every call is denied. If it cannot use its store, the run stops and can be resumed:
 *    a denial would be a fact.
 * 2. The same policy with every other rules that the run has recorded. The strictest verdict applies.
 * 3. The narrowings of the run: tools whose calls people have to approve, also without a policy, and rules.
 * 4. `needsApproval` of the tools, also without a policy. A run that had a policy and is resumed without one has every
 *    call denied.
 *
 * The verdicts are recorded with what each call would touch, if its tool declares that. This is loaded when the first call is
 * judged.
 */

/** What calls are judged with. */
export interface Judging {
  readonly state: State;
  readonly options: Pick<ContinueOptions, 'policy' | 'context'>;
  readonly executor: (call: Call) => Tool | undefined;
  readonly checked: (call: Call) => Checked | Promise<Checked>;
  readonly signal: AbortSignal;
}

interface Judged {
  readonly settle: (verdicts: Verdicts) => void;
  /** Stops the run. */
  readonly fail: (error: TreadleError) => void;
}

/** Judges calls of a run that is driven. */
export function judgeInRun(
  context: RunContext,
  calls: readonly Call[],
  given: {
    readonly settle: Judged['settle'];
    checkedCall(context: RunContext, call: Call): ReturnType<Judging['checked']>;
  },
): void {
  const { options, controller, fail } = context;
  const judging: Judging = {
    state: context.state(),
    options,
    executor: (call) => executorOf(context, call.name, call.turn),
    checked: (call) => given.checkedCall(context, call),
    signal: controller.signal,
  };
  judgeCalls(calls, judging, { settle: given.settle, fail });
}

/** Judges calls, and calls `settle` with the verdicts, synchronously if the policy is. */
function judgeCalls(calls: readonly Call[], judging: Judging, { settle, fail }: Judged): void {
  const denyAll = (thrown: unknown): void => {
    if (isStoreFailure(thrown)) return fail(thrown);
    const reason = `the policy failed: ${messageOf(thrown)}`;
    settle(calls.map(() => ({ type: 'deny', reason })));
  };
  const judge = (all: readonly Checked[]): Verdicts | Promise<Verdicts> =>
    judgeChecked(
      calls.map((call, index) => describeCall(call, judging.executor(call), all[index]!.input)),
      judging,
    );
  try {
    const checked = calls.map(judging.checked);
    const later = checked.some((one) => one instanceof Promise);
    const verdicts = later ? Promise.all(checked).then(judge) : judge(checked as readonly Checked[]);
    if (verdicts instanceof Promise) verdicts.then(settle).catch(denyAll);
    else settle(verdicts);
  } catch (thrown) {
    denyAll(thrown);
  }
}

function isStoreFailure(thrown: unknown): thrown is TreadleError {
  return thrown instanceof TreadleError && (thrown.code === 'journal-failed' || thrown.code.startsWith('store-'));
}

/** `step` denies a call without a verdict. */
type Verdicts = readonly RecordedVerdict[];

/** A call for the policy, and what the driver itself knows about it. */
interface Described {
  readonly call: JudgedCall;
  /** What its tool declares; undefined if it declares nothing. */
  readonly touches: readonly Touch[] | undefined;
  /** The promises of its sandbox; undefined without any. */
  readonly sandbox: readonly string[] | undefined;
  /** The verdict of its tool; undefined if the tool has no opinion. */
  readonly own: Verdict | undefined;
}

function judgeChecked(described: readonly Described[], judging: Judging): Verdicts | Promise<Verdicts> {
  const { state, options, signal } = judging;
  const { runId, turn, principal, narrowed, written, exposure } = state;
  const allowed = allowedNames(state);
  const autonomy = lowestAutonomy(narrowed);
  const about = {
    runId,
    turn,
    ...(autonomy !== undefined && { autonomy }),
    ...(narrowed && { narrowedBy: narrowed.map(narrowingSource) }),
    ...(allowed && { allowed }),
    ...(written && { written }),
    ...(exposure && { exposure }),
    ...(principal && { principal }),
    ...(state.program !== undefined && { program: true as const }),
    context: options.context,
    signal,
  };
  const calls = described.map(({ call }) => call);
  const policies = [...appliedPolicies(state, options.policy), ...narrowingPolicies(state, options.policy)];
  const results = policies.map((policy) => policy.judge(calls, about));
  const finish = (all: readonly (readonly Verdict[])[]): Verdicts => {
    const verdicts = described.map((one, index) => recordedVerdict(one, all, index));
    // A policy that returned too few has the rest denied.
    while (verdicts.length > 0 && verdicts.at(-1) === undefined) verdicts.pop();
    return verdicts as Verdicts;
  };
  if (!results.some(isThenable)) return finish(results as readonly (readonly Verdict[])[]);
  if (results.length > 1) return Promise.all(results).then(finish);
  return Promise.resolve(results[0]!).then((verdicts) => finish([verdicts]));
}

/** The tools that the run may call; undefined if that is all of them. */
function allowedNames(state: State): readonly string[] | undefined {
  const { allowedTools } = state.rules;
  if (!allowedTools && !state.narrowed) return undefined;
  const isAllowed = (name: string): boolean => isWithinNarrowing(state, name) && (allowedTools?.includes(name) ?? true);
  return state.tools.flatMap(({ name }) => (isAllowed(name) ? name : []));
}

/** The policies whose strictest verdict applies. Throws if the run needs one that is missing. */
function appliedPolicies(state: State, policy: Policy | undefined): readonly Policy[] {
  if (!policy) {
    if (!isJudged(state)) return [];
    throw new Error('the run was started with a policy, and was resumed without one');
  }
  const current = rulesText(policy.rules);
  const others = state.policies?.filter((rules) => rulesText(rules) !== current) ?? [];
  if (others.length > 0 && !policy.withRules) {
    throw new Error('the run has recorded other rules, and the policy has no "withRules" to apply them');
  }
  return [policy, ...others.map((rules) => withRecorded(policy, rules))];
}

/** What the narrowings of the run say about calls. */
function narrowingPolicies({ narrowed = [] }: State, policy: Policy | undefined): readonly Policy[] {
  return narrowed.flatMap(({ ask, rules, source = 'what narrows the run' }) => [
    ...(ask ? [askingPolicy(ask, source)] : []),
    ...(rules ? [narrowingRules({ autonomy: 3, ...rules }, source, policy)] : []),
  ]);
}

function askingPolicy(names: readonly string[], source: string): Policy {
  const ask: Verdict = { type: 'ask', rule: 'narrowing', reason: `${source} requires it` };
  return { judge: (calls) => calls.map(({ name }) => (isListed(names, name) ? ask : ALLOW)) };
}

/** The policy of the run with the rules of a narrowing. Throws if it cannot apply them. */
function narrowingRules(rules: PolicyRules, source: string, policy: Policy | undefined): Policy {
  if (!policy?.withRules) {
    throw new Error(
      `${source} has rules, and the run has no policy that can apply them, such as policy({ autonomy: 3 })`,
    );
  }
  const judged = policy.withRules(rules);
  return {
    async judge(calls, about) {
      const verdicts = await judged.judge(calls, about);
      return verdicts.map((verdict) =>
        verdict.type === 'allow' ? verdict : { ...verdict, reason: `${source}: ${verdict.reason ?? 'people decide'}` },
      );
    },
  };
}

function withRecorded(policy: Policy, rules: unknown): Policy {
  try {
    return policy.withRules!(rules);
  } catch (cause) {
    const missing = hasSeveral(rules) && !hasSeveral(policy.rules);
    const problem = missing
      ? 'the run was started with several policies, such as that of its calling run and its own, and not all of them are ' +
        'there now. Resume it with code that has them, such as an agent tool with its own policy'
      : `the run has recorded rules that the policy cannot apply: ${messageOf(cause)}`;
    throw new Error(problem, { cause });
  }
}

/** Whether they are the rules of several policies (`combinedPolicy`). */
function hasSeveral(rules: unknown): boolean {
  return Array.isArray((rules as { readonly all?: unknown } | null | undefined)?.all);
}

/** Texts of rules that cannot change, because they are compared in every turn. */
const texts = new WeakMap<object, string>();

function rulesText(rules: unknown): string {
  if (typeof rules !== 'object' || rules === null || !Object.isFrozen(rules)) return stableJson(rules);
  const known = texts.get(rules);
  if (known !== undefined) return known;
  const text = stableJson(rules);
  texts.set(rules, text);
  return text;
}

/**
 * What judges the calls of the run, for its child runs: also rules that only the run has recorded. If what the run needs is
 * missing, every call of a child run is denied too.
 */
export function inheritedPolicies(state: State, policy: Policy | undefined): readonly Policy[] {
  try {
    return appliedPolicies(state, policy);
  } catch (thrown) {
    const reason = `the policy of the calling run failed: ${messageOf(thrown)}`;
    return [{ judge: (calls) => calls.map(() => ({ type: 'deny', reason })) }];
  }
}

const ALLOW: Verdict = { type: 'allow' };

function recordedVerdict(
  { touches, sandbox, own }: Described,
  results: readonly (readonly Verdict[])[],
  index: number,
): RecordedVerdict | undefined {
  let verdict: Verdict | undefined = results.length === 0 ? ALLOW : results[0]![index];
  for (let other = 1; other < results.length; other++) verdict = stricterVerdict(verdict, results[other]![index]);
  const strictest = possibleVerdict(own ? stricterVerdict(verdict, own) : verdict);
  if (!strictest) return undefined;
  const declared = touches || sandbox ? { ...(touches && { touches }), ...(sandbox && { sandbox }) } : undefined;
  // Only what a tool declares is recorded as touches and promises. A policy can return anything.
  if (!Object.hasOwn(strictest, 'touches') && !Object.hasOwn(strictest, 'sandbox')) {
    return declared ? { ...strictest, ...declared } : strictest;
  }
  const { touches: _touches, sandbox: _sandbox, ...bare } = strictest as RecordedVerdict;
  return { ...bare, ...declared };
}

/* Calls for the policy */

const UNKNOWN: readonly Touch[] = [{ type: 'unknown' }];
const NO_PERMISSIONS: readonly string[] = [];

function describeCall(
  { id, name, effect, client, needsApproval, rejudged = 0 }: Call,
  tool: Tool | undefined,
  input: unknown,
): Described {
  const touches = tool?.touches && declaredTouches(tool.touches, input);
  const operation = operationOf(tool, input);
  const known = touches?.map(copyTouch);
  const ownVerdict = (): Verdict | undefined => {
    if (typeof operation === 'object') return operation;
    const needed = mustApprove(tool, needsApproval, input);
    if (typeof needed === 'object') return { ...NEEDS_APPROVAL, ttlMs: needed.ttlMs };
    return needed ? NEEDS_APPROVAL : undefined;
  };
  const sandbox = tool?.sandbox && declaredPromises(tool, input);
  return {
    call: {
      id,
      name,
      input: copyInput(input),
      effect,
      client,
      touches: known ?? (client ? undefined : UNKNOWN),
      permissions: tool?.permissions ?? NO_PERMISSIONS,
      operation: typeof operation === 'string' ? operation : undefined,
      ...(sandbox && { sandbox: [...sandbox] }),
    },
    touches,
    sandbox,
    own: rejudged > MOST_REJUDGED ? UNSTEADY : ownVerdict(),
  };
}

/** `unknown` if the tool fails to say what a call touches. */
export function declaredTouches(touches: NonNullable<Tool['touches']>, input: unknown): readonly Touch[] {
  try {
    const declared: unknown = touches(input);
    ignoreRejection(declared);
    const plain = Array.isArray(declared) ? declared.map(touchFrom) : [undefined];
    return plain.includes(undefined) ? UNKNOWN : (plain as readonly Touch[]);
  } catch {
    return UNKNOWN;
  }
}

/** Undefined without any. A run of its own has calls of its own, which are judged. */
function declaredPromises(tool: Tool, input: unknown): readonly string[] | undefined {
  const promises = promisesOf(tool, input).filter((one) => typeof one === 'string');
  return promises.length === 0 || tool.share !== undefined ? undefined : promises;
}

/** More often than this, promises change all the time. */
const MOST_REJUDGED = 10;

const UNSTEADY: Verdict = { type: 'deny', reason: 'its sandbox does not keep what it promises' };

function operationOf(tool: Tool | undefined, input: unknown): string | Verdict | undefined {
  if (typeof tool?.operation !== 'function') return tool?.operation;
  try {
    const operation: unknown = tool.operation(input);
    ignoreRejection(operation);
    if (typeof operation === 'string') return operation;
    throw new Error('it did not return a text');
  } catch (thrown) {
    return { type: 'deny', reason: `the "operation" of the tool failed: ${messageOf(thrown)}` };
  }
}

const NEEDS_APPROVAL: AskVerdict = { type: 'ask', rule: 'needsApproval' };

/** `recorded`: the tool had `needsApproval` when the call was planned. It stays so if the current code omits it. */
function mustApprove(tool: Tool | undefined, recorded: true | undefined, input: unknown): NeedsApproval {
  const needed = tool?.needsApproval;
  if (typeof needed !== 'function') return needed ?? recorded ?? false;
  try {
    const answer: unknown = needed(input);
    ignoreRejection(answer);
    const { ttlMs } = Object(answer) as { readonly ttlMs?: unknown };
    return typeof ttlMs === 'number' && ttlMs > 0 ? { ttlMs } : answer !== false;
  } catch {
    return true;
  }
}

/** A function that should be synchronous may return a promise. Its rejection must not end the process. */
export function ignoreRejection(value: unknown): void {
  if (isThenable(value)) void Promise.resolve(value).catch(ignore);
}

function copyTouch(touch: Touch): Touch {
  return 'on' in touch && touch.on ? { ...touch, on: { ...touch.on } } : { ...touch };
}

/** A copy, so that the policy cannot change what the tool gets. */
function copyInput(input: unknown): unknown {
  try {
    return structuredClone(input);
  } catch {
    return input; // a value made by a schema that cannot be cloned
  }
}

export function isThenable(value: unknown): value is PromiseLike<unknown> {
  return typeof (value as Partial<PromiseLike<unknown>> | undefined | null)?.then === 'function';
}

/* Rules that change */

/** The calls of a turn that have not started and those that wait for an approval. New rules judge them again. */
function unstartedSlots({ phase }: State): readonly UnstartedSlot[] {
  return phase.type === 'tools' ? phase.slots.filter(isUnstarted) : [];
}

/** The event that a run is resumed with another policy than it has recorded; undefined if it is the same. */
export async function policyChange(judging: Judging, at: number): Promise<Event | undefined> {
  const { state, options } = judging;
  if (!options.policy) return undefined;
  const rules = recordedRules(options.policy);
  const limits = newLimits(state, options.policy);
  if (isJudged(state) && isLatest(state, rules) && !limits) return undefined;
  const change = {
    type: 'policy-changed',
    at,
    ...(rules !== undefined && { rules }),
    ...(limits && { limits }),
  } as const;
  const slots = unstartedSlots(state);
  if (slots.length === 0) return change;
  const calls = slots.map(({ call }) => call);
  const verdicts = await judgedUnlessAborted(calls, judging);
  const byEffect = slots.map((slot, index) => [toolEffectId(slot.call), rejudged(slot, verdicts[index])] as const);
  return { ...change, verdicts: Object.fromEntries(byEffect) };
}

/** A run that is cancelled or detached does not wait for its policy. */
function judgedUnlessAborted(calls: readonly Call[], judging: Judging): Promise<Verdicts> {
  return new Promise((resolve, reject) => {
    const onAbort = (): void => resolve([]);
    judging.signal.addEventListener('abort', onAbort, { once: true });
    if (judging.signal.aborted) onAbort();
    else judgeCalls(calls, judging, { settle: resolve, fail: reject });
  });
}

function isLatest({ policies }: State, rules: unknown): boolean {
  return rules === undefined || (policies !== undefined && stableJson(policies.at(-1)) === stableJson(rules));
}

/**
 * The limits of a policy that are smaller than those of the run; undefined without any. What the run is narrowed to does not
 * count, because a narrowing can be lifted and a limit cannot.
 */
function newLimits(state: State, policy: Policy): PolicyLimits | undefined {
  const { turns = Infinity, calls = Infinity } =
    policy.limits?.(undefined, { program: state.program !== undefined }) ?? {};
  const fewerTurns = turns < turnsLimit(state);
  const fewerCalls = calls < (callsLimit(state) ?? Infinity);
  if (!fewerTurns && !fewerCalls) return undefined;
  return { ...(fewerTurns && { turns }), ...(fewerCalls && { calls }) };
}

const NO_VERDICT: Verdict = { type: 'deny', reason: 'the policy returned no verdict for it.' };

/** Denies an open approval that nobody could give under both rules. */
function rejudged(slot: UnstartedSlot, verdict: RecordedVerdict | undefined): RecordedVerdict {
  if (slot.type !== 'asking' || verdict?.type !== 'ask') return verdict ?? NO_VERDICT;
  const { required, approvers } = slot;
  const recorded: AskVerdict = { type: 'ask', ...(required && { required }), ...(approvers && { approvers }) };
  const both = possibleVerdict(stricterVerdict(verdict, recorded))!;
  return both.type === 'deny' ? both : verdict;
}

/* Promises of sandboxes */

/** The events that open approvals are judged again, because promises that they count on do not hold here. */
export async function rejudgedAsks(judging: Judging): Promise<readonly Event[]> {
  const { state, executor, checked } = judging;
  const events: Event[] = [];
  for (const slot of unstartedSlots(state)) {
    const { call } = slot;
    const tool = executor(call);
    if (slot.type !== 'asking' || !call.sandbox || !tool) continue;
    if (arePromised(call.sandbox, promisesOf(tool, (await checked(call)).input))) continue;
    const [verdict] = await judgedUnlessAborted([call], judging);
    events.push({ type: 'call-rejudged', at: state.at, effect: slotEffect(slot)!.id, ...(verdict && { verdict }) });
  }
  return events;
}
