import type { AssistantPart, Journal } from '@treadle/core';
import type { ResponseStore } from '@treadle/store';
import type { OutputItem } from '../wire/items.ts';
import type { ResponseResource } from '../wire/response.ts';

/** What the server knows of a response, of which a client may have left something out. */
export interface Recalled {
  readonly output: readonly OutputItem[];
  /** What the model said in turns in which it has thought something that it needs back, by their numbers. */
  readonly replies: ReadonlyMap<number, readonly AssistantPart[]>;
}

/**
 * Remembers the responses that clients have sent back items of. Those who keep a conversation themselves send all of it
 * each time: to read all of its responses each time, each with the whole of what was said before it, would cost the
 * square of its length.
 */
export interface Recollection {
  /** Undefined: the tenant has no response of that id. */
  recall(tenant: string, id: string): Promise<Recalled | undefined>;
  /** It is deleted. */
  forget(tenant: string, id: string): void;
}

export interface RecollectionOptions {
  readonly runs: Journal;
  readonly responses: Pick<ResponseStore, 'get'>;
  /** The most that it remembers; default 1,000. */
  readonly entries?: number;
  /** Of one, in characters of JSON; larger ones are read each time. Default 32,000. */
  readonly largest?: number;
}

export function recollection(options: RecollectionOptions): Recollection {
  const { runs, responses, entries = 1_000, largest = 32_000 } = options;
  const known = new Map<string, Recalled>();
  const keyOf = (tenant: string, id: string): string => `${tenant} ${id}`;

  function remember(key: string, recalled: Recalled): void {
    known.delete(key);
    known.set(key, recalled);
    if (known.size > entries) known.delete(known.keys().next().value!);
  }

  return {
    async recall(tenant, id) {
      const key = keyOf(tenant, id);
      const found = known.get(key);
      if (found) {
        remember(key, found);
        return found;
      }
      const record = await responses.get(tenant, id);
      const response = record?.response as ResponseResource | undefined;
      if (!record || !response) return undefined;
      const recalled = { output: response.output, replies: await repliesOf(runs, record.runId) };
      const size = JSON.stringify([recalled.output, ...recalled.replies.values()]).length;
      if (record.status !== 'in_progress' && size <= largest) remember(key, recalled);
      return recalled;
    },
    forget: (tenant, id) => void known.delete(keyOf(tenant, id)),
  };
}

/** The effect that asks the model is `t<turn>.model.<attempt>`. */
async function repliesOf(runs: Journal, runId: string): Promise<Recalled['replies']> {
  const replies = new Map<number, readonly AssistantPart[]>();
  for (const { event } of await runs.read(runId)) {
    if (event.type !== 'model-replied') continue;
    const turn = Number(/^t(\d+)\./.exec(event.effect)?.[1]);
    if (event.content.some((part) => part.type === 'reasoning' && part.signature !== undefined)) {
      replies.set(turn, event.content);
    } else replies.delete(turn);
  }
  return replies;
}
