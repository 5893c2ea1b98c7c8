import type { Disk } from './disk.ts';
import { ensure } from './violation.ts';

/*
 * What the tables of the store must contain, whatever was written: each text, message and content is there as long as
 * something uses it, and no longer; budgets are not exceeded, and nothing is spent without a reservation.
 */

/** Each finds rows that must not exist. */
const WRONG_ROWS: Readonly<Record<string, string>> = {
  'a text that nothing uses': 'SELECT id FROM texts WHERE id NOT IN (SELECT text FROM text_uses)',
  'a use of a text that is missing': 'SELECT text FROM text_uses WHERE text NOT IN (SELECT id FROM texts)',
  'a use of a text by something that is deleted': `SELECT text FROM text_uses WHERE
     (kind = 1 AND user NOT IN (SELECT id FROM runs)) OR (kind = 2 AND user NOT IN (SELECT id FROM messages))
     OR (kind = 3 AND user NOT IN (SELECT id FROM requests))`,
  'a message that nothing uses': `SELECT id FROM messages WHERE
     id NOT IN (SELECT previous FROM messages WHERE previous IS NOT NULL)
     AND id NOT IN (SELECT input_last FROM runs WHERE input_last IS NOT NULL)
     AND id NOT IN (SELECT input_last FROM requests WHERE input_last IS NOT NULL)`,
  'a run whose input is missing':
    'SELECT id FROM runs WHERE input_last IS NOT NULL AND input_last NOT IN (SELECT id FROM messages)',
  'a request whose input is missing':
    'SELECT id FROM requests WHERE input_last IS NOT NULL AND input_last NOT IN (SELECT id FROM messages)',
  'a content that no run uses': 'SELECT id FROM blobs WHERE id NOT IN (SELECT blob FROM blob_runs)',
  'a run whose content is missing': 'SELECT blob FROM blob_runs WHERE blob NOT IN (SELECT id FROM blobs)',
  'a content of a deleted run': 'SELECT blob FROM blob_runs WHERE run NOT IN (SELECT id FROM runs)',
  'a part of a deleted content': 'SELECT blob FROM blob_parts WHERE blob NOT IN (SELECT id FROM blobs)',
  'an entry of a deleted run': 'SELECT run FROM entries WHERE run NOT IN (SELECT id FROM runs)',
};

const BUDGET_TABLES = ['budget_definitions', 'budget_usage', 'reservations'];

export interface StoreChecks {
  /** After each transaction. `all`: also what needs many queries. */
  readonly onCommit: (all: boolean) => void;
  readonly onPowerFailure: () => void;
  /** Whether the effect has a reservation, and whether that is durable. */
  readonly reservation: (key: string) => 'none' | 'written' | 'durable';
  /** The JSON of an entry, with the texts and messages that are stored elsewhere. */
  readonly entryText: (run: number, seq: number, stored: string) => string;
  /** What all runs have used or reserved of the budget, in calls. */
  readonly calls: () => number;
}

/** `isRaised`: whether people have allowed the call with this key to exceed the budget. */
export function createStoreChecks(disk: Disk, isRaised: (key: string) => boolean): StoreChecks {
  const wrong = Object.entries(WRONG_ROWS).map(([what, sql]) => [what, disk.prepare(`${sql} LIMIT 1`)] as const);
  const marked = disk.prepare('SELECT run, entry FROM entries WHERE instr(entry, char(1)) > 0');
  const findUse = disk.prepare('SELECT 1 FROM text_uses WHERE kind = 1 AND user = ? AND text = ?');
  const findBudget = disk.prepare(
    `SELECT json_extract(definition, '$.limits.calls') AS most,
       (SELECT coalesce(sum(calls), 0) FROM budget_usage) + (SELECT coalesce(sum(calls), 0) FROM reservations) AS calls
     FROM budget_definitions`,
  );
  const findReservations = disk.prepare('SELECT key, calls FROM reservations');
  const findText = disk.prepare('SELECT text FROM texts WHERE id = ?');
  const findInput = disk.prepare('SELECT input_last, input_at FROM runs WHERE id = ?');
  const findMessage = disk.prepare('SELECT previous, text FROM messages WHERE id = ?');
  /** The transactions in which effects were reserved first. */
  const reserved = new Map<string, number>();
  /** The calls that are reserved at present, and what all runs have used or reserved. */
  let held: ReadonlySet<string> = new Set();
  let drawn = 0;

  function checkRows(): void {
    for (const [what, statement] of wrong)
      ensure(statement.get() === undefined, 'counts', () => `the store has ${what}`);
    for (const { run, entry } of marked.all()) {
      const texts = (entry as string).split('\u0001').flatMap((part, index) => (index % 2 === 1 ? Number(part) : []));
      for (const text of texts)
        ensure(findUse.get(run!, text) !== undefined, 'counts', () => `text ${text} of run ${run} is not counted`);
    }
  }

  function budget(): { readonly most: number | null; readonly calls: number } | undefined {
    return findBudget.get() as { most: number | null; calls: number } | undefined;
  }

  function readReservations(): { readonly key: string; readonly calls: number }[] {
    return findReservations.all() as { key: string; calls: number }[];
  }

  /**
   * Only a new reservation draws on the budget, within its limit or raised by people. A call that is lost after it was
   * settled runs again, with a new reservation.
   */
  function checkBudget(): void {
    const found = budget();
    if (!found) return;
    const { most, calls } = found;
    const rows = readReservations();
    for (const { key } of rows) if (!reserved.has(key)) reserved.set(key, disk.commits());
    const counted = rows.filter((row) => row.calls > 0).map(({ key }) => key);
    const added = counted.filter((key) => !held.has(key));
    const within = added.filter((key) => !isRaised(key));
    ensure(calls <= drawn + added.length, 'budget', () => `${calls - drawn} calls are drawn, ${added.length} reserved`);
    ensure(
      most === null || within.length === 0 || calls - (added.length - within.length) <= most,
      'budget',
      () => `${calls} of ${most} calls are used or reserved, and nobody has allowed ${within.join(' and ')}`,
    );
    held = new Set(counted);
    drawn = calls;
  }

  function withTexts(stored: string): string {
    const parts = stored.split('\u0001');
    return parts
      .map((part, index) => (index % 2 === 1 ? (findText.get(Number(part))!['text'] as string) : part))
      .join('');
  }

  function entryText(run: number, seq: number, stored: string): string {
    const text = withTexts(stored);
    const { input_last: last, input_at: at } = findInput.get(run) as { input_last: number | null; input_at: number };
    if (seq > 0 || last === null) return text;
    const messages: string[] = [];
    for (let id: number | null = last; id !== null;) {
      const found = findMessage.get(id) as { readonly previous: number | null; readonly text: string };
      messages.unshift(withTexts(found.text));
      id = found.previous;
    }
    return text.slice(0, at) + messages.join() + text.slice(at);
  }

  return {
    entryText,
    onCommit(all) {
      if (all || BUDGET_TABLES.some(disk.wrote)) checkBudget();
      if (all) checkRows();
    },
    onPowerFailure() {
      for (const [key, commit] of reserved) if (commit > disk.commits()) reserved.delete(key);
      held = new Set(readReservations().flatMap(({ key, calls }) => (calls > 0 ? key : [])));
      drawn = budget()?.calls ?? 0;
    },
    reservation(key) {
      const commit = reserved.get(key);
      if (commit === undefined) return 'none';
      return commit <= disk.durable() ? 'durable' : 'written';
    },
    calls: () => budget()?.calls ?? 0,
  };
}
