import type {
  IdempotencyKey,
  OwnedRequest,
  RequestEnding,
  RequestRecord,
  RequestStore,
  UnfinishedRequest,
} from '../ports/requests.ts';
import { encodeWithInput } from '../records/input.ts';
import { parseChecked } from '../records/json.ts';
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
import { ALL_RUNS, type Changes } from './changes.ts';
import { bytes, bytesOrNull, text, type Database, type Query } from './connection.ts';
import { LEASE_COLUMNS, LEASE_HOLDER, type LeaseRow } from './lease-rows.ts';
import type { Leases } from './leases.ts';
import { awaitRemovals, pruneInBatches } from './runs.ts';
import { encodeJson, encodeJsonWithInput, restoreInput, restoreTexts, storeTexts, useTexts } from './texts.ts';

/** A `RequestStore`, and what the conversations need of it inside of their transactions. */
export interface Requests extends RequestStore {
  /** Throws if `delete` would reject. */
  readonly checkRemovable: (query: Query, id: string) => Promise<void>;
  /** Whether a response is in progress, or one of its runs is driven. */
  readonly isBusy: (query: Query, id: string) => Promise<boolean>;
}

interface RequestRow {
  readonly response: Buffer;
  readonly kind: Buffer;
  readonly tenant: Buffer;
  readonly run: Buffer;
  readonly status: Buffer;
  readonly created_at: number;
  readonly updated_at: number;
  readonly expires_at: number | null;
  readonly previous: Buffer | null;
  readonly request: string;
  readonly request_crc: number;
  readonly answer: string | null;
  readonly answer_crc: number | null;
  readonly input_last: Buffer | null;
  readonly input_at: number | null;
}

/** Whether a key is kept although it has expired. */
const KEPT = 'EXISTS (SELECT 1 FROM treadle.requests r WHERE r.response = k.kept_with)';
/** A transaction deletes at most this many keys that have expired. */
const PRUNE_KEYS = 1_000;
const HEAD = 'response, kind, tenant, run, status, updated_at';

export function openRequests(
  db: Database,
  { leases, changes }: { readonly leases: Leases; readonly changes: Changes },
): Requests {
  /** Changes the status and the response if the status is `from`. */
  async function change(
    id: string,
    { from, status, response, at, releaseKey = false }: RequestEnding & { readonly from: string },
  ): Promise<boolean> {
    checkChange({ from, status, at });
    const { text: json, sum } = encodeBody('response', response);
    const answer = encodeJson(json);
    return db.write(async (query) => {
      await storeTexts(query, undefined, [answer]);
      const { rows } = await query<{ readonly id: number }>(
        `UPDATE treadle.requests SET status = $3, updated_at = $4, answer = $5, answer_crc = $6, answer_size = $7
         WHERE response = $1 AND status = $2 RETURNING id`,
        [bytes(id), bytes(from), bytes(status), at, answer.stored, sum, answer.size],
      );
      if (!rows[0])
        return nothingWritten(
          query,
          answer.texts.map(({ digest }) => digest),
        );
      await useTexts(query, rows[0].id, [answer]);
      if (releaseKey) await query('DELETE FROM treadle.idempotency_keys WHERE response = $1', [bytes(id)]);
      return true;
    });
  }

  return {
    async create(record, given = [], input = []) {
      const keys = [given].flat();
      const { id, kind, tenant, runId, status, createdAt, updatedAt, expiresAt, previous, response } = record;
      checkRecord(record, keys);
      const json = encoded('request', () => encodeWithInput(record.request, input));
      const [request, sum] = [encodeJsonWithInput(json), json.crc()];
      const body = response === undefined ? undefined : encodeBody('response', response);
      const answer = body && encodeJson(body.text);
      const parts = answer ? [request, answer] : [request];
      await db.write(async (query) => {
        await storeTexts(query, undefined, parts);
        const { rows } = await query<{ readonly id: number }>(
          `INSERT INTO treadle.requests (response, kind, tenant, run, status, created_at, updated_at, expires_at, previous, request,
             request_crc, answer, answer_crc, request_size, answer_size, input_last, input_at)
           VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16, $17) ON CONFLICT DO NOTHING RETURNING id`,
          [
            ...[id, kind, tenant, runId, status].map(bytes),
            createdAt,
            updatedAt,
            expiresAt ?? null,
            bytesOrNull(previous),
            request.stored,
            sum,
            answer?.stored ?? null,
            body?.sum ?? null,
            request.size,
            answer?.size ?? 0,
            request.input?.last ?? null,
            request.input?.at ?? null,
          ],
        );
        if (!rows[0]) {
          const { rows: found } = await query('SELECT 1 FROM treadle.requests WHERE response = $1', [bytes(id)]);
          throw found[0] ? responseExists(id) : runTaken(runId);
        }
        await useTexts(query, rows[0].id, parts);
        await insertKeys(query, record, keys, createdAt);
      });
    },

    async addKeys(response, keys, now) {
      checkAddedKeys(response, keys);
      await db.write((query) => insertKeys(query, response, keys, now));
    },

    async removeKeys({ id, tenant }, keys) {
      await db.write((query) =>
        query('DELETE FROM treadle.idempotency_keys WHERE tenant = $1 AND key = ANY ($2::bytea[]) AND response = $3', [
          bytes(tenant),
          keys.map(bytes),
          bytes(id),
        ]),
      );
    },

    finish: async (id, ending) => change(id, endingOf(ending)),

    reopen: async (id, reopening) => change(id, { ...reopening, status: 'in_progress' }),

    async markWaiting(id) {
      await db.write(
        (query) =>
          query(
            `UPDATE treadle.requests q SET waits_at = (SELECT h.entries FROM treadle.heads h WHERE h.run = q.run AND h.entries > 0)
             WHERE q.response = $1`,
            [bytes(id)],
          ),
        'written',
      );
    },

    ...requestReads(db, leases),
    ...requestRemoval(db, leases, changes),
  };
}

