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
import { EXIT } from '../command-line/command.ts';
import type { SavedRules } from '../policy/saved-rules.ts';
import { approveByFlag, touchText, userName } from '../run/ask-approval.ts';
import { driveRun, type ApprovalRequest, type DriveRunOptions, type RunStart } from '../run/drive-run.ts';
import { optionsOfEveryRun } from '../run/loop-options.ts';
import { exitCodeOf, outcomeText, workText } from '../run/outcome-text.ts';
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
  /** The tokens of its last request and the reply. */
  readonly contextTokens: number;
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
  /**
   * Makes one call of a tool under the policy, without the model. Undefined: the tool is not there. `isShown`: as a call of the model
   * is; default: yes.
   */
  callTool(name: string, input: object, more?: { readonly isShown?: boolean }): Promise<CalledTool | undefined>;
  /** The messages of the user, the newest last. */
  asked(): readonly Asked[];
  /** Goes on in another conversation, which ends before a message of the user. This one stays in the store. */
  rewind(to: Asked): void;
  spent(): Spent;
  /** That of the last message, as `treadle run` exits. */
  readonly exitCode: number;
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
  /** Takes what the user enters while a run works if it is a command, and not for the model. */
  readonly takesCommand: (text: string) => Promise<boolean>;
}

export const NOT_STOPPED: Ending = { isInterrupted: false, isTerminated: false };

/** What a conversation is at a time. */
interface State {
  id: string;
  messages: readonly Message[];
  carried: Carried | undefined;
  /** The last run, which has left its shells. */
  previous: string | undefined;
  spent: Spent;
  /** The tokens of the last request of the conversation and its reply. */
  contextTokens: number;
  exitCode: number;
  isPlanning: boolean;
  /** What was carried before each message, by the number of messages that there were. */
  carriedBefore: Map<number, Carried | undefined>;
  /** Sources of narrowings that the user has lifted since the last message. */
  readonly lifted: Set<string>;
  /** Names of tools that were offered on the way. */
  readonly found: Set<string>;
  /** Skills that the next message activates. */
  readonly atFirst: string[];
  readonly unsent: string[];
}

interface Parts {
  readonly options: ConversationOptions;
  readonly state: State;
}

/** What begins with no message. */
const startState = (): Pick<State, 'id' | 'messages' | 'carried' | 'contextTokens' | 'carriedBefore'> => ({
  id: `chat_${randomBytes(8).toString('hex')}`,
  messages: [],
  carried: undefined,
  contextTokens: 0,
  carriedBefore: new Map(),
});

export function startConversation(options: ConversationOptions): Conversation {
  const { session, keeper } = options;
  const state: State = {
    ...startState(),
    previous: undefined,
    spent: { messages: 0, turns: 0, calls: 0, usage: NO_USAGE },
    exitCode: EXIT.completed,
    isPlanning: false,
    lifted: new Set(),
    found: new Set(),
    atFirst: [...options.skills],
    unsent: [],
  };
  const parts: Parts = { options, state };
  const clear = (): void => {
    // The shells and jobs that the last run has left.
    if (state.previous !== undefined) void keeper.drop(state.previous);
    Object.assign(state, startState(), { isPlanning: false, previous: undefined });
    state.found.clear();
    state.lifted.clear();
  };
  return {
    get isPlanning() {
      return state.isPlanning;
    },
    setPlanning: (on) => setPlanning(state, on),
    send: (text, more) => send(parts, text, more),
    compact: (focus) => compact(parts, focus),
    get id() {
      return state.id;
    },
    get messages() {
      return state.messages;
    },
    get contextTokens() {
      return state.contextTokens;
    },
    async load(found) {
      clear();
      const { run, isOpen, ...loaded } = found;
      const { runId } = run;
      Object.assign(state, loaded, { previous: runId });
      const last = askedIn(found.messages).at(-1);
      if (last) options.dialogue.showEarlier({ asked: last.text, reply: replyAfter(last, found.messages) });
      if (!isOpen) return NOT_STOPPED;
      return converse(parts, () => ({
        ...optionsOfEveryRun(session.options),
        runId,
        tools: session.allTools(),
        acceptChangedTools: true,
        kept: keeper.after(runId),
      }));
    },
    fork() {
      state.id = startState().id;
    },
    callTool: (name, input, more) => callTool(parts, { name, input, ...more }),
    runCommand: (command) => runCommand(parts, command),
    asked: () => askedIn(state.messages),
    rewind: ({ index }) => rewind(state, index),
    unsent: state.unsent,
    spent: () => state.spent,
    get exitCode() {
      return state.exitCode;
    },
    narrowings: () => narrowings(state),
    lift(source) {
      const isNarrowed = narrowings(state).some((one) => one.source === source);
      if (isNarrowed) state.lifted.add(source);
      return isNarrowed;
    },
    clear,
  };
}

