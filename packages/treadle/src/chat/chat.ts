import {
  addUsage,
  carriedFrom,
  messageOf,
  messagesOf,
  NO_USAGE,
  stableJson,
  userText,
  type Carried,
  type Message,
  type Narrowing,
  type RunStore,
  type RunSummary,
  type StartedRun,
} from '@treadle/core';
import type { ResourceKeeper } from '@treadle/store';
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
import { approveByFlag, touchText, userName } from '../run/ask-approval.ts';
import type { SavedRules } from '../policy/saved-rules.ts';
import type { Config } from '../config/config.ts';
import { loadStorePackage } from '../config/store.ts';
import { openCallLog } from '../run/call-log.ts';
import { driveRun, type ApprovalRequest, type DriveRunOptions } from '../run/drive-run.ts';
import { outcomeText, workText } from '../run/outcome-text.ts';
import { nextSteps } from '../run/run-and-report.ts';
import { openSession, withSaved, type Session } from '../run/session.ts';
import { withSkills } from '../skills/command-skills.ts';
import { stateAfter } from '../runs/journal.ts';
import { foreignRunReason, hasDefinition } from '../runs/resume.ts';
import { isChild, shortId } from '../runs/store-access.ts';
import { coloursFor, type Colours } from '../terminal/colours.ts';
import type { Io } from '../terminal/io.ts';
import { oneLine } from '../terminal/printable.ts';
import { ageText, durationText, plural, usageText } from '../terminal/quantities.ts';
import { catchInterrupt } from '../terminal/signals.ts';
import { version } from '../version.ts';
import { pipedDialogue, type Dialogue } from './dialogue.ts';
import { fileChanges } from './file-changes.ts';
import { openHistory, type ChatHistory } from './history.ts';
import { lineDialogue } from './line-dialogue.ts';
import { screenDialogue } from './screen-dialogue.ts';
import { runSlashCommand, skillRequest, slashHelp, type Chat, type Spent } from './slash-commands.ts';

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
    // The closing turn makes sure that the user gets a reply at the turn limit.
    const onTerminal = Boolean(io.stdin.isTTY && io.stdout.isTTY);
    const session = await openSession(values, io, {
      defaults: { maxTurns: 10, closingTurn: true },
      canAsk: onTerminal,
      isChat: true,
      writeLine: (line) => void io.stderr.write(`${line}\n`),
    });
    for (const text of session.notices) io.stderr.write(`${text}\n`);
    io.stdout.write(`Treadle ${version()}, model ${session.options.model.id}, in ${session.context.folder}\n`);
    if (onTerminal) io.stdout.write('Type a message, /help for help, Ctrl-D to leave.\n');
    const last = values.continue ? await lastConversation(session.store, session.context.loaded.config) : undefined;
    if (values.continue) io.stderr.write(`${continueText(last)}\n`);

    const colours = coloursFor(onTerminal ? io.stdout : io.stderr, io.env);
    const history = onTerminal ? await openHistory(session.context.store) : undefined;
    const dialogue = openDialogue(io, {
      history,
      onTerminal,
      isPlain: values.plain === true,
      session,
      isElsewhere: values.device !== undefined,
    });
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
      clear: conversation.clear,
      narrowings: conversation.narrowings,
      lift: conversation.lift,
    };
    try {
      for (;;) {
        const text = (conversation.unsent.shift() ?? (await dialogue.nextMessage()))?.trim();
        if (text === undefined || text === '/exit') return EXIT.completed;
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
    /** The tools act on a device. */
    readonly isElsewhere: boolean;
  },
): Dialogue {
  const { history, onTerminal, isPlain, session, isElsewhere } = options;
  if (!onTerminal) return pipedDialogue(io);
  if (isPlain || io.env['TERM'] === 'dumb') return lineDialogue(io, history);
  return screenDialogue(io, {
    history,
    status: () => session.options.model.id,
    changes: isElsewhere ? undefined : fileChanges(session.context.folder),
  });
}

interface LastConversation {
  readonly run: RunSummary;
  readonly messages: readonly Message[];
  /** What the next message takes over. */
  readonly carried: Carried | undefined;
}

/** The newest run that has ended and that the command can continue. */
async function lastConversation(store: RunStore, config: Config): Promise<LastConversation | undefined> {
  for (const run of await store.list({ status: ['completed', 'exhausted', 'failed', 'cancelled'], limit: Infinity })) {
    if (isChild(run) || !run.runId.startsWith('run_')) continue;
    const stored = { summary: run, entries: await store.read(run.runId) };
    const state = await stateAfter(stored);
    if (foreignRunReason(state, config) !== undefined || hasDefinition(stored)) continue;
    return { run, messages: messagesOf(state.history), carried: carriedFrom(state) };
  }
  return undefined;
}

function continueText(last: LastConversation | undefined): string {
  if (!last) return 'The store has no conversation to continue; this is a new one.';
  const { run, messages } = last;
  const age = ageText(Date.now() - run.updatedAt);
  return `Continues ${shortId(run.runId)} with ${plural(messages.length, 'message')}, ${age} ago: ${oneLine(run.title, 60)}`;
}

/** Each message of the user starts a run, whose input is the conversation so far. */
interface Conversation {
  /** `skills`: those that the user named. */
  send(
    text: string,
    skills?: readonly string[],
  ): Promise<{ readonly isInterrupted: boolean; readonly isTerminated: boolean }>;
  spent(): Spent;
  clear(): void;
  /** What narrows the conversation now. */
  narrowings(): readonly Narrowing[];
  /** Undoes the narrowing of a source from the next message on. False: there is none. */
  lift(source: string): boolean;
  /** Messages that the user entered when the run could not accept them any more. Send them next. */
  readonly unsent: string[];
}

