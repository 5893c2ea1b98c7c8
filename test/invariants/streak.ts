import type { ToolResult } from '@treadle/core';
import type { Disposition } from './disposition.ts';
import { argumentsOf, type CallRecord } from './turns.ts';

/** How often in a row the same call gave the same. */
export interface Streak {
  /** The call would be one too many. A limit of 0 is none. */
  readonly isFull: (call: CallRecord, limit: number) => boolean;
  readonly follow: (call: CallRecord, disposition: Disposition, result: ToolResult, polling: boolean) => void;
  /** How often the call was refused for that. */
  readonly refusals: () => number;
}

export function streakOf(): Streak {
  let call: string | undefined;
  let result: string | undefined;
  let [count, refused] = [0, 0];
  return {
    isFull: (next, limit) => limit > 0 && count >= limit && call === inWords(next),
    refusals: () => refused,
    follow(next, disposition, { content }, polling) {
      if (disposition === 'capped' || disposition === 'spent') return;
      if (disposition === 'repeated') {
        if (call === inWords(next)) refused++;
        return;
      }
      const again = call === inWords(next) && result === JSON.stringify(content);
      [call, result, refused] = [polling ? undefined : inWords(next), JSON.stringify(content), 0];
      count = again ? count + 1 : 1;
    },
  };
}

function inWords(call: CallRecord): string {
  return `${call.part.name} ${argumentsOf(call)}`;
}
