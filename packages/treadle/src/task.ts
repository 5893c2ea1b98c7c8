import { CommandError } from './command-error.ts';
import type { Io } from './io.ts';

/** The task: the argument, or standard input when that is `-` or absent. */
export async function taskFrom(argument: string | undefined, io: Io): Promise<string> {
  if (argument !== undefined && argument !== '-') return named(argument);
  if (argument === undefined && io.stdin.isTTY) {
    throw new CommandError('There is no task. Give it in quotes, "treadle run \'…\'", or on standard input.');
  }
  return named(await readAll(io));
}

/** Standard input to its end. */
export async function readAll(io: Io): Promise<string> {
  const pieces: Buffer[] = [];
  for await (const piece of io.stdin) pieces.push(Buffer.from(piece));
  return Buffer.concat(pieces).toString('utf8');
}

function named(task: string): string {
  const text = task.trim();
  if (text === '') throw new CommandError('The task is empty. Say what to do, "treadle run \'…\'".');
  return text;
}
