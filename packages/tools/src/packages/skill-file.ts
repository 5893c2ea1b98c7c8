import { messageOf, tool, type JsonSchema, type ToolEffect } from '@treadle/core';
import { TIMEOUTS } from '../call-limits.ts';
import { cleanText } from '../mcp/describe.ts';
import { checkShape, keyLines, lineOf, parseToml, TomlProblem, type Shape } from '../toml/index.ts';
import type { PackagedTool, TouchTemplate } from './packaged-tool.ts';
import { schemaFrom } from './parameters.ts';
import { placeholdersIn } from './touches.ts';

/* The text of a `skill.toml`: which keys it may have, and what they mean. */

/** What a file says, before its programs are looked for. */
export interface SkillFile {
  readonly name?: string;
  readonly version: string;
  readonly description: string;
  readonly tools: readonly WrittenTool[];
}

export interface WrittenTool extends Omit<PackagedTool, 'program' | 'package' | 'written'> {
  readonly binary?: string;
  /** Programs for single platforms, such as `linux-arm64` or `darwin`. */
  readonly platforms: Readonly<Record<string, string>>;
  /** Where its table begins. */
  readonly line: number | undefined;
}

/** What a tool takes over of the built-in one of its name, if its file does not say it. */
export interface BuiltIn {
  readonly description: string;
  readonly parameters: JsonSchema;
}

/** A file that cannot be used: one line per problem, with the name of the file, the line and the key. */
export class SkillFileError extends Error {
  readonly problems: readonly string[];

  constructor(problems: readonly string[]) {
    super(problems.join('\n'));
    this.problems = problems;
  }
}

const MAX_TOOLS = 128;
/** Of one file. Finding the line of each takes long in a large file. */
const MAX_PROBLEMS = 20;
const MAX_VERSION_CHARS = 32;
const VERSION = /^\d{1,6}(\.\d{1,6}){0,2}(-[0-9A-Za-z.-]+)?$/;

const text: Shape = { type: 'text' };
const version: Shape = {
  type: 'text',
  form: {
    matches: (given) => given.length <= MAX_VERSION_CHARS && VERSION.test(given),
    means: 'a version such as "1.2.0"',
  },
};
const toolName: Shape = {
  type: 'text',
  form: { matches: (given) => /^[\w-]{1,48}$/.test(given), means: '1 to 48 letters, digits, "_" or "-"' },
};
/** The field of each type of touch. */
const TOUCH_FIELDS: Readonly<Record<string, string>> = {
  read: 'path',
  write: 'path',
  command: 'command',
  url: 'url',
  session: 'session',
  device: 'device',
};

const TOOL_SHAPE: Shape = {
  type: 'table',
  fields: {
    name: toolName,
    binary: text,
    description: text,
    parameters: { type: 'either', text, table: { type: 'checked', check: () => [] } },
    sandboxing: { type: 'text', choices: ['auto', 'none', 'bubblewrap', 'firejail', 'podman'] },
    timeout_ms: { type: 'count', min: 1, max: TIMEOUTS.execution.maxMs },
    permissions: { type: 'texts' },
    version,
    platforms: { type: 'table', fields: {}, others: text },
    input: { type: 'text', choices: ['arguments', 'json'] },
    effect: { type: 'text', choices: ['pure', 'idempotent', 'once'] },
    verify: text,
    touches: {
      type: 'tables',
      each: {
        type: 'table',
        fields: {
          type: { type: 'text', choices: Object.keys(TOUCH_FIELDS) },
          ...Object.fromEntries(Object.values(TOUCH_FIELDS).map((field) => [field, text])),
        },
      },
    },
  },
};

const SKILL_SHAPE: Shape = {
  type: 'table',
  fields: {
    skill: { type: 'table', fields: { name: toolName, version, description: text }, others: { type: 'any' } },
    tools: { type: 'tables', each: TOOL_SHAPE },
  },
};

interface RawTool {
  readonly name?: string;
  readonly binary?: string;
  readonly description?: string;
  readonly parameters?: string | Readonly<Record<string, unknown>>;
  readonly sandboxing?: string;
  readonly timeout_ms?: number;
  readonly permissions?: readonly string[];
  readonly version?: string;
  readonly platforms?: Readonly<Record<string, string>>;
  readonly input?: 'arguments' | 'json';
  readonly effect?: ToolEffect;
  readonly verify?: string;
  readonly touches?: readonly TouchTemplate[];
}

interface RawFile {
  readonly skill?: { readonly name?: string; readonly version?: string; readonly description?: string };
  readonly tools?: readonly RawTool[];
}

