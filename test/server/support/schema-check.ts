import { readFileSync } from 'node:fs';

type Fields = Readonly<Record<string, string>>;
/** The fields of an object, or the names of its alternatives. */
type Entry = Fields | readonly string[];

interface Schema {
  readonly types: Readonly<Record<string, Entry>>;
  readonly events: Readonly<Record<string, Fields>>;
}

/** The specification. The field `about` in the file describes the format. */
const { types, events } = JSON.parse(
  readFileSync(new URL('open-responses.schema.json', import.meta.url), 'utf8'),
) as Schema;

/** Validates a value against a type of the specification. Returns one line per violation. */
export function schemaProblems(name: string, value: unknown): readonly string[] {
  return [...violations(value, name, name)];
}

/** Validates an event of a stream. Returns one line per violation. */
export function eventProblems(event: unknown): readonly string[] {
  const type = isObject(event) ? event['type'] : undefined;
  const fields = typeof type === 'string' ? events[type] : undefined;
  if (!fields) return [`The event type ${JSON.stringify(type)} is unknown.`];
  return [...fieldViolations(event, { type: 'string', sequence_number: 'integer', ...fields }, String(type))];
}

function* violations(value: unknown, type: string, at: string): Generator<string> {
  const choices = type.split('|');
  if (choices.some((choice) => matchesPrimitive(value, choice))) return;
  const [lists, names] = [choices.filter(isList), choices.filter((choice) => choice in types)];
  if (Array.isArray(value) && lists.length > 0) {
    const of = lists[0]!.slice(0, -2);
    for (const [index, element] of value.entries()) yield* violations(element, of, `${at}[${index}]`);
  } else if (isObject(value) && names.length > 0) yield* entryViolations(value, names[0]!, at);
  else yield `${at} is ${JSON.stringify(value) ?? 'absent'} and not ${type}.`;
}

function* entryViolations(value: Record<string, unknown>, name: string, at: string): Generator<string> {
  const entry = types[name]!;
  if (!Array.isArray(entry)) return yield* fieldViolations(value, entry as Fields, at);
  const match = (entry as readonly string[]).find(
    (one) => (types[one] as Fields)['type'] === `'${String(value['type'])}'`,
  );
  if (match === undefined) yield `${at} is a ${JSON.stringify(value['type'])} and none of ${entry.join(', ')}.`;
  else yield* entryViolations(value, match, at);
}

function* fieldViolations(value: unknown, fields: Fields, at: string): Generator<string> {
  for (const [field, type] of Object.entries(fields)) {
    const name = field.replace('?', '');
    const fieldValue = (value as Record<string, unknown>)[name];
    if (fieldValue === undefined && name !== field) continue;
    yield* violations(fieldValue, type, `${at}.${name}`);
  }
}

function matchesPrimitive(value: unknown, type: string): boolean {
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
