import type { TreadleErrorCode } from '@treadle/core';
import { parseArguments } from './command-line/arguments.ts';
import { closeTelemetry } from './config/telemetry.ts';
import { CommandError, EXIT, SUMMARIES, type Command, type CommandGroup } from './command-line/command.ts';
import { commandHelp, globalHelp, groupHelp } from './command-line/help.ts';
import { didYouMean } from '@treadle/core/nearest';
import { nodeVersion, oldNodeProblem } from '@treadle/core/node-version';
import type { Io } from './terminal/io.ts';
import { version } from './version.ts';

type Load = () => Promise<Command | CommandGroup>;

/** Only the command that is used is loaded: loading all takes longer than most commands. */
const LOADERS: Readonly<Record<keyof typeof SUMMARIES, Load>> = {
  serve: async () => (await import('./serve/serve.ts')).serveCommand,
  run: async () => (await import('./run/run.ts')).runCommand,
  chat: async () => (await import('./chat/chat.ts')).chatCommand,
  init: async () => (await import('./setup/init.ts')).initCommand,
  doctor: async () => (await import('./setup/doctor.ts')).doctorCommand,
  runs: async () => (await import('./runs/runs.ts')).runsGroup,
  trace: async () => (await import('./runs/trace.ts')).traceCommand,
  status: async () => (await import('./operate/status.ts')).statusCommand,
  metrics: async () => (await import('./operate/metrics.ts')).metricsCommand,
  logs: async () => (await import('./operate/logs.ts')).logsCommand,
  memory: async () => (await import('./memory/memory.ts')).memoryGroup,
  budgets: async () => (await import('./budgets/budgets.ts')).budgetsGroup,
  store: async () => (await import('./store/store.ts')).storeGroup,
  tools: async () => (await import('./tools/tools.ts')).toolsGroup,
  skills: async () => (await import('./skills/skills.ts')).skillsGroup,
  agents: async () => (await import('./agents/agents.ts')).agentsGroup,
  workflow: async () => (await import('./agents/workflows.ts')).workflowGroup,
  schedule: async () => (await import('./agents/schedules.ts')).scheduleGroup,
  edge: async () => (await import('./edge/edge.ts')).edgeGroup,
  mcp: async () => (await import('./mcp/mcp.ts')).mcpGroup,
  policy: async () => (await import('./policy/policy.ts')).policyGroup,
  models: async () => (await import('./models/models.ts')).modelsCommand,
  key: async () => (await import('./serve/key.ts')).keyGroup,
  completion: async () => (await import('./command-line/completion.ts')).completionCommand(loadCommands),
};

const COMMANDS = Object.entries(SUMMARIES).map(([name, summary]) => ({
  name,
  summary,
  load: LOADERS[name as keyof typeof SUMMARIES],
}));

/** All commands and groups, in the order of the help. */
export function loadCommands(): Promise<readonly (Command | CommandGroup)[]> {
  return Promise.all(COMMANDS.map(({ load }) => load()));
}

/** Runs the command line. Returns the exit code and never rejects. */
export async function main(argv: readonly string[], io: Io): Promise<number> {
  // The other packages cannot even be loaded.
  const oldNode = oldNodeProblem(nodeVersion());
  if (oldNode !== undefined && argv[0] !== '--version') {
    io.stderr.write(`treadle: ${oldNode}\n`);
    return EXIT.usage;
  }
  try {
    return await dispatch(argv, io);
  } catch (error) {
    const { text, exitCode } = await explain(error, io);
    io.stderr.write(`treadle: ${text}\n`);
    return exitCode;
  } finally {
    for (const problem of await closeTelemetry()) io.stderr.write(`treadle: ${problem}\n`);
  }
}

