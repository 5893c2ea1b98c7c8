import type { RevertedFix } from './reverted-fixes.ts';

const WAL = 'store/src/sqlite/wal.ts';
const SYNC = '(descriptor) => whenDone((done) => fdatasync(descriptor, done))';
const RESPOND = 'server/src/http/respond.ts';
const MESSAGES = 'store/src/sqlite/messages.ts';
const APPENDS = 'store/src/sqlite/appends.ts';
const TEXTS = 'store/src/sqlite/shared-texts.ts';
const RUNS = 'store/src/sqlite/runs.ts';
const GROUP_COMMIT = 'store/src/sqlite/group-commit.ts';
const REQUESTS = 'store/src/sqlite/requests.ts';
const INBOX = 'store/src/sqlite/inbox.ts';
const SHELL = 'core/src/driver/shell.ts';

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
        file: GROUP_COMMIT,
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
        file: SHELL,
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
    checks: ['told', 'error', 'append only'],
    patches: [{ file: REQUESTS, from: 'insertKeys(record, keys, createdAt);', to: 'void insertKeys;' }],
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
  {
    name: 'readers do not wait for own commits',
    checks: ['shown', 'told'],
    patches: [{ file: WAL, from: 'if (isShown) shown = last;', to: '' }],
  },
  {
    name: 'the end of a sync counts for later commits',
    checks: ['I8 durable', 'acknowledged', 'shown', 'told', 'budget', 'resource', 'cancel order'],
    patches: [{ file: WAL, from: 'durable = upTo;', to: 'durable = last;' }],
  },
  {
    name: 'writes go on after a failed sync',
    checks: ['I8 durable', 'acknowledged', 'shown', 'told', 'budget', 'resource', 'cancel order', 'error', 'ending'],
    patches: [{ file: WAL, from: "if (failure && (isGone || until === 'durable')) throw failure;", to: '' }],
  },
  {
    name: 'a write that was rejected stays in the transaction',
    checks: ['append only', 'counts', 'error', 'I5 replay', 'lease', 'budget', 'told', 'acknowledged'],
    patches: [{ file: GROUP_COMMIT, from: "db.exec('ROLLBACK TO job; RELEASE job');", to: "db.exec('RELEASE job');" }],
  },
  {
    name: 'a failed transaction is acknowledged',
    checks: [
      'I8 durable',
      'acknowledged',
      'shown',
      'told',
      'budget',
      'resource',
      'lease',
      'error',
      'written',
      'issued',
    ],
    patches: [
      {
        file: GROUP_COMMIT,
        from: "if (db.isTransaction) db.exec('COMMIT');",
        to: "try { if (db.isTransaction) db.exec('COMMIT'); } catch { rollBack(); }",
      },
    ],
  },
  {
    name: 'entries are appended without the lease',
    checks: ['lease', 'I5 replay', 'append only', 'error'],
    patches: [{ file: APPENDS, from: 'checkWriter(runId, lease);', to: '' }],
  },
  {
    name: 'entries are appended out of order',
    checks: ['I5 replay', 'append only', 'error', 'ending', 'lease'],
    patches: [{ file: APPENDS, from: 'if (misplaced >= 0) {', to: 'if (misplaced > 1e9) {' }],
  },
  {
    name: 'a call starts before its entry is durable',
    checks: ['I8 durable', 'issued', 'budget'],
    patches: [
      {
        file: SHELL,
        from: "for (let i = 0; i < effects.length; i++) if (mustBeRemembered(effects[i]!)) return 'durable';",
        to: '',
      },
    ],
  },
  {
    name: 'the model gets a result that is not written',
    checks: ['written'],
    patches: [
      { file: SHELL, from: "return slot?.call.effect === 'pure' ? 'accepted' : 'written';", to: "return 'accepted';" },
    ],
  },
  {
    name: 'child runs end before the end of their parent is durable',
    checks: ['cancel order', 'shown'],
    patches: [
      {
        file: SHELL,
        from: "if (onDurable || entry.status !== undefined) return 'durable';",
        to: "if (onDurable) return 'durable';",
      },
    ],
  },
  {
    name: 'somebody is asked about a run before that is durable',
    checks: ['shown'],
    patches: [
      {
        file: SHELL,
        from: 'if (unsynced) return syncAndClose();\n    if (mayPause && mayBeAnswered()) return;',
        to: 'if (mayPause && mayBeAnswered()) return;\n    if (unsynced) return syncAndClose();',
      },
    ],
  },
  {
    name: 'a request is acknowledged before it is durable',
    checks: ['told', 'error'],
    patches: [
      { file: REQUESTS, from: 'undefined,\n        request.length,', to: "'written',\n        request.length," },
    ],
  },
  {
    name: 'keys are stored with a request that is not',
    checks: ['told'],
    patches: [
      {
        file: REQUESTS,
        from: 'if (changes === 0) throw sql.findOwner.get(id) ? responseExists(id) : runTaken(runId);',
        to: '',
      },
    ],
  },
  {
    name: 'a request is stored although its key belongs to another one',
    checks: ['told', 'error'],
    patches: [{ file: REQUESTS, from: 'if (changes === 0) throw keyTaken();', to: 'void keyTaken;' }],
  },
  {
    name: 'a request in the inbox is taken after it was removed',
    checks: ['acknowledged'],
    patches: [
      {
        file: INBOX,
        from: "take: (id) => commit.write(() => take.run({ id, ...opened() }).changes > 0, 'written'),",
        to: "take: (id) => commit.write(() => (take.run({ id, ...opened() }), true), 'written'),",
      },
    ],
  },
  {
    name: 'a request in the inbox never expires',
    checks: ['inbox'],
    patches: [
      {
        file: INBOX,
        from: "const isOpen = 'is_taken = 0 AND abs(at - :now) <= :patience';",
        to: "const isOpen = 'is_taken = 0 AND :now = :now AND :patience = :patience';",
      },
    ],
  },
  {
    name: 'a stream forgets what waits for a sync',
    checks: ['told', 'shown', 'ending'],
    patches: [{ file: RESPOND, from: 'waiting.push(act);', to: 'if (waiting.length < 1) waiting.push(act);' }],
  },
  {
    name: 'a stream sends what waits for a sync that fails',
    checks: ['told', 'shown'],
    patches: [
      {
        file: RESPOND,
        from: 'waiting = [];\n      failed(error);',
        to: 'for (const act of waiting) act();\n      waiting = [];',
      },
    ],
  },
].map((mutant) => ({ ...mutant, rare: true }) as RevertedFix);
