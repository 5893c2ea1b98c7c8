import { batch, signal, type ReadonlySignal } from '@preact/signals';
import type { JournalEntry } from '@treadle/core';
import type { WireRun, WireRunDetails } from '@treadle/server/wire';
import { followEvents, isTemporary, whenConnected } from '../api/client.ts';
import { getEntries, getRun, isChildRun, listRuns, openEntries } from './api.ts';
import { keepLooking } from './changes.ts';
import { runModel, type RunModel } from './run-model.ts';

/** A run that the page shows. It follows its journal until it is closed. */
export interface LiveRun {
  readonly id: string;
  readonly model: RunModel;
  /** Changes when the model has grown. */
  readonly version: ReadonlySignal<number>;
  readonly details: ReadonlySignal<WireRunDetails | undefined>;
  /** All entries that existed when the run was opened are in the model. */
  readonly isLoaded: ReadonlySignal<boolean>;
  readonly problem: ReadonlySignal<string | undefined>;
  /** Its latest forks and child runs. */
  readonly related: ReadonlySignal<readonly WireRun[]>;
  readonly hasMoreRelated: ReadonlySignal<boolean>;
  /** Reads the details again, after the user has done something. */
  refresh(details?: WireRunDetails): void;
  close(): void;
}

const DETAILS_GAP_MS = 1_000;
const RELATED_GAP_MS = 500;
/** How often a run that is running is looked at in any case: nothing changes when the process that drives it dies. */
const LOOK_MS = 5_000;
const RETRY_MS = 500;

export function openRun(id: string): LiveRun {
  const model = runModel();
  const version = signal(0);
  const details = signal<WireRunDetails | undefined>(undefined);
  const isLoaded = signal(false);
  const problem = signal<string | undefined>(undefined);
  const related = signal<readonly WireRun[]>([]);
  const hasMoreRelated = signal(false);
  const closing = new AbortController();
  const { signal: closed } = closing;
  let woken = Promise.withResolvers<void>();
  closed.addEventListener('abort', () => woken.resolve(), { once: true });

  function add(entries: readonly JournalEntry[]): void {
    const fresh = entries.filter(({ seq }) => seq >= model.entries.length);
    if (fresh.length === 0) return;
    model.add(fresh);
    version.value++;
  }

  async function loadEntries(): Promise<void> {
    for (let hasMore = true; hasMore;) {
      const page = await getEntries(id, model.entries.length - 1, closed);
      batch(() => add(page.data));
      hasMore = page.has_more && page.data.length > 0;
    }
  }

  /** Entries that arrive together are added together, once for each frame. */
  async function follow(): Promise<void> {
    let arrived: JournalEntry[] = [];
    const flush = (): void => {
      add(arrived);
      arrived = [];
    };
    await followEvents({
      open: () => openEntries(id, model.entries.length + arrived.length - 1, closed),
      signal: closed,
      onEvent({ event, data }) {
        if (data === '[DONE]') return true;
        if (event === 'error') return false;
        if (arrived.length === 0) requestAnimationFrame(flush);
        arrived.push(JSON.parse(data) as JournalEntry);
        return false;
      },
    });
    flush();
  }

  async function lookAtDetails(): Promise<void> {
    details.value = await getRun(id, closed);
    woken.resolve();
  }

  function giveUp(error: unknown): void {
    problem.value = error instanceof Error ? error.message : String(error);
  }

  const looking = keepLooking(
    () =>
      lookAtDetails().catch((error: unknown) => {
        if (isTemporary(error)) throw error;
        giveUp(error);
      }),
    { gapMs: DETAILS_GAP_MS, concerns: (run) => run.id === id },
  );
  const family = keepLooking(
    async (aborted) => {
      const page = await listRuns({ parent: id, limit: '100' }, aborted);
      related.value = page.data;
      hasMoreRelated.value = page.has_more;
    },
    { gapMs: RELATED_GAP_MS, concerns: (run) => run.parent?.startsWith(id) ?? false },
  );
  const timer = setInterval(() => {
    if (details.value?.status === 'running' && document.visibilityState === 'visible') looking.again();
  }, LOOK_MS);

  async function live(): Promise<void> {
    while (!closed.aborted) {
      woken = Promise.withResolvers();
      const known = details.value;
      if (known && known.entries > model.entries.length) await loadEntries();
      if (known) isLoaded.value = true;
      if (known?.status === 'running') {
        await follow();
        await lookAtDetails();
      } else await woken.promise;
    }
  }

  async function keepLive(): Promise<void> {
    while (!closed.aborted) {
      try {
        await live();
      } catch (error) {
        if (closed.aborted) return;
        if (!isTemporary(error)) return giveUp(error);
        await new Promise((resolve) => setTimeout(resolve, RETRY_MS));
        await whenConnected(closed);
      }
    }
  }
  void keepLive();

  return {
    id,
    model,
    version,
    details,
    isLoaded,
    problem,
    related,
    hasMoreRelated,
    refresh(given) {
      if (!given) return looking.again();
      details.value = given;
      woken.resolve();
    },
    close() {
      closing.abort();
      clearInterval(timer);
      looking.stop();
      family.stop();
    },
  };
}

/** The models of child runs and theirs, by their ids. They are loaded once, and again when their parent has grown. */
export async function loadChildren(
  related: readonly WireRun[],
  known: ReadonlyMap<string, RunModel>,
  aborted: AbortSignal,
): Promise<ReadonlyMap<string, RunModel>> {
  const children = new Map<string, RunModel>();
  async function load(heads: readonly WireRun[]): Promise<void> {
    for (const head of heads.filter(isChildRun).toReversed()) {
      if (children.size >= MOST_CHILDREN) return;
      const model = known.get(head.id) ?? runModel();
      while (model.entries.length < head.entries) {
        const { data } = await getEntries(head.id, model.entries.length - 1, aborted);
        if (data.length === 0) break;
        model.add(data);
      }
      children.set(head.id, model);
      if (model.spans.some(({ child }) => child !== undefined))
        await load((await listRuns({ parent: head.id, limit: '100' }, aborted)).data);
    }
  }
  await load(related);
  return children;
}

/** More child runs than this are not drawn. */
const MOST_CHILDREN = 20;
