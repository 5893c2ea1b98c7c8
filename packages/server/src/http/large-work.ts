/**
 * Large pieces of work, such as parsing a body of some megabytes, block the event loop. They start one at a time, and all
 * other requests are served between two of them.
 *
 * 1. At most one piece starts in a turn of the event loop.
 * 2. Work that has begun is continued before other work begins, so that the memory of few requests is needed at a time.
 * 3. Tenants take turns: the work of one does not wait for all the work of another.
 * 4. Small work does not wait. Much work of medium size in one turn is large.
 * 5. A piece waits while connections are being accepted, for a limited time: the event loop accepts one in a turn, so a client
 *    that opens many would make the others wait for a piece of work for each of them.
 */

/** Work on more bytes or characters than this is large. It takes some milliseconds. */
export const LARGE = 262_144;
/** Work whose size is not known before was large if it took longer. */
const LONG_MS = 4;

/** Work on fewer bytes or characters is small. */
export const MEDIUM = 16_384;

/** The size of the work of medium size in this turn. */
let inThisTurn = 0;

/** Whether work of at least medium size is large, also together with what was asked for before in the same turn. */
export function isLargeNow(size: number): boolean {
  if (size >= LARGE) return true;
  if (inThisTurn === 0) setImmediate(() => (inThisTurn = 0));
  inThisTurn += size;
  return inThisTurn >= LARGE;
}

type Start = () => void;

const begun: Start[] = [];
/** By tenant. The first one has the next turn, and is the last one after that. */
const waiting = new Map<string, Start[]>();
let isTaken = false;

/** Resolves in a turn of the event loop in which no other large work starts: for the first piece of some work. */
export function firstTurn(tenant: string): Promise<void> {
  return new Promise((resolve) => {
    const queue = waiting.get(tenant);
    if (queue) queue.push(resolve);
    else waiting.set(tenant, [resolve]);
    if (!isTaken) takeTurn();
  });
}

/** The same for each later piece. */
export function nextTurn(): Promise<void> {
  return new Promise((resolve) => {
    begun.push(resolve);
    if (!isTaken) takeTurn();
  });
}

/** Starts work whose size is not known. If it was large, the caller continues in another turn. */
export async function inTurn<T>(work: () => Promise<T>, tenant: string): Promise<T> {
  if (isTaken) await firstTurn(tenant);
  const began = performance.now();
  const working = work();
  // Other work that starts in the same turn waits for its own.
  if (!isTaken && performance.now() - began > LONG_MS) takeTurn();
  const result = await working;
  if (performance.now() - began > LONG_MS) await nextTurn();
  return result;
}

/** The server counts the connections that it accepts. */
export const arrivals = { connections: 0 };

const MOST_ACCEPTING_MS = 50;

/** Calls `next` in a later turn of the event loop: after one in which no connection was accepted, or when that takes too long. */
export function afterConnections(next: () => void): void {
  // What was started in this turn ends before that.
  setImmediate(() => awaitConnections(performance.now() + MOST_ACCEPTING_MS, next));
}

function awaitConnections(until: number, next: () => void): void {
  const before = arrivals.connections;
  setImmediate(() => {
    if (arrivals.connections === before || performance.now() >= until) next();
    else awaitConnections(until, next);
  });
}

function takeTurn(): void {
  isTaken = true;
  afterConnections(nextPiece);
}

function nextPiece(): void {
  const start = begun.shift() ?? nextWaiting();
  if (!start) {
    isTaken = false;
    return;
  }
  start();
  takeTurn();
}

function nextWaiting(): Start | undefined {
  for (const [tenant, queue] of waiting) {
    waiting.delete(tenant);
    const start = queue.shift();
    if (queue.length > 0) waiting.set(tenant, queue);
    return start;
  }
  return undefined;
}
