import { textOf, type Item, type ToolCall, type ToolResult } from '@treadle/core';
import type { Colours } from '../terminal/colours.ts';
import { oneLine } from '../terminal/printable.ts';

/** Tells of tool calls: one line when a call begins, one when it has its result. A number keeps parallel ones apart. */
export function callLines(options: {
  readonly write: (line: string) => void;
  readonly colours: Colours;
  readonly width: number;
}): (item: Item) => void {
  const { write, colours, width } = options;
  const numbers = new Map<string, number>();
  let last = 0;
  const begin = (call: ToolCall): number => {
    const number = ++last;
    numbers.set(call.id, number);
    write(colours.dim(oneLine(`#${number} ${call.name} ${call.arguments}`, width)));
    return number;
  };
  return (item) => {
    if (item.type === 'call-started') begin(item.call);
    else if (item.type === 'call-answered') {
      // One that never ran (refused, not allowed) was not begun.
      const number = numbers.get(item.call.id) ?? begin(item.call);
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
  return lines.length > 1
    ? `gave ${lines.length} lines: ${lines.find((line) => line.trim() !== '') ?? ''}`
    : `gave: ${text}`;
}

/** Shows a run as it goes: the model's words as they come, and tool calls between them on lines of their own. */
export interface Transcript {
  readonly onItem: (item: Item) => void;
  /** Ends a line that the model left open. */
  endLine(): void;
}

export function transcript(options: {
  readonly writeText: (text: string) => void;
  readonly writeLine: (line: string) => void;
  readonly colours: Colours;
  readonly width: number;
}): Transcript {
  const { writeText, writeLine, colours, width } = options;
  let open = false;
  let streamed = false;
  const say = (text: string): void => {
    if (text === '') return;
    writeText(text);
    open = !text.endsWith('\n');
  };
  const endLine = (): void => {
    if (open) writeText('\n');
    open = false;
  };
  const calls = callLines({
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
        say(item.text);
      } else if (item.type === 'fact' && item.event.type === 'model-replied') {
        // A model that cannot stream has said nothing yet.
        if (!streamed) say(textOf(item.event.content.filter((part) => part.type === 'text')));
        streamed = false;
        endLine();
      } else calls(item);
    },
  };
}
