/** Calls that have begun: closing waits for them. */
export interface Begun {
  readonly add: <T>(call: Promise<T>) => Promise<T>;
  readonly settled: () => Promise<void>;
}

export function openBegun(): Begun {
  const calls = new Set<Promise<unknown>>();
  return {
    add(call) {
      const added = call.finally(() => calls.delete(added));
      calls.add(added);
      return added;
    },
    async settled() {
      await Promise.allSettled(calls);
    },
  };
}
