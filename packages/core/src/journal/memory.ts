import { TreadleError } from '../errors.ts';
import { textOf, type Message } from '../messages.ts';
import { callerOf } from './family.ts';
import type { BlobBytes, BlobContent, JournalEntry, RunStatus, RunStore, RunSummary, Snapshot } from './port.ts';

interface StoredRun {
  readonly entries: JournalEntry[];
  /** The token of the current lease. */
  token?: number | undefined;
  /** Aborts when the current lease is lost. */
  lost?: AbortController;
  snapshot?: Snapshot;
  blobs?: Map<string, BlobContent>;
}

/** Keeps runs in memory. An append is complete when it returns. */
export function memoryJournal(): RunStore {
  const runs = new Map<string, StoredRun>();
  let tokens = 0;

  function existing(runId: string): StoredRun {
    const run = runs.get(runId);
    if (run && run.entries.length > 0) return run;
    throw new TreadleError('unknown-run', `There is no run "${runId}". Start the run first.`);
  }

  function* summaries(): Generator<RunSummary> {
    for (const [runId, { entries }] of runs) {
      if (entries.length > 0) yield summaryOf(runId, entries[0]!, entries.at(-1)!);
    }
  }

  /** Returns the run and its child runs, at any depth, without its forks; empty if there is no such run. */
  function families(): (runId: string) => readonly string[] {
    const children = new Map<string, string[]>();
    for (const [runId, { entries }] of runs) {
      const caller = callerOf(entries[0]);
      if (caller !== undefined) children.set(caller, [...(children.get(caller) ?? []), runId]);
    }
    return (runId) => {
      const family = new Set(runs.get(runId)?.entries.length ? [runId] : []);
      // The loop also visits the children that it adds.
      for (const caller of family) for (const child of children.get(caller) ?? []) family.add(child);
      return [...family];
    };
  }

  return {
    append(runId, added, lease) {
      if (added.length === 0) return;
      if (added[0]!.seq === 0 || !runs.has(runId)) checkRunNames(runId, added[0]);
      const run = runs.get(runId) ?? { entries: [] };
      if (run.token !== lease?.token) throw lease ? leaseLost(runId) : runDriven(runId);
      const { entries } = run;
      for (let i = 0; i < added.length; i++) {
        if (added[i]!.seq !== entries.length + i) throw entryOutOfOrder(runId, entries.length, added[i]!.seq);
      }
      if (entries.length === 0) {
        // Inserted again if it was acquired before: runs are listed in the order in which they started.
        runs.delete(runId);
        runs.set(runId, run);
      }
      for (let i = 0; i < added.length; i++) entries.push(added[i]!);
    },

    read: async (runId, from = 0) => runs.get(runId)?.entries.slice(from) ?? [],

    async acquire(runId) {
      checkRunNames(runId);
      const run = runs.get(runId) ?? { entries: [] };
      if (run.token !== undefined) throw runDriven(runId);
      const token = ++tokens;
      run.token = token;
      run.lost = new AbortController();
      runs.set(runId, run);
      return {
        runId,
        token,
        lost: run.lost.signal,
        async release() {
          if (run.token !== token) return;
          run.token = undefined;
          if (run.entries.length === 0) runs.delete(runId);
        },
      };
    },

    async writeSnapshot(runId, snapshot) {
      const run = existing(runId);
      if (!run.snapshot || run.snapshot.seq <= snapshot.seq) run.snapshot = snapshot;
    },

    readSnapshot: async (runId) => runs.get(runId)?.snapshot,

    async list(filter = {}) {
      const all = [...summaries()];
      const { wantedRuns } = await import('./wanted-runs.ts');
      return wantedRuns(all, filter);
    },

    isDriven: async (runId) => runs.get(runId)?.token !== undefined,

    async delete(runId) {
      const family = families()(runId);
      const driven = family.find((run) => runs.get(run)!.token !== undefined);
      if (driven !== undefined) throw runDriven(driven);
      for (const run of family) runs.delete(run);
      return family.length > 0;
    },

    async prune(before) {
      let pruned = 0;
      const familyOf = families();
      const isOld = (runId: string): boolean => {
        const { entries, token } = runs.get(runId)!;
        const { status = 'running', event } = entries.at(-1)!;
        return !isOpen(status) && event.at < before && token === undefined;
      };
      for (const runId of runs.keys()) {
        const caller = callerOf(runs.get(runId)?.entries[0]);
        const last = caller === undefined ? undefined : runs.get(caller)?.entries.at(-1);
        // An open run may still need its child runs.
        if (last && isOpen(last.status ?? 'running')) continue;
        const family = familyOf(runId).filter((run) => runs.has(run));
        if (!family.every(isOld)) continue;
        for (const run of family) runs.delete(run);
        pruned += family.length;
      }
      return pruned;
    },

    blobs: {
      async put(runId, given) {
        // A copy, because the caller may change the bytes later.
        const content = typeof given === 'string' ? given : { ...checkedBytes(given), bytes: given.bytes.slice() };
        const id = await digestOf(content);
        const run = existing(runId);
        run.blobs ??= new Map();
        run.blobs.set(id, content);
        return id;
      },
      async read(runId, id, from, to) {
        const content = runs.get(runId)?.blobs?.get(id);
        if (content === undefined) return undefined;
        const [start, end] = [Math.max(0, from), Math.max(0, to)];
        if (typeof content === 'string') return { text: content.slice(start, end), length: content.length };
        const { bytes, mediaType } = content;
        return { bytes: bytes.slice(start, end), mediaType, length: bytes.length };
      },
      list: async (runId) => [...(runs.get(runId)?.blobs?.keys() ?? [])].sort(),
    },

    async close() {
      for (const [runId, run] of runs) {
        if (run.token === undefined) continue;
        run.token = undefined;
        run.lost?.abort(leaseLost(runId));
      }
    },
  };
}

