import { messageOf } from '@treadle/core';
import type { ResourceKeeper } from '@treadle/store';
import { CommandError, defineCommand, EXIT, SUMMARIES, type Command, type Values } from '../command-line/command.ts';
import {
  FACT_FLAGS,
  KEY_NOTE,
  locationOf,
  LOCATION_FLAGS,
  LOG_FLAGS,
  MODEL_FLAGS,
  RULE_FLAGS,
  YES_FLAG,
  type LocationValues,
} from '../command-line/flags.ts';
import { resolveContext } from '../config/context.ts';
import { loadStorePackage } from '../config/store.ts';
import { openCallLog } from '../run/call-log.ts';
import { deniedText } from '../run/run-and-report.ts';
import { openSession, type Session } from '../run/session.ts';
import { lineOf, lineText, wrapLine } from '../screen/spans.ts';
import { coloursFor } from '../terminal/colours.ts';
import type { Io } from '../terminal/io.ts';
import { version } from '../version.ts';
import { pipedDialogue, type Dialogue } from './dialogue.ts';
import { chatCompletions } from './completions.ts';
import { NOT_STOPPED, startConversation, type Ending } from './conversation.ts';
import { continueText, lastConversation, openTitles, type FoundConversation, type Titles } from './conversations.ts';
import { resumeConversation } from './conversation-commands.ts';
import { changesElsewhere, fileChanges, type CallChanges } from './file-changes.ts';
import { firstLines, statusText } from './facts.ts';
import { openHistory, type ChatHistory } from './history.ts';
import { lineDialogue } from './line-dialogue.ts';
import { screenDialogue } from './screen-dialogue.ts';
import type { ScreenDialogueOptions } from './screen-state.ts';
import { runSlashCommand, slashHelp, takeCommand } from './slash-commands.ts';
import type { Chat, Spent } from './slash-command.ts';

/** What `--resume` alone means. */
const CHOOSE = '?';

