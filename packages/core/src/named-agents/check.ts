import { withoutHidden } from '../describe/exact-text.ts';
import { didYouMean } from '../nearest.ts';
import { isPlain } from '../plain.ts';
import { checkRules } from '../policy/check.ts';
import { schemaProblem } from '../tools/schema-problem.ts';
import { validateJson } from '../tools/schema.ts';
import { fieldSchema, isSchema } from './fields.ts';
import type { AgentProblem, AutonomyLevel, Fields, Governance, NamedAgent } from './named-agent.ts';

/*
 * Checks definitions of agents. What is wrong is named with its place, and with what is allowed there. A definition with a
 * problem is not used at all: what is unknown could have been meant to restrict it.
 */

export type CheckedAgent =
  | { readonly type: 'agent'; readonly agent: NamedAgent; readonly warnings: readonly AgentProblem[] }
  | { readonly type: 'invalid'; readonly problems: readonly AgentProblem[] };

const MAX_NAME = 50;
const MAX_LINE = 1_000;
const MAX_INSTRUCTIONS = 100_000;
const MAX_ENTRIES = 200;
/** Of a definition as JSON. Every run records it. */
const MAX_CHARS = 200_000;

/** Checks a definition from a file or a request, and writes it in its full form. Never throws. */
export function checkNamedAgent(value: unknown): CheckedAgent {
  const found: Finding = { problems: [] };
  if (!isRecord(value)) {
    return { type: 'invalid', problems: [{ path: [], message: 'It is not a table of keys and values.' }] };
  }
  if (!isPlain(value)) {
    const message = 'It has a value that JSON does not have, such as an infinite number.';
    return { type: 'invalid', problems: [{ path: [], message }] };
  }
  if (JSON.stringify(value).length > MAX_CHARS) {
    return { type: 'invalid', problems: [{ path: [], message: `It has more than ${MAX_CHARS} characters.` }] };
  }
  const agent = checkTable(value, [], KEYS, found) as unknown as NamedAgent;
  for (const key of ['name', 'description'] as const) {
    if (value[key] !== undefined && value[key] !== null) continue;
    found.problems.push({ path: [key], message: `It is missing. ${key === 'name' ? NAMES : DESCRIBE}` });
  }
  if (found.problems.length > 0) return { type: 'invalid', problems: found.problems };
  return { type: 'agent', agent, warnings: warningsFor(agent) };
}

/** `validate` is a path of the agents API. */
export function isAgentName(name: string): boolean {
  return name.length <= MAX_NAME && name !== 'validate' && /^[a-z0-9]+([-_][a-z0-9]+)*$/.test(name);
}

const NAMES = `Use up to ${MAX_NAME} lower-case letters, digits, and single hyphens or underscores, and not "validate".`;
const DESCRIBE = 'Say in one line what the agent is for.';

type Path = AgentProblem['path'];
interface Finding {
  readonly problems: AgentProblem[];
}
/** Returns the value in its full form, or undefined after adding a problem. */
type Check = (value: unknown, path: Path, found: Finding) => unknown;

function isRecord(value: unknown): value is Readonly<Record<string, unknown>> {
  return typeof value === 'object' && value !== null && !Array.isArray(value);
}

function shown(value: unknown): string {
  const text = JSON.stringify(value) ?? typeof value;
  return text.length > 80 ? `${text.slice(0, 80).toWellFormed()}…` : text;
}

function wrong(value: unknown, right: string, path: Path, { problems }: Finding): undefined {
  problems.push({ path, message: `It is ${shown(value)}. Use ${right}.` });
  return undefined;
}

/** Without a value they would restrict nothing, which nobody means who writes them. */
const RESTRICTIONS: Path = ['governance', 'autonomy_level'];

