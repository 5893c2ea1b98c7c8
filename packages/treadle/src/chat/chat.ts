import { userText, type LiveRun, type Message } from '@treadle/core';
import { coloursFor, type Colours } from '../terminal/colours.ts';
import { command, type Command, EXIT } from '../command-line/command.ts';
import { columns } from '../command-line/help.ts';
import { didYouMean } from '../command-line/nearest.ts';
import { unfinishedNotice } from '../runs/unfinished.ts';
import { KEY_NOTE, MODEL_FLAGS, PLACE_FLAGS, RULE_FLAGS } from '../command-line/flags.ts';
import { openSession, type Session } from '../run/session.ts';
import { version } from '../version.ts';
import { drive } from '../run/drive-run.ts';
import { interruptible } from '../terminal/signals.ts';
import type { Io } from '../terminal/io.ts';
import { outcomeText } from '../run/outcome-text.ts';
import { transcript } from '../run/transcript.ts';
import { pipedDialogue, type Dialogue } from './dialogue.ts';
import { terminalDialogue } from './terminal-dialogue.ts';

const SLASH_COMMANDS: readonly (readonly [string, string])[] = [
  ['/help', 'Show this text'],
  ['/exit', 'Leave (also Ctrl-D, or Ctrl-C while nothing runs)'],
];

export const chatCommand: Command = command({
  name: 'chat',
  summary: 'Talk with a model that can use the tools of the working folder',
  flags: { ...MODEL_FLAGS, ...PLACE_FLAGS, ...RULE_FLAGS },
  notes: [
    `In the chat:\n${columns(SLASH_COMMANDS)}\n` +
      'Ctrl-C cancels the run that goes on, a second one quits. What you type meanwhile reaches the model at its next turn.',
    'Without a terminal each line of standard input is one message; answers go to standard output, tool calls to standard\n' +
      'error. At the end of the input it exits with 0.',
    'The answer to each message is a run of its own, kept in the store: "treadle runs" lists, shows and forks them.',
    KEY_NOTE,
  ],
  async run({ values }, io) {
    // The user always gets a reply: at the limit of turns the model is asked for a last one.
    const session = await openSession(values, io, { maxTurns: 10, closingTurn: true });
    const onTerminal = Boolean(io.stdin.isTTY && io.stdout.isTTY);
    const unfinished = await unfinishedNotice(session.store, values);
    for (const text of [session.notice, unfinished]) if (text) io.stderr.write(`${text}\n`);
    io.stdout.write(`Treadle ${version()}, model ${session.options.model.id}, in ${session.place.folder}\n`);
    if (onTerminal) io.stdout.write('Type a message, /help for help, Ctrl-D to leave.\n');

    const colours = coloursFor(onTerminal ? io.stdout : io.stderr, io.env);
    const dialogue = onTerminal ? terminalDialogue(io) : pipedDialogue(io);
    const talk = conversation({ session, io, dialogue, colours });
    try {
      for (;;) {
        const said = talk.late.shift() ?? (await dialogue.next());
        const text = said?.trim();
        if (text === undefined || text === '/exit') return EXIT.completed;
        if (/^\/[a-z]*$/.test(text)) dialogue.writeLine(slashCommand(text));
        else if (text !== '') {
          const { interrupted } = await talk.say(text);
          if (interrupted && !dialogue.outlivesInterrupt) return EXIT.cancelled;
        }
      }
    } finally {
      dialogue.close();
      await session.store.close();
    }
  },
});

function slashCommand(text: string): string {
  if (text === '/help') return columns(SLASH_COMMANDS);
  const names = SLASH_COMMANDS.map(([name]) => name);
  return `There is no ${text}.${didYouMean(text, names)} There are ${names.join(' and ')}.`;
}

/** Messages of a user, each answered by a run that knows all before it. */
export interface Conversation {
  say(text: string): Promise<{ readonly interrupted: boolean }>;
  /** Said too late for the run that it was meant for: to be said next. */
  readonly late: string[];
}

export function conversation(options: {
  readonly session: Session;
  readonly io: Io;
  readonly dialogue: Dialogue;
  readonly colours: Colours;
}): Conversation {
  const { session, io, dialogue, colours } = options;
  let messages: readonly Message[] = [];
  const late: string[] = [];
  return {
    late,
    async say(text) {
      let live: LiveRun | undefined;
      const interrupt = interruptible(io);
      const shown = transcript({ ...dialogue, colours, width: io.stdout.columns ?? 120 });
      const ended = dialogue.begin({
        interrupt,
        steer: (more) => {
          if (!live?.send(more)) late.push(more);
        },
      });
      try {
        const result = await drive({
          start: { ...session.options, input: [...messages, userText(text)] },
          store: session.store,
          signal: interrupt.signal,
          stopping: 'cancel',
          onItem: shown.onItem,
          onLive: (begun) => (live = begun),
          approve: dialogue.approve,
        });
        messages = result.messages;
        shown.endLine();
        const ending = outcomeText(result);
        if (ending) dialogue.writeLine(colours.red(ending));
      } finally {
        ended();
        interrupt.release();
      }
      return { interrupted: interrupt.signal.aborted };
    },
  };
}
