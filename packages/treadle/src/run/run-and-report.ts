import {
  textOf,
  userText,
  type Event,
  type Item,
  type LoopOptions,
  type LoopResult,
  type RunStore,
  type StartedRun,
  type Tool,
  type UserMessage,
  type Waiting,
} from '@treadle/core';
import { EXIT, type Values } from '../command-line/command.ts';
import {
  followUpCommand,
  locationOf,
  type LocationValues,
  type ModelValues,
  type OutputValues,
  type YES_FLAG,
} from '../command-line/flags.ts';
import type { CommandContext } from '../config/context.ts';
import { shortId } from '../runs/store-access.ts';
import { coloursFor } from '../terminal/colours.ts';
import type { Io } from '../terminal/io.ts';
import { oneLine, printable } from '../terminal/printable.ts';
import { plural, timestampText } from '../terminal/quantities.ts';
import { askLine } from '../terminal/prompt.ts';
import { catchInterrupt } from '../terminal/signals.ts';
import { NO_STATUS, statusLine, type StatusLine } from '../terminal/status-line.ts';
import { approveByFlag, askApproval, askQuestion, userName, type ExplainRequest } from './ask-approval.ts';
import { openCallLog } from './call-log.ts';
import { driveRun, type ApprovalRequest, type QuestionRequest, type RunStart } from './drive-run.ts';
import { exitCodeOf, outcomeText } from './outcome-text.ts';
import { transcript, type Transcript } from './transcript.ts';

/** Where a run is shown while it is driven: text of the model on standard output, the rest on standard error. */
export interface RunScreen extends Transcript {
  /** Text of the model is written as it arrives, also if it turns out not to be the answer. */
  readonly streams: boolean;
  readonly status: StatusLine;
  /** Writes a line of the program. */
  writeLine(line: string): void;
  writeAnswer(text: string): void;
}

/**
 * All text of the model is written as it arrives, each reply on its own lines. With `quiet`, only the answer: whether a text
 * is the answer is known when its reply has ended without calls. With `answerOnly`, standard output gets only the answer, too.
 */
export function runScreen(
  io: Io,
  { quiet, json: isWhole, 'stream-json': isStream, answerOnly }: OutputValues & { answerOnly?: boolean },
): RunScreen {
  const { stdout, stderr, env } = io;
  const json = isWhole || isStream;
  const status = quiet || json ? NO_STATUS : statusLine(io);
  const streams = !json && !quiet && !answerOnly;
  const writeLine = (line: string): void => {
    status.clear();
    stderr.write(`${line}\n`);
  };
  const writeText = (text: string): void => void stdout.write(stdout.isTTY ? printable(text) : text);
  const shown = transcript({
    ...(streams && { writeText }),
    writeLine: quiet ? () => {} : writeLine,
    colours: coloursFor(stderr, env),
    width: stderr.columns ?? 120,
    status,
  });
  return {
    ...shown,
    // Nobody has seen the text of earlier turns.
    ...(quiet && { lastText: () => undefined }),
    streams,
    status,
    writeLine,
    writeAnswer: (text) => writeText(`${text}\n`),
  };
}

/**
 * Drives a run until it ends, or until it needs a decision and there is no terminal to ask on. Shows it while it runs,
 * and the result afterwards. Ctrl-C or SIGTERM detaches a run that is stored, so that it can be resumed, and cancels one that
 * is not. Returns the exit code.
 */
