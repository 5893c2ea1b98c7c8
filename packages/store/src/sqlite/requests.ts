import type { DatabaseSync } from 'node:sqlite';
import type {
  IdempotencyKey,
  RequestEnding,
  OwnedRequest,
  RequestHead,
  RequestRecord,
  RequestStore,
  UnfinishedRequest,
  UsedKey,
} from '../ports/requests.ts';
import { encodeWithInput } from '../records/input.ts';
import { nameKey, parseChecked } from '../records/json.ts';
import {
  checkAddedKeys,
  checkChange,
  checkRecord,
  checkTime,
  encodeBody,
  encoded,
  endingOf,
  keyTaken,
  responseDamaged,
  responseExists,
  runTaken,
} from '../records/requests.ts';
import type { GroupCommit } from './group-commit.ts';
import type { Leases } from './leases.ts';
import type { InputPlace, Messages } from './messages.ts';
import { PRUNE_BATCH, pruneInBatches, type PrunePosition, type RunRow, type Runs } from './runs.ts';
import { RESPONSE, storedSize, type SharedTexts } from './shared-texts.ts';

/** The methods of a `RequestStore`. Those that only read are synchronous and need a transaction of the caller. */
export interface Requests extends Pick<
  RequestStore,
  'create' | 'addKeys' | 'removeKeys' | 'finish' | 'reopen' | 'markWaiting' | 'delete' | 'prune' | 'pruneExpired'
> {
  readonly findKey: (tenant: string, key: string, now: number) => UsedKey | undefined;
  readonly get: (tenant: string, id: string) => RequestRecord | undefined;
  readonly head: (tenant: string, id: string) => RequestHead | undefined;
  readonly sizeOf: (tenant: string, id: string) => number;
  readonly headOfRun: (runId: string) => OwnedRequest | undefined;
  readonly unfinished: () => readonly UnfinishedRequest[];
  readonly undriven: (now: number) => readonly UnfinishedRequest[];
  /** In a transaction of the caller: does the same as `delete`. Returns the number of deleted entries; undefined for false. */
  readonly removeNow: (tenant: string, id: string) => number | undefined;
  /** In a transaction of the caller: throws if `delete` would reject. */
  readonly checkRemovable: (id: string) => void;
  /** In a transaction of the caller: whether one of the runs of a response is driven. */
  readonly isDriven: (id: string) => boolean;
  /** In a transaction of the caller: whether a response is in progress, or one of its runs is driven. */
  readonly isBusy: (id: string) => boolean;
}

interface ResponseRow extends InputPlace {
  readonly response: string;
  readonly kind: string;
  readonly tenant: string;
  readonly run: string;
  readonly status: string;
  readonly created_at: number;
  readonly updated_at: number;
  readonly previous: string | null;
  readonly request: string;
  readonly request_crc: number;
  readonly answer: string | null;
  readonly answer_crc: number | null;
  readonly expires_at: number | null;
}

interface EndedResponseRow {
  readonly id: number;
  readonly run: string;
  readonly updated_at: number;
}

const COLUMNS =
  'response, kind, tenant, run, status, created_at, updated_at, expires_at, previous, request, request_crc, answer, answer_crc, input_last, input_at';

/** Whether a key is kept although it has expired. */
const KEPT = 'EXISTS (SELECT 1 FROM requests WHERE requests.response = idempotency_keys.kept_with)';

interface RequestsParts {
  readonly commit: GroupCommit;
  readonly leases: Leases;
  readonly runs: Runs;
  readonly messages: Messages;
  readonly shared: SharedTexts;
}

