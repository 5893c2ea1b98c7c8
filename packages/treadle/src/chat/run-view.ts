import { stripVTControlCharacters } from 'node:util';
import { textOf, type CallAnswered, type Fact, type Item, type ToolCall } from '@treadle/core';
import { taskProgress } from '@treadle/tools/task';
import { budgetWarning } from '../run/transcript.ts';
import type { Highlight, MarkdownOptions } from '../screen/markdown.ts';
import { markdownStream, type MarkdownStream } from '../screen/markdown-stream.ts';
import { clipLine, lineColumns, lineOf, span, type Line } from '../screen/spans.ts';
import { columnsOf, oneLine, printable } from '../terminal/printable.ts';
import { durationText } from '../terminal/quantities.ts';
import { resultWords, subjectOf } from './call-text.ts';
import type { CallChanges } from './file-changes.ts';
import type { Folded } from './folded.ts';

/** A call as people see it: one line that fills in. */
export interface ShownCall {
  readonly number: number;
  readonly call: ToolCall;
  /** The end of what the tool has reported so far. */
  reported: string;
  /** It reports output, and not one text at a time. */
  hasLineBreaks: boolean;
  answered?: CallAnswered;
  startedAt: number;
  endedAt?: number;
  /** The changes that it has made to files. */
  changes?: readonly Line[];
}

export interface RunViewOptions {
  /** Adds lines to the scrollback. */
  readonly settle: (lines: readonly Line[]) => void;
  readonly refresh: () => void;
  readonly width: () => number;
  readonly now: () => number;
  /** Undefined while it is being loaded. */
  readonly highlight: () => Highlight | undefined;
  /** All calls of the chat, for their numbers, and to show them again. */
  readonly calls: ShownCall[];
  /** Gets what is shown as one line. */
  readonly fold: (one: Folded) => void;
  /** Shows what calls change. */
  readonly changes?: CallChanges | undefined;
}

/** A longer line does not fit anyway. */
const MAX_LINE = 2_000;
/** So much of what a running call reports can be seen. */
const MAX_REPORTED = 20_000;
/** Changes of more lines are cut in the scrollback. */
const MAX_CHANGE_LINES = 60;

/** What a run does, on the screen: replies as Markdown, reasoning folded, and a line for each call. */
export interface RunView {
  readonly onItem: (item: Item) => void;
  /** The lines that may still change. */
  live(width: number): readonly Line[];
  /** What the run does now, for the status line. */
  activity(): string;
  /** Settles what is left. */
  end(): void;
}

export function runView(options: RunViewOptions): RunView {
  const { settle, refresh, width, now, calls } = options;
  let reply: MarkdownStream | undefined;
  let thinking: { readonly since: number; readonly folded: Folded & { readonly type: 'reasoning' } } | undefined;
  let activity = 'starting';
  /** Calls whose lines are live, in the order of the reply. */
  let open: ShownCall[] = [];
  const markdown = (columns = width()): MarkdownOptions => ({ width: columns, highlight: options.highlight() });
  /** The text of the reply has arrived as deltas, so it is not shown again with the whole reply. */
  let hasStreamed = false;
  /** Lines of the reply are settled. */
  let hasReplyLines = false;
  /** The last settled line is that of a call. Lines of calls have no blank lines between them. */
  let lastIsCalls = false;
  /** With a blank line before them. */
  const settleBlock = (line: Line): void => {
    settle([[], line]);
    lastIsCalls = false;
  };
  const settleReply = (lines: readonly Line[]): void => {
    if (lines.length === 0) return;
    settle(hasReplyLines ? lines : [[], ...lines]);
    hasReplyLines = true;
    lastIsCalls = false;
  };
  const endThinking = (): void => {
    if (!thinking) return;
    settleBlock(lineOf(`Thought for ${durationText(now() - thinking.since)} (Ctrl+O shows it)`, 'dim', 'italic'));
    thinking = undefined;
  };
  const endReply = (whole?: string): void => {
    endThinking();
    // A model that does not stream sends no deltas.
    if (!reply && whole && !hasStreamed) {
      reply = markdownStream();
      settleReply(reply.add(whole, markdown()));
    }
    if (reply) settleReply(reply.end(markdown()));
    reply = undefined;
    hasReplyLines = false;
  };
  const settleCalls = (): void => {
    while (open[0]?.answered) {
      const one = open.shift()!;
      const changes = one.changes ?? [];
      const shown = changes.length > MAX_CHANGE_LINES ? changes.slice(0, MAX_CHANGE_LINES) : changes;
      const more = changes.length - shown.length;
      const rest = more > 0 ? [lineOf(`  and ${more} more lines`, 'dim')] : [];
      settle([...(lastIsCalls ? [] : [[]]), callLine(one, width(), now()), ...shown, ...rest]);
      lastIsCalls = true;
    }
  };
  const shownCall = (call: ToolCall): ShownCall => {
    const found = open.find((one) => one.call.id === call.id && !one.answered);
    if (found) return found;
    const one: ShownCall = { number: calls.length + 1, call, reported: '', hasLineBreaks: false, startedAt: now() };
    calls.push(one);
    options.fold({ type: 'call', call: one });
    open = [...open, one];
    return one;
  };
  const showActivity = (): void => {
    const running = open.filter(({ answered }) => !answered);
    activity =
      running.length === 0 ? 'working' : running.length === 1 ? running[0]!.call.name : `${running.length} calls`;
  };
  const onFact = (event: Fact['event']): void => {
    if (event.type === 'budget-refused') settleBlock(lineOf(printable(event.reason), 'red'));
    if (event.type !== 'model-replied' && event.type !== 'model-failed') return;
    const content = event.type === 'model-replied' ? event.content : [];
    endReply(textOf(content.filter((part) => part.type === 'text')));
    hasStreamed = false;
  };
  const onItem = (item: Item): void => {
    switch (item.type) {
      case 'turn-started':
        activity = 'waiting for the model';
        break;
      case 'reasoning-delta':
        if (!thinking) {
          thinking = { since: now(), folded: { type: 'reasoning', text: '' } };
          options.fold(thinking.folded);
        }
        thinking.folded.text += item.text;
        activity = 'thinking';
        break;
      case 'text-delta':
        endThinking();
        activity = 'writing';
        hasStreamed = true;
        reply ??= markdownStream();
        settleReply(reply.add(item.text, markdown()));
        break;
      case 'call-delta':
        endReply();
        activity = `calling ${printable(item.name)}`;
        break;
      case 'call-started':
        shownCall(item.call);
        options.changes?.start(item.call);
        showActivity();
        break;
      case 'tool-report': {
        const nested = taskProgress(item);
        const one = shownCall(item.call);
        addReport(one, nested ? `${nested.call.name} ${subjectOf(nested.call)}\n` : item.progress);
        break;
      }
      case 'call-answered': {
        const one = shownCall(item.call);
        one.answered = item;
        one.endedAt = now();
        one.changes = options.changes?.end(item, width()) ?? [];
        settleCalls();
        showActivity();
        break;
      }
      case 'budget-warning':
        settleBlock(lineOf(budgetWarning(item), 'yellow'));
        break;
      case 'fact':
        onFact(item.event);
        break;
      default:
        return;
    }
    refresh();
  };
  return {
    onItem,
    live(columns) {
      const tail = reply?.tail(markdown(columns)) ?? [];
      const thought = thinking ? [[], lineOf(`Thinking for ${seconds(now() - thinking.since)}…`, 'dim', 'italic')] : [];
      return [
        ...thought,
        ...(tail.length > 0 && !hasReplyLines ? [[], ...tail] : tail),
        ...(open.length > 0 && !lastIsCalls ? [[]] : []),
        ...open.map((one) => callLine(one, columns, now())),
      ];
    },
    activity: () => activity,
    end() {
      endReply();
      for (const one of open) one.endedAt ??= now();
      if (open.length > 0) settle([...(lastIsCalls ? [] : [[]]), ...open.map((one) => callLine(one, width(), now()))]);
      open = [];
      refresh();
    },
  };
}