export async function runAndReport(options: {
  readonly start: RunStart;
  readonly allTools?: () => readonly Tool[];
  /** Called with the run that was started. */
  readonly follow?: (live: StartedRun) => void;
  /** The tools of calls that were denied, without which the task may not be done; read when the run has ended. */
  readonly deniedTools?: ReadonlySet<string>;
  readonly store: RunStore;
  readonly context: CommandContext;
  readonly values: LocationValues & ModelValues & OutputValues & Values<typeof YES_FLAG>;
  readonly io: Io;
  readonly screen: RunScreen;
  readonly explain: ExplainRequest;
  /** What --json prints; default: the result. */
  readonly asJson?: (result: LoopResult) => unknown;
}): Promise<number> {
  const { asJson = (result: LoopResult) => result } = options;
  const { start, allTools, follow, deniedTools, store, context, values, io, screen, explain } = options;
  const { writeLine } = screen;
  const colours = coloursFor(io.stderr, io.env);
  const stored = context.store.type !== 'memory';
  const canAsk = canAskOn(io);
  const logCalls = openCallLog(values.log, { cwd: io.cwd, writeLine }, start.policy);
  const interrupt = catchInterrupt(io);
  interrupt.signal.addEventListener('abort', () => {
    screen.endLine();
    writeLine(`${stored ? 'Stopping' : 'Cancelling'}; press Ctrl-C again to quit immediately.`);
  });
  const ask = (prompt: string): Promise<string | undefined> => {
    screen.status.hide();
    return askLine(io, interrupt, prompt);
  };
  let lastEvent: Event['type'] | undefined;
  const events = values['stream-json'] ? await jsonEvents(start, io) : undefined;
  let result: LoopResult;
  try {
    result = await driveRun({
      start,
      ...(allTools && { allTools }),
      onLive(live) {
        events?.begin(live.runId);
        follow?.(live);
      },
      store,
      signal: interrupt.signal,
      stopping: stored ? 'detach' : 'cancel',
      onItem(item) {
        if (item.type === 'fact') lastEvent = item.event.type;
        screen.onItem(item);
        events?.add(item);
      },
      ...(canAsk && {
        approve: (request) => askApproval(request, { writeLine, ask }, { explain }),
        answer: (request, rejected) => askQuestion(request, { writeLine, ask }, rejected),
      }),
      ...(values.yes && { approve: approveByFlag }),
      onRefused: writeLine,
      user: userName(),
      logCalls,
    });
    if (canAsk && !values.json && !events && 'input' in start && isAtTurnLimit(result) && !interrupt.signal.aborted) {
      screen.endLine();
      writeLine(`It has taken ${plural(result.turns, 'turn')} and is not done.`);
      if (/^y(es)?$/i.test((await ask('Continue? [y/N] '))?.trim() ?? ''))
        return await runAndReport({ ...options, start: continued(start, result) });
    }
  } finally {
    interrupt.release();
    screen.status.hide();
    screen.endLine();
  }

  const completed = result.outcome?.type === 'completed';
  const isShown = screen.lastText() === result.text;
  if (events) events.end(result);
  else if (values.json) io.stdout.write(`${JSON.stringify(asJson(result), null, 2)}\n`);
  else if (completed && !(screen.streams && isShown)) screen.writeAnswer(answerText(result));
  else if (!completed && result.text !== '' && !isShown)
    writeLine(`Last reply of the model: ${printable(result.text)}`);
  const ending = outcomeText(result);
  if (ending) writeLine(completed || result.detached ? ending : colours.red(ending));
  for (const line of nextSteps(result, { stored, canRetry: lastEvent === 'model-failed', canAsk, values }))
    writeLine(line);
  if (completed && deniedTools && deniedTools.size > 0) {
    writeLine(colours.red(deniedText(deniedTools)));
    return EXIT.denied;
  }
  return !result.outcome && interrupt.signal.aborted ? EXIT.cancelled : exitCodeOf(result);
}

/** Prints the events of a run as JSON lines. */
async function jsonEvents(
  start: RunStart,
  { stdout }: Io,
): Promise<{ begin(runId: string): void; add(item: Item): void; end(result: LoopResult): void }> {
  const { runEvents } = await import('@treadle/server/chat-events');
  let events: ReturnType<typeof runEvents> | undefined;
  return {
    begin(runId) {
      const title = 'input' in start ? titleOf(start.input) : '';
      events ??= runEvents({ runId, model: start.model.id, title }, (event) => {
        stdout.write(`${JSON.stringify(event)}\n`);
      });
    },
    add: (item) => events?.add(item),
    end: (result) => events?.end(result, Date.now()),
  };
}

const MAX_TITLE = 60;

function titleOf(input: LoopOptions['input']): string {
  const { content } = typeof input === 'string' ? { content: input } : (input.at(-1) ?? { content: '' });
  return oneLine(typeof content === 'string' ? content : textOf(content as UserMessage['content']), MAX_TITLE);
}

