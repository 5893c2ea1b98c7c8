import type { AskVerdict, Touch } from '../policy/port.ts';
import { ttlOf } from '../policy/verdicts.ts';
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
    digest: approvalDigest(tools, call),
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

/** Binds an approval to the exact call, and to the tool as it was defined. */
function approvalDigest(tools: State['tools'], { name, arguments: text }: Call): string {
  const fingerprint = tools.find((tool) => tool.name === name)?.fingerprint;
  return sha256(fingerprint === undefined ? `${name}\n${text}` : `${name}\n${text}\n${fingerprint}`);
}

/** The calls of a turn whose tools have changed: people are asked again about a tool with another fingerprint. */
export function askedAgain(slots: readonly Slot[], tools: State['tools']): readonly Slot[] {
  return slots.map((slot) => {
    if (slot.type !== 'asking') return slot;
    const digest = approvalDigest(tools, slot.call);
    if (digest === slot.digest) return slot;
    const { approvedBy: _, ...asking } = slot;
    return { ...asking, digest };
  });
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
  const grant: Grant = { tool: call.name, touches, definition, by: approversAfter(slot, event) };
  return { ...state, grants: [...(state.grants ?? []), grant] };
}

/** Whether people have allowed everything that the call would touch, and enough of those who may approve it. */
export function isGranted(state: State, { name }: Call, ask: AskVerdict & RecordedVerdict): boolean {
  if (ask.eachTime === true) return false;
  const ofTool = state.grants?.filter(({ tool }) => tool === name);
  if (!ofTool || ofTool.length === 0) return false;
  const definition = definitionOf(state, name);
  const own = ofTool.filter((grant) => grant.definition === definition && hasEnoughApprovers(grant, ask));
  if (own.length === 0) return false;
  const allowed = new Set(own.flatMap(({ touches }) => touches.map(stableJson)));
  return (ask.touches ?? UNDECLARED).every((touch) => allowed.has(stableJson(touch)));
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
    if (all && (all.length >= MOST_WRITTEN || all.includes(touch.path))) continue;
    all = [...(all ?? []), touch.path];
  }
  return all;
}