export const chatCommand: Command = defineCommand({
  name: 'chat',
  summary: SUMMARIES.chat,
  flags: {
    continue: { type: 'switch', help: 'Continue the last conversation of the store instead of a new one' },
    resume: {
      type: 'text',
      value: '[RUN|WORDS]',
      bare: CHOOSE,
      help: 'Choose an earlier conversation to continue, or name a run or words of its title',
    },
    ...MODEL_FLAGS,
    ...LOCATION_FLAGS,
    ...RULE_FLAGS,
    ...FACT_FLAGS,
    ...YES_FLAG,
    ...LOG_FLAGS,
    url: { type: 'text', value: 'URL', help: 'Drive a conversation of a server, with its tools, limits and policy' },
    plain: { type: 'switch', help: 'Show lines and redraw nothing, for screen readers' },
  },
  notes: [
    `In the chat:\n${slashHelp()}\n` +
      'Ctrl-C cancels the current run, a second Ctrl-C quits. Text that you enter during a run is sent to the model with the\n' +
      'next turn. Alt+Enter starts a new line. A pasted text of several lines is one message. The up key recalls earlier\n' +
      'messages, also of other chats in the folder: they are in a file beside the store, which only you can read.',
    'Without a terminal, each line of standard input is one message. Answers go to standard output, tool calls to standard\n' +
      'error. At the end of the input the command exits as "treadle run" does after the last message, and with 5 if calls were\n' +
      'denied.',
    'Each message starts a run, which is stored. "treadle runs" lists, shows and forks stored runs.',
    KEY_NOTE,
  ],
  examples: [
    'treadle chat',
    'treadle chat --continue',
    'treadle --resume',
    'treadle chat --url http://127.0.0.1:3210',
    'treadle chat --model anthropic/claude-sonnet-5 --tools read-only',
  ],
  async run({ values }, io) {
    const onTerminal = Boolean(io.stdin.isTTY && io.stdout.isTTY);
    if (values.continue && values.resume !== undefined) {
      throw new CommandError('--continue takes the last conversation, and --resume another one. Use one of them.');
    }
    if (values.resume === CHOOSE && !onTerminal) {
      throw new CommandError('--resume needs a terminal to choose on. Name the conversation: --resume RUN.');
    }
    if (values.url !== undefined) return chatOnServer(values, io);
    let writeLine = (line: string): void => void io.stderr.write(`${line}\n`);
    const session = await openSession(values, io, {
      // Somebody who can be asked continues at the turn limit. Others get an answer there.
      defaults: { maxTurns: 100, closingTurn: !onTerminal },
      canAsk: onTerminal,
      isChat: true,
      writeLine: (line) => writeLine(line),
    });
    const shownBelow = onTerminal ? [session.place.sandbox, session.place.instructions] : [];
    const columns = io.stdout.columns ?? 80;
    const inLines = (text: string): string =>
      onTerminal
        ? wrapLine(lineOf(text), columns - 1)
            .map(lineText)
            .join('\n')
        : text;
    // The terminal wraps lines with commands, which can be copied then.
    const noticeLine = (line: string): string => (/ --|treadle /.test(line) ? line : inLines(line));
    for (const text of session.notices) {
      if (!shownBelow.includes(text)) io.stderr.write(`${text.split('\n').map(noticeLine).join('\n')}\n`);
    }
    const { context, options } = session;
    io.stdout.write(`${inLines(`Treadle ${version()}, model ${options.model.id}, in ${context.folder}`)}\n`);
    if (onTerminal) {
      for (const line of firstLines(session, columns)) io.stdout.write(`${line}\n`);
      io.stdout.write(`${inLines('Type a message, /help for help, Ctrl-D to leave.')}\n`);
    }
    const last = values.continue ? await lastConversation(session.store, context.loaded.config) : undefined;
    if (values.continue) io.stderr.write(`${inLines(continueText(last))}\n`);

    const history = onTerminal ? await openHistory(session.context.store) : undefined;
    const titles = await openTitles(session.context.store);
    const { resourceKeeper } = await loadStorePackage();
    const keeper = resourceKeeper({
      store: session.store.keptProcesses,
      onProblem: (_, why) => writeLine(why),
    });
    await keeper.killAbandoned();
    const chat = openChat({ session, keeper, history, titles, values, io, onTerminal });
    const { conversation, dialogue } = chat;
    // From now on the dialogue has the terminal.
    writeLine = dialogue.writeLine;
    try {
      let ending = await begin(chat, { last, resume: values.resume });
      for (;;) {
        if (ending.isTerminated || (ending.isInterrupted && !dialogue.outlivesInterrupt)) return EXIT.cancelled;
        const text = (conversation.unsent.shift() ?? (await dialogue.nextMessage()))?.trim();
        if (text === undefined || text === '/exit') return onTerminal ? EXIT.completed : pipedExit(chat);
        if (text !== '') ending = await respond(text, chat);
      }
    } finally {
      dialogue.close();
      const problem = await history?.saved();
      if (problem !== undefined) io.stderr.write(`${problem}\n`);
      await keeper.close();
      await session.close();
    }
  },
});

/**
 * The parts of a chat that are on the screen. Nothing is awaited here: the screen asks the conversation from its first frame on.
 */
function openChat({
  session,
  keeper,
  history,
  titles,
  values,
  io,
  onTerminal,
}: {
  readonly session: Session;
  readonly keeper: ResourceKeeper;
  readonly history: ChatHistory | undefined;
  readonly titles: Titles;
  readonly values: LocationValues &
    Values<typeof YES_FLAG> &
    Values<typeof LOG_FLAGS> & {
      readonly plain?: boolean;
      readonly device?: string;
      readonly skill?: readonly string[];
    };
  readonly io: Io;
  readonly onTerminal: boolean;
}): Chat {
  const colours = coloursFor(onTerminal ? io.stdout : io.stderr, io.env);
  const changes = values.device === undefined ? fileChanges(session.context.folder) : undefined;
  const dialogue = openDialogue(io, {
    history,
    used: () => ({ spent: conversation.spent(), contextTokens: conversation.contextTokens }),
    togglePlan: () => conversation.setPlanning(!conversation.isPlanning),
    isPlanning: () => conversation.isPlanning,
    complete: chatCompletions(() => chat),
    asked: () => conversation.asked(),
    rewind: (to) => conversation.rewind(to),
    onTerminal,
    isPlain: values.plain === true,
    session,
    changes: changes ?? changesElsewhere(),
  });
  const stored = session.context.store.type !== 'memory';
  const conversation = startConversation({
    session,
    keeper,
    io,
    dialogue,
    colours,
    logCalls: openCallLog(values.log, { cwd: io.cwd, writeLine: dialogue.writeLine }, session.options.policy),
    resuming: { stored, canRetry: false, canAsk: onTerminal, values },
    yes: values.yes === true,
    skills: values.skill ?? [],
    showsUsage: onTerminal,
    takesCommand: (text) => takeCommand(text, chat),
  });
  const chat: Chat = {
    session,
    store: session.store,
    conversation,
    dialogue,
    titles,
    changes,
    colours,
    io,
    location: locationOf(values),
    width: () => (io.stdout.columns ?? 121) - 1,
  };
  return chat;
}

