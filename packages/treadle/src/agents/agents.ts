import { mkdir, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import type { LoopResult } from '@treadle/core';
import type { NamedAgent } from '@treadle/core/named-agents';
import type { AgentFileProblem, FolderAgents } from '@treadle/tools/agents';
import {
  CommandError,
  defineCommand,
  EXIT,
  type Command,
  type CommandGroup,
  type Flags,
} from '../command-line/command.ts';
import {
  KEY_NOTE,
  LOCATION_FLAGS,
  LOG_FLAGS,
  MODEL_FLAGS,
  OUTPUT_FLAGS,
  RULE_FLAGS,
  YES_FLAG,
} from '../command-line/flags.ts';
import { readProblem } from '../command-line/named-file.ts';
import { agentFolders } from '../config/agents.ts';
import { resolveContext } from '../config/context.ts';
import { canAskOn, runAndReport, runScreen } from '../run/run-and-report.ts';
import { openSession, type Session } from '../run/session.ts';
import type { Io } from '../terminal/io.ts';
import { alignColumns, exactLine, oneLine, printable } from '../terminal/printable.ts';
import { askLine } from '../terminal/prompt.ts';
import { catchInterrupt } from '../terminal/signals.ts';
import { agentWord, askInputs, givenInputs, inputFlags, inputsOf, placeOf } from './agent-inputs.ts';
import { findAgent, openAgents, problemText } from './command-agents.ts';

const PLACE_FLAGS = { config: LOCATION_FLAGS.config, cwd: LOCATION_FLAGS.cwd } as const;
const JSON_FLAG = { json: { type: 'switch', help: 'Print JSON' } } as const;

const WHERE =
  'Agents are files in the folders of path in [agents]; default: agents in the working folder, and ~/.treadle/agents. A file\n' +
  'is YAML, JSON, or Markdown with a front matter, whose text is the instructions.';

const listCommand: Command = defineCommand({
  name: 'agents list',
  summary: 'List the agents, and files that do not load',
  flags: { ...JSON_FLAG, ...PLACE_FLAGS },
  notes: [WHERE],
  examples: ['treadle agents list', 'treadle agents list --json'],
  async run({ values }, io) {
    const registry = await openAgents(await resolveContext(values, io));
    const agents = registry?.list().filter(({ workflow }) => !workflow) ?? [];
    const problems = registry?.problems() ?? [];
    const { inputSchema } = await import('@treadle/core/named-agents');
    if (values.json) {
      const listed = agents.map((agent) => ({ ...agent, file: registry!.fileOf(agent.name) }));
      return printJson(io, { agents: listed, problems });
    }
    const rows = agents.map((agent) => [
      agent.name,
      oneLine(Object.keys(inputsOf(inputSchema(agent))).join(', ') || '-', 40),
      oneLine(agent.description, 200),
    ]);
    const table = agents.length === 0 ? [] : alignColumns([['NAME', 'INPUTS', 'DESCRIPTION'], ...rows]);
    const width = io.stdout.columns ?? 120;
    for (const row of table) io.stdout.write(`${row.join('  ').slice(0, width).trimEnd()}\n`);
    if (agents.length === 0) io.stdout.write('There are no agents. "treadle agents new NAME" writes one.\n');
    for (const problem of problems) io.stderr.write(`Not used: ${problemText(problem)}\n`);
    return EXIT.completed;
  },
});

const showCommand: Command = defineCommand({
  name: 'agents show',
  summary: 'Show the prompt of an agent, what it takes and what it may do',
  arguments: ['NAME'],
  flags: { ...JSON_FLAG, ...PLACE_FLAGS },
  notes: ['Skills that the agent names are added to the prompt when it runs.'],
  examples: ['treadle agents show reviewer', 'treadle agents show reviewer --json'],
  async run({ values, arguments: [name] }, io) {
    const registry = await openAgents(await resolveContext(values, io));
    const agent = await findAgent(registry, name!);
    const { agentNarrowings, buildPrompt, inputSchema, outputSchema } = await import('@treadle/core/named-agents');
    const file = registry!.fileOf(agent.name)!;
    const prompt = buildPrompt(agent);
    if (values.json) {
      const output = outputSchema(agent);
      return printJson(io, {
        definition: agent,
        file,
        prompt,
        input_schema: inputSchema(agent),
        ...(output && { output_schema: output }),
        narrowings: agentNarrowings(agent),
      });
    }
    const facts = [
      `Tools: ${agent.tools?.join(', ') || 'none'}`,
      `Model: ${agent.model ?? 'the default'}`,
      `Usage: treadle agents run ${agent.name}${usageOf(inputsOf(inputSchema(agent)))}`,
    ];
    io.stdout.write(`${printable(`${agent.name}: ${agent.description}\n${file}\n${facts.join('\n')}\n\n${prompt}`)}\n`);
    return EXIT.completed;
  },
});

function usageOf(inputs: Readonly<Record<string, unknown>>): string {
  return Object.keys(inputs)
    .map((name) => ` --${name} …`)
    .join('');
}

const RUN_FLAGS = {
  single: { type: 'switch', help: 'One model call without tools' },
  'no-confirm': { type: 'switch', help: 'Do not ask the model once whether everything is done' },
  'task-id': { type: 'text', value: 'NAME', help: 'The task that the run works on, for "runs list" and the server' },
  'session-id': { type: 'text', value: 'NAME', help: 'The session that the run is part of' },
  tools: {
    ...RULE_FLAGS.tools,
    help: 'Tools that agents may be given; default: all. The definition chooses among them',
  },
  'max-turns': { ...RULE_FLAGS['max-turns'], help: 'Call the model at most N times' },
  ask: RULE_FLAGS.ask,
  'trust-skills': RULE_FLAGS['trust-skills'],
  ...YES_FLAG,
  ...MODEL_FLAGS,
  ...OUTPUT_FLAGS,
  ...LOG_FLAGS,
  ...LOCATION_FLAGS,
} as const;

export const runCommand: Command = defineCommand({
  name: 'agents run',
  summary: 'Run an agent, and print its output',
  arguments: ['NAME', '[INPUTS|@file]'],
  flags: RUN_FLAGS,
  moreFlags: agentFlags,
  notes: [
    'INPUTS is a JSON object, a file with one after an @, or "-" for standard input. A flag for each input sets one of them,\n' +
      'such as --path src: "treadle agents run NAME --help" lists them. If the only input is a text, INPUTS is that text. On a\n' +
      'terminal, missing inputs are asked for.',
    'The policy of treadle.toml applies; the definition can only be stricter. The run is stored, and "treadle runs resume"\n' +
      'continues it by the definition that it was started with. Exit codes are those of "treadle run".',
    KEY_NOTE,
  ],
  examples: [
    'treadle agents run reviewer --help',
    'treadle agents run reviewer \'{"path": "src"}\' --json',
    'treadle agents run summarizer @notes.txt --quiet',
  ],
  async run({ values, arguments: [name, ...words] }, io) {
    const { agentRun, iterativeResult, recalledBy, runOwner, withRecalled } =
      await import('@treadle/core/named-agents');
    const agent = await findAgent(await openAgents(await resolveContext(values, io)), name!);
    const inputs = await checkedInputs(agent, { values, words }, io);
    if (inputs === undefined) return EXIT.cancelled;
    // A text after which the model is asked whether everything is done is not the output.
    const isConfirmed = !values.single && !values['no-confirm'] && canCall(agent);
    const screen = runScreen(io, { ...values, answerOnly: agent.outputs !== undefined || isConfirmed });
    const session = await openSession({ ...values, finish: 'plain' }, io, {
      canAsk: canAskOn(io),
      writeLine: screen.writeLine,
    });
    try {
      const { store, context, options, notices, explain, deniedTools } = session;
      if (!values.quiet) for (const text of notices) screen.writeLine(text);
      // The agents that it calls keep their models.
      const host = values.model === undefined ? hostOf(session) : { ...hostOf(session), model: () => options.model };
      const mode = values.single ? 'single' : 'iterative';
      const loop = agentRun(agent, { inputs, mode, options: invokeOptions(values) }, host);
      const start = { ...options, ...loop, labels: { ...options.labels, ...loop.labels } };
      const recalled = await recalledBy(agent, host, start.input, runOwner(start));
      return await runAndReport({
        start: { ...start, ...withRecalled(start, recalled) },
        deniedTools,
        store,
        context,
        values,
        io,
        screen,
        explain,
        asJson: (result: LoopResult) => iterativeResult(agent, result, loop),
      });
    } finally {
      await session.close();
    }
  },
});

function canCall({ tools = [], dependencies = [] }: NamedAgent): boolean {
  return tools.length + dependencies.length > 0;
}

function hostOf({ agents }: Session): ReturnType<NonNullable<Session['agents']>['host']> {
  return agents!.host();
}

type RunValues = Readonly<Partial<Record<string, unknown>>>;

function invokeOptions(values: RunValues): object {
  const { 'no-confirm': noConfirm, 'task-id': task, 'session-id': session } = values;
  return {
    ...(noConfirm === true && { enable_double_confirmation: false }),
    ...(task !== undefined && { task_id: task }),
    ...(session !== undefined && { session_id: session }),
  };
}

/** The inputs of an agent as flags. */
async function agentFlags(args: readonly string[], io: Io): Promise<Flags> {
  const name = agentWord(args);
  if (name === undefined) return {};
  const agent = await findAgent(await openAgents(await resolveContext(placeOf(args), io)), name);
  const { inputSchema } = await import('@treadle/core/named-agents');
  return inputFlags(inputSchema(agent), RUN_FLAGS);
}

/** Undefined: the user gave up. Throws with each problem. */
export async function checkedInputs(
  agent: NamedAgent,
  { values, words }: { readonly values: RunValues; readonly words: readonly string[] },
  io: Io,
): Promise<Readonly<Record<string, unknown>> | undefined> {
  const { checkInputs, inputSchema } = await import('@treadle/core/named-agents');
  const { matchPattern } = await import('@treadle/tools/patterns');
  const schema = inputSchema(agent);
  const given = await givenInputs(schema, { agent, values, words, taken: RUN_FLAGS }, io);
  const all = canAskOn(io) ? await askOnTerminal(schema, given, io) : given;
  if (all === undefined) return undefined;
  const checked = await checkInputs(agent, all, matchPattern);
  if (checked.type === 'valid') return checked.inputs;
  const lines = checked.problems.map(({ message }) => exactLine(message));
  throw new CommandError(`The inputs of "${agent.name}" are not valid.\n${lines.join('\n')}`);
}

async function askOnTerminal(
  schema: Parameters<typeof askInputs>[0],
  given: Readonly<Record<string, unknown>>,
  io: Io,
): Promise<Readonly<Record<string, unknown>> | undefined> {
  const interrupt = catchInterrupt(io);
  try {
    return await askInputs(schema, given, (prompt) => askLine(io, interrupt, prompt), io);
  } finally {
    interrupt.release();
  }
}

const newCommand: Command = defineCommand({
  name: 'agents new',
  summary: 'Write the file of an agent to start from',
  arguments: ['NAME'],
  flags: {
    user: {
      type: 'switch',
      help: 'In the last folder of [agents] path, by default ~/.treadle/agents, instead of the first',
    },
    ...PLACE_FLAGS,
  },
  notes: [WHERE],
  examples: ['treadle agents new reviewer', 'treadle agents new reviewer --user'],
  async run({ values, arguments: [name] }, io) {
    const context = await resolveContext(values, io);
    const { isAgentName } = await import('@treadle/core/named-agents');
    if (!isAgentName(name!)) {
      throw new CommandError(
        `${JSON.stringify(name)} cannot be the name of an agent. Use up to 50 lower-case letters, digits, and single hyphens or underscores, and not "validate".`,
      );
    }
    const folders = agentFolders(context);
    const folder = values.user ? folders.at(-1) : folders[0];
    if (folder === undefined) throw new CommandError('path in [agents] names no folder. Add one.');
    const taken = (await openAgents(context))?.fileOf(name!);
    if (taken !== undefined) throw new CommandError(`The agent "${name}" exists: ${taken}.`);
    const file = join(folder, `${name}.md`);
    try {
      await mkdir(folder, { recursive: true });
      await writeFile(file, templateOf(name!), { flag: 'wx' });
    } catch (error) {
      const isThere = (error as NodeJS.ErrnoException).code === 'EEXIST';
      throw new CommandError(isThere ? `${file} exists already.` : `${file} cannot be written: ${readProblem(error)}.`);
    }
    io.stdout.write(`${file}\n`);
    io.stderr.write(`Try it: treadle agents run ${name} --question "What is in this folder?"\n`);
    return EXIT.completed;
  },
});

function templateOf(name: string): string {
  return `---
name: ${name}
description: What this agent is for. Other agents decide by this line whether to call it.
inputs:
  question: { type: string, required: true, description: What you want to know }
tools: [read, glob, grep]
# outputs:
#   answer: { type: string, required: true }
# model: main
# autonomy_level: read-only
# governance:
#   paths: { read: ["src/**"] }
# constraints: { max_iterations: 10, timeout_seconds: 120 }
---

Answer the question in the input with what you find in the files. Name the files that you used.
`;
}

const checkCommand: Command = defineCommand({
  name: 'agents check',
  summary: 'Check the definitions of agents, and what they name',
  arguments: ['[NAME]'],
  flags: { ...JSON_FLAG, ...PLACE_FLAGS },
  notes: [
    'Checks the files, and whether tools, skills, other agents and models that they name are there.',
    'Exit codes:\n  0  there are no problems; there may be warnings\n  1  a file does not load, or names something that is not there',
  ],
  examples: ['treadle agents check', 'treadle agents check reviewer --json'],
  async run({ values, arguments: [name] }, io) {
    const registry = await openAgents(await resolveContext(values, io));
    if (name !== undefined && !isBroken(registry, name)) await findAgent(registry, name);
    const file = name === undefined ? undefined : registry?.fileOf(name);
    const isMeant = (one: AgentFileProblem): boolean =>
      name === undefined || one.file === file || stemOf(one.file) === name;
    const problems = (registry?.problems() ?? []).filter(isMeant);
    const warnings = (registry?.warnings() ?? []).filter(isMeant);
    const agents = (registry?.list() ?? []).filter((one) => !one.workflow && (name === undefined || one.name === name));
    const missing = agents.length === 0 ? [] : await missingParts(agents, registry!, values, io);
    const isOk = problems.length + missing.length === 0;
    if (values.json)
      printJson(io, { ok: isOk, agents: agents.map((one) => one.name), problems: [...problems, ...missing], warnings });
    else {
      for (const one of [...problems, ...missing]) io.stdout.write(`Problem: ${problemText(one)}\n`);
      for (const one of warnings) io.stdout.write(`Note: ${problemText(one)}\n`);
      if (isOk) io.stdout.write(`${agents.length === 1 ? '1 agent is' : `${agents.length} agents are`} fine.\n`);
    }
    return isOk ? EXIT.completed : EXIT.failed;
  },
});

export function isBroken(registry: FolderAgents | undefined, name: string): boolean {
  return registry?.problems().some(({ file }) => stemOf(file) === name) ?? false;
}

export function stemOf(file: string): string {
  return file.replace(/^.*[/\\]|\.\w+$/g, '');
}

/** What agents name and the host does not have. */
export async function missingParts(
  agents: readonly NamedAgent[],
  registry: FolderAgents,
  values: { readonly config?: string; readonly cwd?: string },
  io: Io,
): Promise<readonly AgentFileProblem[]> {
  const { lackingParts } = await import('@treadle/core/named-agents');
  const session = await openSession({ ...values, store: 'memory:' }, io, {
    canAsk: false,
    writeLine: () => {},
    isDry: true,
  });
  try {
    const host = hostOf(session);
    return agents.flatMap((agent) => lackingParts(agent, host).map((one) => registry.placed(agent.name, one)));
  } finally {
    await session.close();
  }
}

export function printJson(io: Io, value: unknown): number {
  io.stdout.write(`${JSON.stringify(value, null, 2)}\n`);
  return EXIT.completed;
}

export const agentsGroup: CommandGroup = {
  name: 'agents',
  summary: 'List, show, run, write and check agents that are defined in files',
  commands: [listCommand, showCommand, runCommand, newCommand, checkCommand],
  notes: [
    'An agent is a definition in a file: instructions, inputs and outputs, tools, and what it may do at most. It runs by its\n' +
      'name, here, over HTTP and MCP, and other agents can call it.',
  ],
};
