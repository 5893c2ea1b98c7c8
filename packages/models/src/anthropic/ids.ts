import { callIdFor, type CallIds } from '../call-id.ts';

const CALL_IDS: CallIds = { accepted: /^[\w-]{1,64}$/, length: 43 };

/**
 * The id of a call as the API takes it. Its own stay as they are; one that came over another protocol may hold anything
 * and becomes a hash, the same each time.
 */
export function wireId(id: string): string {
  return callIdFor(id, CALL_IDS);
}
