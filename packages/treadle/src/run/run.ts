import { command, type Command, EXIT_CODES, CommandError } from '../command-line/command.ts';
import { columns } from '../command-line/help.ts';
import { unfinishedNotice } from '../runs/unfinished.ts';
import { KEY_NOTE, MODEL_FLAGS, OUTPUT_FLAGS, PLACE_FLAGS, RULE_FLAGS } from '../command-line/flags.ts';
import type { Io } from '../terminal/io.ts';
import { openSession } from './session.ts';
import { work } from './run-and-report.ts';

export const runCommand: Command = command({
  name: 'run',
  summary: 'Do one task with the tools of the working folder, and print the answer',
  arguments: ['[task]'],
  flags: { ...MODEL_FLAGS, ...PLACE_FLAGS, ...RULE_FLAGS, ...OUTPUT_FLAGS },
  notes: [
    'The answer goes to standard output, everything else to standard error. With "-", or without a task where standard\n' +
      'input is no terminal, the task is read from there. Ctrl-C stops the run and says how to go on with it; a second\n' +
      'one quits at once.',
    'Every step is kept in the store before the next begins: "treadle runs" lists, shows and resumes what is there.',
    `Exit codes:\n${columns(EXIT_CODES.map(([code, meaning]) => [String(code), meaning]))}`,
    KEY_NOTE,
    'Examples:\n' +
      '  treadle run "Which files mention a licence?"\n' +
      '  treadle run --model openai/MODEL --json "What does src/main.ts do?" | jq .usage\n' +
      '  treadle run --quiet - < task.md',
  ],
  async run({ values, arguments: [argument] }, io) {
    const task = await taskFrom(argument, io);
    const { store, place, options, notice } = await openSession(values, io);
    try {
      if (!values.quiet) {
        for (const text of [notice, await unfinishedNotice(store, values)]) if (text) io.stderr.write(`${text}\n`);
      }
      return await work({ start: { ...options, input: task }, store, place, values, io });
    } finally {
      await store.close();
    }
  },
});

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
