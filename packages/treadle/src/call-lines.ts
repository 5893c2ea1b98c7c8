import { textOf, type Item, type ToolCall, type ToolResult } from '@treadle/core';
import type { Colours } from './colours.ts';
import { oneLine } from './printable.ts';

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
