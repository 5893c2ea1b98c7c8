import { messageOf, TreadleError } from '@treadle/core';
import { parseArguments } from './arguments.ts';
import { chatCommand } from './chat.ts';
import { CommandError } from './command-error.ts';
import type { Command } from './command.ts';
import { EXIT } from './exit-code.ts';
import { commandHelp, globalHelp } from './help.ts';
import type { Io } from './io.ts';
import { didYouMean } from './nearest.ts';
import { runCommand } from './run.ts';
import { version } from './version.ts';

const COMMANDS: readonly Command[] = [runCommand, chatCommand];

/** The whole command; gives its exit code and never rejects. */
export async function main(argv: readonly string[], io: Io): Promise<number> {
  try {
    return await dispatch(argv, io);
  } catch (error) {
    io.stderr.write(`treadle: ${explain(error, io)}\n`);
    return isUsers(error) ? EXIT.usage : EXIT.failed;
  }
}

async function dispatch([first, ...rest]: readonly string[], io: Io): Promise<number> {
  if (first === undefined) {
    io.stderr.write(`${globalHelp(COMMANDS)}\n`);
    return EXIT.usage;
  }
  if (first === '--version') return print(io, version());
  if (first === '--help' || first === '-h' || first === 'help') {
    return print(io, rest[0] === undefined ? globalHelp(COMMANDS) : commandHelp(find(rest[0])));
  }
  const command = find(first);
  const given = parseArguments(command, rest);
  return given === 'help' ? print(io, commandHelp(command)) : command.run(given, io);
}

function find(name: string): Command {
  const command = COMMANDS.find((one) => one.name === name);
  if (command) return command;
  const names = COMMANDS.map((one) => one.name);
  if (name.startsWith('-')) {
    throw new CommandError(
      `${name} stands where the command belongs.${didYouMean(name, ['--help', '--version'])} Put the command first: ` +
        `"treadle ${names[0]} ${name} …". Commands: ${names.join(', ')}.`,
    );
  }
  throw new CommandError(
    `There is no command ${JSON.stringify(name)}.${didYouMean(name, names)} Commands: ${names.join(', ')}. ` +
      `"treadle --help" says more.`,
  );
}

function print(io: Io, text: string): number {
  io.stdout.write(`${text}\n`);
  return EXIT.completed;
}

function explain(error: unknown, io: Io): string {
  if (io.env['TREADLE_DEBUG'] === '1' && error instanceof Error) return error.stack ?? error.message;
  if (isUsers(error) || error instanceof TreadleError) return messageOf(error);
  return `${messageOf(error)}\nThis should not have happened. TREADLE_DEBUG=1 shows where it did.`;
}

/** Whether it is for the user to put right. An option that core or a model cannot take came from a flag or a file. */
function isUsers(error: unknown): boolean {
  return error instanceof CommandError || (error instanceof TreadleError && error.code === 'invalid-options');
}