/** Throws `invalid-input` for bytes that a store cannot keep. */
export function checkedBytes(content: BlobBytes): BlobBytes {
  const { bytes, mediaType } = content ?? {};
  if (bytes instanceof Uint8Array && typeof mediaType === 'string' && MEDIA_TYPE.test(mediaType)) return content;
  throw new TreadleError(
    'invalid-input',
    'A blob is a text, or bytes (Uint8Array) with a media type such as "image/png".',
  );
}

const MEDIA_TYPE = /^[\w!#$&^.+-]+\/[\w!#$&^.+-]+(?:;[ -~]*)?$/;

/**
 * SHA-256 of the text as UTF-16, so that strings with lone surrogates have different digests. For bytes: of the media type,
 * a newline and the bytes, with a prefix, so that a text has another id than bytes.
 */
async function digestOf(content: BlobContent): Promise<string> {
  if (typeof content === 'string') {
    const units = new Uint16Array(content.length);
    for (let i = 0; i < content.length; i++) units[i] = content.charCodeAt(i);
    return sha256Hex(units);
  }
  const { bytes, mediaType } = content;
  const head = new TextEncoder().encode(`${mediaType}\n`);
  const whole = new Uint8Array(head.length + bytes.length);
  whole.set(head);
  whole.set(bytes, head.length);
  return `bytes-${await sha256Hex(whole)}`;
}

async function sha256Hex(data: Uint8Array<ArrayBuffer> | Uint16Array<ArrayBuffer>): Promise<string> {
  const digest = new Uint8Array(await crypto.subtle.digest('SHA-256', data));
  return Array.from(digest, (byte) => byte.toString(16).padStart(2, '0')).join('');
}

/** For a journal of `has` entries that entry `seq` does not follow. */
export function entryOutOfOrder(runId: string, has: number, seq: number): TreadleError {
  const message =
    seq === 0
      ? `Run "${runId}" already exists. To resume it, pass its runId and journal without "input", or resume: "auto". To start another run, choose another runId.`
      : `Run "${runId}" has ${has} entries, so entry ${seq} cannot be appended. Resume the run from its last entry, or start another run.`;
  return new TreadleError('run-exists', message);
}

function runDriven(runId: string): TreadleError {
  return new TreadleError('run-driven', `Run "${runId}" is already driven in this process. Wait until it is done.`);
}

function leaseLost(runId: string): TreadleError {
  return new TreadleError('lease-lost', `The lease of run "${runId}" was lost. Acquire the run and read it again.`);
}

function isOpen(status: RunStatus): boolean {
  return status === 'running' || status === 'paused';
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
  if (typeof name === 'string' && name.isWellFormed()) return;
  const problem = typeof name === 'string' ? 'has an unpaired surrogate' : 'is not a text';
  const message = `The ${what} ${JSON.stringify(name)} ${problem}. Choose another one.`;
  throw new TreadleError('invalid-input', message);
}

const TITLE_CHARS = 200;

/** The summary of a run, from its first and last entries. */
export function summaryOf(runId: string, first: JournalEntry, last: JournalEntry): RunSummary {
  return {
    runId,
    status: last.status ?? 'running',
    startedAt: startOf(first),
    updatedAt: last.event.at,
    entries: last.seq + 1,
    ...originOf(first),
    ...(last.wakeAt !== undefined && callerOf(first) === undefined && { wakeAt: last.wakeAt }),
  };
}

/** A fork has the first entries of its original, and starts when it is made. */
function startOf({ event }: JournalEntry): number {
  return (event.type === 'run-started' ? event.parent?.at : undefined) ?? event.at;
}

type Origin = Pick<RunSummary, 'model' | 'title' | 'tenant' | 'parent' | 'session' | 'task' | 'labels'>;

function originOf({ event }: JournalEntry): Origin {
  if (event.type !== 'run-started') return { model: '', title: '' };
  const { model, input, principal, parent, session, task, labels } = event;
  return {
    model,
    title: titleOf(input),
    ...(principal && { tenant: principal.tenant }),
    ...(parent && { parent: parent.runId }),
    // Databases cannot store unpaired surrogates.
    ...(session !== undefined && { session: String(session).toWellFormed() }),
    ...(task !== undefined && { task: String(task).toWellFormed() }),
    ...(labels && {
      labels: Object.fromEntries(
        Object.entries(labels).map(([name, value]) => [name.toWellFormed(), String(value).toWellFormed()]),
      ),
    }),
  };
}

/** The beginning of the last user message, in one line, without what programs have put around it between tags. */
function titleOf(input: readonly Message[]): string {
  for (const { role, content } of input.toReversed()) {
    const whole = role === 'user' ? textOf(content) : '';
    const line = lineOf(withoutTagged(whole)) || lineOf(whole);
    if (line !== '') return line.replace(/[\ud800-\udbff]$/, '').toWellFormed();
  }
  return '';
}

/** Only the beginning is processed, because a text may have megabytes. */
function lineOf(text: string): string {
  const beginning = text.trimStart().slice(0, 10 * TITLE_CHARS);
  return beginning.replaceAll(/\s+/g, ' ').slice(0, TITLE_CHARS).trim();
}

/**
 * The text between the sections in tags that it begins with, such as `<system-reminder>…</system-reminder>`, and the next one, or the
 * first file that is sent with it.
 */
function withoutTagged(text: string): string {
  let rest = text.trimStart();
  for (let tag = tagOf(rest); tag !== undefined; tag = tagOf(rest)) {
    const end = rest.indexOf(`</${tag}>`);
    if (end === -1) return '';
    rest = rest.slice(end + tag.length + 3).trimStart();
  }
  return rest.slice(0, 10 * TITLE_CHARS).split(/\n\s*<[a-z][\w-]{0,63}>\n|<file name="[^\n]{1,300}">\n/, 1)[0]!;
}

function tagOf(text: string): string | undefined {
  return /^<([a-z][\w-]{0,63})>/.exec(text)?.[1];
}
