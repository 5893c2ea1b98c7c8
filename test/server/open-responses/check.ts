import { readFileSync } from 'node:fs';

type Fields = Readonly<Record<string, string>>;
/** The fields of an object, or the names of those that it may be. */
type Entry = Fields | readonly string[];

interface Schema {
  readonly types: Readonly<Record<string, Entry>>;
  readonly events: Readonly<Record<string, Fields>>;
}

/** What the specification requires; the file says itself how it is written. */
const { types, events } = JSON.parse(readFileSync(new URL('schema.json', import.meta.url), 'utf8')) as Schema;

/** In what way a value is not what the specification says of that name, one line for each place; none if it is. */
export function problems(name: string, value: unknown): readonly string[] {
  return [...unlike(value, name, name)];
}

/** The same of an event of a stream. */
export function eventProblems(event: unknown): readonly string[] {
  const type = isObject(event) ? event['type'] : undefined;
  const fields = typeof type === 'string' ? events[type] : undefined;
  if (!fields) return [`There is no event ${JSON.stringify(type)}.`];
  return [...unlikeFields(event, { type: 'string', sequence_number: 'integer', ...fields }, String(type))];
}

function* unlike(value: unknown, type: string, at: string): Generator<string> {
  const choices = type.split('|');
  if (choices.some((choice) => isPlain(value, choice))) return;
  const [lists, names] = [choices.filter(isList), choices.filter((choice) => choice in types)];
  if (Array.isArray(value) && lists.length > 0) {
    const of = lists[0]!.slice(0, -2);
    for (const [index, element] of value.entries()) yield* unlike(element, of, `${at}[${index}]`);
  } else if (isObject(value) && names.length > 0) yield* unlikeEntry(value, names[0]!, at);
  else yield `${at} is ${JSON.stringify(value) ?? 'absent'} and not ${type}.`;
}

function* unlikeEntry(value: Record<string, unknown>, name: string, at: string): Generator<string> {
  const entry = types[name]!;
  if (!Array.isArray(entry)) return yield* unlikeFields(value, entry as Fields, at);
  const fits = (entry as readonly string[]).find(
    (one) => (types[one] as Fields)['type'] === `'${String(value['type'])}'`,
  );
  if (fits === undefined) yield `${at} is a ${JSON.stringify(value['type'])} and none of ${entry.join(', ')}.`;
  else yield* unlikeEntry(value, fits, at);
}

function* unlikeFields(value: unknown, fields: Fields, at: string): Generator<string> {
  for (const [field, type] of Object.entries(fields)) {
    const name = field.replace('?', '');
    const given = (value as Record<string, unknown>)[name];
    if (given === undefined && name !== field) continue;
    yield* unlike(given, type, `${at}.${name}`);
  }
}

function isPlain(value: unknown, type: string): boolean {
  switch (type) {
    case 'any':
      return value !== undefined;
    case 'null':
      return value === null;
    case 'object':
      return isObject(value);
    case 'integer':
      return Number.isSafeInteger(value);
    case 'string':
    case 'number':
    case 'boolean':
      return typeof value === type;
    default:
      return type === `'${String(value)}'` && typeof value === 'string';
  }
}

function isList(type: string): boolean {
  return type.endsWith('[]');
}

function isObject(value: unknown): value is Record<string, unknown> {
  return typeof value === 'object' && value !== null && !Array.isArray(value);
}
