import type { JsonSchema, Tool } from '@treadle/core';
import { CommandError, defineCommand, EXIT, type Command, type CommandGroup } from '../command-line/command.ts';
import { LOCATION_FLAGS, LOG_FLAGS, YES_FLAG } from '../command-line/flags.ts';
import { didYouMean } from '@treadle/core/nearest';
import { resolveContext, type CommandContext } from '../config/context.ts';
import { canAskOn } from '../run/run-and-report.ts';
import type { Io } from '../terminal/io.ts';
import { alignColumns, printable } from '../terminal/printable.ts';
import { durationText } from '../terminal/quantities.ts';
import { callOnce, CALL_EXIT_CODES } from './call-once.ts';
import { commandTools, NO_PLACE, sandboxFor, toolsNamed, whyDisabled } from './command-tools.ts';

const PLACE_FLAGS = { config: LOCATION_FLAGS.config, cwd: LOCATION_FLAGS.cwd } as const;
const JSON_FLAG = { json: { type: 'switch', help: 'Print JSON' } } as const;

const listCommand: Command = defineCommand({
  name: 'tools list',
  summary: 'List the tools of the command',
  flags: { ...JSON_FLAG, ...PLACE_FLAGS },
  notes: [
    'EFFECT says what happens to a call that a crash interrupted: "pure" and "idempotent" calls run again, "once" calls are\n' +
      'not repeated blindly. PERMISSIONS can be refused in treadle.toml; a tool that needs a refused one is not offered.',
  ],
  examples: ['treadle tools list', 'treadle tools list --json'],
  async run({ values }, io) {
    const context = await resolveContext(values, io);
    const tools = commandTools(context);
    for (const problem of context.packages.problems) io.stderr.write(`${problem}\n`);
    if (values.json)
      return printJson(
        io,
        tools.map((tool) => definitionOf(tool, context)),
      );
    const rows = tools.map((tool) => {
      const why = whyDisabled(tool, context.loaded.config);
      const about = why === undefined ? firstSentence(tool.description) : `(disabled: ${why})`;
      return [tool.name, tool.effect, tool.permissions?.join(', ') || '-', about];
    });
    const width = io.stdout.columns ?? 120;
    const table = alignColumns([['NAME', 'EFFECT', 'PERMISSIONS', 'DESCRIPTION'], ...rows]);
    for (const row of table) io.stdout.write(`${cutLine(row.join('  ').trimEnd(), width)}\n`);
    return EXIT.completed;
  },
});

/** Keeps the spaces between columns, which `oneLine` would remove. */
function cutLine(line: string, width: number): string {
  return line.length <= width ? line : `${line.slice(0, width - 1)}…`;
}

const showCommand: Command = defineCommand({
  name: 'tools show',
  summary: 'Show what a tool does, its arguments and its limits',
  arguments: ['TOOL'],
  flags: { ...JSON_FLAG, ...PLACE_FLAGS },
  notes: ['The description and the schema are what models get.'],
  examples: ['treadle tools show edit'],
  async run({ values, arguments: [name] }, io) {
    const context = await resolveContext(values, io);
    const definition = definitionOf(findTool(name!, context), context);
    if (values.json) return printJson(io, definition);
    const { description, effect, permissions, timeout_ms: timeout, disabled, parameters } = definition;
    const lines = [
      `${definition.name}: ${printable(description)}`,
      '',
      `Effect:       ${effect}`,
      `Permissions:  ${permissions.join(', ') || 'none'}`,
      `Time limit:   ${timeoutText(timeout)}`,
      ...(disabled === undefined ? [] : [`Disabled:     by ${disabled}`]),
      '',
      `Arguments:\n${JSON.stringify(parameters, null, 2)}`,
    ];
    io.stdout.write(`${lines.join('\n')}\n`);
    return EXIT.completed;
  },
});

interface Definition extends Pick<Tool, 'name' | 'description' | 'effect' | 'parameters'> {
  readonly permissions: readonly string[];
  /** `max`: of the argument timeout_ms. Absent: the time limit of the run, or none for a task. */
  readonly timeout_ms?: { readonly default: number; readonly max?: number };
  /** The setting that disables it. */
  readonly disabled?: string;
}

