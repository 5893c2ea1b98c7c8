import { isPlain } from '../plain.ts';
import type { AskVerdict, Place, PolicyLimits, Verdict } from './port.ts';

/** How long people may take to answer if the policy does not limit it. */
const DEFAULT_TTL_MS = 86_400_000;

/**
 * The stricter of two verdicts on a call: deny before ask before allow. Of two asks, the shorter time, the higher number
 * of approvers, and the people who may answer both. A missing verdict is a denial.
 */
export function stricterVerdict(a: Verdict | undefined, b: Verdict | undefined): Verdict | undefined {
  if (strictness(a) !== strictness(b)) return strictness(a) > strictness(b) ? a : b;
  return a?.type === 'ask' && b?.type === 'ask' ? stricterOfAsks(a, b) : a;
}

function strictness(verdict: Verdict | undefined): number {
  if (verdict?.type === 'allow') return 0;
  return verdict?.type === 'ask' ? 1 : 2;
}

function stricterOfAsks(a: AskVerdict, b: AskVerdict): AskVerdict {
  const limited = a.ttlMs !== undefined || b.ttlMs !== undefined;
  const counted = a.required !== undefined || b.required !== undefined;
  const approvers = a.approvers && b.approvers ? a.approvers.filter((one) => b.approvers!.includes(one)) : undefined;
  const named = approvers ?? a.approvers ?? b.approvers;
  return {
    ...b,
    ...a,
    ...(limited && { ttlMs: Math.min(ttlOf(a), ttlOf(b)) }),
    ...(counted && { required: Math.max(a.required ?? 1, b.required ?? 1) }),
    ...(named && { approvers: named }),
  };
}

/** `NaN` and `Infinity` do not survive JSON, so a replay would compute another time. */
export function ttlOf({ ttlMs }: Pick<AskVerdict, 'ttlMs'>): number {
  return Number.isFinite(ttlMs) ? ttlMs! : DEFAULT_TTL_MS;
}

/** Denies an ask that is malformed, or that nobody could ever satisfy. */
export function possibleVerdict(verdict: Verdict | undefined): Verdict | undefined {
  if (verdict?.type !== 'ask') return verdict;
  const { required = 1, approvers, shown } = verdict;
  const named = areApprovers(approvers) ? approvers && new Set(approvers).size : NaN;
  const problem =
    (!isCount(required) && `"required" is ${String(required)}, and must be a whole number of at least 1`) ||
    (Number.isNaN(named) && '"approvers" is not a list of names') ||
    (shown !== undefined && !isPlain(shown) && '"shown" is not plain JSON') ||
    (named !== undefined && named < required && `it needs ${required} approvals, and ${named} people may approve it`);
  if (!problem) return verdict;
  return { type: 'deny', reason: `the policy asks for an impossible approval: ${problem}.` };
}

/** Whether `step` can ask people by this verdict. */
export function isAskable({ required = 1, approvers, touches = [] }: AskVerdict & { touches?: unknown }): boolean {
  return isCount(required) && areApprovers(approvers) && Array.isArray(touches);
}

function isCount(required: unknown): boolean {
  return Number.isSafeInteger(required) && (required as number) >= 1;
}

function areApprovers(approvers: unknown): boolean {
  return approvers === undefined || (Array.isArray(approvers) && approvers.every((one) => typeof one === 'string'));
}

/** A path, with the place that it is at. Different files have different ones. Total: the place may be from a journal. */
export function placedPath(path: string, on: Place | undefined): string {
  return on ? `${on.type}:${on.name} ${path}` : path;
}

/** The smaller of two limits each. */
export function smallerLimits(a: PolicyLimits, b: PolicyLimits): PolicyLimits {
  const turns = Math.min(a.turns ?? Infinity, b.turns ?? Infinity);
  const calls = Math.min(a.calls ?? Infinity, b.calls ?? Infinity);
  return { ...(turns !== Infinity && { turns }), ...(calls !== Infinity && { calls }) };
}
