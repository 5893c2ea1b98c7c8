import { TreadleError, type Tool } from '@treadle/core';
import { embedItems, memoryOn, memoryTools, type Memory } from '@treadle/core/memory';
import type { CommandContext } from '../config/context.ts';
import { loadStorePackage, type SessionStore } from '../config/store.ts';
import type { Io } from '../terminal/io.ts';
import { openEmbedder } from './open-embedder.ts';

/** The memory of runs that no server drives: what a server has with [memory], on the same store. */
export interface RunMemory extends Memory {
  /** `remember` and `recall`. */
  readonly tools: readonly Tool[];
  /** For the user, before anything runs. */
  readonly notice: string | undefined;
  /** Called with the store, which is opened last, before a run uses the memory. */
  attach(store: SessionStore): void;
}

/** How long a search waits until what runs did lately is observed, and has vectors. */
const OBSERVE_MS = 250;
const EMBED_MS = 2_000;

/** Undefined if [memory] does not switch it on. */
export async function openRunMemory(
  { loaded }: CommandContext,
  env: Io['env'],
  onProblem: (text: string) => void,
): Promise<RunMemory | undefined> {
  if (!loaded.config.memory?.enabled) return undefined;
  const { embedder, notice } = await openEmbedder(loaded, env);
  let hasFailed = false;
  const onFailure = (error: unknown): void => {
    if (!hasFailed) onProblem(`The model for embeddings failed, so only words are searched: ${String(error)}`);
    hasFailed = true;
  };
  let memory: Memory | undefined;
  const attached = (): Memory => {
    if (memory) return memory;
    throw new TreadleError('invalid-options', 'The memory has no store.');
  };
  const own: Memory = {
    search: (...args) => attached().search(...args),
    remember: (...args) => attached().remember(...args),
    refresh: () => attached().refresh(),
  };
  return {
    ...own,
    tools: memoryTools(own),
    notice,
    attach(store) {
      const { memory: port, metrics } = store;
      if (!port || !metrics) return;
      let embedding: Promise<void> | undefined;
      const embed = async (): Promise<void> => {
        if (!embedder) return;
        const time = AbortSignal.timeout(EMBED_MS);
        embedding ??= embedItems(port, embedder, time)
          .catch((error: unknown) => {
            // The next search goes on with the others.
            if (!time.aborted) onFailure(error);
          })
          .finally(() => (embedding = undefined));
        await embedding;
      };
      const refresh = async (): Promise<void> => {
        const { countNotedRuns } = await loadStorePackage();
        const until = performance.now() + OBSERVE_MS;
        while ((await countNotedRuns({ ...store, metrics }, { keepsMemory: true })) > 0) {
          if (performance.now() >= until) break;
        }
        await embed();
      };
      memory = memoryOn({ port, ...(embedder && { embedder }), refresh, onProblem: onFailure });
    },
  };
}