export function openRequests(db: DatabaseSync, parts: RequestsParts): Requests {
  const { commit, messages, shared } = parts;
  const sql = prepareStatements(db);

  /** Changes the status and the response if the status is `from`. */
  function change(
    id: string,
    { from, status, response, at, releaseKey = false }: RequestEnding & { readonly from: string },
  ): Promise<boolean> {
    checkChange({ from, status, at });
    const { text, sum } = encodeBody('response', response);
    return commit.write(
      () => {
        const row = sql.findStatus.get(id) as { readonly id: number; readonly status: string } | undefined;
        if (row?.status !== from) return false;
        const used: number[] = [];
        sql.updateResponse.run(status, at, shared.share(text, used), sum, row.id);
        shared.use([RESPONSE, row.id], used);
        if (releaseKey) sql.deleteKeys.run(id);
        return true;
      },
      undefined,
      text.length,
    );
  }

  /** In a transaction. Throws if one of them belongs to another response. */
  function insertKeys(
    { id, tenant }: Pick<RequestRecord, 'id' | 'tenant'>,
    keys: readonly IdempotencyKey[],
    now: number,
  ): void {
    for (const { key, digest, expiresAt, keptWith = null } of keys) {
      const { changes } = sql.insertKey.run(tenant, key, digest, id, expiresAt, keptWith, now);
      if (changes === 0) throw keyTaken();
    }
  }

  return {
    ...requestReads(sql, parts),
    ...requestRemoval(sql, parts),

    async create(record, given = [], input = []) {
      const keys = [given].flat();
      const { id, kind, tenant, runId, status, createdAt, updatedAt, expiresAt, previous, response } = record;
      checkRecord(record, keys);
      const request = encoded('request', () => encodeWithInput(record.request, input));
      const answer = response === undefined ? { text: null, sum: null } : encodeBody('response', response);
      const values = [
        id,
        kind,
        tenant,
        runId,
        status,
        createdAt,
        updatedAt,
        expiresAt ?? null,
        previous ?? null,
      ] as const;
      const { split } = request;
      const sum = request.crc();
      await commit.write(
        () => {
          const used: number[] = [];
          const last = split && messages.store(split);
          const { changes, lastInsertRowid } = sql.insertResponse.run(
            ...values,
            shared.share(last === undefined ? request.whole() : split!.rest, used),
            sum,
            answer.text && shared.share(answer.text, used),
            answer.sum,
            last ?? null,
            last === undefined ? null : split!.at,
          );
          if (changes === 0) throw sql.findOwner.get(id) ? responseExists(id) : runTaken(runId);
          shared.use([RESPONSE, Number(lastInsertRowid)], used);
          insertKeys(record, keys, createdAt);
        },
        undefined,
        request.length,
      );
    },

    async addKeys(response, keys, now) {
      checkAddedKeys(response, keys);
      await commit.write(() => insertKeys(response, keys, now));
    },

    async removeKeys({ id, tenant }, keys) {
      await commit.write(() => {
        for (const key of keys) sql.deleteKey.run(nameKey(tenant), nameKey(key), nameKey(id));
      });
    },

    finish: async (id, ending) => change(id, endingOf(ending)),

    reopen: async (id, reopening) => change(id, { ...reopening, status: 'in_progress' }),

    async markWaiting(id) {
      await commit.write(() => sql.markWaiting.run(nameKey(id)), 'written');
    },
  };
}

type Statements = ReturnType<typeof prepareStatements>;

