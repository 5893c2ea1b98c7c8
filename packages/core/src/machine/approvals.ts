import type { AskVerdict, Placed, Touch } from '../policy/port.ts';
import { placedPath, ttlOf } from '../policy/applied.ts';
import { slotFor } from './effects.ts';
import type { Event, RecordedVerdict } from './events.ts';
import { stableJson } from './history.ts';
import { sha256 } from './sha256.ts';
import type { Ask, Call, Grant, Slot, State } from './state.ts';

/*
 * Approvals by people: what is asked, whose answers count, and what they have allowed for the rest of the run. `step` decides
 * when a call is asked about (`applyVerdict`) and what an answer does to it (`slotAfter`).
 */

type ApprovalGiven = Extract<Event, { type: 'approval-given' }>;

export type AskingSlot = Extract<Slot, { type: 'asking' }>;

/** A call that people have to approve. */
export function askingSlot(
  { tools }: State,
  call: Call,
  verdict: AskVerdict & RecordedVerdict,
  at: number,
): AskingSlot {
  const { reason, required = 1, approvers, shown, touches, rule, eachTime } = verdict;
  return {
    type: 'asking',
    call,
    digest: approvalDigest(tools, call, touches ? { touches } : {}),
    expiresAt: at + ttlOf(verdict),
    ...(reason !== undefined && { reason }),
    ...(required > 1 && { required }),
    ...(approvers && { approvers }),
    ...(shown !== undefined && { shown }),
    ...(touches && { touches }),
    ...(rule !== undefined && { rule }),
    ...(eachTime === true && { eachTime }),
  };
}

type Approval = Pick<ApprovalGiven, 'digest' | 'approved' | 'by'>;

/**
 * Why an answer to an open approval does not apply. `digest`: it is bound to another call. `approver`: this person may not
 * answer. `anonymous`: several people have to approve, and it has no name. `repeated`: this person has approved already.
 */
export function approvalProblem(
  { digest, approvers, required = 1, approvedBy }: Ask,
  { approved, by, ...answer }: Approval,
): 'digest' | 'approver' | 'anonymous' | 'repeated' | undefined {
  if (answer.digest !== digest) return 'digest';
  if (approvers && !(by !== undefined && approvers.includes(by))) return 'approver';
  if (approved !== true || required === 1) return undefined;
  if (typeof by !== 'string' || by === '') return 'anonymous';
  return approvedBy?.includes(by) ? 'repeated' : undefined;
}

/** Who has approved after this approval. */
function approversAfter({ approvedBy = [] }: Ask, { by }: Approval): readonly string[] {
  return by === undefined ? approvedBy : [...approvedBy, by];
}

/** Whether enough people have approved after this approval. */
export function isApproved(ask: Ask, approval: Approval): boolean {
  const { required = 1 } = ask;
  return required === 1 || approversAfter(ask, approval).length >= required;
}

/** Adds an approval to an ask that needs more of them. */
export function withApproval(slot: AskingSlot, event: ApprovalGiven): Slot {
  const onlyThisCall = event.forRun !== true && { onlyThisCall: true as const };
  return { ...slot, approvedBy: approversAfter(slot, event), ...onlyThisCall };
}

/**
 * Binds an approval to the exact call, to the tool as it was defined, and to where the call runs. If it raises budgets, also to
 * what they lack: an approval that was given before must not count for that.
 */
export function approvalDigest(
  tools: State['tools'],
  call: Call,
  { touches, raises, reason }: Pick<Ask, 'touches' | 'raises' | 'reason'>,
): string {
  const { name, arguments: text } = call;
  const fingerprint = tools.find((tool) => tool.name === name)?.fingerprint;
  const where = whereBound(call, touches);
  const bound = fingerprint === undefined ? `${name}\n${text}` : `${name}\n${text}\n${fingerprint}`;
  const digest = sha256(where === '' ? bound : `${bound}\n\n${where}`);
  return raises ? sha256(`${digest}\n${reason}`) : digest;
}

/** The places that a call touches, and the promises of its sandbox. Empty: it runs on this machine, without promises. */
function whereBound({ sandbox }: Call, touches: readonly Touch[] | undefined): string {
  const known = Array.isArray(touches) ? (touches as readonly (Placed | null)[]) : [];
  const places = known.flatMap((touch) => touch?.on ?? []);
  return sandbox || places.length > 0 ? stableJson({ places, sandbox }) : '';
}

