import { messageOf, TreadleError, type TreadleErrorCode } from '@treadle/core';
import { chatCommand } from './chat/chat.ts';
import { parseArguments } from './command-line/arguments.ts';
import { CommandError, EXIT, type Command, type CommandGroup } from './command-line/command.ts';
import { commandHelp, globalHelp, groupHelp } from './command-line/help.ts';
import { didYouMean } from '@treadle/tools/nearest';
import { modelsCommand } from './models/models.ts';
import { policyGroup } from './policy/policy.ts';
import { runCommand } from './run/run.ts';
import { runsGroup } from './runs/runs.ts';
import { keyGroup } from './serve/key.ts';
import { serveCommand } from './serve/serve.ts';
import { storeGroup } from './store/store.ts';
import type { Io } from './terminal/io.ts';
import { version } from './version.ts';

const COMMANDS: readonly (Command | CommandGroup)[] = [
  serveCommand,
  runCommand,
  chatCommand,
  runsGroup,
  storeGroup,
  policyGroup,
  modelsCommand,
  keyGroup,
];

/** Runs the command line. Returns the exit code and never rejects. */
export async function main(argv: readonly string[], io: Io): Promise<number> {
  try {
    return await dispatch(argv, io);
  } catch (error) {
    io.stderr.write(`treadle: ${explain(error, io)}\n`);
    return isUserError(error) ? EXIT.usage : EXIT.failed;
  }
}

async function dispatch([first, ...rest]: readonly string[], io: Io): Promise<number> {
  if (first === undefined) {
    io.stderr.write(`${globalHelp(COMMANDS)}\n`);
    return EXIT.usage;
  }
  if (first === '--version') return print(io, version());
  if (isHelp(first) || first === 'help') return print(io, helpText(rest));
  const found = findCommand(COMMANDS, first);
  if (!('commands' in found)) return runCommandWith(found, rest, io);
  const [second, ...others] = rest;
  if (second === undefined) {
    io.stderr.write(`${groupHelp(found)}\n`);
    return EXIT.usage;
  }
  if (isHelp(second) || second === 'help') return print(io, helpText([first, ...others]));
  return runCommandWith(findCommand(found.commands, second, found.name), others, io);
}

async function runCommandWith(command: Command, args: readonly string[], io: Io): Promise<number> {
  const parsed = parseArguments(command, args);
  return parsed === 'help' ? print(io, commandHelp(command)) : command.run(parsed, io);
}

function isHelp(word: string): boolean {
  return word === '--help' || word === '-h';
}

function helpText([first, second]: readonly string[]): string {
  if (first === undefined) return globalHelp(COMMANDS);
  const found = findCommand(COMMANDS, first);
  if (!('commands' in found)) return commandHelp(found);
  return second === undefined ? groupHelp(found) : commandHelp(findCommand(found.commands, second, found.name));
}

/** Finds a command by its last word, among all commands or those of a group. */
function findCommand<C extends Command | CommandGroup>(commands: readonly C[], name: string, group?: string): C {
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

function explain(error: unknown, io: Io): string {
  if (io.env['TREADLE_DEBUG'] === '1' && error instanceof Error) return error.stack ?? error.message;
  if (error instanceof TreadleError && error.code === 'run-driven') return `${error.message}\n${RELEASE_HINT}`;
  if (isUserError(error) || error instanceof TreadleError) return messageOf(error);
  return `${messageOf(error)}\nThis should not have happened. Set TREADLE_DEBUG=1 for the stack trace.`;
}

const RELEASE_HINT = '"treadle runs release --help" describes how to free the run of a process that is stuck.';

/** Whether the user can fix the error. Invalid options of core or a model come from a flag or a file. */
function isUserError(error: unknown): boolean {
  return error instanceof CommandError || (error instanceof TreadleError && USER_ERRORS.has(error.code));
}

const USER_ERRORS: ReadonlySet<TreadleErrorCode> = new Set<TreadleErrorCode>([
  'invalid-options',
  'unknown-run',
  'run-driven',
  'answer-unfit',
  'answer-refused',
]);
