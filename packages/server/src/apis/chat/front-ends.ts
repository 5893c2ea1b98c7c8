import type { ChatEvent } from './wire.ts';

export const PROTOCOLS = ['ui-message-stream', 'ag-ui'] as const;
export type FrontEndProtocol = (typeof PROTOCOLS)[number];

/**
 * Protocols of front ends. Each is a translation of the events of a conversation, so that all of them show the same.
 *
 * In both protocols a stream ends when calls wait for approvals or for the client, which sends the answers with its next request.
 */
export interface FrontEndEncoder {
  /** The frames for an event, in order. */
  encode(event: ChatEvent): readonly object[];
  /** Everything that is in progress waits for an answer that the next request of the client has. */
  isWaiting(): boolean;
  /** The frames that end the stream of a run that waits. */
  endWaiting(): readonly object[];
  /** The frames that begin the stream after answers. The events before were encoded, and sent to an earlier stream. */
  continueAfter(answered: ReadonlySet<string>): readonly object[];
}

/** The calls that have no result, and whether they wait for an answer. */
export interface OpenCalls {
  add(event: ChatEvent): void;
  /** The calls of these approvals and questions do not wait any more. */
  answered(ids: ReadonlySet<string>): void;
  isWaiting(): boolean;
  /** No call is open. */
  isEmpty(): boolean;
}

/** `types`: the events after which a call waits for an answer in the next request. */
export function openCalls(types: readonly ChatEvent['type'][]): OpenCalls {
  /** By the id of the call: the ids of what it waits for. */
  const open = new Map<string, Set<string>>();
  /** The calls that wait for something. */
  let waiting = 0;

  /** Changes what a call waits for. */
  function change(call: string, act: (asked: Set<string> | undefined) => void): void {
    waiting -= open.get(call)?.size ? 1 : 0;
    act(open.get(call));
    waiting += open.get(call)?.size ? 1 : 0;
  }

  return {
    add(event) {
      if (event.type === 'tool_call_start') change(event.id, () => open.set(event.id, new Set()));
      else if (event.type === 'tool_call_result') change(event.id, () => open.delete(event.id));
      else if ('call_id' in event && types.includes(event.type)) {
        change(event.call_id, (asked) => asked?.add(event.id));
      }
    },
    answered(ids) {
      for (const call of open.keys()) {
        change(call, (asked) => {
          for (const id of asked!) if (ids.has(id)) asked!.delete(id);
        });
      }
    },
    isWaiting: () => open.size > 0 && waiting === open.size,
    isEmpty: () => open.size === 0,
  };
}
