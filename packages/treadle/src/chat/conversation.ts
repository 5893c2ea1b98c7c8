import { randomBytes } from 'node:crypto';
import {
  addUsage,
  messageOf,
  NO_USAGE,
  stableJson,
  textOf,
  userText,
  type Carried,
  type Item,
  type LoopResult,
  type Message,
  type Narrowing,
  type ResultBlock,
  type StartedRun,
  type UserBlock,
  type UserMessage,
} from '@treadle/core';
import type { ResourceKeeper } from '@treadle/store';
import { callingModel } from '@treadle/tools/calling-model';
import type { SavedRules } from '../policy/saved-rules.ts';
import { approveByFlag, touchText, userName } from '../run/ask-approval.ts';
import { driveRun, type ApprovalRequest, type DriveRunOptions, type RunStart } from '../run/drive-run.ts';
import { optionsOfEveryRun } from '../run/loop-options.ts';
import { outcomeText, workText } from '../run/outcome-text.ts';
import { nextSteps } from '../run/run-and-report.ts';
import { COMPACT_AT, withSaved, type Session } from '../run/session.ts';
import { filesNamedIn } from '../run/task-input.ts';
import { withSkills } from '../skills/command-skills.ts';
import type { Colours } from '../terminal/colours.ts';
import type { Io } from '../terminal/io.ts';
import { printable } from '../terminal/printable.ts';
import { durationText, plural, usageText } from '../terminal/quantities.ts';
import { catchInterrupt } from '../terminal/signals.ts';
import type { Dialogue } from './dialogue.ts';
import { CONVERSATION, PURPOSE, type FoundConversation } from './conversations.ts';
import type { Spent } from './slash-command.ts';

/** Each message of the user starts a run, whose input is the conversation so far. */
export interface Conversation {
  /** The label of its runs. */
  readonly id: string;
  readonly messages: readonly Message[];
  /** `skills`: those that the user named. `blocks`: what is sent with it; default: the files that it names after an @. */
  send(
    text: string,
    more?: { readonly skills?: readonly string[]; readonly blocks?: readonly UserBlock[] },
  ): Promise<Ending>;
  /** Replaces the conversation by one of the store. A run that has not ended is resumed. */
  load(found: FoundConversation): Promise<Ending>;
  /** From now on it is another conversation with the same beginning. */
  fork(): void;
  /** Replaces the conversation by a summary. `focus`: what matters. Returns a text for the user. */
  compact(focus: string): Promise<string>;
  /** Whether the next message is only planned: its run reads and changes nothing. */
  readonly isPlanning: boolean;
  setPlanning(on: boolean): void;
  /** Runs a command under the policy, and shares its output with the model. */
  runCommand(command: string): Promise<Ending>;
  /** Makes one call of a tool under the policy, without the model. Undefined: the tool is not there. */
  callTool(name: string, input: object): Promise<CalledTool | undefined>;
  /** The messages of the user, the newest last. */
  asked(): readonly Asked[];
  /** Forgets a message of the user and everything after it. The runs in the store stay whole. */
  rewind(to: Asked): void;
  spent(): Spent;
  clear(): void;
  /** What narrows the conversation now. */
  narrowings(): readonly Narrowing[];
  /** Undoes the narrowing of a source from the next message on. False: there is none. */
  lift(source: string): boolean;
  /** Messages that the user entered when the run could not accept them any more. Send them next. */
  readonly unsent: string[];
}

/** The result of a call that the user has made. */
export interface CalledTool {
  readonly content: readonly ResultBlock[];
  readonly isError: boolean;
  readonly ending: Ending;
}

/** A message that the user has sent. */
export interface Asked {
  readonly text: string;
  /** Its place in the conversation. */
  readonly index: number;
}

/** How a run ended, for the chat. */
export interface Ending {
  readonly isInterrupted: boolean;
  readonly isTerminated: boolean;
}

export interface ConversationOptions {
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
  /** The names of skills that the first message activates. */
  readonly skills: readonly string[];
  /** A line with time, tokens and cost follows each answer. */
  readonly showsUsage: boolean;
}

