/** What differs between any two runs, and says nothing. */
const INCIDENTAL: ReadonlySet<string> = new Set(['at', 'runId', 'parent', 'attempts', 'expiresAt']);

export interface Difference {
  /** Such as `result.content[0].text`. */
  readonly path: string;
  readonly a: unknown;
  readonly b: unknown;
}

/** Where two JSON values first differ; nothing when they are equal. */
export function firstDifference(a: unknown, b: unknown, path = ''): Difference | undefined {
  if (Object.is(a, b)) return undefined;
  if (!isObject(a) || !isObject(b) || Array.isArray(a) !== Array.isArray(b)) return { path, a, b };
  for (const key of new Set([...Object.keys(a), ...Object.keys(b)])) {
    if (INCIDENTAL.has(key)) continue;
    const inside = Array.isArray(a) ? `${path}[${key}]` : path === '' ? key : `${path}.${key}`;
    const found = firstDifference(a[key], b[key], inside);
    if (found) return found;
  }
  return undefined;
}

function isObject(value: unknown): value is Record<string, unknown> {
  return typeof value === 'object' && value !== null;
}

const BEFORE = 20;

/** Both values, from a little before where they differ. */
export function excerpts({ a, b }: Difference): readonly [a: string, b: string] {
  const texts = [a, b].map((value) =>
    value === undefined ? 'nothing' : typeof value === 'string' ? value : JSON.stringify(value),
  );
  const [first, second] = texts as [string, string];
  let same = 0;
  while (same < first.length && first[same] === second[same]) same++;
  const from = same > BEFORE * 2 ? same - BEFORE : 0;
  const excerpt = (text: string): string => (from === 0 ? text : `…${text.slice(from)}`);
  return [excerpt(first), excerpt(second)];
}
