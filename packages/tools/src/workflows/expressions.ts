import { Environment, type ASTNode } from '@marcbachmann/cel-js';

/*
 * Expressions of workflows: CEL inside `${{ … }}`.
 *
 * 1. Nothing is executed: CEL has no loops, no assignments and no access to the process. `matches` is refused, because a regular
 *    expression may run without an end.
 * 2. An expression that only names a value, such as `steps.fetch.output.items[0]`, is looked up without CEL.
 * 3. CEL limits no time. `evaluateAll` belongs into a worker thread that can be stopped.
 */

/** A value of a definition in which expressions were found. */
export type Template =
  | { readonly type: 'value'; readonly value: unknown }
  | { readonly type: 'path'; readonly keys: Keys; readonly text: string }
  | { readonly type: 'cel'; readonly text: string; readonly names: readonly Keys[] }
  | { readonly type: 'text'; readonly parts: readonly Template[] }
  | { readonly type: 'list'; readonly items: readonly Template[] }
  | { readonly type: 'table'; readonly entries: readonly (readonly [string, Template])[] };

/** What an expression names: a variable, and the keys and positions inside of it. */
export type Keys = readonly (string | number)[];

/** Values that one expression may see in one list or table. */
export const MAX_ENTRIES = 10_000;
const MAX_CHARS = 2_000;
/** Of the texts of a result, in which each other value counts as `VALUE_CHARS`. What is longer would block the thread that gets it. */
const MAX_RESULT_CHARS = 10_000_000;
const VALUE_CHARS = 10;
/** How long expressions may be evaluated that belong together. */
export const EVALUATE_MS = 1_000;

const environment = new Environment({
  unlistedVariablesAreDyn: true,
  homogeneousAggregateLiterals: false,
  limits: { maxAstNodes: 1_000, maxDepth: 50, maxListElements: 1_000, maxMapEntries: 1_000, maxCallArguments: 16 },
});
// JSON has one kind of number, and CEL calculates only with numbers of one kind.
const mixed: Readonly<Record<string, (a: number, b: number) => number>> = {
  '+': (a, b) => a + b,
  '-': (a, b) => a - b,
  '*': (a, b) => a * b,
  '/': (a, b) => a / b,
};
for (const [sign, calculate] of Object.entries(mixed)) {
  const both = (a: number | bigint, b: number | bigint): number => calculate(Number(a), Number(b));
  environment.registerOperator(`double ${sign} int`, both).registerOperator(`int ${sign} double`, both);
}
for (const kinds of ['double % int', 'double % double', 'int % double']) {
  environment.registerOperator(kinds, (a: number | bigint, b: number | bigint) => Number(a) % Number(b));
}

export type CompiledExpression =
  | { readonly type: 'expression'; readonly template: Extract<Template, { type: 'path' | 'cel' }> }
  | { readonly type: 'problem'; readonly message: string };

/** Compiles one expression, without the braces. Never throws. */
export function compileExpression(text: string): CompiledExpression {
  const problem = (message: string): CompiledExpression => ({ type: 'problem', message });
  if (text.length > MAX_CHARS) return problem(`It has ${text.length} characters. Use at most ${MAX_CHARS}.`);
  let ast: ASTNode;
  try {
    ({ ast } = environment.parse(text));
  } catch (error) {
    const [why = ''] = (error as Error).message.split('\n');
    return problem(`The expression ${JSON.stringify(text)} is not valid CEL: ${why}.`);
  }
  const keys = keysOf(ast);
  if (keys && typeof keys[0] === 'string') return { type: 'expression', template: { type: 'path', keys, text } };
  const found: Names = { names: [], refused: undefined };
  collectNames(ast, new Set(), found);
  if (found.refused !== undefined) {
    return problem(`The expression uses "${found.refused}", which workflows do not have: it may not end.`);
  }
  return { type: 'expression', template: { type: 'cel', text, names: found.names } };
}

