import type { State } from '@treadle/core';

/** How often a step accesses the history, and how much text it reads. */
export interface Cost {
  /** Accesses to items of the history and to its length. */
  readonly visited: number;
  /** Call ids that were looked up, added or iterated. */
  readonly looked: number;
  /** Characters that were serialised as JSON. */
  readonly written: number;
  /** Characters that were read one by one. */
  readonly hashed: number;
}

export interface Meter {
  readonly measure: (work: () => void) => Cost;
  /** The state with a history that counts accesses. */
  readonly watched: (state: State) => State;
}

/** Counts accesses instead of measuring time, so that the result is always the same. */
export function metered(): Meter {
  let [visited, looked, written, hashed] = [0, 0, 0, 0];
  const { stringify } = JSON;
  const strings: { charCodeAt: (this: string, index: number) => number } = String.prototype;
  const { charCodeAt } = strings;

  class WatchedMap extends Map<string, number> {
    override get(key: string): number | undefined {
      looked++;
      return super.get(key);
    }
    override has(key: string): boolean {
      looked++;
      return super.has(key);
    }
    override *entries(): MapIterator<[string, number]> {
      for (const entry of super.entries()) {
        looked++;
        yield entry;
      }
    }
    override [Symbol.iterator](): MapIterator<[string, number]> {
      return this.entries();
    }
  }

  return {
    watched(state) {
      const { history } = state;
      const items = new Proxy(history.items as (typeof history.items)[number][], {
        get(target, key) {
          visited++;
          return Reflect.get(target, key) as unknown;
        },
        set(target, key, value) {
          visited++;
          return Reflect.set(target, key, value);
        },
      });
      return { ...state, history: { ...history, items, ids: new WatchedMap(history.ids) } };
    },
    measure(work) {
      [visited, looked, written, hashed] = [0, 0, 0, 0];
      JSON.stringify = ((...given: Parameters<typeof stringify>) => {
        const text = stringify(...given);
        written += text?.length ?? 0;
        return text;
      }) as typeof stringify;
      strings.charCodeAt = function (index) {
        hashed++;
        return charCodeAt.call(this, index);
      };
      try {
        work();
      } finally {
        JSON.stringify = stringify;
        strings.charCodeAt = charCodeAt;
      }
      return { visited, looked, written, hashed };
    },
  };
}
