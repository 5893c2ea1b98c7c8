import { TreadleError } from '../errors.ts';
import { textOf, type Message } from '../messages.ts';
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
  };
}

/**
 * Throws `invalid-input` if the id, the tenant or the parent of a run has an unpaired surrogate. UTF-8 cannot represent it,
 * so names that differ only there would be the same in a store and in the keys that tools send to other systems.
 */
export function checkRunNames(runId: string, first?: JournalEntry): void {
  checkName('run id', runId);
  if (first?.event.type !== 'run-started') return;
  const { principal, parent } = first.event;
  if (principal) checkName('tenant', principal.tenant);
  if (parent) checkName('parent', parent.runId);
}

function checkName(what: string, name: string): void {
  if (name.isWellFormed()) return;
  const message = `The ${what} ${JSON.stringify(name)} has an unpaired surrogate. Choose another one.`;
  throw new TreadleError('invalid-input', message);
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
