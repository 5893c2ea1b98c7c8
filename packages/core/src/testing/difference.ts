/** Where two JSON values first differ, in words; absent when they are equal. */
export function firstDifference(was: unknown, is: unknown, path: string): string | undefined {
  if (Array.isArray(was) && Array.isArray(is)) {
    const length = Math.max(was.length, is.length);
    return first(length, (index) => firstDifference(was[index], is[index], `${path}[${index}]`));
  }
  if (isObject(was) && isObject(is)) {
    const keys = [...new Set([...Object.keys(was), ...Object.keys(is)])];
    return first(keys.length, (index) =>
      firstDifference(was[keys[index]!], is[keys[index]!], `${path}.${keys[index]}`),
    );
  }
  return Object.is(was, is) ? undefined : `${path} was ${shown(was)}, now it is ${shown(is)}`;
}

function first(count: number, find: (index: number) => string | undefined): string | undefined {
  for (let index = 0; index < count; index++) {
    const found = find(index);
    if (found !== undefined) return found;
  }
  return undefined;
}

function isObject(value: unknown): value is Record<string, unknown> {
  return typeof value === 'object' && value !== null && !Array.isArray(value);
}

function shown(value: unknown): string {
  const text = value === undefined ? 'absent' : JSON.stringify(value);
  return text.length <= 200 ? text : `${text.slice(0, 200)}…`;
}
