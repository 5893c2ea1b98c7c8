import { textOf, type Message } from '../messages.ts';
import { callerOf } from './family.ts';
import type { JournalEntry, RunSummary } from './port.ts';

const TITLE_CHARS = 200;

/** The summary of a run, from its first and last entries. */
export function summaryOf(runId: string, first: JournalEntry, last: JournalEntry): RunSummary {
  return {
    runId,
    status: last.status ?? 'running',
    startedAt: first.event.at,
    updatedAt: last.event.at,
    entries: last.seq + 1,
    ...originOf(first),
    ...(last.wakeAt !== undefined && callerOf(first) === undefined && { wakeAt: last.wakeAt }),
  };
}

function originOf({ event }: JournalEntry): Pick<RunSummary, 'model' | 'title' | 'tenant' | 'parent'> {
  if (event.type !== 'run-started') return { model: '', title: '' };
  const { model, input, principal, parent } = event;
  return {
    model,
    title: titleOf(input),
    ...(principal && { tenant: principal.tenant }),
    ...(parent && { parent: parent.runId }),
  };
}

/** The beginning of the last user message, in one line. */
function titleOf(input: readonly Message[]): string {
  for (const { role, content } of input.toReversed()) {
    // Only the beginning is processed, because a text may have megabytes.
    const text =
      role === 'user'
        ? textOf(content)
            .trimStart()
            .slice(0, 10 * TITLE_CHARS)
        : '';
    const line = text.replaceAll(/\s+/g, ' ').slice(0, TITLE_CHARS).trim();
    if (line !== '') return line.replace(/[\ud800-\udbff]$/, '').toWellFormed();
  }
  return '';
}