function prepareStatements(db: DatabaseSync) {
  return {
    insertResponse: db.prepare(
      `INSERT INTO requests (${COLUMNS}) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?) ON CONFLICT DO NOTHING`,
    ),
    updateResponse: db.prepare(
      'UPDATE requests SET status = ?, updated_at = ?, answer = ?, answer_crc = ? WHERE id = ?',
    ),
    markWaiting: db.prepare(
      'UPDATE requests SET waits_at = (SELECT entries FROM runs WHERE run = requests.run) WHERE response = ?',
    ),
    findResponse: db.prepare(`SELECT ${COLUMNS} FROM requests WHERE response = ?`),
    findByRun: db.prepare(
      'SELECT response AS id, kind, tenant, run AS runId, status, updated_at AS updatedAt FROM requests WHERE run = ?',
    ),
    findSize: db.prepare(
      `SELECT tenant, input_last, ${storedSize('request')} + ${storedSize('answer')} AS size FROM requests WHERE response = ?`,
    ),
    findStatus: db.prepare('SELECT id, status FROM requests WHERE response = ?'),
    findHead: db.prepare('SELECT kind, tenant, run, status, updated_at FROM requests WHERE response = ?'),
    findOwner: db.prepare('SELECT tenant, run FROM requests WHERE response = ?'),
    findUnfinished: db.prepare(
      `SELECT response AS id, kind, tenant, run AS runId FROM requests WHERE status = 'in_progress' ORDER BY created_at, requests.id`,
    ),
    findAwake: db.prepare(
      `SELECT response AS id, kind, tenant, run AS runId FROM requests WHERE status = 'in_progress' AND NOT EXISTS
         (SELECT 1 FROM runs WHERE runs.run = requests.run AND runs.status = 'paused'
            AND (runs.wake_at > ?1 OR (runs.wake_at IS NULL AND runs.entries = requests.waits_at)))
       ORDER BY created_at, requests.id`,
    ),
    findEnded: db.prepare(
      `SELECT id, run, updated_at FROM requests
       WHERE status <> 'in_progress' AND updated_at < ? AND (updated_at, id) > (?, ?)
         AND NOT EXISTS (SELECT 1 FROM conversation_parts WHERE conversation_parts.response = requests.response)
       ORDER BY updated_at, id LIMIT ${PRUNE_BATCH}`,
    ),
    // `updated_at` is the position of `pruneInBatches`.
    findExpired: db.prepare(
      `SELECT id, run, expires_at AS updated_at FROM requests
       WHERE expires_at IS NOT NULL AND expires_at <= ? AND (expires_at, id) > (?, ?) AND status <> 'in_progress'
       ORDER BY expires_at, id LIMIT ${PRUNE_BATCH}`,
    ),
    insertKey: db.prepare(
      `INSERT INTO idempotency_keys (tenant, key, digest, response, expires_at, kept_with) VALUES (?1, ?2, ?3, ?4, ?5, ?6)
       ON CONFLICT DO UPDATE SET digest = ?3, response = ?4, expires_at = ?5, kept_with = ?6
       WHERE response = ?4 OR (expires_at <= ?7 AND NOT ${KEPT})`,
    ),
    findKey: db.prepare(
      `SELECT digest, response FROM idempotency_keys WHERE tenant = ? AND key = ? AND (expires_at > ? OR ${KEPT})`,
    ),
    deleteKeys: db.prepare('DELETE FROM idempotency_keys WHERE response = ?'),
    deleteKey: db.prepare('DELETE FROM idempotency_keys WHERE tenant = ? AND key = ? AND response = ?'),
    deleteExpiredKeys: db.prepare(`DELETE FROM idempotency_keys WHERE expires_at <= ? AND NOT ${KEPT}`),
  };
}

type Reads = Pick<Requests, 'findKey' | 'get' | 'head' | 'sizeOf' | 'headOfRun' | 'unfinished' | 'undriven'>;

function requestReads(sql: Statements, { leases, messages, shared }: RequestsParts): Reads {
  /** Undefined if the row is damaged. */
  function toRecord(row: ResponseRow): RequestRecord | undefined {
    const { response: id, kind, tenant, run: runId, status, created_at: createdAt, updated_at: updatedAt } = row;
    const { expires_at: expiresAt, previous } = row;
    const request = parseChecked(messages.restore(shared.restore(row.request), row), row.request_crc);
    const response = row.answer === null ? null : parseChecked(shared.restore(row.answer), row.answer_crc!);
    if (request === undefined || response === undefined) return undefined;
    return {
      id,
      kind,
      tenant,
      runId,
      status,
      createdAt,
      updatedAt,
      ...(expiresAt !== null && { expiresAt }),
      ...(previous !== null && { previous }),
      request,
      ...(row.answer !== null && { response }),
    };
  }

  function checkedRecord(row: ResponseRow): RequestRecord {
    const record = toRecord(row);
    if (!record) throw responseDamaged(row.response);
    return record;
  }

  return {
    findKey: (tenant, key, now) => sql.findKey.get(nameKey(tenant), nameKey(key), now) as UsedKey | undefined,

    get(tenant, id) {
      const row = sql.findResponse.get(id) as unknown as ResponseRow | undefined;
      return row?.tenant === tenant ? checkedRecord(row) : undefined;
    },

    head(tenant, id) {
      const row = sql.findHead.get(id) as unknown as ResponseRow | undefined;
      if (row?.tenant !== tenant) return undefined;
      const { kind, run: runId, status, updated_at: updatedAt } = row;
      return { id, kind, runId, status, updatedAt };
    },

    sizeOf(tenant, id) {
      const row = sql.findSize.get(nameKey(id)) as unknown as (ResponseRow & { readonly size: number }) | undefined;
      return row?.tenant === tenant ? row.size + messages.size(row.input_last) : 0;
    },

    headOfRun: (runId) => sql.findByRun.get(nameKey(runId)) as OwnedRequest | undefined,

    unfinished: () => sql.findUnfinished.all() as unknown as readonly UnfinishedRequest[],
    undriven: (now) =>
      (sql.findAwake.all(now) as unknown as readonly UnfinishedRequest[]).filter(
        ({ runId }) => !leases.hasDriver(runId),
      ),
  };
}