async function dispatch(argv: readonly string[], io: Io): Promise<number> {
  const [first, ...rest] = argv;
  // On a terminal, a chat is what its name alone starts, also with flags of a chat.
  const isInteractive = Boolean(io.stdin.isTTY && io.stdout.isTTY);
  const isBare = first === undefined || (first.startsWith('-') && first !== '--version' && !isHelp(first));
  if (isInteractive && isBare) return runCommandWith((await LOADERS.chat()) as Command, argv, io);
  if (first === undefined) {
    io.stderr.write(`${globalHelp(COMMANDS)}\n`);
    return EXIT.usage;
  }
  if (first === '--version') return print(io, version());
  if (isHelp(first) || first === 'help') return print(io, await helpText(rest));
  const found = await findCommand(COMMANDS, first).load();
  if (!('commands' in found)) return runCommandWith(found, rest, io);
  const [second, ...others] = rest;
  if (found.default && (second === undefined || (second.startsWith('-') && !isHelp(second)))) {
    return runCommandWith(found.default, rest, io);
  }
  if (second === undefined) {
    io.stderr.write(`${groupHelp(found)}\n`);
    return EXIT.usage;
  }
  if (isHelp(second) || second === 'help') return print(io, await helpText([first, ...others]));
  return runCommandWith(findCommand(found.commands, second, found.name), others, io);
}

async function runCommandWith(found: Command, args: readonly string[], io: Io): Promise<number> {
  const { moreFlags } = found;
  const command = moreFlags ? { ...found, flags: { ...found.flags, ...(await moreFlags(args, io)) } } : found;
  const parsed = parseArguments(command, args);
  if (parsed === 'help') return print(io, commandHelp(command));
  return command.run(parsed, io);
}

function isHelp(word: string): boolean {
  return word === '--help' || word === '-h';
}

async function helpText([first, second]: readonly string[]): Promise<string> {
  if (first === undefined) return globalHelp(COMMANDS);
  const found = await findCommand(COMMANDS, first).load();
  if (!('commands' in found)) return commandHelp(found);
  return second === undefined ? groupHelp(found) : commandHelp(findCommand(found.commands, second, found.name));
}

/** Finds a command by its last word, among all commands or those of a group. */
function findCommand<C extends { readonly name: string }>(commands: readonly C[], name: string, group?: string): C {
  const wordOf = (one: C): string => one.name.slice(group === undefined ? 0 : group.length + 1);
  const command = commands.find((one) => wordOf(one) === name);
  if (command) return command;
  const names = commands.map(wordOf);
  const inGroup = group === undefined ? '' : `${group} `;
  if (name.startsWith('-')) {
    throw new CommandError(
      `${name} is not a command.${didYouMean(name, ['--help', '--version'])} Put the command first: ` +
        `"treadle ${inGroup}${names[0]} ${name} …". Commands: ${names.join(', ')}.`,
    );
  }
  throw new CommandError(
    `There is no command ${JSON.stringify(inGroup + name)}.${didYouMean(name, names)} Commands: ${names.join(', ')}. ` +
      `See "treadle ${inGroup}--help".`,
  );
}

function print(io: Io, text: string): number {
  io.stdout.write(`${text}\n`);
  return EXIT.completed;
}

/** What to tell the user about an error. Invalid options of core or a model come from a flag or a file. */
async function explain(error: unknown, io: Io): Promise<{ readonly text: string; readonly exitCode: number }> {
  const { messageOf, TreadleError } = await import('@treadle/core');
  const code = error instanceof TreadleError ? error.code : undefined;
  const exitCode = error instanceof CommandError || (code && USER_ERRORS.has(code)) ? EXIT.usage : EXIT.failed;
  const message = messageOf(error);
  if (io.env['TREADLE_DEBUG'] === '1' && error instanceof Error) return { text: error.stack ?? message, exitCode };
  if (code === 'run-driven') return { text: `${message}\n${RELEASE_HINT}`, exitCode };
  if (code !== undefined || exitCode === EXIT.usage) return { text: message, exitCode };
  return { text: `${message}\nThis should not have happened. Set TREADLE_DEBUG=1 for the stack trace.`, exitCode };
}

const RELEASE_HINT = '"treadle runs release --help" describes how to free the run of a process that is stuck.';

/** Errors that the user can fix. */
const USER_ERRORS: ReadonlySet<TreadleErrorCode> = new Set<TreadleErrorCode>([
  'invalid-options',
  'invalid-agent',
  'unknown-agent',
  'unknown-run',
  'run-driven',
  'answer-unfit',
  'answer-refused',
]);