function checkTable(
  value: Readonly<Record<string, unknown>>,
  path: Path,
  checks: Readonly<Record<string, Check>>,
  found: Finding,
): Readonly<Record<string, unknown>> {
  const checked: Record<string, unknown> = {};
  for (const [key, part] of Object.entries(value)) {
    if (!Object.hasOwn(checks, key)) {
      const names = Object.keys(checks);
      const message = `There is no such key.${didYouMean(key, names)} The keys are ${names.join(', ')}.`;
      found.problems.push({ path: [...path, key], message });
      continue;
    }
    // A key without a value, such as `tools:` in YAML.
    if (part === null || part === undefined) {
      if (RESTRICTIONS.includes(path[0] ?? key)) {
        found.problems.push({ path: [...path, key], message: 'It has no value. Give it one, or remove the key.' });
      }
      continue;
    }
    const full = checks[key]!(part, [...path, key], found);
    if (full !== undefined) checked[key] = full;
  }
  return checked;
}

function table(checks: Readonly<Record<string, Check>>, required: readonly string[] = []): Check {
  return (value, path, found) => {
    if (!isRecord(value)) return wrong(value, `a table with the keys ${Object.keys(checks).join(', ')}`, path, found);
    for (const key of required) {
      if (value[key] === undefined) found.problems.push({ path: [...path, key], message: 'It is missing.' });
    }
    return checkTable(value, path, checks, found);
  };
}

function text(max: number): Check {
  return (value, path, found) => {
    if (typeof value !== 'string' || value.trim() === '') {
      return wrong(value, 'a text that is not empty; put it in quotes', path, found);
    }
    const clean = withoutHidden(value.replace(/^\uFEFF/, '').replaceAll('\r\n', '\n')).trim();
    if (clean.length <= max) return clean;
    found.problems.push({ path, message: `It has ${clean.length} characters. Use at most ${max}.` });
    return undefined;
  };
}

const LINE: Check = (value, path, found) => {
  const checked = text(MAX_LINE)(value, path, found) as string | undefined;
  return checked?.replaceAll(/\s+/g, ' ');
};

/** A list, or one text with commas between the entries, except inside of parentheses. */
function listOf(check: Check, what: string): Check {
  return (value, path, found) => {
    const given = typeof value === 'string' ? splitEntries(value) : value;
    if (!Array.isArray(given)) return wrong(value, `a list of ${what}`, path, found);
    if (given.length > MAX_ENTRIES) {
      found.problems.push({ path, message: `It has ${given.length} entries. Use at most ${MAX_ENTRIES}.` });
      return undefined;
    }
    return given.map((one, index) => check(one, [...path, index], found));
  };
}

function splitEntries(given: string): readonly string[] {
  return (given.match(/(?:\([^)]*\)|[^,(])+/g) ?? []).map((one) => one.trim()).filter((one) => one !== '');
}

function number(isRight: (value: number) => boolean, right: string): Check {
  return (value, path, found) =>
    typeof value === 'number' && isRight(value) ? value : wrong(value, right, path, found);
}

function wholeNumber(least: number, most: number = Number.MAX_SAFE_INTEGER): Check {
  const range = most === Number.MAX_SAFE_INTEGER ? `of at least ${least}` : `from ${least} to ${most}`;
  return number((value) => Number.isSafeInteger(value) && value >= least && value <= most, `a whole number ${range}`);
}

const BOOLEAN: Check = (value, path, found) =>
  typeof value === 'boolean' ? value : wrong(value, 'true or false', path, found);

const NAME: Check = (value, path, found) => {
  if (typeof value === 'string' && isAgentName(value)) return value;
  found.problems.push({ path, message: `It is ${shown(value)}. ${NAMES}` });
  return undefined;
};

function choice(value: unknown, choices: readonly string[], path: Path, found: Finding): string | undefined {
  const given = typeof value === 'string' ? value.toLowerCase().replaceAll('_', '-') : value;
  if (typeof given === 'string' && choices.includes(given)) return given;
  const hint = typeof given === 'string' ? didYouMean(given, choices) : '';
  found.problems.push({ path, message: `It is ${shown(value)}.${hint} Use one of ${choices.join(', ')}.` });
  return undefined;
}

