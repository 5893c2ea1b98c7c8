import { isPlain } from '../plain.ts';
import { areApprovers, isCount, ttlOf } from './applied.ts';
import type { AskVerdict, Verdict } from './port.ts';

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