function askedIn(messages: readonly Message[]): readonly Asked[] {
  return messages.flatMap((message, index) => {
    if (message.role !== 'user') return [];
    const first = message.content.find((part) => !isPlanRequest(part));
    return first?.type === 'text' && !isOfProgram(first.text) ? [{ text: first.text, index }] : [];
  });
}

/** The last text of the model after a message. */
function replyAfter({ index }: Asked, messages: readonly Message[]): string {
  const texts = messages.slice(index).flatMap((one) => (one.role === 'assistant' ? textOf(one.content) : []));
  return texts.findLast((text) => text !== '') ?? '';
}

function narrowings({ carried, lifted }: State): readonly Narrowing[] {
  return (carried?.narrow ?? []).filter(({ source }) => source === undefined || !lifted.has(source));
}

function setPlanning(state: State, on: boolean): void {
  state.isPlanning = on;
  if (!on && narrowings(state).some(({ source }) => source === PLAN.source)) state.lifted.add(PLAN.source);
}

/**
 * A fork from a message on: what it had carried then, and a conversation of its own. The original stays in the store. If the message
 * was only planned, the one in its place is, too.
 */
function rewind(state: State, index: number): void {
  state.isPlanning ||= state.messages[index]?.role === 'user' && state.messages[index].content.some(isPlanRequest);
  const known = [...state.carriedBefore.keys()].filter((length) => length <= index).sort((a, b) => a - b);
  const [last] = known.slice(-1);
  // A conversation that was loaded knows what it carries only at its end.
  if (last !== undefined) state.carried = state.carriedBefore.get(last);
  else if (index === 0) state.carried = undefined;
  for (const length of state.carriedBefore.keys()) if (length > index) state.carriedBefore.delete(length);
  state.messages = state.messages.slice(0, index);
  state.contextTokens = 0;
  state.id = startState().id;
}

function noteFact(state: State, item: Item): void {
  if (item.type !== 'fact') return;
  const { event } = item;
  // What one message has found is there for the next.
  if (event.type === 'tools-changed') for (const { name } of event.tools) state.found.add(name);
  else if (event.type === 'model-replied') {
    state.contextTokens = event.usage.inputTokens + event.usage.outputTokens;
  }
}

/**
 * Drives one run on the screen. `of`: a message of the conversation, or something beside it, whose run takes no further messages and
 * says nothing about how long the conversation is.
 */
async function drive(
  { options, state }: Parts,
  makeStart: () => RunStart,
  { of, isShown = true }: { readonly of: 'message' | 'compaction' | 'call'; readonly isShown?: boolean },
): Promise<{ readonly ending: Ending; readonly result: LoopResult }> {
  const { session, io, dialogue, yes, takesCommand } = options;
  let live: StartedRun | undefined;
  const interrupt = catchInterrupt(io);
  const steering: Promise<unknown>[] = [];
  const toSave: ApprovalRequest[] = [];
  const steer = async (more: string): Promise<void> => {
    if (await takesCommand(more)) return;
    const sent =
      of === 'message' &&
      (await messageWithFiles(session, more)
        .then((message) => live?.send(message))
        .catch(() => false));
    if (!sent) state.unsent.push(more);
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
        if (of === 'message') noteFact(state, item);
        if (isShown) shown.onItem(item);
      },
      logCalls: options.logCalls,
      onLive(started) {
        live = started;
        // In the journal of the run that begins with it.
        for (const source of state.lifted) void started.liftNarrowing(userName(), source).catch(() => {});
        state.lifted.clear();
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
    state.previous = result.runId;
    state.spent = spentAfter(state.spent, result, of === 'message');
    for (const line of await saveRules(session.savedRules, toSave, result.carried)) dialogue.writeLine(line);
    shown.endReply();
    return { result, ending: { isInterrupted: interrupt.signal.aborted, isTerminated: interrupt.isTerminated } };
  } finally {
    shown.end();
    interrupt.release();
    await Promise.all(steering);
  }
}

