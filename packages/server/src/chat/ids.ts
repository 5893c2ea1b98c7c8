import { callIdFor, placeOf, RESPONSE_PREFIX } from '../responses/ids.ts';

const COMPLETION = 'chatcmpl-';

/** A completion is a run like any response; only its own name on the wire differs. */
export function completionId(runId: string): string {
  return COMPLETION + runId.slice(RESPONSE_PREFIX.length);
}

/** The id under which a client knows a call: it tells which completion it came from. */
export function callIdOf(completion: string, turn: number, index: number): string {
  return callIdFor(RESPONSE_PREFIX + completion.slice(COMPLETION.length), turn, index);
}

/** Where a call comes from. Absent: it is none of ours. */
export function originOf(callId: string): Origin | undefined {
  const place = callId.startsWith('call_') ? placeOf(callId) : undefined;
  return place && { completion: completionId(place.response), turn: place.turn };
}

export interface Origin {
  readonly completion: string;
  /** The same for all calls of one turn of one completion, and for no others. */
  readonly turn: string;
}
