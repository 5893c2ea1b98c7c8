import { createHash } from 'node:crypto';
import {
  stableJson,
  type Ask,
  type Call,
  type Effect,
  type Event,
  type Handoff,
  type Narrowing,
  type OpenResource,
  type Outcome,
  type Parking,
  type Question,
  type RecordedVerdict,
  type Rules,
  type Touch,
} from '@treadle/core';

/**
 * What can be derived about a run from the events that were applied and the effects that were issued. The properties
 * compare with this, and never rely on the state itself.
 */
export interface Observed {
  readonly phase: 'new' | 'live' | 'ended';
  /** Issued and not settled, by id. */
  readonly open: ReadonlyMap<string, Open>;
  /** Calls whose child run has started, by the id of their effect. */
  readonly begun: ReadonlySet<string>;
  /** What calls without a result were last parked with, by the id of the effect that runs them. */
  readonly parkings: ReadonlyMap<string, Parking>;
  /** What calls have asked, by the id of their effect. */
  readonly asked: ReadonlyMap<string, readonly Asked[]>;
  /** The processes of the run that have not ended, by name, the newest last. */
  readonly resources: ReadonlyMap<string, OpenResource>;
  /** The time of the last event, and the active time until then. */
  readonly at: number;
  readonly activeMs: number;
  readonly rules: Rules | undefined;
  /** What has narrowed the run. */
  readonly narrowed: readonly Narrowing[];
  /** The model call whose failure ended the run. If it is marked as lost, it is repeated, and the run continues. */
  readonly failed: string | undefined;
  /** When the failed model call may be repeated, because the model asked to wait. */
  readonly retryAt: number | undefined;
  /** How often the model call was repeated because the model asked to wait. */
  readonly retries: number;
  /** The model call that is repeated if the compaction succeeds, and has failed otherwise. */
  readonly refused: string | undefined;
  /** The model call or summary that exceeds a budget, and the question about it. */
  readonly raising: Raising | undefined;
}

export interface Raising {
  readonly effect: Effect;
  readonly question: Question;
  readonly expiresAt: number;
}

export interface Open {
  readonly effect: Effect;
  /** Where the call is parked, and what it waits for there. */
  readonly parked: Parking | undefined;
}

/** A question of a call. An answer that came too late does not count. */
export interface Asked {
  readonly key: string;
  readonly question: Question;
  readonly expiresAt?: number;
  readonly answer?: { readonly value: unknown; readonly by?: string };
  readonly expired?: true;
}

export const NOTHING_OBSERVED: Observed = {
  phase: 'new',
  open: new Map(),
  begun: new Set(),
  parkings: new Map(),
  asked: new Map(),
  resources: new Map(),
  at: 0,
  activeMs: 0,
  rules: undefined,
  narrowed: [],
  failed: undefined,
  retryAt: undefined,
  retries: 0,
  refused: undefined,
  raising: undefined,
};