const NOTHING = { messages: [], carried: undefined } as const;
export const NOT_STOPPED: Ending = { isInterrupted: false, isTerminated: false };

export function startConversation(options: ConversationOptions): Conversation {
  const { session, keeper, io, dialogue, colours, logCalls, resuming, yes, showsUsage } = options;
  /** Skills that the next message activates. */
  const atFirst = [...options.skills];
  let id = newConversationId();
  let { messages, carried }: Pick<FoundConversation, 'messages' | 'carried'> = NOTHING;
  /** The last run, which has left its shells. */
  let previous: string | undefined;
  let spent: Spent = { messages: 0, turns: 0, calls: 0, usage: NO_USAGE };
  /** The tokens of the last request of the conversation and its reply. */
  let contextTokens = 0;
  const unsent: string[] = [];
  /** Sources of narrowings that the user has lifted since the last message. */
  const lifted = new Set<string>();
  const narrowings = (): readonly Narrowing[] =>
    (carried?.narrow ?? []).filter(({ source }) => source === undefined || !lifted.has(source));
  /** Names of tools that were offered on the way. */
  const found = new Set<string>();

  let isPlanning = false;
  const setPlanning = (on: boolean): void => {
    isPlanning = on;
    if (!on && narrowings().some(({ source }) => source === PLAN.source)) lifted.add(PLAN.source);
  };

  const onFact = (item: Item): void => {
    if (item.type !== 'fact') return;
    const { event } = item;
    // What one message has found is there for the next.
    if (event.type === 'tools-changed') for (const { name } of event.tools) found.add(name);
    else if (event.type === 'model-replied') {
      contextTokens = event.usage.inputTokens + event.usage.outputTokens;
    }
  };
  const count = (result: LoopResult, isMessage: boolean): void => {
    spent = {
      messages: spent.messages + (isMessage ? 1 : 0),
      turns: spent.turns + result.turns,
      calls: spent.calls + result.calls,
      usage: addUsage(spent.usage, result.usage),
    };
  };

  /** Drives one run on the screen. Undefined: it could not be started. */
  const drive = async (
    makeStart: () => RunStart,
    { isMessage }: { readonly isMessage: boolean },
  ): Promise<{ readonly ending: Ending; readonly result: LoopResult }> => {
    let live: StartedRun | undefined;
    const interrupt = catchInterrupt(io);
    const steering: Promise<unknown>[] = [];
    const toSave: ApprovalRequest[] = [];
    const steer = async (more: string): Promise<void> => {
      const sent = await messageWithFiles(more)
        .then((message) => live?.send(message))
        .catch(() => false);
      if (!sent) unsent.push(more);
    };
    const shown = dialogue.startRun({ interrupt, steer: (more) => void steering.push(steer(more)) });
    try {
      for (const notice of await session.reloadPackages()) dialogue.writeLine(notice);
      const result = await driveRun({
        start: makeStart(),
        allTools: session.allTools,
        store: session.store,
        signal: interrupt.signal,
        stopping: 'cancel',
        onItem(item) {
          onFact(item);
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
      previous = result.runId;
      count(result, isMessage);
      for (const line of await saveRules(session.savedRules, toSave, result.carried)) dialogue.writeLine(line);
      shown.endReply();
      return {
        result,
        ending: { isInterrupted: interrupt.signal.aborted, isTerminated: interrupt.isTerminated },
      };
    } finally {
      shown.end();
      interrupt.release();
      await Promise.all(steering);
    }
  };
  const report = (result: LoopResult): void => {
    const ending = outcomeText(result);
    if (ending) dialogue.writeLine(colours.red(ending));
    if (showsUsage) {
      const used = [durationText(result.durationMs), workText(result), usageText(result.usage)];
      dialogue.writeLine(colours.dim(used.join(', ')));
    }
    if (!result.outcome) for (const line of nextSteps(result, resuming)) dialogue.writeLine(line);
  };
  /** Drives a run of the conversation, which then is what the run leaves. Goes on at the turn limit if the user wants that. */
  const converse = async (makeStart: () => RunStart): Promise<Ending> => {
    const { result, ending } = await drive(makeStart, { isMessage: true });
    ({ messages, carried } = { carried: undefined, ...result });
    report(result);
    const { outcome } = result;
    if (isPlanning && outcome?.type === 'completed' && !ending.isInterrupted) {
      if (!(await dialogue.confirm('Approve the plan, and work on it? Until then nothing is changed.'))) return ending;
      setPlanning(false);
      return send(WORK_ON_PLAN);
    }
    if (outcome?.type === 'exhausted' && outcome.limit === 'turns' && !ending.isInterrupted) {
      const goOn = await dialogue.confirm(`It has taken ${plural(result.turns, 'turn')} and is not done. Continue?`);
      if (goOn) return send('Continue.');
    }
    return ending;
  };
  const startOf = (given: Pick<LoopStart, 'input' | 'narrow' | 'carried'>): LoopStart => ({
    ...session.options,
    tools: session.toolsWith(found),
    ...withSaved(carried, session.savedRules),
    labels: { ...session.options.labels, [CONVERSATION]: id },
    ...given,
    kept: keeper.after(previous),
  });
  const messageWithFiles = async (text: string): Promise<UserMessage> => {
    return withBlocks(text, await filesNamedIn(text, { cwd: session.context.folder }));
  };
  const compact = async (focus: string): Promise<string> => {
    if (messages.length === 0) return 'The conversation is empty. There is nothing to compact.';
    const before = contextTokens;
    const { result } = await drive(
      () => ({
        ...startOf({ input: [...messages, userText(compactionRequest(focus))] }),
        // The tools stay in the request, because the history has calls of them.
        toolChoice: 'none',
        maxTurns: 1,
        labels: { ...session.options.labels, [CONVERSATION]: id, [PURPOSE]: 'compaction' },
      }),
      { isMessage: false },
    );
    if (result.outcome?.type !== 'completed' || result.text.trim() === '') {
      return `The conversation was not compacted. ${outcomeText(result) ?? 'The summary is empty.'}`;
    }
    messages = [userText(`Summary of the conversation so far; the original messages are left out:\n\n${result.text}`)];
    contextTokens = result.usage.outputTokens;
    return `Compacted the conversation from ${plural(before, 'token')} to this summary. The runs in the store stay whole.`;
  };
  /** Makes room before the history is so long that the model rejects it. */
  const compactIfLong = async (): Promise<void> => {
    if (!session.options.compaction || contextTokens < session.contextWindow * COMPACT_AT) return;
    dialogue.writeLine(colours.dim('The conversation fills most of the context of the model. It is compacted first.'));
    dialogue.writeLine(await compact(''));
  };
  const send: Conversation['send'] = async (text, { skills = [], blocks } = {}) => {
    const named = [...skills, ...atFirst.splice(0)];
    let given: ReturnType<typeof withSkills>;
    try {
      await compactIfLong();
      const asked = isPlanning ? `${text}\n\n${PLAN_FIRST}` : text;
      const message = blocks ? withBlocks(asked, blocks) : await messageWithFiles(asked);
      given = withSkills([...messages, message], session.skills, named);
    } catch (error) {
      dialogue.writeLine(messageOf(error));
      return NOT_STOPPED;
    }
    const { narrow = [] } = given;
    const narrowed = isPlanning ? { narrow: [PLAN, ...(Array.isArray(narrow) ? narrow : [narrow])] } : {};
    return converse(() => startOf({ ...given, ...narrowed }));
  };
  const callTool: Conversation['callTool'] = async (name, input) => {
    const called = session.allTools().find((tool) => tool.name === name);
    if (!called) return undefined;
    const { result, ending } = await drive(
      () => ({
        ...startOf({ input: `${name} ${JSON.stringify(input)}` }),
        model: callingModel(name, JSON.stringify(input)),
        tools: [called],
        maxTurns: 1,
        closingTurn: false,
        labels: { ...session.options.labels, [CONVERSATION]: id, [PURPOSE]: 'command' },
      }),
      { isMessage: false },
    );
    if (result.carried) carried = result.carried;
    const results = result.messages.flatMap((message) => (message.role === 'tool' ? message.content : []));
    const isError = results.length === 0 || results.some((one) => one.isError);
    return { content: results.flatMap(({ content }) => content), isError, ending };
  };
  const clear = (): void => {
    ({ messages, carried } = NOTHING);
    id = newConversationId();
    contextTokens = 0;
    isPlanning = false;
    if (previous !== undefined) void keeper.drop(previous);
    previous = undefined;
    found.clear();
    lifted.clear();
  };
  return {
    get isPlanning() {
      return isPlanning;
    },
    setPlanning,
    send,
    compact,
    get id() {
      return id;
    },
    get messages() {
      return messages;
    },
    async load(found) {
      clear();
      ({ id, messages, carried } = found);
      const { runId } = found.run;
      previous = runId;
      if (!found.isOpen) return NOT_STOPPED;
      return converse(() => ({
        ...optionsOfEveryRun(session.options),
        runId,
        tools: session.allTools(),
        acceptChangedTools: true,
        kept: keeper.after(runId),
      }));
    },
    fork() {
      id = newConversationId();
    },
    callTool,
    async runCommand(command) {
      const called = await callTool('bash', { command });
      if (!called) {
        dialogue.writeLine('There is no tool bash in this chat, so commands cannot be run.');
        return NOT_STOPPED;
      }
      const { content, ending } = called;
      const output = textOf(content);
      dialogue.writeLine(printable(output));
      messages = [...messages, userText(`I ran this command:\n$ ${command}\n\n${output}`)];
      return ending;
    },
    asked: () =>
      messages.flatMap((message, index) => {
        if (message.role !== 'user') return [];
        const [first] = message.content;
        return first?.type === 'text' ? [{ text: first.text, index }] : [];
      }),
    rewind({ index }) {
      messages = messages.slice(0, index);
      contextTokens = 0;
    },
    unsent,
    spent: () => spent,
    narrowings,
    lift(source) {
      const isNarrowed = narrowings().some((one) => one.source === source);
      if (isNarrowed) lifted.add(source);
      return isNarrowed;
    },
    clear,
  };
}

function newConversationId(): string {
  return `chat_${randomBytes(8).toString('hex')}`;
}

function withBlocks(text: string, blocks: readonly UserBlock[]): UserMessage {
  return blocks.length === 0 ? userText(text) : { role: 'user', content: [{ type: 'text', text }, ...blocks] };
}

type LoopStart = Exclude<RunStart, { readonly runId: string; readonly input?: never }> &
  Pick<Session['options'], 'labels'>;

/** What narrows a run that only plans. These rules allow reads, whatever the level of the policy is. */
const PLAN = { source: 'plan', rules: { autonomy: 0 } } as const satisfies Narrowing;
const PLAN_FIRST =
  '(Plan first: look at what you need, and change nothing. Then answer with a plan of numbered steps for what you would do, ' +
  'and with what you are not sure about. You can work on it when I have approved it.)';
const WORK_ON_PLAN =
  'The plan is approved. Work on it now. Add each step as a todo with todowrite, and set it to in_progress and completed as ' +
  'you go.';

function compactionRequest(focus: string): string {
  return (
    'Summarise this conversation for yourself, so that you can continue from the summary alone: what was asked, what was ' +
    'done and found out (with names, numbers and paths as they are), what was decided, and what is left to do. Do not call ' +
    `tools, and answer with nothing but the summary.${focus === '' ? '' : ` What matters most: ${focus}`}`
  );
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
      ({ tool, touches }) => `Saved in ${rules.file}: ${tool} may always do this: ${touches.map(touchText).join('; ')}`,
    );
  } catch (error) {
    return [`The rule was not saved: ${messageOf(error)}`];
  }
}