export const AUTONOMY_LEVELS: readonly AutonomyLevel[] = ['read-only', 'supervised', 'bounded', 'full'];

const AUTONOMY: Check = (value, path, found) => {
  if (typeof value === 'number' && AUTONOMY_LEVELS[value] !== undefined) return AUTONOMY_LEVELS[value];
  return choice(value, AUTONOMY_LEVELS, path, found);
};

/* Inputs and outputs */

const FIELD_TYPES = ['string', 'number', 'integer', 'boolean', 'array', 'object'];

const FIELD: Check = (value, path, found) => {
  const before = found.problems.length;
  const field = table(
    {
      type: (given, at, to) => choice(given, FIELD_TYPES, at, to),
      description: LINE,
      required: BOOLEAN,
      default: (given) => given,
      enum: (given, at, to) =>
        Array.isArray(given) && given.length > 0 ? given : wrong(given, 'a list of allowed values', at, to),
    },
    ['type'],
  )(value, path, found) as Readonly<Record<string, unknown>> | undefined;
  if (!field || found.problems.length > before || field['default'] === undefined) return field;
  const checked = validateJson(fieldSchema(field as never), field['default']);
  if (checked.type === 'valid') return field;
  found.problems.push({ path: [...path, 'default'], message: `It does not fit the field: ${checked.problems[0]}.` });
  return undefined;
};

const FIELD_NAME = /^[\p{L}_$][\p{L}\p{N}_$.-]{0,63}$/u;

const FIELDS: Check = (value, path, found) => {
  if (!isRecord(value)) return wrong(value, 'a table of fields, or a JSON Schema with the type "object"', path, found);
  if (isSchema(value)) {
    const problem = schemaProblem(value);
    if (problem === undefined) return value;
    found.problems.push({ path, message: `It is not a JSON Schema that can be used: ${problem}` });
    return undefined;
  }
  const fields: Record<string, unknown> = {};
  for (const [name, field] of Object.entries(value)) {
    if (FIELD_NAME.test(name) && name !== '__proto__') fields[name] = FIELD(field, [...path, name], found);
    else
      found.problems.push({
        path: [...path, name],
        message: 'It cannot be the name of a field. Use letters and digits.',
      });
  }
  return fields satisfies Readonly<Record<string, unknown>> as Fields;
};

/* Governance */

/** Lists as in a policy. One list is what is allowed. */
function rulesPart(key: 'commands' | 'paths' | 'domains'): Check {
  return (value, path, found) => {
    const full = Array.isArray(value) || typeof value === 'string' ? fromList(key, value) : value;
    const { problems } = checkRules({ [key]: full });
    // Their places begin with the key.
    for (const one of problems) found.problems.push({ path: [...path, ...one.path.slice(1)], message: one.message });
    return problems.length === 0 ? full : undefined;
  };
}

function fromList(key: string, value: unknown): unknown {
  const entries = typeof value === 'string' ? splitEntries(value) : value;
  return key === 'paths' ? { read: entries, write: entries } : { allow: entries };
}

/** Only inside the host's folder. */
const WORKING_DIR: Check = (value, path, found) => {
  const given = LINE(value, path, found) as string | undefined;
  if (given === undefined) return undefined;
  const names = given.replace(/\/+$/, '').split('/');
  const isInside = !given.startsWith('/') && !given.startsWith('~') && !given.includes('\\') && !names.includes('..');
  const isPlainPath = !/[*?{}[\]]/.test(given) && names.every((name) => name !== '');
  const plain = names.filter((name) => name !== '.').join('/');
  return isInside && isPlainPath
    ? plain || '.'
    : wrong(value, 'a folder inside the working folder, such as "src"', path, found);
};

