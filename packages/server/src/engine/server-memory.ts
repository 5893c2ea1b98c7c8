import type { Tool } from '@treadle/core';
import { embedItems, memoryOn, memoryTools, type Embedder, type Memory } from '@treadle/core/memory';
import type { Store } from '@treadle/store';

/** The memory of a server: what its runs did, and notes. */
export interface ServerMemory extends Memory {
  /** `remember` and `recall`, for `tools` of the server. */
  readonly tools: readonly Tool[];
  /** Called by the server that has it as its option. */
  attach(server: AttachedServer): void;
  /** Makes vectors of what has none, if there is a model for that. Never rejects. */
  embed(signal: AbortSignal): Promise<void>;
}

interface AttachedServer {
  /** Keeps what the runs did that have paused or ended, for a short time. Never rejects. */
  readonly keep: () => Promise<unknown>;
  readonly onProblem: (error: unknown) => void;
}

export interface ServerMemoryOptions {
  readonly store: Pick<Store, 'memory'>;
  /** Absent: items are found by their words only. */
  readonly embedder?: Embedder;
}

/** For `memory` of a server, and its tools for `tools`. */
export function serverMemory({ store: { memory: port }, embedder }: ServerMemoryOptions): ServerMemory {
  let server: AttachedServer | undefined;
  let embedding: Promise<void> | undefined;
  const onProblem = (error: unknown): void => server?.onProblem(error);
  const memory = memoryOn({
    port,
    ...(embedder && { embedder }),
    refresh: async () => server?.keep(),
    onProblem,
  });
  return {
    ...memory,
    tools: memoryTools(memory),
    attach: (one) => void (server = one),
    async embed(signal) {
      if (!embedder) return;
      await (embedding ??= embedItems(port, embedder, signal)
        .catch(onProblem)
        .finally(() => (embedding = undefined)));
    },
  };
}
