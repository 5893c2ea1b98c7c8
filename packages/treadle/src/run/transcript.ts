import { stripVTControlCharacters } from 'node:util';
import {
  textOf,
  type AssistantPart,
  type BudgetLevel,
  type CallAnswered,
  type CallStarted,
  type Item,
  type ToolCall,
  type ToolResult,
} from '@treadle/core';
import { taskProgress } from '@treadle/tools/task';
import type { Colours } from '../terminal/colours.ts';
import { oneLine, printable } from '../terminal/printable.ts';
import { amountText } from '../terminal/quantities.ts';
import { NO_STATUS, type StatusLine } from '../terminal/status-line.ts';

/**
 * Writes one line when a tool call starts, and one when it has a result. The lines of a call have the same number; those of
 * the calls of task #1 have the numbers #1.1, #1.2 and so on.
 */
export function callLines(options: {
  readonly write: (line: string) => void;
  readonly colours: Colours;
  readonly width: number;
}): (item: Item) => void {
  const { write, colours, width } = options;
  /** The numbers of calls without a result. */
  const numbers = new Map<string, string>();
  /** How many calls there were, by the number of their task with a dot; `''`: of the run itself. */
  const counts = new Map<string, number>();
  const writeStart = (call: ToolCall, within: string): string => {
    const count = (counts.get(within) ?? 0) + 1;
    counts.set(within, count);
    const number = `${within}${count}`;
    numbers.set(within + call.id, number);
    write(colours.dim(oneLine(`#${number} ${call.name} ${call.arguments}`, width)));
    return number;
  };
  const writeCall = (item: CallStarted | CallAnswered, within: string): void => {
    const started = numbers.get(within + item.call.id);
    if (item.type === 'call-started') {
      // A call that has asked something starts again with the answer.
      if (started === undefined) writeStart(item.call, within);
      return;
    }
    // A call that was rejected or denied has a result, but was not started.
    const number = started ?? writeStart(item.call, within);
    numbers.delete(within + item.call.id);
    const paint = item.result.isError ? colours.red : colours.dim;
    write(paint(oneLine(`#${number} ${resultText(item.result)}`, width)));
  };
  return (item) => {
    if (item.type === 'call-started' || item.type === 'call-answered') return writeCall(item, '');
    const ofTask = taskProgress(item);
    if (ofTask && item.type === 'tool-report') writeCall(ofTask, `${numbers.get(item.call.id) ?? ''}.`);
  };
}

export function resultText(result: Pick<ToolResult, 'content' | 'isError'>): string {
  const text = textOf(result.content);
  if (result.isError) return `error: ${text}`;
  const lines = text.replace(/\n$/, '').split('\n');
  if (lines.length === 1) return `returned: ${lines[0]}`;
  return `returned ${lines.length} lines: ${lines.find((line) => line.trim() !== '') ?? ''}`;
}

/** Shows a run while it is driven: the text of the model as it arrives, tool calls on their own lines, and its status. */
export interface Transcript {
  readonly onItem: (item: Item) => void;
  /** Ends an incomplete line of the model. */
  endLine(): void;
  /** The text of the last reply, if it was written. */
  lastText(): string | undefined;
}

/**
 * `writeText`: writes text of the model as it arrives. Without it, the text of a reply is written as a line, and only if calls
 * follow: then it is not the answer.
 */
export function transcript(options: {
  readonly writeText?: (text: string) => void;
  readonly writeLine: (line: string) => void;
  readonly colours: Colours;
  readonly width: number;
  readonly status?: StatusLine;
}): Transcript {
  const { writeText, writeLine, colours, width, status = NO_STATUS } = options;
  let lineOpen = false;
  let streamed = false;
  let lastText: string | undefined;
  const running = new Map<string, string>();
  const writeReply = (text: string): void => {
    if (text === '' || !writeText) return;
    status.hide();
    writeText(text);
    lineOpen = !text.endsWith('\n');
  };
  const endLine = (): void => {
    if (lineOpen) writeText!('\n');
    lineOpen = false;
  };
  const endReply = (content: readonly AssistantPart[]): void => {
    const text = textOf(content.filter((part) => part.type === 'text'));
    const hasCalls = content.some((part) => part.type === 'tool-call');
    // A model that does not stream sends no deltas.
    if (!streamed) writeReply(text);
    endLine();
    if (!writeText && hasCalls && text !== '') writeLine(printable(text));
    lastText = writeText || hasCalls ? text : undefined;
  };
  const showRunning = (): void => {
    if (running.size > 0) status.show([...new Set(running.values())].join(', '));
    else status.hide();
  };
  const writeCall = callLines({
    colours,
    width,
    write: (line) => {
      endLine();
      writeLine(line);
    },
  });
  return {
    endLine,
    lastText: () => lastText,
    onItem(item) {
      writeCall(item);
      switch (item.type) {
        case 'turn-started':
          return status.show('model');
        case 'text-delta':
          streamed = true;
          return writeReply(item.text);
        case 'call-delta':
          endLine();
          return status.show(`model, calling ${item.name}`);
        case 'call-started':
          running.set(item.call.id, item.call.name);
          return showRunning();
        case 'tool-report':
          return status.detail(progressText(taskProgress(item)?.call.name ?? item.progress));
        case 'call-answered':
          running.delete(item.call.id);
          return showRunning();
        case 'budget-warning':
          endLine();
          return writeLine(budgetWarning(item));
        case 'fact':
          if (item.event.type === 'model-replied') endReply(item.event.content);
          else if (item.event.type === 'model-failed') endLine();
          else if (item.event.type === 'budget-refused') writeLine(printable(item.event.reason));
          else return;
          streamed = false;
          status.hide();
      }
    },
  };
}

export function budgetWarning({ budget, kind, used, limit }: BudgetLevel): string {
  return `The budget ${printable(budget)} has little left: ${amountText(kind, used, limit)} are used.`;
}

/** What a tool reports, as text: of several lines the last one. */
function progressText(progress: unknown): string {
  const text = typeof progress === 'string' ? progress : (JSON.stringify(progress) ?? '');
  const line = text.trimEnd();
  return stripVTControlCharacters(line.slice(line.lastIndexOf('\n') + 1));
}