/** Whether an event must be applied. */
export function shouldApply(observed: Observed, event: Event): boolean {
  const live = observed.phase === 'live';
  const open = 'effect' in event && event.effect !== undefined ? observed.open.get(event.effect) : undefined;
  const kind = open?.effect.type;
  const asks = open !== undefined && openQuestions(observed, open.effect.id).length > 0;
  switch (event.type) {
    case 'run-started':
      return observed.phase === 'new';
    case 'input-added':
      return live && event.messages.length > 0;
    case 'tools-changed':
    case 'policy-changed':
    case 'program-changed':
      return live || observed.failed !== undefined;
    case 'resource-opened':
      return live;
    case 'resource-closed':
      return (live || observed.failed !== undefined) && observed.resources.has(event.name);
    case 'narrowing-lifted':
      return (
        live &&
        observed.narrowed.some(({ source, fixed }) => !fixed && (event.source === undefined || event.source === source))
      );
    case 'run-forked':
    case 'cancel-requested':
      return live;
    case 'turn-prepared':
      return kind === 'prepare-turn';
    case 'history-compacted':
      return kind === 'compact-history';
    case 'output-checked':
      return kind === 'validate-output';
    case 'model-replied':
    case 'model-failed':
      return kind === 'call-model';
    case 'guardrails-checked':
      return kind === 'check-guardrails';
    case 'calls-judged':
      return kind === 'judge-calls';
    case 'call-rejudged':
      return kind === 'ask-approval' || (kind === 'call-tool' && !open!.parked && !asks);
    case 'tool-settled':
      return kind === 'verify-tool' || (kind === 'call-tool' && event.result.type === 'result');
    case 'child-started':
      return kind === 'call-tool' && !open!.parked && !asks && !observed.begun.has(event.effect);
    case 'tool-parked':
      return kind === 'verify-tool' || (kind === 'call-tool' && !open!.parked && !asks);
    case 'questions-asked':
      return kind === 'call-tool' && !open!.parked && event.questions.length > 0;
    case 'question-answered':
      if (observed.raising) return event.effect === observed.raising.effect.id;
      return kind === 'call-tool' && !open!.parked && questionAt(observed, event) !== undefined;
    case 'client-result-given':
      return open !== undefined && isAnswerable(open) && event.at < (expiryOf(open) ?? Infinity);
    case 'approval-given':
      return open?.effect.type === 'ask-approval' && mayDecide(open.effect, event);
    case 'effect-lost':
      if (event.cause === 'parked') return open?.parked !== undefined && isVerified(open.effect);
      if (observed.failed !== undefined) return event.effect === observed.failed;
      return kind !== undefined && kind !== 'ask-approval' && kind !== 'await-client' && !asks;
    case 'budget-escalated': {
      if (kind === 'call-model' || kind === 'compact-history') return Array.isArray(event.question?.choices);
      const { begun, parkings, asked } = observed;
      const isNew = !begun.has(event.effect) && !parkings.has(event.effect) && !asked.get(event.effect)?.length;
      return kind === 'call-tool' && !open!.parked && !asks && isNew;
    }
    case 'budget-refused':
      return kind === 'call-model' || kind === 'compact-history' || (kind === 'call-tool' && !open!.parked && !asks);
    case 'deadline-passed':
      if (observed.raising && event.effect !== undefined) {
        return event.effect === observed.raising.effect.id && event.at >= observed.raising.expiresAt;
      }
      if (event.question !== undefined || (kind === 'call-tool' && !open!.parked)) {
        return !open?.parked && event.at >= (questionAt(observed, event)?.expiresAt ?? Infinity);
      }
      if (event.effect !== undefined) return open !== undefined && event.at >= (expiryOf(open) ?? Infinity);
      return live && activeMsAt(observed, event) >= (observed.rules!.limits.durationMs ?? Infinity);
    default:
      return event satisfies never;
  }
}

/** The open questions of a call, and their positions. */
export function openQuestions({ asked }: Observed, effect: string): readonly (Asked & { readonly index: number })[] {
  const all = (asked.get(effect) ?? []).map((one, index) => ({ ...one, index }));
  return all.filter(({ answer, expired }) => !answer && !expired);
}

type QuestionSettled = Extract<Event, { type: 'question-answered' | 'deadline-passed' }>;

function questionAt(observed: Observed, { effect = '', question }: QuestionSettled): Asked | undefined {
  return openQuestions(observed, effect).find(({ index }) => index === question);
}