const SCOPE: Check = (value, path, found) => {
  if (typeof value === 'string' && /^tools:execute(:[\w-]+)?$/.test(value)) return value;
  return wrong(value, '"tools:execute", or "tools:execute:NAME" with the name of a tool', path, found);
};

const GOVERNANCE: Readonly<Record<keyof Governance, Check>> = {
  commands: rulesPart('commands'),
  paths: rulesPart('paths'),
  domains: rulesPart('domains'),
  working_dir: WORKING_DIR,
  approvals: listOf(LINE, 'tools'),
  scopes: listOf(SCOPE, 'scopes'),
};

/* Tools and other agents */

const TOOL: Check = (value, path, found) => {
  const entry = LINE(value, path, found) as string | undefined;
  if (entry === undefined) return undefined;
  const [, kind, name] = /^(agent|handoff):(.*)$/.exec(entry) ?? [];
  if (kind === undefined) {
    const isEntry = entry === '*' || /^[\w.-]+\s*(\(.*\))?$/s.test(entry);
    return isEntry ? entry : wrong(value, 'the name of a tool, such as "read" or "Bash(git:*)"', path, found);
  }
  return isAgentName(name!) ? entry : wrong(value, `"${kind}:NAME" with the name of an agent`, path, found);
};

const DEPENDENCY: Check = (value, path, found) => {
  if (typeof value === 'string') return NAME(value, path, found) === undefined ? undefined : { agent: value };
  return table({ agent: NAME, optional: BOOLEAN, purpose: LINE }, ['agent'])(value, path, found);
};

const KEYS: Readonly<Record<Exclude<keyof NamedAgent, 'workflow'>, Check>> = {
  name: NAME,
  // YAML reads 1.0 as a number.
  version: (value, path, found) => LINE(typeof value === 'number' ? String(value) : value, path, found),
  role: LINE,
  description: LINE,
  instructions: text(MAX_INSTRUCTIONS),
  capabilities: listOf(LINE, 'texts'),
  spec_capabilities: listOf(LINE, 'texts'),
  inputs: FIELDS,
  outputs: FIELDS,
  model: LINE,
  temperature: number((value) => value >= 0 && value <= 2, 'a number from 0 to 2'),
  tools: listOf(TOOL, 'names of tools'),
  skills: listOf(LINE, 'names of skills'),
  constraints: table({
    max_retries: wholeNumber(0, 10),
    timeout_seconds: number((value) => value > 0 && value <= 1e6, 'a number of seconds above 0, up to a million'),
    max_iterations: wholeNumber(1),
    max_tool_calls_per_iteration: wholeNumber(1),
    max_tokens: wholeNumber(1),
    parallel_allowed: BOOLEAN,
  } satisfies Readonly<Record<keyof NonNullable<NamedAgent['constraints']>, Check>>),
  governance: table(GOVERNANCE),
  autonomy_level: AUTONOMY,
  ownership: table({ owner: LINE, escalation_target: LINE }, ['owner']),
  dependencies: listOf(DEPENDENCY, 'names of agents'),
  memory: BOOLEAN,
};

/** What has no effect. */
function warningsFor({ tools = [], governance = {}, dependencies = [] }: NamedAgent): readonly AgentProblem[] {
  const warnings: AgentProblem[] = [];
  const warn = (message: string, ...path: Path): void => void warnings.push({ path, message });
  if (tools.length + dependencies.length === 0) {
    for (const key of Object.keys(governance)) warn('It has no effect: the agent has no tools.', 'governance', key);
  }
  const { warnings: useless } = checkRules(rulesIn(governance));
  for (const { path, message } of useless) warn(message, 'governance', ...path);
  return warnings;
}

function rulesIn({ commands, paths, domains }: Governance): Readonly<Record<string, unknown>> {
  return { ...(commands && { commands }), ...(paths && { paths }), ...(domains && { domains }) };
}