type RequestReads = Pick<
  Requests,
  'findKey' | 'get' | 'head' | 'sizeOf' | 'headOfRun' | 'unfinished' | 'undriven' | 'hasRun'
>;

function requestReads(db: Database, leases: Leases): RequestReads {
  return {
    findKey: (tenant, key, now) =>
      db.read(async (query) => {
        const { rows } = await query<{ readonly digest: Buffer; readonly response: Buffer }>(
          `SELECT digest, response FROM treadle.idempotency_keys k WHERE tenant = $1 AND key = $2 AND (expires_at > $3 OR ${KEPT})`,
          [bytes(tenant), bytes(key), now],
        );
        return rows[0] && { digest: text(rows[0].digest), response: text(rows[0].response) };
      }),

    get: (tenant, id) =>
      db.read(async (query) => {
        const { rows } = await query<RequestRow>('SELECT * FROM treadle.requests WHERE response = $1 AND tenant = $2', [
          bytes(id),
          bytes(tenant),
        ]);
        return rows[0] && toRecord(query, rows[0]);
      }),

    head: (tenant, id) =>
      db.read(async (query) => {
        const { rows } = await query<RequestRow>(
          `SELECT ${HEAD} FROM treadle.requests WHERE response = $1 AND tenant = $2`,
          [bytes(id), bytes(tenant)],
        );
        if (!rows[0]) return undefined;
        const { tenant: _, ...head } = toHead(rows[0]);
        return head;
      }),

    sizeOf: (tenant, id) =>
      db.read(async (query) => {
        const { rows } = await query<{ readonly size: number }>(
          'SELECT request_size + answer_size AS size FROM treadle.requests WHERE response = $1 AND tenant = $2',
          [bytes(id), bytes(tenant)],
        );
        return rows[0]?.size ?? 0;
      }),

    headOfRun: (runId) =>
      db.read(async (query) => {
        const { rows } = await query<RequestRow>(`SELECT ${HEAD} FROM treadle.requests WHERE run = $1`, [bytes(runId)]);
        return rows[0] && toHead(rows[0]);
      }),

    unfinished: () =>
      db.read(async (query) => {
        const { rows } = await query<RequestRow>(
          `SELECT response, kind, tenant, run FROM treadle.requests WHERE status = 'in_progress'::bytea ORDER BY created_at, id`,
        );
        return rows.map(toUnfinished);
      }),

    undriven: (now) =>
      db.read(async (query) => {
        const { rows } = await query<RequestRow & LeaseRow>(
          `SELECT q.response, q.kind, q.tenant, q.run, ${LEASE_COLUMNS} FROM treadle.requests q
           LEFT JOIN treadle.heads h ON h.run = q.run ${LEASE_HOLDER}
           WHERE q.status = 'in_progress'::bytea AND NOT EXISTS
             (SELECT 1 FROM treadle.runs r WHERE r.run = q.run AND r.status = 'paused'
                AND (r.wake_at > $1 OR (r.wake_at IS NULL AND h.entries = q.waits_at)))
           ORDER BY q.created_at, q.id`,
          [now],
        );
        return rows.filter(leases.isFree).map(toUnfinished);
      }),

    hasRun: (runId) =>
      db.read(
        async (query) => (await query('SELECT 1 FROM treadle.requests WHERE run = $1', [bytes(runId)])).count > 0,
      ),
  };
}

type RequestRemoval = Pick<Requests, 'delete' | 'checkRemovable' | 'isBusy' | 'prune' | 'pruneExpired'>;