/** The questions of all calls after an event. */
function askedAfter({ asked, raising }: Observed, event: Event): Observed['asked'] {
  if (raising) return asked;
  if (event.type === 'questions-asked') {
    return new Map(asked).set(event.effect, [...(asked.get(event.effect) ?? []), ...event.questions]);
  }
  if (event.type !== 'question-answered' && (event.type !== 'deadline-passed' || event.question === undefined)) {
    return asked;
  }
  const { effect = '', question } = event;
  const now = (asked.get(effect) ?? []).map((one, index): Asked => {
    if (index !== question) return one;
    if (event.type === 'deadline-passed' || event.at >= (one.expiresAt ?? Infinity)) return { ...one, expired: true };
    return { ...one, answer: { value: event.value, ...(event.by !== undefined && { by: event.by }) } };
  });
  return new Map(asked).set(effect, now);
}

function resourcesAfter({ resources }: Observed, event: Event): Observed['resources'] {
  if (event.type === 'run-started') return new Map(event.resources?.map((one) => [one.name, one]));
  if (event.type !== 'resource-opened' && event.type !== 'resource-closed') return resources;
  const now = new Map(resources);
  now.delete(event.name);
  if (event.type === 'resource-closed') return now;
  const { runId, name, process } = event;
  return now.set(name, { runId, name, process });
}

/** What is observed after an event was applied. */
export function observedAfter(
  observed: Observed,
  event: Event,
  effects: readonly Effect[],
  outcome: Outcome | undefined,
): Observed {
  const restarted = (event.type === 'effect-lost' && event.cause === 'restart') || event.type === 'policy-changed';
  const began = event.type === 'run-started';
  const open = new Map(observed.open);
  const begun = new Set(observed.begun);
  const parkings = new Map(observed.parkings);
  const asked = askedAfter(observed, event);
  if ('effect' in event && event.effect !== undefined) {
    const outstanding = open.get(event.effect);
    if (event.type === 'child-started') begun.add(event.effect);
    else if (event.type === 'call-rejudged') {
      if (outstanding?.effect.type !== 'ask-approval') open.delete(event.effect);
      else rejudgeAsk(open, judgedAgain(outstanding.effect), event.verdict, event.at);
    } else if (asked !== observed.asked) {
      if (openQuestions({ ...observed, asked }, event.effect).length === 0) open.delete(event.effect);
    } else {
      const call = toolId(event.effect);
      const parked = parkingAfter(observed, event);
      open.delete(event.effect);
      if (!parked || parked === 'expired') {
        const keeps = event.type === 'effect-lost' && (event.cause === 'parked' || mayRepeat(outstanding?.effect));
        if (!keeps && !(event.type === 'effect-lost' && outstanding?.effect.type === 'verify-tool')) {
          parkings.delete(call);
        }
      } else if (outstanding && 'call' in outstanding.effect) {
        parkings.set(call, parked);
        open.set(call, { effect: { type: 'call-tool', id: call, call: outstanding.effect.call }, parked });
      }
      const more = event.type === 'approval-given' && outstanding && askAfterApproval(outstanding.effect, event);
      if (more) open.set(event.effect, { effect: more, parked: undefined });
    }
  }
  if (event.type === 'policy-changed') {
    for (const [id, { effect }] of open) {
      if (effect.type !== 'ask-approval') continue;
      rejudgeAsk(open, effect, event.verdicts?.[id.replace('.approval.', '.tool.')], event.at);
    }
  }
  if (event.type === 'effect-lost') {
    const lost = observed.open.get(event.effect);
    // Only a call that may be repeated resumes what it has started; a parked one has started something.
    if (!mayRepeat(lost?.effect)) begun.delete(event.effect);
    else if (lost?.parked) begun.add(event.effect);
  }
  for (const effect of effects) open.set(effect.id, { effect, parked: undefined });
  if (outcome) open.clear();
  return {
    phase: outcome ? 'ended' : 'live',
    open,
    begun,
    parkings,
    asked,
    resources: resourcesAfter(observed, event),
    at: Math.max(observed.at, event.at),
    activeMs: restarted || began ? observed.activeMs : activeMsAt(observed, event),
    rules: began ? event.rules : observed.rules,
    narrowed: narrowedAfter(observed.narrowed, event),
    failed: outcome?.type === 'failed' ? (refusedAfter(observed, event) ?? failedStill(observed, event)) : undefined,
    retryAt: outcome?.type === 'failed' ? retryAfter(observed, event) : undefined,
    retries: retriesAfter(observed, event, effects),
    refused: outcome || event.type === 'history-compacted' ? undefined : refusedAfter(observed, event),
    raising: outcome ? undefined : raisingAfter(observed, event),
  };
}

