import { parse } from 'smol-toml';

/*
 * The lines of keys. The parser does not tell them, but each statement of a TOML text, a header or a key with its value, is
 * TOML itself: so the text is parsed once more, one statement after the other.
 */

/** Longer statements are not searched for their end. Keys after them have no line. */
const MAX_STATEMENT_LINES = 200;

/** Where each key of a valid TOML text is set, by its path as `checkShape` writes it: `tools[1].name`. Lines count from 1. */
export function keyLines(text: string): ReadonlyMap<string, number> {
  const found = new Map<string, number>();
  const lists = new Map<string, number>();
  let table = '';
  for (const { line, source, value } of statements(text)) {
    const header = /^\s*\[/.test(source) ? (/^\s*\[\[/.test(source) ? 'list' : 'table') : undefined;
    if (header === undefined) {
      for (const path of pathsIn(value, table)) if (!found.has(path)) found.set(path, line);
      continue;
    }
    table = '';
    const names = headerNames(value);
    for (const [index, name] of names.entries()) {
      table = joined(table, name);
      if (header === 'list' && index === names.length - 1) lists.set(table, (lists.get(table) ?? -1) + 1);
      if (!found.has(table)) found.set(table, line);
      const at = lists.get(table);
      if (at !== undefined) table = `${table}[${at}]`;
    }
    if (!found.has(table)) found.set(table, line);
  }
  return found;
}

/** The line of the key that a problem is about, or of the nearest table around it. A problem starts with its path. */
export function lineOf(lines: ReadonlyMap<string, number>, problem: string): number | undefined {
  let nearest = '';
  for (const path of lines.keys()) {
    const isMeant = problem.startsWith(path) && !/[\w-]/.test(problem[path.length] ?? '');
    if (isMeant && path.length > nearest.length) nearest = path;
  }
  return lines.get(nearest);
}

interface Statement {
  readonly line: number;
  readonly source: string;
  readonly value: Readonly<Record<string, unknown>>;
}

function* statements(text: string): Generator<Statement> {
  const lines = text.split('\n');
  for (let start = 0; start < lines.length; start++) {
    let end = start;
    let source = lines[start]!;
    let value = parsed(source);
    while (!value && end + 1 < lines.length && end - start < MAX_STATEMENT_LINES) {
      source += `\n${lines[++end]!}`;
      value = parsed(source);
    }
    if (!value) return;
    if (Object.keys(value).length > 0) yield { line: start + 1, source, value };
    start = end;
  }
}

function parsed(source: string): Readonly<Record<string, unknown>> | undefined {
  try {
    return parse(source);
  } catch {
    return undefined;
  }
}

/** `[a.b]` is `{ a: { b: {} } }`, and `[[a.b]]` is `{ a: { b: [{}] } }`. */
function headerNames(value: Readonly<Record<string, unknown>>): readonly string[] {
  const [entry] = Object.entries(value);
  if (!entry) return [];
  const [name, inner] = entry;
  return [name, ...(Array.isArray(inner) ? [] : headerNames(inner as Readonly<Record<string, unknown>>))];
}

function* pathsIn(value: unknown, at: string): Generator<string> {
  if (Array.isArray(value)) {
    for (const [index, item] of value.entries()) yield* pathsIn(item, `${at}[${index}]`);
    return;
  }
  if (typeof value !== 'object' || value === null || value instanceof Date) return;
  for (const [name, item] of Object.entries(value)) {
    const path = joined(at, name);
    yield path;
    yield* pathsIn(item, path);
  }
}

function joined(at: string, name: string): string {
  return at === '' ? name : `${at}.${name}`;
}