function definitionOf(tool: Tool, { loaded }: CommandContext): Definition {
  const { name, description, effect, permissions = [], parameters } = tool;
  const timeout = timeoutOf(tool);
  const disabled = whyDisabled(tool, loaded.config);
  return {
    name,
    description,
    effect,
    permissions,
    ...(timeout && { timeout_ms: timeout }),
    ...(disabled !== undefined && { disabled }),
    parameters,
  };
}

function timeoutOf({ timeoutMs, parameters }: Tool): Definition['timeout_ms'] {
  const given = typeof timeoutMs === 'function' ? timeoutMs({}) : timeoutMs;
  if (given === undefined) return undefined;
  const argument = (parameters['properties'] as Record<string, JsonSchema> | undefined)?.['timeout_ms'];
  const max = argument?.['maximum'];
  return { default: given, ...(typeof max === 'number' && { max }) };
}

/** From this on, a time limit means that there is none. */
const ENDLESS_MS = 2 ** 31 - 1;

function timeoutText(timeout: Definition['timeout_ms']): string {
  if (!timeout) return 'that of the run';
  if (timeout.default >= ENDLESS_MS) return 'none of its own';
  const text = durationText(timeout.default);
  return timeout.max === undefined ? text : `${text}; timeout_ms up to ${timeout.max} (${durationText(timeout.max)})`;
}

const callCommand: Command = defineCommand({
  name: 'tools call',
  summary: 'Execute one call of a tool under the policy, and print its result',
  arguments: ['TOOL', '[JSON]'],
  flags: {
    ...YES_FLAG,
    json: { type: 'switch', help: 'Print the whole result as JSON' },
    ...LOG_FLAGS,
    ...PLACE_FLAGS,
  },
  notes: [
    'JSON has the arguments of the tool; default: {}. "-" reads them from standard input. On a terminal, the policy can ask;\n' +
      'elsewhere a call that it asks about is denied, unless --yes is given. The result is what a model would get, with\n' +
      'images and files described. Nothing is stored, and the call is not counted for the rates.',
    CALL_EXIT_CODES,
  ],
  examples: [
    `treadle tools call glob '{"pattern": "**/*.ts"}'`,
    `treadle tools call read '{"path": "notes.txt"}' --json`,
  ],
  async run({ values, arguments: [name, given = '{}'] }, io) {
    const context = await resolveContext(values, io);
    const tool = await callableTool(name!, context, io);
    return callOnce({ tool, given, context, values, io });
  },
});

function findTool(name: string, context: CommandContext): Tool {
  const tools = commandTools(context);
  const tool = tools.find((one) => one.name === name);
  if (tool) return tool;
  const names = tools.map((one) => one.name);
  throw new CommandError(
    `There is no tool ${JSON.stringify(name)}.${didYouMean(name, names)} Tools: ${names.join(', ')}.`,
  );
}

/** A tool that the configuration does not disable. */
async function callableTool(name: string, context: CommandContext, io: Io): Promise<Tool> {
  const { config, file } = context.loaded;
  const why = whyDisabled(findTool(name, context), config);
  if (why !== undefined) throw new CommandError(`The tool "${name}" is disabled in ${file} with ${why}.`);
  if (name === 'task') throw new CommandError('A task needs a model, and so a run: use "treadle run" instead.');
  const sandbox = await sandboxFor(context, [name]);
  if (sandbox) io.stderr.write(`${sandbox.notice}\n`);
  const place = { ...NO_PLACE, canAnswer: canAskOn(io), sandbox };
  return toolsNamed(context, place, new Set([name]))[0]!;
}

function firstSentence(text: string): string {
  return /^.*?[.:](?= |$)/s.exec(text)?.[0].slice(0, -1) ?? text;
}

function printJson(io: Io, value: unknown): number {
  io.stdout.write(`${JSON.stringify(value, null, 2)}\n`);
  return EXIT.completed;
}

export const toolsGroup: CommandGroup = {
  name: 'tools',
  summary: 'List and show the tools of the command, and call one',
  commands: [listCommand, showCommand, callCommand],
  notes: [
    '"treadle run" and "chat" offer all of them to the model, or those that --tools or offer in [orchestrator.tools] name.\n' +
      '"treadle serve" offers those that tools in [server] names.',
  ],
};
