import type { LoggingLevel } from '@modelcontextprotocol/server';
import type { ToolResult } from '@treadle/core';
import { taskProgress } from '@treadle/tools/task';
import type { Projection } from '../../requests/projection.ts';
import { isObject } from './content.ts';

/** What a client is told while a call runs. `progress`, `total` and `message` are what the tool has reported. */
export type CallEvent =
  | { readonly type: 'progress'; readonly progress?: unknown; readonly total?: unknown; readonly message?: unknown }
  | { readonly type: 'log'; readonly level: LoggingLevel; readonly data: unknown; readonly logger?: unknown };

interface CallState {
  isAgent: boolean;
  answered: ToolResult | undefined;
}

/**
 * The progress of a call, and the result of the tool; undefined if it has none. What a tool reports: a number or
 * `{ progress, total, message }`, a text, or `{ level, data, logger }`, which is a line for the client's log. Of an agent, and of
 * runs inside of the call, the turns and the calls.
 */
export const callProjection: Projection<CallState, CallEvent, ToolResult | undefined> = {
  start: () => ({ isAgent: false, answered: undefined }),
  project(state, item) {
    if (item.type === 'call-answered') state.answered = item.result;
    if (item.type === 'resumed') return NONE;
    const inner = taskProgress(item);
    if (item.type === 'turn-started' && item.attempt !== undefined) {
      state.isAgent = true;
      return [{ type: 'progress', message: `Turn ${item.turn}` }];
    }
    const started =
      inner?.type === 'call-started' ? inner : state.isAgent && item.type === 'call-started' ? item : undefined;
    if (started) return [{ type: 'progress', message: `Calls ${started.call.name}` }];
    return item.type === 'tool-report' && !inner ? reported(item.progress) : NONE;
  },
  result: ({ answered }) => answered,
};

const NONE: readonly never[] = [];
const LEVELS: readonly unknown[] = ['debug', 'info', 'notice', 'warning', 'error', 'critical', 'alert', 'emergency'];

function reported(report: unknown): readonly CallEvent[] {
  if (typeof report === 'string') return [{ type: 'progress', message: report }];
  if (typeof report === 'number') return [{ type: 'progress', progress: report }];
  if (!isObject(report)) return NONE;
  const { level, data, logger, progress, total, message } = report;
  if (LEVELS.includes(level) && data !== undefined)
    return [{ type: 'log', level: level as LoggingLevel, data, logger }];
  const isProgress = typeof progress === 'number' || typeof message === 'string';
  return isProgress ? [{ type: 'progress', progress, total, message }] : NONE;
}
