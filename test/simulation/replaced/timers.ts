/** `node:timers/promises` with the timers of the platform. */
export function setTimeout<T>(ms = 0, value?: T, options: { readonly signal?: AbortSignal } = {}): Promise<T> {
  const { promise, resolve, reject } = Promise.withResolvers<T>();
  const { signal } = options;
  const timer = globalThis.setTimeout(() => resolve(value as T), ms);
  signal?.addEventListener('abort', () => {
    clearTimeout(timer);
    reject(signal.reason as Error);
  });
  return promise;
}

export function setImmediate<T>(value?: T): Promise<T> {
  return new Promise((resolve) => void globalThis.setImmediate(() => resolve(value as T)));
}