function spentAfter(spent: Spent, result: LoopResult, isMessage: boolean): Spent {
  return {
    messages: spent.messages + (isMessage ? 1 : 0),
    turns: spent.turns + result.turns,
    calls: spent.calls + result.calls,
    usage: addUsage(spent.usage, result.usage),
  };
}

/** How a run ended, below its reply. */
function report(result: LoopResult, { dialogue, colours, showsUsage, resuming }: ConversationOptions): void {
  const ending = outcomeText(result);
  if (ending) dialogue.writeLine(colours.red(ending));
  if (showsUsage) {
    const used = [durationText(result.durationMs), workText(result), usageText(result.usage)];
    dialogue.writeLine(colours.dim(used.join(', ')));
  }
  if (!result.outcome) for (const line of nextSteps(result, resuming)) dialogue.writeLine(line);
}

/** Drives a run of the conversation, which then is what the run leaves. Goes on at the turn limit if the user wants that. */
async function converse(parts: Parts, makeStart: () => RunStart): Promise<Ending> {
  const { options, state } = parts;
  const { dialogue } = options;
  const { result, ending } = await drive(parts, makeStart, { of: 'message' });
  Object.assign(state, { messages: result.messages, carried: result.carried, exitCode: exitCodeOf(result) });
  report(result, options);
  const { outcome } = result;
  if (state.isPlanning && outcome?.type === 'completed' && !ending.isInterrupted) {
    if (!(await dialogue.confirm('Approve the plan, and work on it? Until then nothing is changed.'))) return ending;
    setPlanning(state, false);
    return send(parts, WORK_ON_PLAN);
  }
  if (outcome?.type === 'exhausted' && outcome.limit === 'turns' && !ending.isInterrupted) {
    const goOn = await dialogue.confirm(`It has taken ${plural(result.turns, 'turn')} and is not done. Continue?`);
    if (goOn) return send(parts, CONTINUE);
  }
  return ending;
}

function startOf(
  { options: { session, keeper }, state }: Parts,
  given: Pick<LoopStart, 'input' | 'narrow' | 'carried'>,
  purpose?: string,
): LoopStart {
  const { id, found, carried, previous } = state;
  return {
    ...session.options,
    tools: session.toolsWith(found),
    ...withSaved(carried, session.savedRules),
    labels: { ...session.options.labels, [CONVERSATION]: id, ...(purpose !== undefined && { [PURPOSE]: purpose }) },
    ...given,
    kept: keeper.after(previous),
  };
}

async function messageWithFiles(session: Session, text: string): Promise<UserMessage> {
  return withBlocks(text, await filesNamedIn(text, { cwd: session.context.folder }));
}

async function compact(parts: Parts, focus: string): Promise<string> {
  const { state } = parts;
  const { messages, contextTokens: before } = state;
  if (messages.length === 0) return 'The conversation is empty. There is nothing to compact.';
  const { result } = await drive(
    parts,
    () => ({
      ...startOf(parts, { input: [...messages, userText(compactionRequest(focus))] }, 'compaction'),
      // The tools stay in the request, because the history has calls of them.
      toolChoice: 'none',
      maxTurns: 1,
    }),
    { of: 'compaction' },
  );
  if (result.outcome?.type !== 'completed' || result.text.trim() === '') {
    return `The conversation was not compacted. ${outcomeText(result) ?? 'The summary is empty.'}`;
  }
  state.messages = [userText(`${SUMMARY}\n\n${result.text}`)];
  state.carriedBefore.clear();
  state.contextTokens = result.usage.outputTokens;
  const from = before > 0 ? ` from ${plural(before, 'token')}` : '';
  return `Compacted the conversation${from} to this summary. The runs in the store stay whole.`;
}

/** Makes room before the history is so long that the model rejects it. */
async function compactIfLong(parts: Parts): Promise<void> {
  const { session, dialogue, colours } = parts.options;
  if (!session.options.compaction || parts.state.contextTokens < session.contextWindow * COMPACT_AT) return;
  dialogue.writeLine(colours.dim('The conversation fills most of the context of the model. It is compacted first.'));
  dialogue.writeLine(await compact(parts, ''));
}