/** The calls of a turn whose tools have changed: people are asked again about a tool with another fingerprint. */
export function askedAgain(slots: readonly Slot[], tools: State['tools']): readonly Slot[] {
  return slots.map((slot) => {
    if (slot.type !== 'asking') return slot;
    const digest = approvalDigest(tools, slot.call, slot);
    if (digest === slot.digest) return slot;
    const { approvedBy: _, ...asking } = slot;
    return { ...asking, digest };
  });
}

/** An open approval of a call that would run elsewhere than it was asked about: everybody is asked again. */
export function boundAgain(
  tools: State['tools'],
  slot: AskingSlot,
  { sandbox }: Call,
  touches: readonly Touch[] | undefined,
): AskingSlot {
  const { sandbox: _, raised: _raised, ...known } = slot.call;
  const call = sandbox ? { ...known, sandbox } : known;
  if (whereBound(call, touches) === whereBound(slot.call, slot.touches)) return slot;
  const { approvedBy: _by, touches: _touches, ...asking } = slot;
  const bound = { ...asking, ...(touches && { touches }) };
  return { ...bound, call, digest: approvalDigest(tools, call, bound) };
}

/* Grants: what people have allowed for the rest of the run */

const UNDECLARED: readonly Touch[] = [{ type: 'unknown' }];

/** Stores a grant if the approval completes an ask, and everybody who approved it allowed it for the rest of the run. */
export function withGrant<S extends State>(state: S, event: ApprovalGiven): S {
  const slot = slotFor(state, event.effect);
  if (event.forRun !== true || event.approved !== true || slot?.type !== 'asking') return state;
  if (slot.onlyThisCall || event.at >= slot.expiresAt || !isApproved(slot, event)) return state;
  const { touches = UNDECLARED, call } = slot;
  const definition = definitionOf(state, call.name);
  const { name: tool, sandbox } = call;
  const by = approversAfter(slot, event);
  const grant: Grant = { tool, touches, definition, by, ...(sandbox && { sandbox }) };
  return { ...state, grants: [...(state.grants ?? []), grant] };
}

/** Whether people have allowed everything that the call would touch, and enough of those who may approve it. */
export function isGranted(state: State, { name, sandbox }: Call, ask: AskVerdict & RecordedVerdict): boolean {
  if (ask.eachTime === true) return false;
  const ofTool = state.grants?.filter(({ tool }) => tool === name);
  if (!ofTool || ofTool.length === 0) return false;
  const definition = definitionOf(state, name);
  const own = ofTool.filter(
    (grant) => grant.definition === definition && hasEnoughApprovers(grant, ask) && arePromised(grant.sandbox, sandbox),
  );
  if (own.length === 0) return false;
  const allowed = new Set(own.flatMap(({ touches }) => touches.map(touchKey)));
  return (ask.touches ?? UNDECLARED).every((touch) => allowed.has(touchKey(touch)));
}

/** People allow what is touched, and where, but not how much. */
function touchKey(touch: Touch): string {
  return stableJson({ ...touch, lines: undefined, bytes: undefined });
}

/** Whether a sandbox makes all promises that something counts on. */
export function arePromised(counted: readonly string[] = [], promised: readonly string[] = []): boolean {
  return counted.every((promise) => promised.includes(promise));
}

function definitionOf({ tools }: State, name: string): string {
  return sha256(stableJson(tools.find((tool) => tool.name === name) ?? null));
}

function hasEnoughApprovers({ by }: Grant, { required = 1, approvers }: AskVerdict): boolean {
  if (required === 1 && !approvers) return true;
  return new Set(approvers ? by.filter((one) => approvers.includes(one)) : by).size >= required;
}

/* What a run has written */

/** No policy of rules allows as many files, and a list without an end would make each step slower than the one before. */
const MOST_WRITTEN = 100;

/** Adds the paths of `write` touches that are new. `touches` is from the journal, and may be malformed. */
export function withWritten(written: State['written'], touches: readonly Touch[] | undefined): State['written'] {
  if (!Array.isArray(touches)) return written;
  let all = written;
  for (const touch of touches as readonly (Touch | null)[]) {
    if (touch?.type !== 'write' || typeof touch.path !== 'string') continue;
    const path = placedPath(touch.path, touch.on);
    if (all && (all.length >= MOST_WRITTEN || all.includes(path))) continue;
    all = [...(all ?? []), path];
  }
  return all;
}
