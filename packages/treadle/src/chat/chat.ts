import { messageOf } from '@treadle/core';
import { defineCommand, EXIT, SUMMARIES, type Command } from '../command-line/command.ts';
import {
  FACT_FLAGS,
  KEY_NOTE,
  LOCATION_FLAGS,
  LOG_FLAGS,
  MODEL_FLAGS,
  RULE_FLAGS,
  YES_FLAG,
} from '../command-line/flags.ts';
import { loadStorePackage } from '../config/store.ts';
import { openCallLog } from '../run/call-log.ts';
import { openSession, type Session } from '../run/session.ts';
import { coloursFor } from '../terminal/colours.ts';
import type { Io } from '../terminal/io.ts';
import { version } from '../version.ts';
import { pipedDialogue, type Dialogue } from './dialogue.ts';
import { chatCompletions } from './completions.ts';
import { startConversation } from './conversation.ts';
import { fileChanges } from './file-changes.ts';
import { firstLines, statusText } from './facts.ts';
import { openHistory, type ChatHistory } from './history.ts';
import { continueText, lastConversation } from './last-conversation.ts';
import { lineDialogue } from './line-dialogue.ts';
import { screenDialogue, type ScreenDialogueOptions } from './screen-dialogue.ts';
import { planRequest, runSlashCommand, skillRequest, slashHelp, type Chat, type Spent } from './slash-commands.ts';

