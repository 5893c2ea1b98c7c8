export interface Touches {
  /** The same object, with every read access counted. */
  readonly spied: <T extends object>(value: T) => T;
  count: number;
}

/** Counts the read accesses to the objects that it spies on. */
export function touches(): Touches {
  const counted: Touches = {
    count: 0,
    spied: (value) =>
      new Proxy(value, {
        get(target, name, receiver) {
          counted.count++;
          const inner: unknown = Reflect.get(target, name, receiver);
          return inner;
        },
      }),
  };
  return counted;
}
