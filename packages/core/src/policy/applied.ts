import type { AskVerdict, Place, PolicyLimits } from './port.ts';

/* What `step` applies of verdicts and of the limits of a policy. Every program has this code; verdicts.ts only those with a policy. */

/** How long people may take to answer if the policy does not limit it. */
const DEFAULT_TTL_MS = 86_400_000;

/** `NaN` and `Infinity` do not survive JSON, so a replay would compute another time. */
export function ttlOf({ ttlMs }: Pick<AskVerdict, 'ttlMs'>): number {
  return Number.isFinite(ttlMs) ? ttlMs! : DEFAULT_TTL_MS;
}

/** Whether `step` can ask people by this verdict. */
export function isAskable({ required = 1, approvers, touches = [] }: AskVerdict & { touches?: unknown }): boolean {
  return isCount(required) && areApprovers(approvers) && Array.isArray(touches);
}

export function isCount(required: unknown): boolean {
  return Number.isSafeInteger(required) && (required as number) >= 1;
}

export function areApprovers(approvers: unknown): boolean {
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
