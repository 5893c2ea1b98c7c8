import { nearest } from '@treadle/core/nearest';

/** What a value in a configuration file must be. */
export type Shape =
  | { readonly type: 'text'; readonly choices?: readonly string[]; readonly form?: Form }
  | { readonly type: 'count'; readonly min: number; readonly max?: number }
  | { readonly type: 'number'; readonly min: number; readonly max?: number }
  | { readonly type: 'switch' }
  | { readonly type: 'texts'; readonly choices?: readonly string[]; readonly form?: Form }
  /** `others`: the shape of keys that are not in `fields`; absent: such keys are errors. */
  | { readonly type: 'table'; readonly fields: Readonly<Record<string, Shape>>; readonly others?: Shape }
  /** A string or a table. */
  | { readonly type: 'either'; readonly text: Shape; readonly table: Shape }
  /** A list of tables, each of this shape: `[[path]]`. */
  | { readonly type: 'tables'; readonly each: Shape }
  /** A table that `check` validates. It returns one line per problem, which starts with the path. */
  | { readonly type: 'checked'; readonly check: (value: object, path: string) => readonly string[] }
  /** A key with any value, which nothing uses. */
  | { readonly type: 'any' }
  /** A key that a later version will support. */
  | { readonly type: 'later' }
  /** A key that is not allowed, and why. */
  | { readonly type: 'forbidden'; readonly why: string };

interface Form {
  readonly matches: (text: string) => boolean;
  readonly means: string;
}

/** One line per problem: the path, what is wrong, what is allowed. Never contains the value, which may be a secret. */
export function checkShape(value: unknown, shape: Shape, path: string): string[] {
  switch (shape.type) {
    case 'text':
      if (typeof value !== 'string' || value === '')
        return [`${path} must be a string in quotes, but is ${kind(value)}`];
      if (shape.choices && !shape.choices.includes(value))
        return [`${path} must be one of ${shape.choices.join(', ')}`];
      return shape.form && !shape.form.matches(value) ? [`${path} must be ${shape.form.means}`] : [];
    case 'count': {
      const { min, max = Number.MAX_SAFE_INTEGER } = shape;
      if (Number.isSafeInteger(value) && (value as number) >= min && (value as number) <= max) return [];
      const upTo = shape.max === undefined ? '' : ` to ${max}`;
      return [`${path} must be a whole number from ${min}${upTo}, but is ${kind(value)}`];
    }
    case 'number': {
      const { min, max = Infinity } = shape;
      if (Number.isFinite(value) && (value as number) >= min && (value as number) <= max) return [];
      const upTo = shape.max === undefined ? '' : ` to ${max}`;
      return [`${path} must be a number from ${min}${upTo}, but is ${kind(value)}`];
    }
    case 'switch':
      return typeof value === 'boolean' ? [] : [`${path} must be true or false, but is ${kind(value)}`];
    case 'texts':
      if (!Array.isArray(value) || !value.every((item) => typeof item === 'string'))
        return [`${path} must be a list of strings such as ["a", "b"], but is ${kind(value)}`];
      if (shape.choices && !value.every((item) => shape.choices!.includes(item)))
        return [`${path} must contain only ${shape.choices.join(', ')}`];
      return shape.form && !value.every(shape.form.matches) ? [`${path} must contain only ${shape.form.means}`] : [];
    case 'table':
      return isTable(value) ? checkTable(value, shape, path) : [`${path} must be a table, but is ${kind(value)}`];
    case 'either':
      return checkShape(value, isTable(value) ? shape.table : shape.text, path);
    case 'tables':
      return Array.isArray(value) && value.every(isTable)
        ? value.flatMap((item, index) => checkShape(item, shape.each, `${path}[${index}]`))
        : [`${path} must be a list of tables, each under a line [[${path}]], but is ${kind(value)}`];
    case 'checked':
      return isTable(value) ? [...shape.check(value, path)] : [`${path} must be a table, but is ${kind(value)}`];
    case 'any':
      return [];
    case 'later':
      return [`${path} is not supported yet. Remove it`];
    case 'forbidden':
      return [`${path} must not be here: ${shape.why}`];
  }
}

function checkTable(value: object, shape: Shape & { type: 'table' }, path: string): string[] {
  const allowed = Object.keys(shape.fields).filter(
    (name) => !['forbidden', 'later'].includes(shape.fields[name]!.type),
  );
  return Object.entries(value).flatMap(([key, item]) => {
    const at = path === '' ? key : `${path}.${key}`;
    const field = Object.hasOwn(shape.fields, key) ? shape.fields[key] : shape.others;
    if (field) return checkShape(item, field, at);
    const meant = nearest(key, allowed);
    return [`${at} is not known${meant ? `, did you mean ${meant}?` : '.'} Allowed here: ${allowed.join(', ')}`];
  });
}

function isTable(value: unknown): value is object {
  return typeof value === 'object' && value !== null && !Array.isArray(value) && !(value instanceof Date);
}

function kind(value: unknown): string {
  if (value === '') return 'empty';
  if (Array.isArray(value)) return 'a list';
  if (isTable(value)) return 'a table';
  if (typeof value === 'number' || typeof value === 'boolean') return String(value);
  return value instanceof Date ? 'a date' : 'a string';
}
