import { textOf, type Item } from '@treadle/core';
import { callLines } from './call-lines.ts';
import type { Colours } from './colours.ts';

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
