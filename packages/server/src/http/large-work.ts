/**
 * Large pieces of work, such as parsing a body of some megabytes, block the event loop. They start one at a time, and all
 * other requests are served between two of them.
 *
 * 1. At most one piece starts in a turn of the event loop.
 * 2. Work that has begun is continued before other work begins, so that the memory of few requests is needed at a time.
 * 3. Small work does not wait. Much work of medium size in one turn is large.
 */

/** Work on more bytes or characters than this is large. It takes some milliseconds. */
export const LARGE = 262_144;
/** Work whose size is not known before was large if it took longer. */
const LONG_MS = 4;

/** Work on fewer bytes or characters is small. */
const MEDIUM = 16_384;

/** The size of the work of medium size in this turn. */
let inThisTurn = 0;

/** Whether work is large, also together with what was asked for before in the same turn. */
export function isLargeNow(size: number): boolean {
  if (size < MEDIUM || size >= LARGE) return size >= LARGE;
  if (inThisTurn === 0) setImmediate(() => (inThisTurn = 0));
  inThisTurn += size;
  return inThisTurn >= LARGE;
}

const begun: (() => void)[] = [];
const waiting: (() => void)[] = [];
let isTaken = false;

/** Resolves in a turn of the event loop in which no other large work starts: for the first piece of some work. */
export function firstTurn(): Promise<void> {
  return turnOf(waiting);
}

/** The same for each later piece. */
export function nextTurn(): Promise<void> {
  return turnOf(begun);
}

function turnOf(queue: (() => void)[]): Promise<void> {
  return new Promise((resolve) => {
    queue.push(resolve);
    if (!isTaken) takeTurn();
  });
}

/** Starts work whose size is not known. If it was large, the caller continues in another turn. */
export async function inTurn<T>(work: () => Promise<T>): Promise<T> {
  if (isTaken) await firstTurn();
  const began = performance.now();
  const working = work();
  // Other work that starts in the same turn waits for its own.
  if (!isTaken && performance.now() - began > LONG_MS) takeTurn();
  const result = await working;
  if (performance.now() - began > LONG_MS) await nextTurn();
  return result;
}

function takeTurn(): void {
  isTaken = true;
  // Twice: a new connection is accepted in one turn, and its request is read in the next one.
  setImmediate(() => setImmediate(nextPiece));
}

function nextPiece(): void {
  const start = begun.shift() ?? waiting.shift();
  if (!start) {
    isTaken = false;
    return;
  }
  start();
  takeTurn();
}
