import type { RevertedFix } from './reverted-fixes.ts';

const WAL = 'store/src/sqlite/wal.ts';
const SYNC = '(descriptor) => whenDone((done) => fdatasync(descriptor, done))';
const RESPOND = 'server/src/http/respond.ts';
const MESSAGES = 'store/src/sqlite/messages.ts';
const APPENDS = 'store/src/sqlite/appends.ts';
const TEXTS = 'store/src/sqlite/shared-texts.ts';
const RUNS = 'store/src/sqlite/runs.ts';

/**
 * Defects that nobody has made yet, on the way from an event to what somebody is told about it. They show what the simulation
 * can see. Each is found within 20,000 schedules, and most within a hundred.
 */
export const WRITE_PATH_MUTANTS: readonly RevertedFix[] = [
  {
    name: 'the log is not synced',
    checks: ['I8 durable', 'acknowledged', 'shown', 'told', 'budget', 'resource'],
    patches: [{ file: WAL, from: SYNC, to: 'async () => {}' }],
  },
  {
    name: 'a sync in progress counts for later commits',
    checks: ['I8 durable', 'acknowledged', 'shown', 'told', 'budget', 'resource'],
    patches: [
      {
        file: WAL,
        from: 'return covered >= commit ? running : (next ??= running.then(startSync));',
        to: 'return running;',
      },
    ],
  },
  {
    name: 'a failed sync is taken for a good one',
    checks: ['I8 durable', 'acknowledged', 'shown', 'told', 'budget', 'resource'],
    patches: [{ file: WAL, from: SYNC, to: `${SYNC}.catch(() => {})` }],
  },
  {
    name: 'readers do not wait for commits of other processes',
    checks: ['shown', 'told'],
    patches: [
      { file: WAL, from: 'if (current === undefined || current !== version) {', to: 'if (current === undefined) {' },
    ],
  },
  {
    name: 'readers do not wait for what they have read of other processes',
    checks: ['shown', 'told'],
    patches: [{ file: 'store/src/sqlite/store.ts', from: 'commit.noteRead();', to: '' }],
  },
  {
    name: 'an answer of the server leaves before it is durable',
    checks: ['shown', 'told'],
    patches: [{ file: RESPOND, from: 'return exchange.durable()?.then(send) ?? send();', to: 'return send();' }],
  },
  {
    name: 'an event of a stream leaves before it is durable',
    checks: ['shown', 'told'],
    patches: [
      {
        file: RESPOND,
        from: 'const syncing = isSyncing || isLive ? undefined : durable();',
        to: 'const syncing = undefined as void | Promise<void>;',
      },
    ],
  },
  {
    name: 'writes are acknowledged before they are durable',
    checks: ['I8 durable', 'acknowledged', 'shown', 'told', 'budget', 'resource'],
    patches: [
      {
        file: 'store/src/sqlite/group-commit.ts',
        from: 'const syncing = done.some(mustBeSynced) ? sync() : undefined;',
        to: 'const syncing = undefined as void | Promise<void>;',
      },
    ],
  },
  {
    name: 'accepted entries that cannot be written are ignored',
    checks: ['issued', 'lease', 'error', 'ending', 'acknowledged', 'I8 durable'],
    patches: [{ file: APPENDS, from: '(error) => leases.fail(lease, error),', to: '(error) => void error,' }],
  },
  {
    name: 'a text is deleted although another run uses it',
    checks: ['counts', 'error'],
    patches: [{ file: TEXTS, from: 'if (!findUse.get(text!)) deleteText.run(text!);', to: 'deleteText.run(text!);' }],
  },
  {
    name: 'the texts of a run are not counted',
    checks: ['counts', 'error'],
    patches: [{ file: APPENDS, from: 'shared.use([RUN, id], used);', to: '' }],
  },
  {
    name: 'a message is deleted although another run begins with it',
    checks: ['counts', 'error'],
    patches: [{ file: MESSAGES, from: 'id !== null && !findUse.get(id);', to: 'id !== null;' }],
  },
  {
    name: 'a long result is deleted although another run uses it',
    checks: ['counts', 'error'],
    patches: [{ file: RUNS, from: 'if (!findBlobRun.get(blob!)) for', to: 'for' }],
  },
  {
    name: 'a deleted run leaves its entries behind',
    checks: ['counts'],
    patches: [{ file: RUNS, from: 'for (const statement of deleteEntries) statement.run(id);', to: '' }],
  },
  {
    name: 'a deletion is acknowledged before it is durable',
    checks: ['acknowledged'],
    patches: [
      {
        file: RUNS,
        from: 'for (const row of family) remove(row);\n        return family.length > 0;\n      }),',
        to: 'for (const row of family) remove(row);\n        return family.length > 0;\n      }, "written"),',
      },
    ],
  },
  {
    name: 'a run that is due is woken twice',
    checks: ['woken'],
    patches: [
      {
        file: 'core/src/timers/resume-due.ts',
        from: 'if (id !== runId || (await store.read(id, entries)).length === 0) return lease;',
        to: 'if (runId) return lease;',
      },
    ],
  },
  {
    name: 'a lease is taken over after a third of its time',
    checks: ['takeover'],
    patches: [
      {
        file: 'store/src/sqlite/driven-runs.ts',
        from: 'return Math.max(0, seen.at + ttlMs - monotonic);',
        to: 'return Math.max(0, seen.at + ttlMs / 3 - monotonic);',
      },
    ],
  },
  {
    name: 'a message is acknowledged before it is durable',
    checks: ['acknowledged', 'resource'],
    patches: [
      {
        file: 'core/src/driver/shell.ts',
        from: 'await Promise.race([promise, done]);\n    return true;',
        to: 'void promise;\n    return true;',
      },
    ],
  },
  {
    name: 'a request in the inbox is delivered twice',
    checks: ['acknowledged'],
    patches: [
      {
        file: 'server/src/apis/runs/inbox.ts',
        from: 'if (!(await inbox.take(id))) return;',
        to: '',
      },
    ],
  },
  {
    name: 'a reservation is not durable when its effect starts',
    checks: ['budget'],
    patches: [
      {
        file: 'store/src/sqlite/store.ts',
        from: 'openBudgets(db, { write: commit.write,',
        to: 'openBudgets(db, { write: (work) => commit.write(work, "written"),',
      },
    ],
  },
  {
    name: 'a call with a result is not charged',
    checks: ['budget'],
    patches: [
      {
        file: 'core/src/driver/spend.ts',
        from: "return event.result.type === 'result' ? ledger.settle(key, used(AS_RESERVED)) : undefined;",
        to: "return event.result.type === 'result' ? ledger.release(key) : undefined;",
      },
    ],
  },
  {
    name: 'a call gets a resource before it is recorded',
    checks: ['resource'],
    patches: [
      {
        file: 'core/src/driver/resources.ts',
        from: 'if (process) await recordProcess(resource, process(value));',
        to: 'if (process) void recordProcess(resource, process(value)).catch(() => {});',
      },
    ],
  },
  {
    name: 'the processes of a dead driver are left alone',
    checks: ['resource'],
    patches: [
      {
        file: 'core/src/driver/reopen.ts',
        from: '(await killProcess?.(process))',
        to: '(await (undefined as typeof killProcess)?.(process))',
      },
    ],
  },
  {
    name: 'an idempotency key is not stored',
    checks: ['error', 'append only'],
    patches: [
      { file: 'store/src/sqlite/requests.ts', from: 'insertKeys(record, keys, createdAt);', to: 'void insertKeys;' },
    ],
  },
  {
    name: 'a fork is reported before it is durable',
    checks: ['shown'],
    patches: [
      {
        file: 'core/src/journal/make-fork.ts',
        from: 'await journal.append(newId, entries);',
        to: "await journal.append(newId, entries, undefined, 'written');",
      },
    ],
  },
].map((mutant) => ({ ...mutant, rare: true }) as RevertedFix);
