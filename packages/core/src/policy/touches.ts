import type { Place, Touch } from './port.ts';

/* What tools declare is checked: a field that is malformed or unknown could mean something that no rule would look at. */

type IsRight = (value: unknown) => boolean;

/** The field that says what it is, which is a text, and those that may be absent. */
interface Fields {
  readonly text?: string;
  readonly optional?: Readonly<Record<string, IsRight>>;
}

const isAmount: IsRight = (value) => Number.isSafeInteger(value) && (value as number) >= 0;
const on: IsRight = (value) => {
  const place = checkedFields(value, PLACES);
  return place !== undefined && place['name'] !== '';
};

const NAME: Fields = { text: 'name' };
const PLACES: Readonly<Record<Place['type'], Fields>> = { device: NAME, ssh: NAME, container: NAME, sandbox: NAME };
const TOUCHES: Readonly<Record<Touch['type'], Fields>> = {
  read: { text: 'path', optional: { on } },
  write: { text: 'path', optional: { on, lines: isAmount } },
  command: { text: 'command', optional: { on } },
  url: { text: 'url', optional: { on, bytes: isAmount } },
  session: { text: 'session', optional: { on } },
  device: { text: 'device' },
  unknown: {},
};

/** A copy; undefined if a field is missing, malformed or unknown. */
function checkedFields(value: unknown, types: Readonly<Record<string, Fields>>): Record<string, unknown> | undefined {
  const given = value as Readonly<Record<string, unknown>> | undefined | null;
  const type = given?.['type'];
  if (typeof type !== 'string' || !Object.hasOwn(types, type)) return undefined;
  const { text, optional = {} } = types[type]!;
  const copy: Record<string, unknown> = { type };
  if (text !== undefined) {
    if (typeof given![text] !== 'string') return undefined;
    copy[text] = given![text];
  }
  for (const key of Object.keys(given!)) {
    const part = given![key];
    if (part === undefined || Object.hasOwn(copy, key)) continue;
    if (!Object.hasOwn(optional, key) || !optional[key]!(part)) return undefined;
    copy[key] = typeof part === 'object' ? { ...part } : part;
  }
  return copy;
}

/** A copy of a touch; undefined if the value is not a touch, or has a field that touches of its type do not have. */
export function touchFrom(value: unknown): Touch | undefined {
  return checkedFields(value, TOUCHES) as Touch | undefined;
}
