import { userText, type LiveRun, type Message } from '@treadle/core';
import type { Colours } from './colours.ts';
import type { Dialogue } from './dialogue.ts';
import { drive } from './drive.ts';
import { interruptible } from './interrupt.ts';
import type { Io } from './io.ts';
import { outcomeText } from './outcome-text.ts';
import type { Session } from './session.ts';
import { transcript } from './transcript.ts';

/** Messages of a user, each answered by a run that knows all before it. */
export interface Conversation {
  say(text: string): Promise<{ readonly interrupted: boolean }>;
  /** Said too late for the run that it was meant for: to be said next. */
  readonly late: string[];
}

export function conversation(options: {
  readonly session: Session;
  readonly io: Io;
  readonly dialogue: Dialogue;
  readonly colours: Colours;
}): Conversation {
  const { session, io, dialogue, colours } = options;
  let messages: readonly Message[] = [];
  const late: string[] = [];
  return {
    late,
    async say(text) {
      let live: LiveRun | undefined;
      const interrupt = interruptible(io);
      const shown = transcript({ ...dialogue, colours, width: io.stdout.columns ?? 120 });
      const ended = dialogue.begin({
        interrupt,
        steer: (more) => {
          if (!live?.send(more)) late.push(more);
        },
      });
      try {
        const result = await drive({
          start: { ...session.options, input: [...messages, userText(text)] },
          store: session.store,
          signal: interrupt.signal,
          stopping: 'cancel',
          onItem: shown.onItem,
          onLive: (begun) => (live = begun),
          approve: dialogue.approve,
        });
        messages = result.messages;
        shown.endLine();
        const ending = outcomeText(result);
        if (ending) dialogue.writeLine(colours.red(ending));
      } finally {
        ended();
        interrupt.release();
      }
      return { interrupted: interrupt.signal.aborted };
    },
  };
}