/** Flags that a server takes: the others are its own business. */
const SERVER_CHAT_FLAGS = new Set([
  'url',
  'continue',
  'resume',
  'model',
  'device',
  'plain',
  ...Object.keys(LOCATION_FLAGS),
]);

async function chatOnServer(
  values: LocationValues & {
    readonly url?: string;
    readonly model?: string;
    readonly device?: string;
    readonly continue?: boolean;
    readonly resume?: string;
    readonly plain?: boolean;
  },
  io: Io,
): Promise<number> {
  const other = Object.keys(values).find((name) => !SERVER_CHAT_FLAGS.has(name));
  if (other !== undefined) {
    throw new CommandError(`--${other} cannot be used with --url: the tools, limits and policy of the server apply.`);
  }
  const { chatWithServer } = await import('../remote-chat/open.ts');
  const { url, model, device, resume } = values;
  const { store } = await resolveContext(values, io);
  return chatWithServer(
    {
      url: url!,
      model,
      device,
      newest: values.continue === true,
      resume: resume === CHOOSE ? '' : resume,
      isPlain: values.plain === true,
      store,
    },
    io,
  );
}

/** Nobody sees what was denied, so the exit code says it. */
function pipedExit({ conversation: { exitCode }, session: { deniedTools }, io }: Chat): number {
  if (exitCode !== EXIT.completed || deniedTools.size === 0) return exitCode;
  io.stderr.write(`${deniedText(deniedTools)}\n`);
  return EXIT.denied;
}

/** What the chat begins with: nothing, or an earlier conversation. */
async function begin(
  chat: Chat,
  { last, resume }: { readonly last: FoundConversation | undefined; readonly resume: string | undefined },
): Promise<Ending> {
  if (last) return chat.conversation.load(last);
  if (resume === undefined) return NOT_STOPPED;
  return shown(chat, await resumeConversation(chat, resume === CHOOSE ? '' : resume).catch(messageOf));
}

/** Does what a line says that the user has entered. */
async function respond(text: string, chat: Chat): Promise<Ending> {
  const { conversation } = chat;
  const command = /^!\s*(\S[^]*)$/.exec(text)?.[1];
  if (command !== undefined) return conversation.runCommand(command);
  const done = await runSlashCommand(text, chat).catch(messageOf);
  return done === undefined ? conversation.send(text) : shown(chat, done);
}

function shown({ dialogue }: Chat, done: string | Ending): Ending {
  if (typeof done !== 'string') return done;
  dialogue.writeLine(done);
  return NOT_STOPPED;
}

function openDialogue(
  io: Io,
  options: {
    readonly history: ChatHistory | undefined;
    readonly onTerminal: boolean;
    readonly isPlain: boolean;
    readonly session: Session;
    readonly used: () => { readonly spent: Spent; readonly contextTokens: number };
    readonly togglePlan: () => void;
    readonly isPlanning: () => boolean;
    readonly complete: NonNullable<ScreenDialogueOptions['complete']>;
    readonly asked: NonNullable<ScreenDialogueOptions['asked']>;
    readonly rewind: NonNullable<ScreenDialogueOptions['rewind']>;
    readonly changes: CallChanges;
  },
): Dialogue {
  const { history, onTerminal, isPlain, session, used, isPlanning, ...callbacks } = options;
  if (!onTerminal) return pipedDialogue(io);
  if (isPlain || io.env['TERM'] === 'dumb') return lineDialogue(io, { history, changes: callbacks.changes });
  return screenDialogue(io, {
    history,
    ...callbacks,
    status: (live) => `${isPlanning() ? 'plan mode · ' : ''}${statusText(session, used(), live)}`,
  });
}
