import { memoryJournal, type CallAnswered, type ResultBlock, type Tool } from '@treadle/core';
import type { Analysers } from '@treadle/core/policy';
import { callingModel } from '@treadle/tools/calling-model';
import { EXIT, type Values } from '../command-line/command.ts';
import type { LOG_FLAGS, YES_FLAG } from '../command-line/flags.ts';
import type { CommandContext } from '../config/context.ts';
import { loadHooks } from '../config/hooks.ts';
import { commandPolicy, requestExplainer } from '../policy/command-policy.ts';
import { approveByFlag, askApproval, askQuestion, userName } from '../run/ask-approval.ts';
import { openCallLog } from '../run/call-log.ts';
import { driveRun } from '../run/drive-run.ts';
import { outcomeText } from '../run/outcome-text.ts';
import { canAskOn } from '../run/run-and-report.ts';
import { transcript } from '../run/transcript.ts';
import { coloursFor } from '../terminal/colours.ts';
import { readStdin, type Io } from '../terminal/io.ts';
import { exactLine, oneLine, printable } from '../terminal/printable.ts';
import { askLine } from '../terminal/prompt.ts';
import { sizeText } from '../terminal/quantities.ts';
import { catchInterrupt } from '../terminal/signals.ts';
import { NO_STATUS, statusLine } from '../terminal/status-line.ts';
import { checkToolArguments } from './command-tools.ts';

/** The exit codes of commands that execute one call, for their help. */
export const CALL_EXIT_CODES: string =
  'Exit codes:\n' +
  '  0    the result is on standard output\n' +
  '  1    the call failed or was denied: the error is on standard error\n' +
  '  2    the command, the arguments of the tool or the configuration are invalid\n' +
  '  4    it waits for an approval or an answer that could not be given here\n' +
  '  130  stopped with Ctrl-C';

/**
 * Executes one call of a tool under the policy, as a run that is not stored, and prints its result. `given`: the arguments as
 * JSON, or `-` for those on standard input. Returns the exit code.
 */
export async function callOnce(options: {
  readonly tool: Tool;
  readonly given: string;
  readonly context: CommandContext;
  readonly values: Values<typeof YES_FLAG & typeof LOG_FLAGS> & { readonly json?: boolean };
  readonly io: Io;
  /** What the policy can find out about another place. */
  readonly place?: Analysers['place'];
}): Promise<number> {
  const { tool, given, context, values, io, place } = options;
  const text = given === '-' ? await readStdin(io) : given;
  checkToolArguments(text);
  // Guardrails check what a model gets and says, and there is none.
  const { guardrails: _, ...hooks } = await loadHooks(context.loaded);
  const canAsk = canAskOn(io);
  const status = values.json ? NO_STATUS : statusLine(io);
  const writeLine = (line: string): void => {
    status.clear();
    io.stderr.write(`${line}\n`);
  };
  const policy = commandPolicy(context, values.yes ? 'yes' : canAsk ? 'policy' : 'never', {
    onDenied: ({ remedy }) => writeLine(`Nobody can be asked, and --yes is not given. ${exactLine(remedy)}`),
    place,
  });
  const colours = coloursFor(io.stderr, io.env);
  const explain = requestExplainer(policy, () => [tool], colours);
  const { onItem } = transcript({ writeLine: () => {}, colours, width: 80, status });
  const interrupt = catchInterrupt(io);
  const ask = (prompt: string): Promise<string | undefined> => {
    status.hide();
    return askLine(io, interrupt, prompt);
  };
  let answered: CallAnswered | undefined;
  try {
    const result = await driveRun({
      start: { model: callingModel(tool.name, text), tools: [tool], policy, ...hooks, input: 'One call.', maxTurns: 1 },
      store: memoryJournal(),
      signal: interrupt.signal,
      stopping: 'cancel',
      onItem(item) {
        onItem(item);
        if (item.type === 'call-answered') answered = item;
      },
      ...(canAsk && {
        approve: (request) => askApproval(request, { writeLine, ask }, { explain }),
        answer: (request, rejected) => askQuestion(request, { writeLine, ask }, rejected),
      }),
      ...(values.yes && { approve: approveByFlag }),
      onRefused: writeLine,
      user: userName(),
      logCalls: openCallLog(values.log, { cwd: io.cwd, writeLine }, policy),
    });
    status.hide();
    if (interrupt.signal.aborted) return EXIT.cancelled;
    if (!answered) {
      writeLine(outcomeText(result) ?? 'The call has no result.');
      return result.outcome ? EXIT.failed : EXIT.paused;
    }
    return printResult(answered, values.json === true, io);
  } finally {
    status.hide();
    interrupt.release();
  }
}

function printResult({ result }: CallAnswered, json: boolean, { stdout, stderr }: Io): number {
  const { content, isError, errorType } = result;
  const to = isError && !json ? stderr : stdout;
  const text = json ? JSON.stringify(result, null, 2) : content.map(blockText).join('\n');
  to.write(`${to.isTTY && !json ? printable(text) : text}${text.endsWith('\n') ? '' : '\n'}`);
  if (!isError) return EXIT.completed;
  return errorType === 'invalid_params' ? EXIT.usage : EXIT.failed;
}

/** A block as text. Images and files are described. */
function blockText(block: ResultBlock): string {
  if (block.type === 'text' || block.type === 'error') return block.text;
  const { type, mediaType, source } = block;
  const name = block.type === 'file' && block.name !== undefined ? `${block.name}, ` : '';
  const what = source.type === 'data' ? sizeText(Buffer.byteLength(source.data, 'base64')) : source.url;
  return oneLine(`[${type}: ${name}${mediaType}, ${what}]`, 200);
}
