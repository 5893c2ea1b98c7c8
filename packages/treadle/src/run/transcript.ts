import { textOf, type Item, type ToolCall, type ToolResult } from '@treadle/core';
import type { Colours } from '../terminal/colours.ts';
import { oneLine } from '../terminal/printable.ts';

/** Writes one line when a tool call starts, and one when it has a result. The lines of a call have the same number. */
export function callLines(options: {
  readonly write: (line: string) => void;
  readonly colours: Colours;
  readonly width: number;
}): (item: Item) => void {
  const { write, colours, width } = options;
  const numbers = new Map<string, number>();
  let last = 0;
  const writeStart = (call: ToolCall): number => {
    const number = ++last;
    numbers.set(call.id, number);
    write(colours.dim(oneLine(`#${number} ${call.name} ${call.arguments}`, width)));
    return number;
  };
  return (item) => {
    if (item.type === 'call-started') writeStart(item.call);
    else if (item.type === 'call-answered') {
      // A call that was rejected or denied has a result, but was not started.
      const number = numbers.get(item.call.id) ?? writeStart(item.call);
      numbers.delete(item.call.id);
      const paint = item.result.isError ? colours.red : colours.dim;
      write(paint(oneLine(`#${number} ${resultText(item.result)}`, width)));
    }
  };
}

export function resultText(result: Pick<ToolResult, 'content' | 'isError'>): string {
  const text = textOf(result.content);
  if (result.isError) return `error: ${text}`;
  const lines = text.split('\n');
  if (lines.length === 1) return `returned: ${text}`;
  return `returned ${lines.length} lines: ${lines.find((line) => line.trim() !== '') ?? ''}`;
}

/** Shows a run while it is driven: the text of the model as it arrives, and tool calls on their own lines. */
export interface Transcript {
  readonly onItem: (item: Item) => void;
  /** Ends an incomplete line of the model. */
  endLine(): void;
}

export function transcript(options: {
  readonly writeText: (text: string) => void;
  readonly writeLine: (line: string) => void;
  readonly colours: Colours;
  readonly width: number;
}): Transcript {
  const { writeText, writeLine, colours, width } = options;
  let lineOpen = false;
  let streamed = false;
  const writeReply = (text: string): void => {
    if (text === '') return;
    writeText(text);
    lineOpen = !text.endsWith('\n');
  };
  const endLine = (): void => {
    if (lineOpen) writeText('\n');
    lineOpen = false;
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
    onItem(item) {
      if (item.type === 'text-delta') {
        streamed = true;
        writeReply(item.text);
      } else if (item.type === 'fact' && item.event.type === 'model-replied') {
        // A model that does not stream sends no deltas.
        if (!streamed) writeReply(textOf(item.event.content.filter((part) => part.type === 'text')));
        streamed = false;
        endLine();
      } else writeCall(item);
    },
  };
}