function judgedAgain(asking: AskEffect): AskEffect {
  const { call } = asking;
  return { ...asking, call: { ...call, rejudged: (call.rejudged ?? 0) + 1 } };
}

/** Changes an open approval after another verdict on its call. */
function rejudgeAsk(
  open: Map<string, Open>,
  asking: AskEffect,
  verdict: RecordedVerdict | undefined,
  at: number,
): void {
  const { call, ...ask } = asking;
  const { sandbox: had, ...known } = call;
  const stricter = askUnderRules({ ...ask, ...(had && { sandbox: had }) }, call, verdict, at);
  if (!stricter) return void open.delete(ask.id);
  const { sandbox, ...effect } = stricter;
  open.set(ask.id, { effect: { ...effect, call: { ...known, ...(sandbox && { sandbox }) } }, parked: undefined });
}

function raisingAfter({ raising, open }: Observed, event: Event): Raising | undefined {
  if (raising) return 'effect' in event && event.effect !== undefined ? undefined : raising;
  if (event.type !== 'budget-escalated' || !event.question) return undefined;
  const { effect } = open.get(event.effect)!;
  if (effect.type === 'call-tool') return undefined;
  return { effect, question: event.question, expiresAt: event.at + (event.ttlMs ?? DAY) };
}

/** Whether people have allowed that the model is called although that exceeds a budget. */
export function isRaised({ raising }: Observed, event: Event): boolean {
  if (!raising || event.type !== 'question-answered' || event.at >= raising.expiresAt) return false;
  return event.value === raising.question.choices?.[0];
}

/** How an event narrows the run. */
export function narrowIn(event: Event): readonly Narrowing[] {
  if (event.type === 'run-started') return [event.narrow ?? []].flat();
  return event.type === 'tool-settled' && event.result.type === 'result' ? [event.result.narrow ?? []].flat() : [];
}

/** What narrows the run after an event: a source is lifted alone, or all of them. */
export function narrowedAfter(narrowed: readonly Narrowing[], event: Event): readonly Narrowing[] {
  if (event.type !== 'narrowing-lifted') return [...narrowed, ...narrowIn(event)];
  return narrowed.filter(({ source, fixed }) => fixed || (event.source !== undefined && source !== event.source));
}

/** The agent that an event hands the run over to, and the index of the call. */
export function handoffIn(event: Event): (Handoff & { readonly index: number }) | undefined {
  if (event.type !== 'tool-settled' || event.result.type !== 'result' || !event.result.handoff) return undefined;
  return { ...event.result.handoff, index: Number(event.effect.split('.').at(-1)) };
}

/** The id of the effect that runs the call of an effect. */
function toolId(effect: string): string {
  return effect.replace('.verify.', '.tool.');
}

/**
 * What a call is parked with after an event; `expired` if its deadline has passed by then, and undefined if the event does
 * not park it. A verification without a result leaves a parked call parked.
 */
export function parkingAfter({ parkings }: Observed, event: Event): Parking | 'expired' | undefined {
  if (event.type !== 'tool-parked' && (event.type !== 'tool-settled' || event.result.type === 'result'))
    return undefined;
  const before = parkings.get(toolId(event.effect));
  const { at } = event;
  let parking: Parking | undefined;
  if (event.type === 'tool-parked') {
    const { on, waiting = [], expiresAt = before?.expiresAt, wakeAt } = event;
    parking = { on, waiting, ...(expiresAt !== undefined && { expiresAt }), ...(wakeAt !== undefined && { wakeAt }) };
  } else if (before) {
    // A call that wanted to be asked again is asked later.
    const isPast = before.wakeAt !== undefined && before.wakeAt <= at;
    parking = isPast ? { ...before, wakeAt: at + 300_000 } : before;
  }
  return parking?.expiresAt !== undefined && at >= parking.expiresAt ? 'expired' : parking;
}

