import { slotFor, toolEffectId } from '../machine/effects.ts';
import type { Examined, Filtered, SettledResult } from '../machine/events.ts';
import { causes, withExposure, type Exposure } from '../machine/exposure.ts';
import { narrowingSource, type Narrowings } from '../machine/narrowing.ts';
import type { Call, State } from '../machine/state.ts';
import { textOf, type ErrorFacts, type ResultBlock } from '../messages.ts';
import type { Clock } from '../platform.ts';
import type { Principal, Touch } from '../policy/port.ts';
import { settledWithin, type Execution } from '../tools/execute.ts';
import { blocksOf } from '../tools/result.ts';
import { promisesOf, type Tool } from '../tools/tool.ts';
import type { ClientResult } from './answer.ts';
import { executorOf } from './call-model.ts';
import { declaredTouches, ignoreRejection, isThenable, type Judging } from './judge.ts';
import type { FilteredResult, ResultFilter, RunEnvironment } from './options.ts';
import type { RunContext } from './perform.ts';

/*
 * What happens between the result of a call and its record: what the call has exposed the run to, then the result filters. This
 * is loaded with the first result that needs it.
 *
 * 1. Nothing of a result is recorded, stored or sent before every filter has seen it, its error facts included.
 * 2. A filter that throws, returns something else than an answer, or does not answer in time refuses the result. What it threw
 *    may quote the result, so it is not shown.
 * 3. A declaration adds to what a call exposes, and never takes anything away. A function that fails exposes everything.
 */

/** What results are examined with. */
export interface Examining {
  readonly runId: string;
  readonly options: Pick<RunEnvironment, 'resultFilters' | 'exposes' | 'policy' | 'context'>;
  readonly principal: Principal | undefined;
  readonly clock: Clock;
  /** How long a filter may take. */
  readonly timeoutMs: number;
  readonly signal: AbortSignal;
}

/** The call that a result is of. */
export interface CallSource {
  readonly call: Call;
  /** Undefined: the call was not executed, so that it exposes nothing, or this process does not know the tool. */
  readonly tool: Tool | undefined;
  readonly input: unknown;
  /** What narrowed the run when the call was made. */
  readonly narrowed: Narrowings;
}

/** A result of a tool, or one from outside. */
type Examinable = ErrorFacts &
  Examined &
  Pick<Extract<SettledResult, { type: 'result' }>, 'content' | 'isError' | 'memory' | 'handoff'>;

/** The result as it is recorded. Never rejects. Not a promise without filters, unless a function `exposes` returns one. */
export function examineResult<R extends Examinable>(run: Examining, source: CallSource, result: R): R | Promise<R> {
  const effect = toolEffectId(source.call);
  // Those of a child run: the call has brought them.
  const inside = result.exposes && causes(result.exposes, (cause) => ({ ...cause, effect }));
  const exposed = (seen: Exposure | undefined): R => {
    const exposes = withExposure(inside, seen);
    return exposes ? { ...result, exposes } : result;
  };
  const seen = exposureOf(run, source);
  const { resultFilters = [] } = run.options;
  if (resultFilters.length > 0) return (async () => filterResult(run, source, exposed(await seen)))();
  return seen instanceof Promise ? seen.then(exposed) : exposed(seen);
}

/** Examines the result of a call of a run in progress. `executed`: the tool, if it was called. */
export function examineCall(
  context: RunContext,
  call: Call,
  executed: Pick<Execution, 'tool' | 'input'> | undefined,
  result: Extract<SettledResult, { type: 'result' }>,
  record: (examined: SettledResult) => void,
): void {
  const { narrowed } = context.state();
  const source = { call, tool: executed?.tool, input: executed?.input, narrowed };
  const examined = examineResult(examiningOf(context), source, result);
  if (examined instanceof Promise) void examined.then(record).catch(context.fail);
  else record(examined);
}

function examiningOf({ runId, options, opening, clock, controller: { signal } }: RunContext): Examining {
  const { principal, rules } = opening;
  return { runId, options, principal, clock, timeoutMs: rules.toolTimeoutMs, signal };
}

/** Examines a result from outside, for a run in progress. `state`: as it was when the result fitted it. */
export function examineGiven(
  context: RunContext,
  checkedCall: (context: RunContext, call: Call) => ReturnType<Judging['checked']>,
  { state, event }: { readonly state: State; readonly event: ClientResult },
): Promise<ClientResult> {
  const executor = (call: Call): Tool | undefined => executorOf(context, call.name, call.turn);
  const checked = (call: Call): ReturnType<Judging['checked']> => checkedCall(context, call);
  return examineAnswer(examiningOf(context), { state, executor, checked }, event);
}

