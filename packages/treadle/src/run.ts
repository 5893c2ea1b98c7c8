import type { LoopResult } from '@treadle/core';
import { askApproval } from './approval.ts';
import { askLine } from './ask-line.ts';
import { callLines } from './call-lines.ts';
import { coloursFor } from './colours.ts';
import { command, type Command } from './command.ts';
import { drive, type DriveOptions } from './drive.ts';
import { EXIT_CODES, exitCodeOf } from './exit-code.ts';
import { columns } from './help.ts';
import { interruptible, type Interrupt } from './interrupt.ts';
import type { Io } from './io.ts';
import { outcomeText } from './outcome-text.ts';
import { printable } from './printable.ts';
import { KEY_NOTE, SESSION_FLAGS } from './session-flags.ts';
import { openSession } from './session.ts';
import { taskFrom } from './task.ts';

export const runCommand: Command = command({
  name: 'run',
  summary: 'Do one task with the tools of the working folder, and print the answer',
  argument: '[task]',
  flags: {
    ...SESSION_FLAGS,
    json: { type: 'switch', help: 'Print the whole result as JSON instead of the answer' },
    quiet: { type: 'switch', short: 'q', help: 'Do not tell of tool calls on standard error' },
  },
  notes: [
    'The answer goes to standard output, everything else to standard error. With "-", or without a task where standard\n' +
      'input is no terminal, the task is read from there. Ctrl-C cancels; a second one quits at once.',
    `Exit codes:\n${columns(EXIT_CODES.map(([code, meaning]) => [String(code), meaning]))}`,
    KEY_NOTE,
    'Examples:\n' +
      '  treadle run "Which files mention a licence?"\n' +
      '  treadle run --model openai/MODEL --json "What does src/main.ts do?" | jq .usage\n' +
      '  treadle run --quiet - < task.md',
  ],
  async run({ values, argument }, io) {
    const task = await taskFrom(argument, io);
    const session = await openSession(values, io);
    const say = (text: string): void => void io.stderr.write(`${text}\n`);
    if (session.notice && !values.quiet) say(session.notice);

    const colours = coloursFor(io.stderr, io.env);
    const interrupt = interruptible(io);
    interrupt.signal.addEventListener('abort', () => say('Cancelling; Ctrl-C again quits at once.'));
    let result: LoopResult;
    try {
      result = await drive({
        ...session.options,
        input: task,
        signal: interrupt.signal,
        onItem: values.quiet ? () => {} : callLines({ write: say, colours, width: io.stderr.columns ?? 120 }),
        ...approver(io, interrupt),
      });
    } finally {
      interrupt.release();
    }

    if (values.json) io.stdout.write(`${JSON.stringify(result, null, 2)}\n`);
    else if (result.outcome?.type === 'completed') io.stdout.write(`${forOutput(result.text, io)}\n`);
    else if (result.text !== '') say(`The model's last words: ${printable(result.text)}`);
    const ending = outcomeText(result);
    if (ending) say(result.outcome?.type === 'completed' ? ending : colours.red(ending));
    if (!result.outcome) say('There is no terminal to ask on. Run it in one, or without --ask.');
    return exitCodeOf(result);
  },
});

function approver(io: Io, interrupt: Interrupt): Pick<DriveOptions, 'approve'> {
  if (!io.stdin.isTTY || !io.stderr.isTTY) return {};
  const say = (line: string): void => void io.stderr.write(`${line}\n`);
  return { approve: (asked) => askApproval(asked, { say, ask: (prompt) => askLine(io, interrupt, prompt) }) };
}

/** As it is for a program that reads it, harmless for a terminal. */
function forOutput(text: string, io: Io): string {
  return io.stdout.isTTY ? printable(text) : text;
}
