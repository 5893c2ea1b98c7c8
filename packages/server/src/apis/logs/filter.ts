import type { LogFilter } from './wire.ts';

const PROBLEMS: ReadonlySet<unknown> = new Set(['warn', 'error', 'fatal']);

const MESSAGES: Readonly<Record<Exclude<LogFilter, 'problem'>, string>> = {
  tool: 'a tool was called',
  run: 'run',
  request: 'request',
};

/** A line of a log, if the filter keeps it. */
export function logRecord(line: string, filter?: LogFilter): Readonly<Record<string, unknown>> | undefined {
  let record: Readonly<Record<string, unknown>> | null;
  try {
    record = JSON.parse(line) as typeof record;
  } catch {
    // A process was killed while it wrote.
    return undefined;
  }
  if (typeof record !== 'object' || record === null) return undefined;
  if (filter === undefined) return record;
  const isKept = filter === 'problem' ? PROBLEMS.has(record['level']) : record['msg'] === MESSAGES[filter];
  return isKept ? record : undefined;
}