export const chatCommand: Command = defineCommand({
  name: 'chat',
  summary: SUMMARIES.chat,
  flags: {
    continue: { type: 'switch', help: 'Continue the last conversation of the store instead of a new one' },
    ...MODEL_FLAGS,
    ...LOCATION_FLAGS,
    ...RULE_FLAGS,
    ...FACT_FLAGS,
    ...YES_FLAG,
    ...LOG_FLAGS,
    plain: { type: 'switch', help: 'Show lines and redraw nothing, for screen readers' },
  },
  notes: [
    `In the chat:\n${slashHelp()}\n` +
      'Ctrl-C cancels the current run, a second Ctrl-C quits. Text that you enter during a run is sent to the model with the\n' +
      'next turn. Alt+Enter starts a new line. A pasted text of several lines is one message. The up key recalls earlier\n' +
      'messages, also of other chats in the folder: they are in a file beside the store, which only you can read.',
    'Without a terminal, each line of standard input is one message. Answers go to standard output, tool calls to standard\n' +
      'error. At the end of the input the command exits with 0.',
    'Each message starts a run, which is stored. "treadle runs" lists, shows and forks stored runs.',
    KEY_NOTE,
  ],
  examples: [
    'treadle chat',
    'treadle chat --continue',
    'treadle chat --model anthropic/claude-sonnet-5 --tools read-only',
  ],
  async run({ values }, io) {
    const onTerminal = Boolean(io.stdin.isTTY && io.stdout.isTTY);
    let writeLine = (line: string): void => void io.stderr.write(`${line}\n`);
    const session = await openSession(values, io, {
      // Somebody who can be asked continues at the turn limit. Others get an answer there.
      defaults: { maxTurns: 100, closingTurn: !onTerminal },
      canAsk: onTerminal,
      isChat: true,
      writeLine: (line) => writeLine(line),
    });
    const shownBelow = onTerminal ? [session.place.sandbox, session.place.instructions] : [];
    for (const text of session.notices) if (!shownBelow.includes(text)) io.stderr.write(`${text}\n`);
    io.stdout.write(`Treadle ${version()}, model ${session.options.model.id}, in ${session.context.folder}\n`);
    if (onTerminal) {
      for (const line of firstLines(session, io.stdout.columns ?? 80)) io.stdout.write(`${line}\n`);
      io.stdout.write('Type a message, /help for help, Ctrl-D to leave.\n');
    }
    const last = values.continue ? await lastConversation(session.store, session.context.loaded.config) : undefined;
    if (values.continue) io.stderr.write(`${continueText(last)}\n`);

    const colours = coloursFor(onTerminal ? io.stdout : io.stderr, io.env);
    const history = onTerminal ? await openHistory(session.context.store) : undefined;
    const dialogue: Dialogue = openDialogue(io, {
      history,
      spent: () => conversation.spent(),
      togglePlan: () => conversation.setPlanning(!conversation.isPlanning),
      isPlanning: () => conversation.isPlanning,
      complete: chatCompletions(() => chat),
      asked: () => conversation.asked(),
      rewind: (to) => conversation.rewind(to),
      onTerminal,
      isPlain: values.plain === true,
      session,
      isElsewhere: values.device !== undefined,
    });
    // From now on the dialogue has the terminal.
    writeLine = dialogue.writeLine;
    const logCalls = openCallLog(values.log, { cwd: io.cwd, writeLine: dialogue.writeLine }, session.options.policy);
    const stored = session.context.store.type !== 'memory';
    const resuming = { stored, canRetry: false, canAsk: onTerminal, values };
    const { resourceKeeper } = await loadStorePackage();
    const keeper = resourceKeeper({
      store: session.store.keptProcesses,
      onProblem: (_, why) => dialogue.writeLine(why),
    });
    await keeper.killAbandoned();
    const conversation = startConversation({
      session,
      keeper,
      io,
      dialogue,
      colours,
      logCalls,
      resuming,
      yes: values.yes === true,
      last,
      skills: values.skill ?? [],
      showsUsage: onTerminal,
    });
    const chat: Chat = {
      session,
      store: session.store,
      colours,
      width: io.stdout.columns ?? 120,
      spent: conversation.spent,
      compact: conversation.compact,
      setPlanning: conversation.setPlanning,
      clear: conversation.clear,
      narrowings: conversation.narrowings,
      lift: conversation.lift,
    };
    try {
      if (last?.isOpen) await conversation.resume();
      for (;;) {
        const text = (conversation.unsent.shift() ?? (await dialogue.nextMessage()))?.trim();
        if (text === undefined || text === '/exit') return EXIT.completed;
        const command = /^!\s*(\S[^]*)$/.exec(text)?.[1];
        if (command !== undefined) {
          const { isTerminated } = await conversation.runCommand(command);
          if (isTerminated) return EXIT.cancelled;
          continue;
        }
        const toPlan = planRequest(text);
        if (toPlan !== undefined) {
          conversation.setPlanning(true);
          conversation.unsent.unshift(toPlan);
          continue;
        }
        const asked = skillRequest(text, session.skills);
        const shown = text === '' || asked ? undefined : await runSlashCommand(text, chat).catch(messageOf);
        if (shown !== undefined) dialogue.writeLine(shown);
        else if (text !== '') {
          const { isInterrupted, isTerminated } = asked
            ? await conversation.send(asked.task, [asked.name])
            : await conversation.send(text);
          if (isTerminated || (isInterrupted && !dialogue.outlivesInterrupt)) return EXIT.cancelled;
        }
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

function openDialogue(
  io: Io,
  options: {
    readonly history: ChatHistory | undefined;
    readonly onTerminal: boolean;
    readonly isPlain: boolean;
    readonly session: Session;
    readonly spent: () => Spent;
    readonly togglePlan: () => void;
    readonly isPlanning: () => boolean;
    readonly complete: NonNullable<ScreenDialogueOptions['complete']>;
    readonly asked: NonNullable<ScreenDialogueOptions['asked']>;
    readonly rewind: NonNullable<ScreenDialogueOptions['rewind']>;
    /** The tools act on a device. */
    readonly isElsewhere: boolean;
  },
): Dialogue {
  const { history, onTerminal, isPlain, session, spent, isElsewhere, isPlanning, ...callbacks } = options;
  if (!onTerminal) return pipedDialogue(io);
  if (isPlain || io.env['TERM'] === 'dumb') return lineDialogue(io, history);
  return screenDialogue(io, {
    history,
    ...callbacks,
    status: (live) => `${isPlanning() ? 'plan mode · ' : ''}${statusText(session, spent(), live)}`,
    changes: isElsewhere ? undefined : fileChanges(session.context.folder),
  });
}
