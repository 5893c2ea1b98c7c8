import type { Journal, RunStore } from '@treadle/core';

/**
 * A journal with no place for results that are too long: the model would be told of a tool that reads them, and in the
 * next response of the conversation, which is another run, there is neither. So head and tail of them is all there is.
 */
export function withoutBlobs(journal: Journal | RunStore): Journal {
  const { snapshotFrom } = journal;
  return {
    append: (...entries) => journal.append(...entries),
    read: (...from) => journal.read(...from),
    ...(journal.acquire && { acquire: (runId: string) => journal.acquire!(runId) }),
    ...(journal.writeSnapshot && { writeSnapshot: (...one) => journal.writeSnapshot!(...one) }),
    ...(journal.readSnapshot && { readSnapshot: (runId: string) => journal.readSnapshot!(runId) }),
    ...(snapshotFrom !== undefined && { snapshotFrom }),
    ...('list' in journal && { list: (...filter: Parameters<RunStore['list']>) => journal.list(...filter) }),
  } satisfies Journal & Partial<RunStore>;
}