const FRAMES = ['⠋', '⠙', '⠹', '⠸', '⠼', '⠴', '⠦', '⠧', '⠇', '⠏'];
const FRAME_MS = 100;

/** The picture of a spinner at a time. */
export function spinner(at: number): string {
  return FRAMES[Math.floor(at / FRAME_MS) % FRAMES.length]!;
}

/** `✓ #1 read notes.txt · 2 lines: the first one`. */
function callLine(
  { number, call, reported, answered, startedAt, endedAt }: ShownCall,
  width: number,
  at: number,
): Line {
  const label = span(` #${number} `, 'dim');
  const bare = printable(call.name);
  /** The name and what it touches, in at most so many columns. */
  const named = (most: number): Line => {
    const subject = oneLine(subjectOf(call), Math.max(20, most - columnsOf(bare) - 1));
    return [span(bare, 'bold'), ...(subject === '' ? [] : [span(` ${subject}`)])];
  };
  if (!answered) {
    const isLost = endedAt !== undefined;
    const mark = isLost ? span('-', 'dim') : span(spinner(at - startedAt), 'cyan');
    const time = isLost ? 'stopped' : seconds(at - startedAt);
    const detail = oneLine(lastLine(reported), width);
    const rest = detail === '' ? '' : ` │ ${detail}`;
    return clipLine([mark, label, ...named(Math.floor(width / 2)), span(` · ${time}${rest}`, 'dim')], width);
  }
  const took = (endedAt ?? startedAt) - startedAt;
  const time = took < 1_000 ? '' : `${durationText(took)} · `;
  const words = oneLine(resultWords(answered.result, call.name), width);
  const { isError } = answered.result;
  // Both are cut if they do not fit, the result later than what it is about.
  const room = width - 1 - lineColumns([label]) - 3 - columnsOf(time);
  return clipLine(
    [
      isError ? span('✗', 'red') : span('✓', 'green'),
      label,
      ...named(room - Math.min(columnsOf(words), Math.floor(width / 2))),
      span(` · ${time}`, 'dim'),
      isError ? span(words, 'red') : span(words, 'dim'),
    ],
    width,
  );
}

/** Whole seconds, so that the line changes once a second. */
export function seconds(ms: number): string {
  const whole = Math.floor(ms / 1_000);
  return whole < 60 ? `${whole} s` : durationText(whole * 1_000);
}

/**
 * Adds what a tool reports. Output arrives in pieces that end anywhere, and has line breaks. Tools without output report a text at
 * a time, each of which is a line.
 */
function addReport(one: ShownCall, progress: unknown): void {
  const text = typeof progress === 'string' ? progress : `${JSON.stringify(progress) ?? ''}\n`;
  one.hasLineBreaks ||= text.includes('\n');
  const all = one.reported + (one.reported === '' || one.hasLineBreaks ? '' : '\n') + text;
  one.reported = all.length > 2 * MAX_REPORTED ? all.slice(-MAX_REPORTED) : all;
}

/** The last line with a text. A carriage return begins a line again, as progress bars do. */
function lastLine(text: string): string {
  const lines = stripVTControlCharacters(text.slice(-MAX_LINE).trimEnd()).split(/[\r\n]+/);
  return lines.at(-1) ?? '';
}
