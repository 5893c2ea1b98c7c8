import { userText, type StartedRun, type Message } from '@treadle/core';
import { defineCommand, EXIT, SUMMARIES, type Command } from '../command-line/command.ts';
import { KEY_NOTE, LOCATION_FLAGS, LOG_FLAGS, MODEL_FLAGS, RULE_FLAGS, YES_FLAG } from '../command-line/flags.ts';
import { columns } from '../command-line/help.ts';
import { didYouMean } from '@treadle/tools/nearest';
import { approveByFlag, userName } from '../run/ask-approval.ts';
import { openCallLog } from '../run/call-log.ts';
import { driveRun, type DriveRunOptions } from '../run/drive-run.ts';
import { outcomeText } from '../run/outcome-text.ts';
import { nextSteps } from '../run/run-and-report.ts';
import { openSession, type Session } from '../run/session.ts';
import { transcript } from '../run/transcript.ts';
import { coloursFor, type Colours } from '../terminal/colours.ts';
import type { Io } from '../terminal/io.ts';
import { catchInterrupt } from '../terminal/signals.ts';
import { version } from '../version.ts';
import { pipedDialogue, type Dialogue } from './dialogue.ts';
import { terminalDialogue } from './terminal-dialogue.ts';

const SLASH_COMMANDS: readonly (readonly [string, string])[] = [
  ['/help', 'Show this help'],
  ['/exit', 'Leave (also Ctrl-D, or Ctrl-C while nothing runs)'],
];

export const chatCommand: Command = defineCommand({
  name: 'chat',
  summary: SUMMARIES.chat,
  flags: { ...MODEL_FLAGS, ...LOCATION_FLAGS, ...RULE_FLAGS, ...YES_FLAG, ...LOG_FLAGS },
  notes: [
    `In the chat:\n${columns(SLASH_COMMANDS)}\n` +
      'Ctrl-C cancels the current run, a second Ctrl-C quits. Text that you enter during a run is sent to the model with the\n' +
      'next turn.',
    'Without a terminal, each line of standard input is one message. Answers go to standard output, tool calls to standard\n' +
      'error. At the end of the input the command exits with 0.',
    'Each message starts a run, which is stored. "treadle runs" lists, shows and forks stored runs.',
    KEY_NOTE,
  ],
  examples: ['treadle chat', 'treadle chat --model anthropic/claude-sonnet-5 --tools read-only'],
  async run({ values }, io) {
    // The closing turn makes sure that the user gets a reply at the turn limit.
    const onTerminal = Boolean(io.stdin.isTTY && io.stdout.isTTY);
    const session = await openSession(values, io, {
      defaults: { maxTurns: 10, closingTurn: true },
      canAsk: onTerminal,
      writeLine: (line) => void io.stderr.write(`${line}\n`),
    });
    for (const text of session.notices) io.stderr.write(`${text}\n`);
    io.stdout.write(`Treadle ${version()}, model ${session.options.model.id}, in ${session.context.folder}\n`);
    if (onTerminal) io.stdout.write('Type a message, /help for help, Ctrl-D to leave.\n');

    const colours = coloursFor(onTerminal ? io.stdout : io.stderr, io.env);
    const dialogue = onTerminal ? terminalDialogue(io) : pipedDialogue(io);
    const logCalls = openCallLog(values.log, { cwd: io.cwd, writeLine: dialogue.writeLine }, session.options.policy);
    const stored = session.context.store.type !== 'memory';
    const resuming = { stored, canRetry: false, canAsk: onTerminal, values };
    const conversation = startConversation({
      session,
      io,
      dialogue,
      colours,
      logCalls,
      resuming,
      yes: values.yes === true,
    });
    try {
      for (;;) {
        const text = (conversation.unsent.shift() ?? (await dialogue.nextMessage()))?.trim();
        if (text === undefined || text === '/exit') return EXIT.completed;
        if (/^\/[a-z]*$/.test(text)) dialogue.writeLine(slashCommandText(text));
        else if (text !== '') {
          const { isInterrupted, isTerminated } = await conversation.send(text);
          if (isTerminated || (isInterrupted && !dialogue.outlivesInterrupt)) return EXIT.cancelled;
        }
      }
    } finally {
      dialogue.close();
      await session.close();
    }
  },
});

function slashCommandText(text: string): string {
  if (text === '/help') return columns(SLASH_COMMANDS);
  const names = SLASH_COMMANDS.map(([name]) => name);
  return `There is no command ${text}.${didYouMean(text, names)} Commands: ${names.join(', ')}.`;
}

/** Each message of the user starts a run, whose input is the conversation so far. */
interface Conversation {
  send(text: string): Promise<{ readonly isInterrupted: boolean; readonly isTerminated: boolean }>;
  /** Messages that the user entered when the run could not accept them any more. Send them next. */
  readonly unsent: string[];
}

function startConversation(options: {
  readonly session: Session;
  readonly io: Io;
  readonly dialogue: Dialogue;
  readonly colours: Colours;
  readonly logCalls: DriveRunOptions['logCalls'];
  /** For the commands that continue a run which waits for something. */
  readonly resuming: Parameters<typeof nextSteps>[1];
  /** The user has approved everything with --yes. */
  readonly yes: boolean;
}): Conversation {
  const { session, io, dialogue, colours, logCalls, resuming, yes } = options;
  let messages: readonly Message[] = [];
  const unsent: string[] = [];
  /** Names of tools that were offered on the way. */
  const found = new Set<string>();
  return {
    unsent,
    async send(text) {
      let live: StartedRun | undefined;
      const interrupt = catchInterrupt(io);
      const { onItem, endLine } = transcript({ ...dialogue, colours, width: io.stdout.columns ?? 120 });
      const steering: Promise<unknown>[] = [];
      const steer = async (more: string): Promise<void> => {
        const sent = await live?.send(more).catch(() => false);
        if (!sent) unsent.push(more);
      };
      const endRun = dialogue.startRun({ interrupt, steer: (more) => void steering.push(steer(more)) });
      try {
        const result = await driveRun({
          start: {
            ...session.options,
            tools: session.toolsWith(found),
            input: [...messages, userText(text)],
          },
          allTools: session.allTools,
          store: session.store,
          signal: interrupt.signal,
          stopping: 'cancel',
          onItem(item) {
            // What one message has found is there for the next.
            if (item.type === 'fact' && item.event.type === 'tools-changed') {
              for (const { name } of item.event.tools) found.add(name);
            }
            onItem(item);
          },
          logCalls,
          onLive(started) {
            live = started;
            session.follow(started);
          },
          approve: yes ? approveByFlag : (request) => dialogue.approve(request, session.explain),
          answer: dialogue.answer,
          user: userName(),
        });
        messages = result.messages;
        endLine();
        const ending = outcomeText(result);
        if (ending) dialogue.writeLine(colours.red(ending));
        if (!result.outcome) for (const line of nextSteps(result, resuming)) dialogue.writeLine(line);
      } finally {
        endRun();
        interrupt.release();
        await Promise.all(steering);
      }
      return { isInterrupted: interrupt.signal.aborted, isTerminated: interrupt.isTerminated };
    },
  };
}