/** When something that the run waits for fails. */
export function expiryOf({ effect, parked }: Open): number | undefined {
  if (parked) return parked.expiresAt;
  return effect.type === 'ask-approval' || effect.type === 'await-client' ? effect.expiresAt : undefined;
}

/** A result from outside is for a call of a client tool, or for a parked call that is not a child run. */
export function isAnswerable({ effect, parked }: Open): boolean {
  if (effect.type === 'await-client') return true;
  return effect.type === 'call-tool' && parked?.waiting.length === 0 && effect.call.limits === undefined;
}

/** A parked call that must not run again, and can be verified. */
export function isVerified(effect: Effect): boolean {
  return 'call' in effect && effect.call.effect === 'once' && effect.call.verifiable;
}

function mayRepeat(effect: Effect | undefined): boolean {
  return effect?.type === 'call-tool' && (effect.call.effect === 'pure' || effect.call.effect === 'idempotent');
}

/** A change of tools, of the policy or of the program, and a process that has ended, do not repeat the failed call. */
function failedStill({ failed }: Observed, event: Event): string | undefined {
  return changesNothing(event) ? failed : undefined;
}

function changesNothing({ type }: Event): boolean {
  return ['tools-changed', 'policy-changed', 'program-changed', 'resource-closed'].includes(type);
}

/** Only repeating a call whose time was given counts, and only in a row: another model call starts from 0. */
function retriesAfter(
  { retries, retryAt, failed, open, raising }: Observed,
  event: Event,
  effects: readonly Effect[],
): number {
  if (event.type === 'effect-lost' && event.effect === failed) return retryAt === undefined ? 0 : retries + 1;
  const other = effects.some(({ type, id }) => type === 'call-model' && !open.has(id) && raising?.effect.id !== id);
  return other || event.type === 'model-replied' ? 0 : retries;
}

function retryAfter({ rules, retryAt, retries }: Observed, event: Event): number | undefined {
  if (changesNothing(event)) return retryAt;
  if (event.type !== 'model-failed' || !rules?.retryLater || !event.error.retryable) return undefined;
  if (event.error.endsWith !== undefined || retries >= rules.retryLater) return undefined;
  return event.error.retryAfterMs === undefined ? undefined : event.at + event.error.retryAfterMs;
}

type AskEffect = Extract<Effect, { type: 'ask-approval' }>;
type Decision = Extract<Event, { type: 'approval-given' }>;

/** Whether this answer counts: for this call, by somebody who may answer and, to approve, has not done so yet. */
function mayDecide(ask: Ask, { digest, approved, by }: Decision): boolean {
  const entitled = ask.approvers === undefined || ask.approvers.some((one) => one === by);
  const several = approved && ask.required !== undefined && ask.required > 1;
  const counts = !several || (by !== undefined && by !== '' && !ask.approvedBy?.includes(by));
  return digest === ask.digest && entitled && counts;
}

/** The ask that is still open after an approval, because more people have to approve. */
function askAfterApproval(ask: Effect, { at, approved, by, forRun }: Decision): AskEffect | undefined {
  if (ask.type !== 'ask-approval' || !approved || at >= ask.expiresAt) return undefined;
  const approvedBy = [...(ask.approvedBy ?? []), ...(by === undefined ? [] : [by])];
  if (approvedBy.length >= (ask.required ?? 1) || ask.required === undefined) return undefined;
  return { ...ask, approvedBy, ...((!forRun || ask.onlyThisCall) && { onlyThisCall: true }) };
}

