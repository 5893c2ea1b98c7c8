import { hash, randomUUID } from 'node:crypto';
import type { Client } from 'pg';
import type { Database } from './connection.ts';

/** Tells readers of a run or a stream, here and in other processes, that something may have been appended to it. */
export interface Changes {
  /** After a commit: calls the listeners of these names. */
  readonly changed: (...names: readonly string[]) => void;
  readonly watch: (name: string, listener: () => void) => () => void;
  /** Calls no listener any more. */
  readonly mute: () => void;
  readonly close: () => Promise<void>;
}

/** The name for listeners of all runs. No run or stream has it. */
export const ALL_RUNS = '\0runs';

/** How often listeners are called without cause while nobody can tell of changes: behind a pooler, or without a connection. */
const POLL_MS = 100;
/** The same while notifications arrive: a process may die between its commit and its notification. */
const SLOW_POLL_MS = 2_000;
/** Pause before another attempt to listen. */
const RELISTEN_MS = 500;
/** A payload of PostgreSQL has at most 7,999 bytes. */
const NAMES_PER_PAYLOAD = 500;
/** Between two notifications. The first one after a pause is sent at once. */
const SEND_MS = 5;
const CHANNEL = 'treadle_changes';
/** So many listeners are called in one turn of the event loop: each of them reads the store. */
const LISTENERS_PER_TURN = 50;

/**
 * After a commit, the names of what has changed are notified in a statement of its own: a transaction that notifies would block
 * those of others until it is on the disk. Names can be long, so a part of their digests is sent. The notification is only a hint
 * to read again, so one that is lost, or for another name with the same digest, does no harm.
 */
export function openChanges(db: Database): Changes {
  const sender = randomUUID().slice(0, 8);
  const watched = new Map<string, Set<() => void>>();
  /** The names that are watched, by digest. */
  const byDigest = new Map<string, string>();
  let waiting = new Set<string>();
  let isSending = false;
  let sending: Promise<void> | undefined;
  let endPause = (): void => {};
  let listening: Client | undefined;
  let isConnecting = false;
  let isClosed = false;
  let timer: NodeJS.Timeout | undefined;
  let lastPoll = 0;

  function notify(name: string): void {
    const listeners = watched.get(name);
    if (listeners) callSome(listeners);
  }

  function notifyAll(): void {
    lastPoll = performance.now();
    for (const name of watched.keys()) notify(name);
  }

  function poll(): void {
    if (!listening || performance.now() - lastPoll > SLOW_POLL_MS) notifyAll();
  }

  async function send(): Promise<void> {
    isSending = true;
    while (waiting.size > 0) {
      const digests = [...waiting].map(digestOf);
      waiting = new Set();
      for (let at = 0; at < digests.length; at += NAMES_PER_PAYLOAD) {
        const payload = `${sender} ${digests.slice(at, at + NAMES_PER_PAYLOAD).join(' ')}`;
        await db
          .once(`SELECT pg_notify('${CHANNEL}', $1), set_config('synchronous_commit', 'off', true)`, [payload])
          .catch(() => {});
      }
      // What follows closely is sent together: each notification costs as much as an append.
      if (!isClosed) await new Promise<void>((resolve) => setTimeout((endPause = resolve), SEND_MS));
    }
    isSending = false;
  }

  function received(payload: string | undefined): void {
    const [from, ...digests] = (payload ?? '').split(' ');
    if (from === sender) return;
    for (const digest of digests) {
      const name = byDigest.get(digest);
      if (name !== undefined) notify(name);
    }
  }

  async function listen(): Promise<void> {
    if (isConnecting || listening || isClosed || watched.size === 0 || db.isDirect() !== true) return;
    isConnecting = true;
    let client: Client | undefined;
    try {
      client = await db.connectAlone();
      client.on('notification', ({ payload }) => received(payload));
      client.on('end', () => lost(client!));
      client.on('error', () => lost(client!));
      await client.query(`LISTEN ${CHANNEL}`);
      if (!isClosed) listening = client;
      else await client.end();
      // What came before, or while there was no connection, was not notified.
      notifyAll();
    } catch {
      void client?.end().catch(() => {});
      setTimeout(() => void listen(), RELISTEN_MS).unref();
    }
    isConnecting = false;
  }

  function lost(client: Client): void {
    if (listening !== client) return;
    listening = undefined;
    void client.end().catch(() => {});
    setTimeout(() => void listen(), RELISTEN_MS).unref();
  }

  function mute(): void {
    clearInterval(timer);
    for (const listeners of watched.values()) listeners.clear();
    watched.clear();
  }

  return {
    changed(...names) {
      for (const name of new Set(names)) {
        waiting.add(name);
        notify(name);
      }
      if (!isClosed && !isSending) sending = send();
    },
    watch(name, given) {
      // A function of its own, so that the same listener can be added twice.
      const listener = (): void => given();
      const listeners = watched.get(name) ?? new Set();
      watched.set(name, listeners);
      byDigest.set(digestOf(name), name);
      listeners.add(listener);
      timer ??= setInterval(poll, POLL_MS).unref();
      void listen();
      return () => {
        listeners.delete(listener);
        if (listeners.size > 0 || watched.get(name) !== listeners) return;
        watched.delete(name);
        byDigest.delete(digestOf(name));
        if (watched.size > 0) return;
        clearInterval(timer);
        timer = undefined;
      };
    },
    mute,
    async close() {
      isClosed = true;
      endPause();
      await sending;
      mute();
      const client = listening;
      listening = undefined;
      await client?.end().catch(() => {});
    },
  };
}

function digestOf(name: string): string {
  return hash('sha1', name, 'base64url').slice(0, 12);
}

/** Listeners that are being called in several turns, and whether they have to be called again after that. */
const calling = new WeakMap<Set<() => void>, { isAgain: boolean }>();

/** Calls those that still listen: the first at once, and others in later turns, so that many do not block the event loop. */
function callSome(listeners: Set<() => void>): void {
  const current = calling.get(listeners);
  if (current) current.isAgain = true;
  else callNext(listeners, [...listeners]);
}

function callNext(listeners: Set<() => void>, called: readonly (() => void)[]): void {
  if (called.length > LISTENERS_PER_TURN) {
    if (!calling.has(listeners)) calling.set(listeners, { isAgain: false });
    setImmediate(callNext, listeners, called.slice(LISTENERS_PER_TURN));
  } else if (calling.get(listeners)?.isAgain) {
    calling.set(listeners, { isAgain: false });
    setImmediate(callNext, listeners, [...listeners]);
  } else calling.delete(listeners);
  for (const listener of called.slice(0, LISTENERS_PER_TURN)) if (listeners.has(listener)) listener();
}
