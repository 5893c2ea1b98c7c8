/** How often to look whether drivers have died. */
const LOOK_MS = 1_000;

/** A process, or a store that is open in it, that has or had leases. */
export interface FoundHolder {
  readonly name: string;
  readonly isDead: boolean;
}

/** Tells of each holder once: when it is dead, or is not found any more. `find`: the others than this store. */
export function watchHolders(find: () => readonly FoundHolder[] | Promise<readonly FoundHolder[]>): {
  readonly watch: (listener: () => void) => () => void;
  readonly close: () => void;
} {
  const listeners = new Set<() => void>();
  let known: ReadonlyMap<string, FoundHolder> = new Map();
  let timer: NodeJS.Timeout | undefined;

  async function look(): Promise<void> {
    try {
      const found = new Map((await find()).map((one) => [one.name, one]));
      const hasDied = [...found.values()].some(({ name, isDead }) => isDead && !known.get(name)?.isDead);
      const isMissing = [...known.values()].some(({ name, isDead }) => !isDead && !found.has(name));
      known = found;
      if (hasDied || isMissing) for (const listener of listeners) listener();
    } catch {
      // The next look finds the same.
    }
    timer = listeners.size > 0 ? setTimeout(() => void look(), LOOK_MS).unref() : undefined;
  }

  return {
    watch(listener) {
      listeners.add(listener);
      timer ??= setTimeout(() => void look(), 0).unref();
      return () => void listeners.delete(listener);
    },
    close() {
      listeners.clear();
      clearTimeout(timer);
    },
  };
}
