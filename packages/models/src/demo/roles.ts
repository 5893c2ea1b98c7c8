import type { ToolSpec } from '@treadle/core';
import { evaluate } from './arithmetic.ts';
import { missing, parametersOf, type Arguments, type Parameter } from './parameters.ts';

/** What the demo knows how to use a tool for. */
export type Role = 'list' | 'read' | 'search' | 'calculate' | 'time';

/** What a tool for the role must be told; each role uses its own part. */
export interface Task {
  readonly path?: string;
  readonly pattern?: string;
  readonly text?: string;
  readonly expression?: string;
}

export interface Choice {
  readonly tool: ToolSpec;
  readonly given: Arguments;
}

interface Signs {
  readonly name: RegExp;
  readonly description: RegExp;
  /** The arguments, or nothing if the tool is not of the right shape. */
  readonly fill: (parameters: readonly Parameter[], task: Task, tool: ToolSpec) => Arguments | undefined;
}

const PATH = /^(?:path|file|file_?path|file_?name|uri|name)$/i;
const FOLDER = /^(?:path|dir|directory|folder|root|cwd|base)$/i;
const PLACE = /^(?:path|file|file_?path|dir|directory|folder|where|include)$/i;
const PATTERN = /^(?:pattern|glob|globs?|match|filter)$/i;
const NEEDLE = /^(?:pattern|query|q|text|term|needle|regex|regexp|search|string|keyword)$/i;
const EXPRESSION = /^(?:expression|expr|formula|calculation|input|query|equation|math)$/i;

const ROLES: Readonly<Record<Role, Signs>> = {
  read: {
    name: /(?:^|_)(?:read|cat|open|view|load|get_file|get_contents?)(?:_|$)/i,
    description: /\bread(?:s|ing)?\b.*\bfile|\b(?:text|contents?)\b.*\bof\b.*\bfile/i,
    fill: (parameters, { path }) => set(named(parameters, PATH), path),
  },
  list: {
    name: /glob|(?:^|_)(?:ls|dir|tree)(?:_|$)|list_?(?:files|dir)|(?:find|list)_?(?:files|folders|director)/i,
    description: /\b(?:list|find|show)s?\b.*\b(?:files?|director|folders?)/i,
    fill(parameters, { path, pattern }) {
      const glob = named(parameters, PATTERN);
      const folder = named(parameters, FOLDER);
      if (glob === undefined)
        return folder === undefined ? {} : set(folder, path ?? (folder.required ? '.' : undefined));
      if (folder === undefined) return set(glob, path === undefined ? (pattern ?? '*') : `${path}/${pattern ?? '*'}`);
      return { ...set(glob, pattern ?? '*'), ...set(folder, path) };
    },
  },
  search: {
    name: /grep|(?:^|_)rg(?:_|$)|search|find_?(?:text|in)/i,
    description: /\bsearch|\blines?\b.*\bmatch|\bmatch.*\blines?\b|\bfind.*\btext\b/i,
    fill(parameters, { text, path }, tool) {
      const needle = named(parameters, NEEDLE);
      if (needle === undefined || text === undefined) return undefined;
      const place = named(
        parameters.filter((other) => other !== needle),
        PLACE,
      );
      const regular = /regular expression|regexp?\b/i.test(`${tool.description} ${needle.description} ${needle.name}`);
      return { ...set(needle, regular ? escaped(text) : text), ...(place && set(place, path)) };
    },
  },
  calculate: {
    name: /calc|math|eval|arith|compute|(?:^|_)(?:add|sum|subtract|multiply|divide)(?:_|$)/i,
    description: /arithmetic|calculat|mathematical|\b(?:add|sum|multipl|divid|subtract)\w*\b.*\bnumbers?/i,
    fill(parameters, { expression }, tool) {
      const whole = named(parameters, EXPRESSION);
      if (whole?.type === 'string') return set(whole, expression);
      return operands(parameters, expression ?? '', tool);
    },
  },
  time: {
    name: /(?:^|_)(?:time|clock|date|now|today)(?:_|$)|datetime/i,
    description: /\b(?:current|present|today's)\b.*\b(?:date|time|day)\b|\bwhat time\b/i,
    fill: () => ({}),
  },
};

/** The tool that looks most like one for the role and can be called with what is known. */
export function toolFor(role: Role, task: Task, tools: readonly ToolSpec[]): Choice | undefined {
  const { name, description, fill } = ROLES[role];
  let best: (Choice & { score: number }) | undefined;
  for (const tool of tools) {
    const score = (name.test(tool.name) ? 2 : 0) + (description.test(tool.description) ? 2 : 0) - distance(role, tool);
    if (score <= 0 || score <= (best?.score ?? 0)) continue;
    const parameters = parametersOf(tool);
    const given = fill(parameters, task, tool);
    if (given !== undefined && missing(parameters, given).length === 0) best = { tool, given, score };
  }
  return best && { tool: best.tool, given: best.given };
}

/** Tools that read or search, but something else than files. */
function distance(role: Role, { name, description }: ToolSpec): number {
  const files = role === 'read' || role === 'list' || role === 'search';
  return files && /\b(?:web|internet|url|memory|result|skill)/i.test(`${name.replaceAll('_', ' ')} ${description}`)
    ? 1
    : 0;
}

const OPERATIONS: Readonly<Record<string, RegExp>> = {
  '+': /^\+$|add|plus|sum/i,
  '-': /^-$|sub|minus|difference/i,
  '*': /^[*×x]$|mul|times|product/i,
  '/': /^[/÷]$|div|over|quotient/i,
};

/** For calculators with two numbers: the operation is a parameter, or the tool itself. */
function operands(parameters: readonly Parameter[], expression: string, tool: ToolSpec): Arguments | undefined {
  const [, left, sign, right] = /^(-?[\d.]+)\s*([-+*/])\s*(-?[\d.]+)$/.exec(expression) ?? [];
  const [first, second] = parameters.filter(({ type }) => type === 'number' || type === 'integer');
  if (sign === undefined || first === undefined || second === undefined) return undefined;
  const numbers = { [first.name]: evaluate(left!), [second.name]: evaluate(right!) };
  const operation = parameters.find(({ name }) => /^op/i.test(name));
  if (operation === undefined) return OPERATIONS[sign]!.test(tool.name) ? numbers : undefined;
  const choice = operation.choices.length === 0 ? sign : operation.choices.find((word) => OPERATIONS[sign]!.test(word));
  return choice === undefined ? undefined : { ...numbers, [operation.name]: choice };
}

function named(parameters: readonly Parameter[], pattern: RegExp): Parameter | undefined {
  const fitting = parameters.filter(({ name, type }) => type === 'string' && pattern.test(name));
  return fitting.find(({ required }) => required) ?? fitting[0];
}

function set(parameter: Parameter | undefined, value: unknown): Arguments | undefined {
  if (parameter === undefined) return undefined;
  return value === undefined ? {} : { [parameter.name]: value };
}

function escaped(text: string): string {
  return text.replace(/[\\^$.*+?()[\]{}|]/g, String.raw`\$&`);
}