/** Where a call runs: the places that it touches, and the promises of its sandbox; and what its budgets lack. */
interface Where extends Pick<Ask, 'raises' | 'reason'> {
  readonly touches?: readonly Touch[] | undefined;
  readonly sandbox?: readonly string[] | undefined;
}

function whereOf({ touches = [], sandbox }: Where): string {
  const places = touches.flatMap((touch) => ('on' in touch && touch.on ? touch.on : []));
  return sandbox || places.length > 0 ? stableJson({ places, sandbox }) : '';
}

/** What an approval of a call is bound to. */
export function digestOf({ name, arguments: text }: Pick<Call, 'name' | 'arguments'>, where: Where): string {
  const bound = [`${name}\n${text}`, whereOf(where)].filter((one) => one !== '');
  const digest = hashOf(bound.join('\n\n'));
  return where.raises ? hashOf(`${digest}\n${where.reason}`) : digest;
}

function hashOf(text: string): string {
  return createHash('sha256').update(text).digest('hex');
}

/**
 * The ask after another verdict: what both require. Undefined if the call is denied. If it would run elsewhere, the approvals
 * so far do not count.
 */
export function askUnderRules<A extends Ask & Where>(
  asked: A,
  call: Pick<Call, 'name' | 'arguments'>,
  verdict: RecordedVerdict | undefined,
  at: number,
): A | undefined {
  if (verdict?.type !== 'allow' && verdict?.type !== 'ask') return undefined;
  const { approvedBy: _approvedBy, touches: _touches, sandbox: _sandbox, ...bare } = asked;
  const { touches: now, sandbox } = verdict;
  const elsewhere = {
    ...bare,
    ...(now && { touches: now }),
    ...(sandbox && { sandbox }),
    digest: digestOf(call, { ...asked, touches: now, sandbox }),
  };
  const ask = whereOf(verdict) === whereOf(asked) ? asked : (elsewhere as unknown as A);
  if (verdict.type === 'allow') return ask;
  const lists = [ask.approvers, verdict.approvers].filter((list) => list !== undefined);
  const approvers = lists[0]?.filter((one) => lists.every((list) => list.includes(one)));
  const required = Math.max(ask.required ?? 1, verdict.required ?? 1);
  const { type: _, ttlMs = DAY, required: __, ...added } = verdict;
  return {
    ...added,
    ...ask,
    expiresAt: Math.min(ask.expiresAt, at + ttlMs),
    ...(required > 1 && { required }),
    ...(approvers && { approvers }),
    ...(ask.approvedBy && { approvedBy: ask.approvedBy.filter((one) => approvers?.includes(one) ?? true) }),
  };
}

export const DAY = 86_400_000;

function refusedAfter({ refused }: Observed, event: Event): string | undefined {
  if (event.type !== 'model-failed') return refused;
  // A program that ends its run is not asked again.
  return event.error.endsWith === undefined ? event.effect : undefined;
}

/** No effect is in progress, and all outstanding ones wait for something external. */
export function isWaiting(observed: Observed): boolean {
  const { phase, open, raising } = observed;
  if (raising) return true;
  return phase === 'live' && open.size > 0 && [...open.values()].every((one) => isExternal(observed, one));
}

export function isExternal(observed: Observed, { effect, parked }: Open): boolean {
  if (effect.type === 'call-tool' && openQuestions(observed, effect.id).length > 0) return true;
  return parked !== undefined || effect.type === 'ask-approval' || effect.type === 'await-client';
}

/** The active time: it excludes the time in which no effect is in progress, and never decreases. */
export function activeMsAt(observed: Observed, { at, elapsedMs }: Pick<Event, 'at' | 'elapsedMs'>): number {
  if (isWaiting(observed) || observed.phase === 'ended') return observed.activeMs;
  return observed.activeMs + Math.max(0, elapsedMs ?? at - observed.at);
}