function isAtTurnLimit({ outcome }: LoopResult): boolean {
  return outcome?.type === 'exhausted' && outcome.limit === 'turns';
}

/** Another run that goes on where one has reached its turn limit. */
function continued(start: RunStart, { messages, carried }: LoopResult): RunStart {
  return { ...start, input: [...messages, userText('Continue.')], ...(carried && { carried }) };
}

/** For the end of a run. Why, and how to allow the call, was written when it was denied. */
export function deniedText(tools: ReadonlySet<string>): string {
  const names = [...tools].map((name) => printable(name)).join(', ');
  return `Completed, but calls of ${names} were denied, so the task may not be done. See above for why.`;
}

/** A validated answer is printed as JSON, whatever else the model wrote around it. */
function answerText({ text, output }: LoopResult): string {
  return output === undefined ? text : JSON.stringify(output, null, 2);
}

/** Whether there is a terminal to ask on while a run is driven. */
export function canAskOn({ stdin, stderr }: Pick<Io, 'stdin' | 'stderr'>): boolean {
  return Boolean(stdin.isTTY && stderr.isTTY);
}

/** What the user can do with a run that has not completed. */
export function nextSteps(
  { runId, outcome, detached, waiting, turns }: Omit<LoopResult, 'orThrow'>,
  options: {
    /** The run is in a store, so it can be resumed. */
    readonly stored: boolean;
    /** The run failed because of its model. */
    readonly canRetry: boolean;
    /** There is a terminal to ask on. */
    readonly canAsk: boolean;
    /** The flags that the commands repeat. */
    readonly values: LocationValues & ModelValues;
  },
): readonly string[] {
  const { stored, canRetry, canAsk, values } = options;
  const id = shortId(runId);
  const resume = (flags: readonly string[] = []): string => followUpCommand(['runs', 'resume', id, ...flags], values);
  if (outcome) return stored && outcome.type === 'failed' && canRetry ? [`Retry with: ${resume()}`] : [];
  if (detached) {
    if (turns === 0) return ['The run had not started.'];
    return [`Resume with: ${resume()}`, `Cancel with: ${followUpCommand(['runs', 'cancel', id], locationOf(values))}`];
  }
  const approvals = waiting.filter((wait) => wait.type === 'approval');
  const questions = waiting.filter((wait) => wait.type === 'question');
  return [
    ...(approvals.length > 0 && !canAsk ? ['There is no terminal to ask for approval.'] : []),
    ...approvals.map((wait) => approvalNeeds(wait)),
    ...questions.map((wait) => questionNeeds(wait)),
    stored
      ? `Resume with: ${resume(waiting.flatMap(answerFlags))}`
      : 'Run it in a terminal, without --ask, or with a store to resume it later.',
  ];
}

/** Who has to approve until when. */
function approvalNeeds({ effect, expiresAt, required = 1, approvers, approvedBy = [] }: ApprovalRequest): string {
  const missing = required - approvedBy.length;
  const people = approvers?.filter((one) => !approvedBy.includes(one)).join(', ') ?? 'anybody';
  const who = required > 1 || approvers ? ` by ${missing} of ${people}` : '';
  return `Without an approval${who} until ${timestampText(expiresAt)}, ${effect} is denied.`;
}

/** What answers a question until when. */
function questionNeeds({ effect, question: { choices, schema }, expiresAt }: QuestionRequest): string {
  const what = choices ? `one of ${choices.map((one) => JSON.stringify(one)).join(', ')}` : schema ? 'JSON' : 'a text';
  const until = expiresAt === undefined ? '' : `, until ${timestampText(expiresAt)}`;
  return printable(`The answer to ${effect} is ${what}${until}.`);
}

/** The flags of `runs resume` that answer what a run waits for. */
export function answerFlags(waiting: Waiting): readonly string[] {
  if (waiting.type === 'approval') return ['--approve', waiting.effect];
  if (waiting.type === 'question') return ['--answer', `${waiting.effect}=TEXT`];
  return waiting.type === 'client' ? ['--answer', `${waiting.effect}=RESULT`] : [];
}
