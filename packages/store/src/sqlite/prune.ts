import type { GroupCommit } from './group-commit.ts';

/** Where pruning has got to. */
type Position = readonly [updatedAt: number, id: number];

/** What may be removed, if nothing speaks against it. */
export interface Candidate {
  readonly id: number;
  readonly updated_at: number;
  /** How many entries go with it. */
  readonly entries: number;
}

interface Pruning<T extends Candidate> {
  /** At most `PRUNED_AT_ONCE`, in the order of `Position`. */
  readonly find: (after: Position) => readonly T[];
  /** False: it has to stay. */
  readonly remove: (candidate: T) => boolean;
}

/** One transaction removes no more, unless a single run has more entries: drivers should not wait long. */
export const PRUNED_AT_ONCE = 100;
const PRUNED_ENTRIES = 10_000;

/** How many were removed. */
export async function prune<T extends Candidate>({ write }: GroupCommit, pruning: Pruning<T>): Promise<number> {
  let pruned = 0;
  for (let at: Position | undefined = [-Infinity, 0]; at;) {
    const from: Position = at;
    const some = await write(() => pruneSome(pruning, from));
    pruned += some.pruned;
    at = some.reached;
  }
  return pruned;
}

function pruneSome<T extends Candidate>(
  { find, remove }: Pruning<T>,
  after: Position,
): { readonly pruned: number; readonly reached: Position | undefined } {
  let reached: Position | undefined;
  let pruned = 0;
  let removed = 0;
  for (const candidate of find(after)) {
    const { id, updated_at, entries } = candidate;
    if (removed + entries > PRUNED_ENTRIES && pruned > 0) break;
    reached = [updated_at, id];
    if (!remove(candidate)) continue;
    pruned++;
    removed += entries;
  }
  return { pruned, reached };
}