/** Examines a result from outside. */
export async function examineAnswer(
  run: Examining,
  { state, executor, checked }: Pick<Judging, 'state' | 'executor' | 'checked'>,
  event: ClientResult,
): Promise<ClientResult> {
  const { call } = slotFor(state, event.effect)!;
  const { input } = await checked(call);
  return examineResult(run, { call, tool: executor(call), input, narrowed: state.narrowed }, event);
}

/* What a call exposes */

type Kinds = readonly (keyof Exposure)[];

interface Seen {
  readonly kinds: Kinds;
  readonly what: string;
}

const KINDS: Kinds = ['outside', 'private'];
const NO_TOUCHES: readonly Touch[] = [];
const OUTSIDE: Kinds = ['outside'];

/** What a tool that was called has seen: what it declares, and what it touches. */
function exposureOf(run: Examining, source: CallSource): Exposure | undefined | Promise<Exposure | undefined> {
  const { call, tool, input, narrowed } = source;
  if (!tool) return undefined;
  const touches = tool.touches ? declaredTouches(tool.touches, input) : NO_TOUCHES;
  const { exposes } = tool;
  const declared = kindsFrom(() => (typeof exposes === 'function' ? exposes(input) : exposes));
  const [first] = touches;
  const about = { sandbox: promisesOf(tool, input), ...(narrowed && { narrowedBy: narrowed.map(narrowingSource) }) };
  const seen: (Seen | Promise<Seen>)[] = [{ kinds: declared, what: first ? touchWords(first) : 'its result' }];
  for (const touch of touches) {
    const what = touchWords(touch);
    if (touch.type === 'url' || touch.type === 'unknown') seen.push({ kinds: OUTSIDE, what });
    for (const says of [run.options.exposes, run.options.policy?.exposes]) {
      const told = says && toldKinds(run, () => says(touch, about));
      if (told) seen.push(told instanceof Promise ? told.then((kinds) => ({ kinds, what })) : { kinds: told, what });
    }
  }
  const later = seen.some((one) => one instanceof Promise);
  const all = (found: readonly Seen[]): Exposure | undefined =>
    found.reduce<Exposure | undefined>((sum, one) => withExposure(sum, causesOf(call, one)), undefined);
  return later ? Promise.all(seen).then(all) : all(seen as readonly Seen[]);
}

function toldKinds({ clock, timeoutMs }: Examining, says: () => unknown): Kinds | Promise<Kinds> {
  try {
    const told = says();
    if (!isThenable(told)) return kindsFrom(() => told);
    const kinds = Promise.resolve(told).then(
      (value) => kindsFrom(() => value),
      () => KINDS,
    );
    return settledWithin(kinds, timeoutMs, clock, () => KINDS);
  } catch {
    return KINDS;
  }
}

/** Everything, if it throws or returns something else. */
function kindsFrom(told: () => unknown): Kinds {
  try {
    const value = told() ?? [];
    ignoreRejection(value);
    const kinds = [value].flat() as unknown as Kinds;
    return kinds.every((kind) => KINDS.includes(kind)) ? kinds : KINDS;
  } catch {
    return KINDS;
  }
}

function causesOf(call: Call, { kinds, what }: Seen): Exposure | undefined {
  if (kinds.length === 0) return undefined;
  const cause = { effect: toolEffectId(call), tool: call.name, what };
  return Object.fromEntries(kinds.map((kind) => [kind, cause]));
}

const MAX_WORDS = 200;

function touchWords({ type, ...touched }: Touch): string {
  const [value = ''] = Object.values(touched) as readonly unknown[];
  return shortened(`${type} ${String(value)}`.trim());
}

function shortened(text: string): string {
  return text.slice(0, MAX_WORDS).toWellFormed();
}

/* Filters */

/** What a filter has decided. */
type Decision = Seen &
  (
    | { readonly type: 'changed'; readonly content: readonly ResultBlock[]; readonly note?: string }
    | { readonly type: 'refused'; readonly reason: string; readonly note?: string }
    | { readonly type: 'marked'; readonly note?: string }
  );

type Part = Pick<FilteredResult, 'content' | 'part'>;

