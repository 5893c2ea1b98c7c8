import { CommandError, defineCommand, EXIT, SUMMARIES, type Command } from '../command-line/command.ts';
import {
  KEY_NOTE,
  LOCATION_FLAGS,
  LOG_FLAGS,
  MODEL_FLAGS,
  OUTPUT_FLAGS,
  RULE_FLAGS,
  YES_FLAG,
} from '../command-line/flags.ts';
import { columns } from '../command-line/help.ts';
import { readStdin, type Io } from '../terminal/io.ts';
import { canAskOn, runAndReport, runScreen } from './run-and-report.ts';
import { openSession } from './session.ts';

const EXIT_CODES: readonly (readonly [code: number, meaning: string])[] = [
  [EXIT.completed, 'completed: the answer is on standard output'],
  [EXIT.failed, 'failed: the model could not be reached, or rejected the request'],
  [EXIT.usage, 'the command or its configuration is invalid; nothing was run'],
  [EXIT.exhausted, 'exhausted: a limit was reached before the task was done'],
  [EXIT.paused, 'paused: it waits for a client result, or for an approval that could not be given here'],
  [EXIT.cancelled, 'stopped with Ctrl-C or SIGTERM'],
];

export const runCommand: Command = defineCommand({
  name: 'run',
  summary: SUMMARIES.run,
  arguments: ['[task]'],
  flags: { ...MODEL_FLAGS, ...LOCATION_FLAGS, ...RULE_FLAGS, ...YES_FLAG, ...OUTPUT_FLAGS, ...LOG_FLAGS },
  notes: [
    'The text of the model goes to standard output as it arrives, everything else to standard error. With --quiet, only the\n' +
      'answer is printed: the text of the reply that no calls follow.',
    'The task is read from standard input if it is "-", or if it is missing and standard input is not a terminal. Ctrl-C\n' +
      'stops the run and prints how to resume it; a second Ctrl-C quits immediately.',
    'Each step is stored before the next one starts. "treadle runs" lists, shows and resumes stored runs.',
    `Exit codes:\n${columns(EXIT_CODES.map(([code, meaning]) => [String(code), meaning]))}`,
    KEY_NOTE,
    'Examples:\n' +
      '  treadle run "Which files mention a licence?"\n' +
      '  treadle run --model openai/MODEL --json "What does src/main.ts do?" | jq .usage\n' +
      '  treadle run --quiet - < task.md',
  ],
  async run({ values, arguments: [argument] }, io) {
    const task = await readTask(argument, io);
    const screen = runScreen(io, values);
    const { writeLine } = screen;
    const { store, context, options, allTools, notices, explain, follow, close } = await openSession(values, io, {
      canAsk: canAskOn(io),
      writeLine,
    });
    try {
      if (!values.quiet) for (const text of notices) writeLine(text);
      return await runAndReport({
        start: { ...options, input: task },
        allTools,
        follow,
        store,
        context,
        values,
        io,
        screen,
        explain,
      });
    } finally {
      await close();
    }
  },
});

async function readTask(argument: string | undefined, io: Io): Promise<string> {
  if (argument === undefined && io.stdin.isTTY) {
    throw new CommandError('The task is missing. Give it in quotes, "treadle run \'…\'", or on standard input.');
  }
  const task = (argument === undefined || argument === '-' ? await readStdin(io) : argument).trim();
  if (task === '') throw new CommandError('The task is empty. Describe what to do: "treadle run \'…\'".');
  return task;
}