function requestRemoval(db: Database, leases: Leases, changes: Changes): RequestRemoval {
  return {
    async delete(tenant, id) {
      const isDeleted = await db.write(async (query) => {
        await awaitRemovals(query);
        const { rows } = await query<{ readonly run: Buffer }>(
          'SELECT run FROM treadle.requests WHERE response = $1 AND tenant = $2',
          [bytes(id), bytes(tenant)],
        );
        if (!rows[0]) return false;
        const names = await namesOf(query, id);
        await query('SELECT treadle.lock_heads($1::bytea[])', [names]);
        await leases.requireFree(query, names);
        await query('SELECT treadle.remove_with_runs($1)', [rows[0].run]);
        return true;
      });
      if (isDeleted) changes.changed(ALL_RUNS);
      return isDeleted;
    },

    async checkRemovable(query, id) {
      await leases.requireFree(query, await namesOf(query, id));
    },

    async isBusy(query, id) {
      const names = await namesOf(query, id);
      await leases.freeDead(query, names);
      const { rows } = await query(
        `SELECT 1 FROM treadle.requests WHERE response = $1 AND status = 'in_progress'::bytea
         UNION ALL SELECT 1 FROM unnest($2::bytea[]) AS n (run) WHERE treadle.is_driven(n.run)`,
        [bytes(id), names],
      );
      return rows.length > 0;
    },

    async prune(before) {
      await leases.expireDead();
      return pruneInBatches(db, 'treadle.prune_requests($1, $2, $3, $4, $5)', before);
    },

    async pruneExpired(now) {
      checkTime('now', now);
      await leases.expireDead();
      for (let count = PRUNE_KEYS; count === PRUNE_KEYS;) {
        ({ count } = await db.write((query) =>
          query(
            `DELETE FROM treadle.idempotency_keys WHERE ctid = ANY (ARRAY
               (SELECT ctid FROM treadle.idempotency_keys k WHERE expires_at <= $1 AND NOT ${KEPT}
                ORDER BY expires_at LIMIT ${PRUNE_KEYS} FOR UPDATE))`,
            [now],
          ),
        ));
      }
      return pruneInBatches(db, 'treadle.prune_expired_requests($1, $2, $3, $4, $5)', now);
    },
  };
}

async function insertKeys(
  query: Query,
  { id, tenant }: Pick<RequestRecord, 'id' | 'tenant'>,
  keys: readonly IdempotencyKey[],
  now: number,
): Promise<void> {
  for (const { key, digest, expiresAt, keptWith } of keys) {
    const { count } = await query(
      `INSERT INTO treadle.idempotency_keys AS k (tenant, key, digest, response, expires_at, kept_with) VALUES ($1, $2, $3, $4, $5, $6)
       ON CONFLICT (tenant, key) DO UPDATE SET digest = excluded.digest, response = excluded.response,
         expires_at = excluded.expires_at, kept_with = excluded.kept_with
       WHERE k.response = excluded.response OR (k.expires_at <= $7 AND NOT ${KEPT})`,
      [bytes(tenant), bytes(key), bytes(digest), bytes(id), expiresAt, bytesOrNull(keptWith), now],
    );
    if (count === 0) throw keyTaken();
  }
}

/** Removes texts that were stored for nobody. */
async function nothingWritten(query: Query, digests: readonly Buffer[]): Promise<false> {
  if (digests.length > 0) {
    await query(
      `DELETE FROM treadle.texts t WHERE t.digest = ANY ($1::bytea[])
         AND NOT EXISTS (SELECT 1 FROM treadle.text_uses u WHERE u.text = t.digest)`,
      [digests],
    );
  }
  return false;
}

async function namesOf(query: Query, id: string): Promise<readonly Buffer[]> {
  const { rows } = await query<{ readonly run: Buffer }>(
    `SELECT q.run FROM treadle.requests q WHERE q.response = $1
     UNION SELECT f.run FROM treadle.requests q CROSS JOIN LATERAL treadle.family_of(q.run) f WHERE q.response = $1`,
    [bytes(id)],
  );
  return rows.map(({ run }) => run);
}

async function toRecord(query: Query, row: RequestRow): Promise<RequestRecord> {
  const stored = row.answer === null ? [row.request] : [row.request, row.answer];
  const [rest, answer] = await restoreTexts(query, stored);
  const request = parseChecked(await restoreInput(query, rest!, row), row.request_crc);
  const response = row.answer === null ? null : parseChecked(answer!, row.answer_crc!);
  if (request === undefined || response === undefined) throw responseDamaged(text(row.response));
  const { expires_at: expiresAt, previous } = row;
  return {
    id: text(row.response),
    kind: text(row.kind),
    tenant: text(row.tenant),
    runId: text(row.run),
    status: text(row.status),
    createdAt: row.created_at,
    updatedAt: row.updated_at,
    ...(expiresAt !== null && { expiresAt }),
    ...(previous !== null && { previous: text(previous) }),
    request,
    ...(row.answer !== null && { response }),
  };
}

function toUnfinished({ response, kind, tenant, run }: RequestRow): UnfinishedRequest {
  return { id: text(response), kind: text(kind), tenant: text(tenant), runId: text(run) };
}

function toHead({ response, kind, tenant, run, status, updated_at: updatedAt }: RequestRow): OwnedRequest {
  return {
    id: text(response),
    kind: text(kind),
    tenant: text(tenant),
    runId: text(run),
    status: text(status),
    updatedAt,
  };
}
