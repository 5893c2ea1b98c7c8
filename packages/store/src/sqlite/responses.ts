import type { DatabaseSync } from 'node:sqlite';
import { messageOf, TreadleError } from '@treadle/core';
import type { ResponseRecord, ResponseStore } from '../responses.ts';
import type { GroupCommit } from './group-commit.ts';
import type { Leases } from './leases.ts';
import { prune, PRUNED_AT_ONCE } from './prune.ts';
import { opened, sealed, type Sealed } from './record.ts';
import type { Runs } from './runs.ts';

/** The same as a `ResponseStore`; what only reads is done at once, inside a transaction of the caller's. */
export interface Responses extends Pick<ResponseStore, 'create' | 'finish' | 'delete' | 'prune'> {
  readonly get: (tenant: string, id: string) => ResponseRecord | undefined;
  readonly unfinished: () => readonly ResponseRecord[];
}

interface Row {
  readonly response: string;
  readonly tenant: string;
  readonly run: string;
  readonly status: string;
  readonly created_at: number;
  readonly updated_at: number;
  readonly previous: string | null;
  readonly request: string;
  readonly request_sum: number;
  readonly answer: string | null;
  readonly answer_sum: number | null;
}

const COLUMNS =
  'response, tenant, run, status, created_at, updated_at, previous, request, request_sum, answer, answer_sum';

export function responses(
  db: DatabaseSync,
  commit: GroupCommit,
  { admit, isDriven }: Leases,
  { familyOf, remove }: Runs,
): Responses {
  const insert = db.prepare(
    `INSERT INTO responses (${COLUMNS}) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?) ON CONFLICT DO NOTHING`,
  );
  const update = db.prepare(
    'UPDATE responses SET status = ?, updated_at = ?, answer = ?, answer_sum = ? WHERE response = ?',
  );
  const find = db.prepare(`SELECT ${COLUMNS} FROM responses WHERE response = ?`);
  const findRun = db.prepare('SELECT tenant, run FROM responses WHERE response = ?');
  const findUnfinished = db.prepare(
    `SELECT ${COLUMNS} FROM responses WHERE status = 'in_progress' ORDER BY created_at, id`,
  );
  const findEnded = db.prepare(
    `SELECT id, run, updated_at FROM responses
     WHERE status <> 'in_progress' AND updated_at < ? AND (updated_at, id) > (?, ?)
     ORDER BY updated_at, id LIMIT ${PRUNED_AT_ONCE}`,
  );
  const drop = db.prepare('DELETE FROM responses WHERE run = ?');

  async function create(record: ResponseRecord): Promise<void> {
    const { id, tenant, runId, status, createdAt, updatedAt, previous, response } = record;
    for (const [name, value] of Object.entries({ id, tenant, runId, status })) checkText(name, value);
    if (previous !== undefined) checkText('previous', previous);
    for (const [name, value] of Object.entries({ createdAt, updatedAt })) checkTime(name, value);
    const request = body('request', record.request);
    const answer = response === undefined ? { text: null, sum: null } : body('response', response);
    const values = [id, tenant, runId, status, createdAt, updatedAt, previous ?? null] as const;
    await commit.write(() => {
      const { changes } = insert.run(...values, request.text, request.sum, answer.text, answer.sum);
      if (changes === 0) throw exists(record, findRun.get(id) === undefined);
    });
  }

  function removeAll(run: string, family: ReturnType<Runs['familyOf']>): void {
    for (const one of family) remove(one);
    drop.run(run);
  }

  return {
    create,

    async finish(id, { status, response, at }) {
      checkText('status', status);
      if (status === 'in_progress')
        throw invalid('A response that is "in_progress" is not finished. Say how it ended.');
      checkTime('at', at);
      const { text, sum } = body('response', response);
      return commit.write(() => update.run(status, at, text, sum, id).changes > 0);
    },

    get(tenant, id) {
      const row = find.get(id) as unknown as Row | undefined;
      if (row?.tenant !== tenant) return undefined;
      const record = recordOf(row);
      if (!record) throw damaged(id);
      return record;
    },

    delete: (tenant, id) =>
      commit.write(() => {
        const row = findRun.get(id) as Pick<Row, 'tenant' | 'run'> | undefined;
        if (row?.tenant !== tenant) return false;
        const family = familyOf(row.run);
        for (const run of namesOf(row.run, family)) admit(run);
        removeAll(row.run, family);
        return true;
      }),

    unfinished: () => (findUnfinished.all() as unknown as Row[]).flatMap((row) => recordOf(row) ?? []),

    prune: (before) =>
      prune(commit, {
        find: (after) =>
          (findEnded.all(before, ...after) as unknown as readonly EndedRow[]).map((row) => {
            const family = familyOf(row.run);
            return { ...row, family, entries: family.reduce((sum, { entries }) => sum + entries, 0) };
          }),
        remove({ run, family }) {
          if (namesOf(run, family).some(isDriven)) return false;
          removeAll(run, family);
          return true;
        },
      }),
  };
}

interface EndedRow {
  readonly id: number;
  readonly run: string;
  readonly updated_at: number;
}

/** Its run by name too: whoever is about to begin that has a lease already. */
function namesOf(run: string, family: ReturnType<Runs['familyOf']>): readonly string[] {
  return [run, ...family.map((one) => one.run)];
}

/** Undefined if it is damaged. */
function recordOf(row: Row): ResponseRecord | undefined {
  const { response: id, tenant, run: runId, status, created_at: createdAt, updated_at: updatedAt, previous } = row;
  const request = opened(row.request, row.request_sum);
  const response = row.answer === null ? null : opened(row.answer, row.answer_sum!);
  if (request === undefined || response === undefined) return undefined;
  return {
    id,
    tenant,
    runId,
    status,
    createdAt,
    updatedAt,
    ...(previous !== null && { previous }),
    request,
    ...(row.answer !== null && { response }),
  };
}

/** As JSON, at once: what the caller does with it later changes nothing. */
function body(name: string, value: unknown): Sealed {
  try {
    return sealed(value);
  } catch (error) {
    throw invalid(`The ${name} of a response cannot be written as JSON: ${messageOf(error)}`);
  }
}

/** SQLite keeps text as UTF-8, in which ids that differ in half a character would be the same. */
function checkText(name: string, value: unknown): void {
  if (typeof value === 'string' && value !== '' && value.isWellFormed()) return;
  throw invalid(`The ${name} of a response has to be a text of at least one character, and of whole ones.`);
}

function checkTime(name: string, value: unknown): void {
  if (!Number.isFinite(value)) throw invalid(`The ${name} of a response has to be a time in milliseconds.`);
}

function invalid(message: string): TreadleError {
  return new TreadleError('invalid-input', message);
}

function exists({ id, runId }: ResponseRecord, byRun: boolean): TreadleError {
  const what = byRun ? `Run "${runId}" is that of another response` : `There is a response "${id}" already`;
  return new TreadleError('run-exists', `${what}, so nothing was written. Choose another id.`);
}

function damaged(id: string): TreadleError {
  return new TreadleError(
    'store-failed',
    `Response "${id}" is damaged. Bring it back from a backup, or delete it; other responses are not affected.`,
  );
}