/** The expressions of a text: the whole text, or parts of it. Never throws. */
export function compileText(text: string): Template | { readonly type: 'problem'; readonly message: string } {
  const pieces = piecesOf(text);
  if (!pieces)
    return {
      type: 'problem',
      message: `The expression in ${JSON.stringify(text.slice(0, 80))} has no end: "}}" is missing.`,
    };
  if (pieces.length === 1) return { type: 'value', value: text };
  const parts: Template[] = [];
  for (const [index, piece] of pieces.entries()) {
    if (index % 2 === 0) {
      if (piece !== '') parts.push({ type: 'value', value: piece });
      continue;
    }
    const compiled = compileExpression(piece.trim());
    if (compiled.type === 'problem') return compiled;
    parts.push(compiled.template);
  }
  return parts.length === 1 ? parts[0]! : { type: 'text', parts };
}

/** What is around expressions, and in turn the expressions. Undefined: one does not end. */
function piecesOf(text: string): readonly string[] | undefined {
  const pieces: string[] = [];
  for (let at = 0; ;) {
    const from = text.indexOf('${{', at);
    if (from < 0) return [...pieces, text.slice(at)];
    const to = endOf(text, from + 3);
    if (to === undefined) return undefined;
    pieces.push(text.slice(at, from), text.slice(from + 3, to));
    at = to + 2;
  }
}

/** Where an expression ends: at braces that are neither in a text nor those of a map. */
function endOf(text: string, from: number): number | undefined {
  const token = /"(?:\\.|[^"\\])*"|'(?:\\.|[^'\\])*'|[{}]/gs;
  token.lastIndex = from;
  let depth = 0;
  for (let found = token.exec(text); found; found = token.exec(text)) {
    const [one] = found;
    if (one === '{') depth++;
    else if (one === '}' && depth > 0) depth--;
    else if (one === '}' && text[found.index + 1] === '}') return found.index;
  }
  return undefined;
}

type Path = readonly (string | number)[];

/** The expressions of a value: of its texts, and of those inside of it. Calls `onProblem` for each that is not valid. */
export function compileValue(value: unknown, path: Path, onProblem: (path: Path, message: string) => void): Template {
  if (typeof value === 'string') {
    const made = compileText(value);
    if (made.type !== 'problem') return made;
    onProblem(path, made.message);
  } else if (Array.isArray(value)) {
    const items = value.map((one, index) => compileValue(one, [...path, index], onProblem));
    if (items.some(({ type }) => type !== 'value')) return { type: 'list', items };
  } else if (typeof value === 'object' && value !== null) {
    const entries = Object.entries(value).map(
      ([key, one]) => [key, compileValue(one, [...path, key], onProblem)] as const,
    );
    if (entries.some(([, { type }]) => type !== 'value')) return { type: 'table', entries };
  }
  return { type: 'value', value };
}

/** What a template names. */
export function namesIn(template: Template): readonly Keys[] {
  switch (template.type) {
    case 'value':
      return [];
    case 'path':
      return [template.keys];
    case 'cel':
      return template.names;
    case 'text':
      return template.parts.flatMap(namesIn);
    case 'list':
      return template.items.flatMap(namesIn);
    case 'table':
      return template.entries.flatMap(([, one]) => namesIn(one));
    default:
      return template satisfies never;
  }
}

/** The CEL expressions of a template that have to be evaluated. */
export function celIn(template: Template): readonly Extract<Template, { type: 'cel' }>[] {
  switch (template.type) {
    case 'cel':
      return [template];
    case 'text':
      return template.parts.flatMap(celIn);
    case 'list':
      return template.items.flatMap(celIn);
    case 'table':
      return template.entries.flatMap(([, one]) => celIn(one));
    default:
      return [];
  }
}

/** A path names something that is not there. */
export class MissingValue extends Error {}

/** The value at a path. What is inside of a value that is null is null: a step that was skipped has no output. */
export function valueAt(values: Readonly<Record<string, unknown>>, keys: Keys, text: string): unknown {
  let value: unknown = values;
  for (const [index, key] of keys.entries()) {
    if (value === null) return null;
    if (typeof value !== 'object' || !Object.hasOwn(value as object, key)) {
      const where = index === 0 ? 'There is' : `"${keys.slice(0, index).join('.')}" has`;
      throw new MissingValue(`${where} no "${key}", which \${{ ${text} }} names.`);
    }
    value = (value as Record<string | number, unknown>)[key];
  }
  return value;
}