async function filterResult<R extends Examinable>(run: Examining, source: CallSource, result: R): Promise<R> {
  let current = result;
  for (const filter of run.options.resultFilters!) {
    for (const part of partsOf(current)) {
      const decision = await decisionOf(run, source, filter, { ...part, isError: current.isError });
      if (decision) current = decidedResult(current, source.call, { filter, part, decision });
      if (decision?.type === 'refused') return current;
    }
  }
  return current;
}

/** The result after the decision of a filter, with what it did. */
function decidedResult<R extends Examinable>(
  result: R,
  call: Call,
  { filter, part, decision }: { readonly filter: ResultFilter; readonly part: Part; readonly decision: Decision },
): R {
  const { type: action, note } = decision;
  const done: Filtered = { filter: filter.name, action, ...(note !== undefined && { note }) };
  const exposes = withExposure(result.exposes, causesOf(call, decision));
  const next = { ...result, filtered: [...(result.filtered ?? []), done], ...(exposes && { exposes }) };
  if (decision.type === 'refused') return refusedResult(next, call, decision.reason);
  return decision.type === 'changed' ? withPart(next, { ...part, content: decision.content }) : next;
}

/** Each part of a result with text: a filter gets them one by one. */
function partsOf({ content, stderr }: Examinable): readonly Part[] {
  const whole: Part = { part: 'content', content };
  return stderr === undefined ? [whole] : [whole, { part: 'stderr', content: [{ type: 'text', text: stderr }] }];
}

function withPart<R extends Examinable>(result: R, { part, content }: Part): R {
  return part === 'content' ? { ...result, content } : { ...result, stderr: textOf(content) };
}

/** The call counts as failed: it changes no memory and hands nothing over. It may have narrowed the run, and used something. */
function refusedResult<R extends Examinable>(result: R, { name }: Call, reason: string): R {
  const { memory: _, handoff: _h, stderr: _s, exitCode: _e, httpStatus: _t, protocolCode: _p, ...kept } = result;
  const text = `The tool "${name}" was called, and its result is withheld: ${reason}`;
  return { ...kept, content: [{ type: 'error', text }], isError: true, errorType: 'denied' } as unknown as R;
}

/** Never rejects. A run that is stopped does not wait for its filters. */
async function decisionOf(
  run: Examining,
  { call }: CallSource,
  { name, filter }: ResultFilter,
  { isError, ...part }: Part & Pick<FilteredResult, 'isError'>,
): Promise<Decision | undefined> {
  const { runId, options, principal, clock, timeoutMs, signal } = run;
  const expired = new AbortController();
  const what = `by the filter "${name}"`;
  const failed = (why: string): Decision => {
    expired.abort();
    return { type: 'refused', reason: `the filter "${name}" ${why}.`, note: `it ${why}`, kinds: [], what };
  };
  const stopped = Promise.withResolvers<Decision>();
  const onAbort = (): void => stopped.resolve(failed('was stopped'));
  signal.addEventListener('abort', onAbort, { once: true });
  if (signal.aborted) onAbort();
  const asked = (async () => {
    const answer: unknown = await filter({
      ...part,
      content: structuredClone(part.content),
      isError,
      call: { id: call.id, name: call.name, arguments: call.arguments },
      runId,
      effect: toolEffectId(call),
      context: options.context,
      principal,
      signal: AbortSignal.any([signal, expired.signal]),
    });
    return decisionFrom(answer, isError, what) ?? failed('returned something else than an answer');
  })().catch(() => failed('failed'));
  const late = (): Decision => failed(`timed out after ${timeoutMs} ms`);
  const decision = await Promise.race([settledWithin(asked, timeoutMs, clock, late), stopped.promise]);
  signal.removeEventListener('abort', onAbort);
  return decision === 'unchanged' ? undefined : decision;
}

/** Undefined if it is not an answer. */
function decisionFrom(answer: unknown, isError: boolean, what: string): Decision | 'unchanged' | undefined {
  if (answer === undefined) return 'unchanged';
  const given = answer as Readonly<Record<string, unknown>>;
  const { type, content, reason } = given;
  const note = typeof given['note'] === 'string' && { note: shortened(given['note']) };
  const seen = { kinds: kindsFrom(() => given['exposes']), what, ...note };
  if (type === 'marked') return { type, ...seen };
  if (type === 'refused') return { type, reason: shortened(String(reason)), ...seen };
  if (type !== 'changed') return undefined;
  const blocks =
    isError && typeof content === 'string' ? blocksOf([{ type: 'error', text: content }]) : blocksOf(content);
  return blocks && { type, content: blocks, ...seen };
}