/** Reads the text of a file. Throws a `SkillFileError`. `file`: its name in messages. */
export function parseSkillFile(
  source: string,
  { file, builtIns }: { readonly file: string; readonly builtIns: ReadonlyMap<string, BuiltIn> },
): SkillFile {
  const value = parsedFile(source, file);
  const lines = keyLines(source);
  const fail = (problems: readonly string[]): never => {
    const more = problems.length - MAX_PROBLEMS;
    throw new SkillFileError([
      ...problems.slice(0, MAX_PROBLEMS).map((problem) => {
        const line = lineOf(lines, problem);
        return `${file}${line === undefined ? '' : `:${line}`}: ${problem.replace(/\.?$/, '.')}`;
      }),
      ...(more > 0 ? [`${file}: There are ${more} more problems.`] : []),
    ]);
  };
  const problems = checkShape(value, SKILL_SHAPE, '');
  if (problems.length > 0) fail(problems);
  const { skill = {}, tools = [] } = value as RawFile;
  if (tools.length > MAX_TOOLS) fail([`tools has ${tools.length} entries, and at most ${MAX_TOOLS} are allowed`]);
  const found: string[] = [];
  const written = tools.map((raw, index) => {
    const path = `tools[${index}]`;
    const at = lineOf(lines, path);
    return writtenTool(raw, {
      path,
      line: at,
      packageVersion: skill.version,
      builtIns,
      problem: (one) => found.push(one),
    });
  });
  if (found.length > 0) fail(found);
  return {
    ...(skill.name !== undefined && { name: skill.name }),
    version: skill.version ?? DEFAULT_VERSION,
    description: cleanText(skill.description ?? ''),
    tools: written.filter((one) => one !== undefined),
  };
}

const DEFAULT_VERSION = '0.0.0';

function parsedFile(source: string, file: string): unknown {
  try {
    return parseToml(source);
  } catch (error) {
    if (!(error instanceof TomlProblem)) throw error;
    throw new SkillFileError([`${file}:${error.line}:${error.column}: ${error.message}.`]);
  }
}

interface ToolPlace {
  readonly path: string;
  readonly line: number | undefined;
  readonly packageVersion: string | undefined;
  readonly builtIns: ReadonlyMap<string, BuiltIn>;
  readonly problem: (text: string) => unknown;
}

/** Undefined if it has a problem. */
function writtenTool(
  raw: RawTool,
  { path, line, packageVersion, builtIns, problem }: ToolPlace,
): WrittenTool | undefined {
  const { name, binary, platforms = {}, touches, verify, sandboxing } = raw;
  if (name === undefined) return void problem(`${path}.name is missing: the name that models call the tool by`);
  const builtIn = builtIns.get(name);
  const description = raw.description ?? builtIn?.description;
  if (description === undefined)
    return void problem(`${path}.description is missing: what ${name} does, for the model`);
  if (binary === undefined && Object.keys(platforms).length === 0) {
    return void problem(`${path}.binary is missing: the program of ${name}, relative to the folder of this file`);
  }
  const unknown = Object.keys(platforms).find((key) => !PLATFORM.test(key));
  if (unknown !== undefined) {
    return void problem(`${path}.platforms.${unknown} must be a platform such as linux, linux-arm64 or darwin-arm64`);
  }
  if (verify !== undefined && (raw.effect ?? 'once') !== 'once') {
    return void problem(`${path}.verify has no effect if effect is not "once". Remove one of them`);
  }
  let parameters: JsonSchema;
  try {
    parameters = raw.parameters === undefined ? (builtIn?.parameters ?? NO_PARAMETERS) : schemaFrom(raw.parameters);
    // Reports a schema that no call could be validated against.
    tool({ name, description, input: parameters });
  } catch (error) {
    const why = error instanceof RangeError ? ' are nested too deeply' : messageOf(error);
    return void problem(`${path}.parameters${/^[ .]/.test(why) ? why : ` cannot be used: ${why}`}`);
  }
  const touchProblem = touchesProblem(touches, parameters, `${path}.touches`);
  if (touchProblem !== undefined) return void problem(touchProblem);
  return {
    name,
    description: cleanText(description),
    parameters,
    version: raw.version ?? packageVersion ?? DEFAULT_VERSION,
    ...(binary !== undefined && { binary }),
    platforms,
    ...(verify !== undefined && { verify }),
    input: raw.input ?? 'arguments',
    timeoutMs: raw.timeout_ms ?? TIMEOUTS.execution.defaultMs,
    permissions: raw.permissions ?? [],
    effect: raw.effect ?? 'once',
    ...(touches && { touches }),
    ...(sandboxing !== undefined && sandboxing !== 'auto' && { sandboxing }),
    line,
  };
}

const NO_PARAMETERS: JsonSchema = { type: 'object', properties: {}, additionalProperties: false };
const PLATFORM = /^[a-z0-9]+(-[a-z0-9_]+)?$/;

function touchesProblem(
  touches: readonly TouchTemplate[] | undefined,
  { properties = {} }: JsonSchema,
  path: string,
): string | undefined {
  const known = Object.keys(properties as object);
  for (const [index, { type, ...fields }] of (touches ?? []).entries()) {
    const at = `${path}[${index}]`;
    if (type === undefined) return `${at}.type is missing: one of ${Object.keys(TOUCH_FIELDS).join(', ')}`;
    const field = TOUCH_FIELDS[type]!;
    const other = Object.keys(fields).find((name) => name !== field);
    if (other !== undefined) return `${at}.${other} does not belong to the type "${type}", which has ${field}`;
    if (fields[field] === undefined) return `${at}.${field} is missing`;
    const unknown = placeholdersIn(fields[field]).find((name) => !known.includes(name));
    if (unknown !== undefined) return `${at}.${field} names {${unknown}}, which is not a parameter`;
  }
  return undefined;
}