async function send(parts: Parts, ...[text, { skills = [], blocks } = {}]: SendArguments): Promise<Ending> {
  const { options, state } = parts;
  const { session, dialogue } = options;
  const named = [...skills, ...state.atFirst.splice(0)];
  let given: ReturnType<typeof withSkills>;
  try {
    await compactIfLong(parts);
    const files = blocks ?? (await filesNamedIn(text, { cwd: session.context.folder }));
    const { content } = withBlocks(text, files);
    const message: UserMessage = { role: 'user', content: state.isPlanning ? [PLAN_REQUEST, ...content] : content };
    given = withSkills([...state.messages, message], session.skills, named);
  } catch (error) {
    dialogue.writeLine(messageOf(error));
    return NOT_STOPPED;
  }
  const { narrow = [] } = given;
  const narrowed = state.isPlanning ? { narrow: [PLAN, ...(Array.isArray(narrow) ? narrow : [narrow])] } : {};
  state.carriedBefore.set(state.messages.length, state.carried);
  return converse(parts, () => startOf(parts, { ...given, ...narrowed }));
}

async function callTool(
  parts: Parts,
  { name, input, isShown = true }: { readonly name: string; readonly input: object; readonly isShown?: boolean },
): Promise<CalledTool | undefined> {
  const { options, state } = parts;
  const called = options.session.allTools().find((tool) => tool.name === name);
  if (!called) return undefined;
  const { result, ending } = await drive(
    parts,
    () => ({
      ...startOf(parts, { input: `${name} ${JSON.stringify(input)}` }, 'command'),
      model: callingModel(name, JSON.stringify(input)),
      tools: [called],
      maxTurns: 1,
      closingTurn: false,
    }),
    { of: 'call', isShown },
  );
  if (result.carried) state.carried = result.carried;
  const results = result.messages.flatMap((message) => (message.role === 'tool' ? message.content : []));
  const isError = results.length === 0 || results.some((one) => one.isError);
  return { content: results.flatMap(({ content }) => content), isError, ending };
}

async function runCommand(parts: Parts, command: string): Promise<Ending> {
  const { options, state } = parts;
  const { dialogue } = options;
  const called = await callTool(parts, { name: 'bash', input: { command } });
  if (!called) {
    dialogue.writeLine('There is no tool bash in this chat, so commands cannot be run.');
    return NOT_STOPPED;
  }
  const output = textOf(called.content);
  dialogue.writeLine(printable(output).trimEnd());
  state.messages = [...state.messages, userText(`${RAN}\n$ ${command}\n\n${output}`)];
  return called.ending;
}

type SendArguments = Parameters<Conversation['send']>;

function withBlocks(text: string, blocks: readonly UserBlock[]): UserMessage {
  return blocks.length === 0 ? userText(text) : { role: 'user', content: [{ type: 'text', text }, ...blocks] };
}

type LoopStart = Exclude<RunStart, { readonly runId: string; readonly input?: never }> &
  Pick<Session['options'], 'labels'>;

/** What narrows a run that only plans. These rules allow reads, whatever the level of the policy is. */
const PLAN = { source: 'plan', rules: { autonomy: 0 } } as const satisfies Narrowing;
/** Before what the user has entered. The title of a run leaves out what is between tags. */
const PLAN_REQUEST = {
  type: 'text',
  text:
    '<plan-mode>\nPlan first: look at what you need, and change nothing. Then answer with a plan of numbered steps for what you ' +
    'would do, and with what you are not sure about. You can work on it when I have approved it.\n</plan-mode>\n\n',
} as const satisfies UserBlock;
const CONTINUE = 'Continue.';
const SUMMARY = 'Summary of the conversation so far; the original messages are left out:';
const RAN = 'I ran this command:';
const WORK_ON_PLAN =
  'The plan is approved. Work on it now. Add each step as a todo with todowrite, and set it to in_progress and completed as ' +
  'you go.';

function isPlanRequest(part: UserBlock): boolean {
  return part.type === 'text' && part.text === PLAN_REQUEST.text;
}

/** Whether the chat has written a message for the user. */
function isOfProgram(text: string): boolean {
  return text === CONTINUE || text === WORK_ON_PLAN || text.startsWith(`${SUMMARY}\n`) || text.startsWith(`${RAN}\n`);
}

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