const NOTHING = { messages: [], carried: undefined } as const;

function startConversation(options: {
  readonly session: Session;
  readonly keeper: ResourceKeeper;
  readonly io: Io;
  readonly dialogue: Dialogue;
  readonly colours: Colours;
  readonly logCalls: DriveRunOptions['logCalls'];
  /** For the commands that continue a run which waits for something. */
  readonly resuming: Parameters<typeof nextSteps>[1];
  /** The user has approved everything with --yes. */
  readonly yes: boolean;
  /** The conversation that is continued. */
  readonly last: LastConversation | undefined;
  /** The names of skills that the first message activates. */
  readonly skills: readonly string[];
  /** A line with time, tokens and cost follows each answer. */
  readonly showsUsage: boolean;
}): Conversation {
  const { session, keeper, io, dialogue, colours, logCalls, resuming, yes, showsUsage } = options;
  /** Skills that the next message activates. */
  const atFirst = [...options.skills];
  let { messages, carried }: Pick<LastConversation, 'messages' | 'carried'> = options.last ?? NOTHING;
  /** The run of the last message, which has left its shells. */
  let previous = options.last?.run.runId;
  let spent: Spent = { messages: 0, turns: 0, calls: 0, usage: NO_USAGE };
  const unsent: string[] = [];
  /** Sources of narrowings that the user has lifted since the last message. */
  const lifted = new Set<string>();
  const narrowings = (): readonly Narrowing[] =>
    (carried?.narrow ?? []).filter(({ source }) => source === undefined || !lifted.has(source));
  /** Names of tools that were offered on the way. */
  const found = new Set<string>();
  return {
    unsent,
    spent: () => spent,
    narrowings,
    lift(source) {
      const isNarrowed = narrowings().some((one) => one.source === source);
      if (isNarrowed) lifted.add(source);
      return isNarrowed;
    },
    clear() {
      ({ messages, carried } = NOTHING);
      if (previous !== undefined) void keeper.drop(previous);
      previous = undefined;
      found.clear();
    },
    async send(text, skills = []) {
      const named = [...skills, ...atFirst.splice(0)];
      let given: ReturnType<typeof withSkills>;
      try {
        given = withSkills([...messages, userText(text)], session.skills, named);
      } catch (error) {
        dialogue.writeLine(messageOf(error));
        return { isInterrupted: false, isTerminated: false };
      }
      let live: StartedRun | undefined;
      const interrupt = catchInterrupt(io);
      const steering: Promise<unknown>[] = [];
      const toSave: ApprovalRequest[] = [];
      const steer = async (more: string): Promise<void> => {
        const sent = await live?.send(more).catch(() => false);
        if (!sent) unsent.push(more);
      };
      const shown = dialogue.startRun({ interrupt, steer: (more) => void steering.push(steer(more)) });
      try {
        for (const notice of await session.reloadPackages()) dialogue.writeLine(notice);
        const result = await driveRun({
          start: {
            ...session.options,
            tools: session.toolsWith(found),
            ...given,
            carried: withSaved(carried, session.savedRules),
            kept: keeper.after(previous),
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
            shown.onItem(item);
          },
          logCalls,
          onLive(started) {
            live = started;
            // In the journal of the run that begins with it.
            for (const source of lifted) void started.liftNarrowing(userName(), source).catch(() => {});
            lifted.clear();
            session.follow(started);
          },
          approve: yes
            ? approveByFlag
            : async (request, others) => {
                const decision = await dialogue.approve(request, others, session.explain);
                if (decision.saved) toSave.push(decision.request ?? request);
                return decision;
              },
          answer: dialogue.answer,
          onRefused: dialogue.writeLine,
          user: userName(),
        });
        ({ messages, carried } = { carried: undefined, ...result });
        for (const line of await saveRules(session.savedRules, toSave, carried)) dialogue.writeLine(line);
        previous = result.runId;
        spent = {
          messages: spent.messages + 1,
          turns: spent.turns + result.turns,
          calls: spent.calls + result.calls,
          usage: addUsage(spent.usage, result.usage),
        };
        shown.endReply();
        const ending = outcomeText(result);
        if (ending) dialogue.writeLine(colours.red(ending));
        if (showsUsage) {
          const used = [durationText(result.durationMs), workText(result), usageText(result.usage)];
          dialogue.writeLine(colours.dim(used.join(', ')));
        }
        if (!result.outcome) for (const line of nextSteps(result, resuming)) dialogue.writeLine(line);
      } finally {
        shown.end();
        interrupt.release();
        await Promise.all(steering);
      }
      return { isInterrupted: interrupt.signal.aborted, isTerminated: interrupt.isTerminated };
    },
  };
}

/** Saves the rules for calls that the user has allowed for later conversations, too. Returns lines for the user. */
async function saveRules(
  rules: SavedRules,
  requests: readonly ApprovalRequest[],
  carried: Carried | undefined,
): Promise<readonly string[]> {
  if (requests.length === 0) return [];
  const touched = new Set(requests.map(({ call, touches = [] }) => stableJson([call.name, touches])));
  const grants = (carried?.grants ?? []).filter(({ tool, touches }) => touched.has(stableJson([tool, touches])));
  try {
    const saved = await rules.save(grants);
    return saved.map(
      ({ tool, touches }) =>
        `Saved in ${rules.file}: ${tool} may, as it does now: ${touches.map(touchText).join('; ')}`,
    );
  } catch (error) {
    return [`The rule was not saved: ${messageOf(error)}`];
  }
}