/** The keys of an expression that only names a value; undefined for every other one. */
function keysOf(node: ASTNode): Keys | undefined {
  if (node.op === 'id') return [node.args];
  if (node.op === '.') {
    const inner = keysOf(node.args[0]);
    return inner && [...inner, node.args[1]];
  }
  if (node.op !== '[]') return undefined;
  const [of, at] = node.args;
  const inner = keysOf(of);
  if (!inner || at.op !== 'value') return undefined;
  if (typeof at.args === 'string') return [...inner, at.args];
  return typeof at.args === 'bigint' ? [...inner, Number(at.args)] : undefined;
}

interface Names {
  readonly names: Keys[];
  refused: string | undefined;
}

/** Functions over lists, whose first argument is the name of an entry. */
const MACROS = new Set(['all', 'exists', 'exists_one', 'existsOne', 'map', 'filter', 'transformList', 'transformMap']);
/** Of the form `cel.bind(name, value, expression)`, which is not needed. */
const REFUSED = new Set(['matches', 'bind']);

function collectNames(node: ASTNode, own: ReadonlySet<string>, found: Names): void {
  const keys = keysOf(node);
  if (keys) {
    if (!own.has(String(keys[0]))) found.names.push(keys);
    return;
  }
  if (node.op === 'call' || node.op === 'rcall') {
    const [name] = node.args;
    if (REFUSED.has(name)) found.refused ??= name;
    const args = node.op === 'call' ? node.args[1] : node.args[2];
    if (node.op === 'rcall') collectNames(node.args[1], own, found);
    const [entry] = args;
    if (node.op !== 'rcall' || !MACROS.has(name) || entry?.op !== 'id') {
      for (const one of args) collectNames(one, own, found);
      return;
    }
    for (const one of args.slice(1)) collectNames(one, new Set([...own, entry.args]), found);
    return;
  }
  for (const one of partsOf(node.args)) collectNames(one, own, found);
}

function partsOf(args: unknown): readonly ASTNode[] {
  if (Array.isArray(args)) return args.flatMap(partsOf);
  return typeof args === 'object' && args !== null && 'op' in args ? [args as ASTNode] : [];
}

/** Evaluates expressions by their keys. Throws with the first one that fails. Nothing bounds its time. */
export function evaluateAll({
  expressions,
  values,
}: {
  readonly expressions: Readonly<Record<string, string>>;
  readonly values: Readonly<Record<string, unknown>>;
}): Readonly<Record<string, unknown>> {
  checkSize(values);
  const room = { chars: MAX_RESULT_CHARS };
  return Object.fromEntries(
    Object.entries(expressions).map(([key, text]) => {
      const compiled = compileExpression(text);
      if (compiled.type === 'problem') throw new Error(compiled.message);
      try {
        return [key, jsonOf(environment.evaluate(text, values), room)];
      } catch (error) {
        const [why] = (error as Error).message.split('\n');
        throw new Error(`\${{ ${text} }} cannot be evaluated: ${why}.`, { cause: error });
      }
    }),
  );
}

function checkSize(value: unknown): void {
  if (typeof value !== 'object' || value === null) return;
  const entries = Object.values(value);
  if (entries.length > MAX_ENTRIES) {
    throw new Error(`An expression sees a list of ${entries.length} entries. At most ${MAX_ENTRIES} are possible.`);
  }
  for (const one of entries) checkSize(one);
}

/** CEL has values that JSON lacks. */
function jsonOf(value: unknown, room: { chars: number }): unknown {
  room.chars -= typeof value === 'string' ? value.length : VALUE_CHARS;
  if (room.chars < 0) throw new Error('its result is too large');
  if (typeof value === 'bigint') return Number(value);
  if (typeof value === 'number' && !Number.isFinite(value)) throw new Error('its result is not a finite number');
  if (value instanceof Date) return value.toISOString();
  if (Array.isArray(value)) return value.map((one) => jsonOf(one, room));
  if (value instanceof Map)
    return Object.fromEntries(Array.from(value, ([key, one]) => [String(key), jsonOf(one, room)]));
  if (typeof value !== 'object' || value === null) return value;
  const prototype: unknown = Object.getPrototypeOf(value);
  if (prototype !== Object.prototype && prototype !== null) throw new Error('its result is not a JSON value');
  return Object.fromEntries(Object.entries(value).map(([key, one]) => [key, jsonOf(one, room)]));
}
