import type { HelperTool } from './define.ts';
import { canonicalJson } from '../plain.ts';
import type { Progress } from './tools.ts';

/** Calls of one attempt with the same input share what the first of them gave, also while it still runs. */
export function cached(helper: HelperTool, { attempt }: Progress): HelperTool['handler'] {
  const results = new Map<string, unknown>();
  let of = 0;
  return (input, context) => {
    if (of !== attempt()) results.clear();
    of = attempt();
    const key = canonicalJson(input);
    if (key !== undefined && results.has(key)) return results.get(key);
    const result = helper.handler(input, context);
    if (key === undefined || !isKept(result)) return result;
    results.set(key, result);
    const forget = (): boolean => results.get(key) === result && results.delete(key);
    if (result instanceof Promise) {
      result.then((given) => isKept(given) || forget(), forget);
      context.signal.addEventListener('abort', forget, { once: true });
    }
    return result;
  };
}

/** Neither an error nor what can be read only once. */
function isKept(result: unknown): boolean {
  if (typeof result !== 'object' || result === null) return true;
  return !(Symbol.asyncIterator in result) && (result as { isError?: unknown }).isError !== true;
}
