import { createHash } from 'node:crypto';

/** The form of call ids that an API takes. */
export interface CallIds {
  readonly accepted: RegExp;
  /** Of those that we make; at most 43. */
  readonly length: number;
}

/** The id of a call as an API takes it: its own if it can be, else one made of it, the same each time. */
export function callIdFor(id: string, { accepted, length }: CallIds): string {
  if (accepted.test(id)) return id;
  return createHash('sha256').update(id).digest('base64url').replace(/[-_]/g, 'a').slice(0, length);
}