type Removal = Pick<
  Requests,
  'delete' | 'removeNow' | 'checkRemovable' | 'isDriven' | 'isBusy' | 'prune' | 'pruneExpired'
>;

function requestRemoval(sql: Statements, { commit, leases, runs }: RequestsParts): Removal {
  const { checkWriter, isDriven } = leases;
  const { familyOf, remove, removeResponse } = runs;

  type FindRows = (after: PrunePosition) => readonly unknown[];

  /** Deletes the ended responses that `findRows` finds, unless one of their runs is driven. */
  function pruneFound(findRows: FindRows): Promise<number> {
    return pruneInBatches(commit, {
      find: (after) =>
        (findRows(after) as readonly EndedResponseRow[]).map((row) => {
          const family = familyOf(row.run);
          return { ...row, family, entries: entriesOf(family) };
        }),
      remove({ run, family }) {
        if (runNames(run, family).some(isDriven)) return 0;
        removeWithRuns(run, family);
        return 1;
      },
    });
  }

  function removeWithRuns(run: string, family: readonly RunRow[]): void {
    for (const row of family) remove(row);
    removeResponse(run);
  }

  function removeNow(tenant: string, id: string): number | undefined {
    const row = ownerOf(id);
    if (row?.tenant !== tenant) return undefined;
    const family = familyOf(row.run);
    for (const run of runNames(row.run, family)) checkWriter(run);
    removeWithRuns(row.run, family);
    return entriesOf(family);
  }

  function ownerOf(id: string): Pick<ResponseRow, 'tenant' | 'run'> | undefined {
    return sql.findOwner.get(id) as Pick<ResponseRow, 'tenant' | 'run'> | undefined;
  }

  function runsOf(id: string): readonly string[] {
    const row = ownerOf(id);
    return row ? runNames(row.run, familyOf(row.run)) : [];
  }

  return {
    delete: (tenant, id) => commit.write(() => removeNow(tenant, id) !== undefined),
    removeNow,
    checkRemovable(id) {
      for (const run of runsOf(id)) checkWriter(run);
    },
    isDriven: (id) => runsOf(id).some(isDriven),
    isBusy: (id) => sql.findStatus.get(id)?.['status'] === 'in_progress' || runsOf(id).some(isDriven),

    prune: (before) => pruneFound((after) => sql.findEnded.all(before, ...after)),

    async pruneExpired(now) {
      checkTime('now', now);
      await commit.write(() => sql.deleteExpiredKeys.run(now));
      return pruneFound((after) => sql.findExpired.all(now, ...after));
    },
  };
}

/** Includes the run of the response even if it has not started: its driver may already have the lease. */
function runNames(run: string, family: readonly RunRow[]): readonly string[] {
  return [run, ...family.map((row) => row.run)];
}

function entriesOf(family: readonly RunRow[]): number {
  return family.reduce((sum, { entries }) => sum + entries, 0);
}
