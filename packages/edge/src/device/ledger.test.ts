import { spawnSync } from 'node:child_process';
import { appendFileSync, mkdtempSync, readdirSync, readFileSync, rmSync, statSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { setFlagsFromString } from 'node:v8';
import { runInNewContext } from 'node:vm';
import { afterEach, beforeEach, expect, test } from 'vitest';
import type { ResultReport } from '../protocol/report.ts';
import { openLedger, type Ledger, type LedgerOptions } from './ledger.ts';

let folder: string;
let now = 1_000_000;
const open: Ledger[] = [];

beforeEach(() => {
  folder = mkdtempSync(join(tmpdir(), 'treadle-ledger-'));
  now = 1_000_000;
});
afterEach(async () => {
  for (const one of open.splice(0)) await one.close();
  rmSync(folder, { recursive: true });
});

async function opened(options: Partial<LedgerOptions> = {}): Promise<Ledger> {
  const ledger = await openLedger({ folder, now: () => now, ...options });
  open.push(ledger);
  return ledger;
}

const file = (): string => join(folder, 'ledger.jsonl');
const blobs = (): readonly string[] => readdirSync(join(folder, 'blobs'));
const done = (id: string, result = 'ok'): ResultReport => ({
  request_id: id,
  status: 'success',
  tool: 'x',
  result,
  elapsed_ms: 1,
});

test('remembers over a restart what has ended, what was interrupted, and what never began', async () => {
  const ledger = await opened();
  await ledger.begin('a', 'x');
  expect(ledger.stateOf('a')).toBe('running');
  await ledger.end(done('a'));
  await ledger.begin('b', 'x');
  // The process is killed here: nothing is closed.
  const next = await opened();
  expect([next.stateOf('a'), next.stateOf('b'), next.stateOf('c')]).toEqual(['done', 'interrupted', undefined]);
  expect(await next.reportOf('a')).toEqual(done('a'));
  expect(await next.reportOf('b')).toMatchObject({
    status: 'error',
    error_type: 'interrupted',
    request_id: 'b',
    // When it began: an orchestrator acknowledges what nobody has asked about for a day.
    timestamp: now,
  });
  expect(next.unacknowledged()).toEqual(['a', 'b']);
  expect((await opened()).stateOf('b')).toBe('interrupted');
});

test('has an id from the start, and another one without its file', async () => {
  const { id } = await opened();
  expect(JSON.parse(readFileSync(file(), 'utf8'))).toEqual({ type: 'ledger', id });
  expect((await opened()).id).toBe(id);
  rmSync(file());
  expect((await opened()).id).not.toBe(id);
});

test('a record is in the file before the promise resolves', async () => {
  const ledger = await opened();
  await Promise.all(['a', 'b', 'c'].map((id) => ledger.begin(id, 'x')));
  expect(readFileSync(file(), 'utf8').trim().split('\n')).toHaveLength(4);
  await ledger.end(done('b'));
  expect(readFileSync(file(), 'utf8')).toContain('"report"');
});

test('keeps an acknowledged result for an hour, and its id for a week', async () => {
  const ledger = await opened();
  await ledger.begin('a', 'x');
  await ledger.end(done('a'));
  await ledger.acknowledge(['a', 'unknown']);
  expect(ledger.unacknowledged()).toEqual([]);
  now += 3_500_000;
  expect(await (await opened()).reportOf('a')).toEqual(done('a'));
  now += 200_000;
  const later = await opened();
  expect([later.stateOf('a'), await later.reportOf('a')]).toEqual(['forgotten', undefined]);
  now += 7 * 86_400_000;
  expect((await opened()).stateOf('a')).toBeUndefined();
});

test('keeps what nobody has acknowledged for ever: somebody may still ask, and must not be told that it never began', async () => {
  const ledger = await opened();
  await ledger.begin('a', 'x');
  await ledger.end(done('a'));
  await ledger.begin('b', 'x');
  now += 30 * 86_400_000;
  const later = await opened();
  expect([later.stateOf('a'), later.stateOf('b')]).toEqual(['done', 'interrupted']);
  expect(await later.reportOf('a')).toEqual(done('a'));
  // The week begins when it is acknowledged.
  await later.acknowledge(['a']);
  now += 6 * 86_400_000;
  expect((await opened()).stateOf('a')).toBe('forgotten');
  now += 2 * 86_400_000;
  expect((await opened()).stateOf('a')).toBeUndefined();
});

test('a call that is cancelled before it began never begins, also after a restart', async () => {
  const ledger = await opened();
  await ledger.end({ request_id: 'a', status: 'error', tool: 'x', error: 'cancelled', error_type: 'cancelled' });
  expect(ledger.stateOf('a')).toBe('cancelled');
  expect((await opened()).stateOf('a')).toBe('cancelled');
});

test('is taken from a process that has it open, which begins nothing more', async () => {
  const first = await opened();
  await first.begin('a', 'x');
  const second = await opened();
  expect(second.stateOf('a')).toBe('interrupted');
  expect([await first.isLost(), await second.isLost()]).toEqual([true, false]);
  await expect(first.begin('b', 'x')).rejects.toThrow('another process has opened the store');
  await expect(first.end(done('a'))).rejects.toThrow('another process');
  await second.begin('b', 'x');
  expect((await opened()).stateOf('b')).toBe('interrupted');
});

test('a call that begins while another process opens the ledger is known there, or does not begin', async () => {
  for (let round = 0; round < 10; round++) {
    const first = await opened();
    const ids = Array.from({ length: 20 }, (_, index) => `${round}-${index}`);
    const begins: Promise<string[]>[] = [];
    const opening = opened();
    for (const id of ids) {
      begins.push(
        first.begin(id, 'x').then(
          () => [id],
          () => [],
        ),
      );
      await new Promise((next) => setImmediate(next));
    }
    const [second, ...begun] = await Promise.all([opening, ...begins]);
    expect(begun.flat().filter((id) => second.stateOf(id) === undefined)).toEqual([]);
  }
});

test('large results are files, served in parts, and removed when they are forgotten', async () => {
  const ledger = await opened();
  const [middle, large] = ['m'.repeat(20_000), 'l'.repeat(2_000_000)];
  for (const id of ['a', 'b']) await ledger.begin(id, 'x');
  await ledger.end(done('a', middle));
  await ledger.end(done('b', large));
  expect(blobs()).toHaveLength(2);
  // One that fits into a message is not served in parts.
  expect(ledger.blobOf('a')).toBeUndefined();
  const again = await opened();
  expect(await again.reportOf('a')).toEqual(done('a', middle));
  const { id, bytes } = again.blobOf('b')!;
  const parts: Uint8Array[] = [];
  for (let offset = 0; offset < bytes; offset += 500_000) parts.push((await again.readBlob(id, offset, 500_000))!);
  expect(JSON.parse(Buffer.concat(parts).toString())).toEqual(done('b', large));
  expect(await again.readBlob('0'.repeat(64), 0, 10)).toBeUndefined();
  await again.acknowledge(['a', 'b']);
  now += 4_000_000;
  await opened();
  expect(blobs()).toEqual([]);
});

test('drops a last line that was not written to its end, and refuses any other damage', async () => {
  const ledger = await opened();
  await ledger.begin('a', 'x');
  await ledger.end(done('a'));
  appendFileSync(file(), '{"type":"begin","id":"b","at"');
  const next = await opened();
  expect([next.stateOf('a'), next.stateOf('b')]).toEqual(['done', undefined]);
  writeFileSync(file(), `{"type":"begi\n${readFileSync(file(), 'utf8')}`);
  await expect(openLedger({ folder })).rejects.toThrow('ledger.jsonl:1 is damaged');
});

test('says when it is full', async () => {
  const ledger = await opened({ maxResults: 3, maxBlobBytes: 100_000 });
  const ended = async (id: string, result?: string): Promise<void> => {
    expect(ledger.whyFull()).toBeUndefined();
    await ledger.begin(id, 'x');
    await ledger.end(done(id, result));
  };
  await ended('a', 'l'.repeat(90_000));
  for (const id of ['b', 'c']) await ended(id);
  expect(ledger.whyFull()).toContain('3 results wait');
  await ledger.acknowledge(['b']);
  await ended('d', 'l'.repeat(90_000));
  await ledger.acknowledge(['c']);
  expect(ledger.whyFull()).toContain('large results');
});

test('large results that were acknowledged make room for others', async () => {
  const ledger = await opened({ maxBlobBytes: 100_000 });
  const ids = Array.from({ length: 20 }, (_, index) => `a${index}`);
  for (const id of ids) {
    expect(ledger.whyFull()).toBeUndefined();
    await ledger.begin(id, 'x');
    await ledger.end(done(id, id.padEnd(20_000, 'l')));
    await ledger.acknowledge([id]);
  }
  expect(blobs()).toHaveLength(2);
  expect([ledger.stateOf('a17'), ledger.stateOf('a18')]).toEqual(['forgotten', 'done']);
  expect(await ledger.reportOf('a19')).toEqual(done('a19', 'a19'.padEnd(20_000, 'l')));
  expect(await ledger.reportOf('a0')).toBeUndefined();
});

const collectGarbage = ((): (() => void) => {
  setFlagsFromString('--expose-gc');
  return runInNewContext('gc') as () => void;
})();

test('has results on the disk and not in memory, and reads them also after the file was written anew', async () => {
  const text = (id: string): string => id.padEnd(15_000, 'm');
  const ledger = await opened();
  collectGarbage();
  const before = process.memoryUsage().heapUsed;
  for (let round = 0; round < 25; round++) {
    const ids = Array.from({ length: 100 }, (_, index) => `${round}-${index}`);
    await Promise.all(ids.map((id) => ledger.begin(id, 'x')));
    await Promise.all(ids.map((id) => ledger.end(done(id, text(id)))));
    if (round > 1) await ledger.acknowledge(ids);
    now += 1_500_000;
  }
  collectGarbage();
  expect(process.memoryUsage().heapUsed - before).toBeLessThan(5_000_000);
  expect(statSync(file()).size).toBeLessThan(25_000_000);
  for (const one of [ledger, await opened()]) {
    expect(one.unacknowledged()).toHaveLength(200);
    for (const id of ['0-0', '1-99', '23-50', '24-99']) expect(await one.reportOf(id)).toEqual(done(id, text(id)));
  }
});

test('is not lost while the file is written anew', async () => {
  const ledger = await opened();
  let isOver = false;
  const looking = (async () => {
    while (!isOver) expect(await ledger.isLost()).toBe(false);
  })();
  for (let round = 0; round < 5; round++) {
    const ids = Array.from({ length: 1_000 }, (_, index) => `${round}-${index}`);
    for (const id of ids) void ledger.begin(id, 'x');
    await Promise.all(ids.map((id) => ledger.end(done(id, 'm'.repeat(9_000)))));
    now += 4_000_000;
    await ledger.acknowledge(ids);
  }
  isOver = true;
  await looking;
});

test('the file does not grow with calls that are over, and nothing is lost while it is written anew', async () => {
  const ledger = await opened();
  for (let round = 0; round < 30; round++) {
    const ids = Array.from({ length: 200 }, (_, index) => `${round}-${index}`);
    await Promise.all(ids.map((id) => ledger.begin(id, 'x')));
    await Promise.all(ids.map((id) => ledger.end(done(id))));
    const [begun] = await Promise.all([ledger.begin(`open-${round}`, 'x'), ledger.acknowledge(ids)]);
    expect(begun).toBeUndefined();
    now += 600_000;
  }
  const lines = readFileSync(file(), 'utf8').trim().split('\n').length;
  expect(lines).toBeLessThan(18_000);
  const next = await opened();
  expect(next.unacknowledged()).toHaveLength(30);
  expect(next.stateOf('29-199')).toBe('done');
  expect(next.stateOf('0-0')).toBe('forgotten');
});

test('a record that cannot be written rejects, and the call counts as not begun', async () => {
  const ledger = await opened();
  await ledger.close();
  await expect(ledger.begin('a', 'x')).rejects.toThrow('closed');
  expect(ledger.stateOf('a')).toBeUndefined();
});

/** Fills the file up to its limit in the middle of a line, and goes on when there is room again. */
const FILLED = `
  import { execFileSync } from 'node:child_process';
  import { openLedger } from ${JSON.stringify(new URL('ledger.ts', import.meta.url).href)};
  process.on('SIGXFSZ', () => {});
  const limit = (bytes) => execFileSync('prlimit', ['--pid', String(process.pid), '--fsize=' + bytes + ':unlimited']);
  const ledger = await openLedger({ folder: process.argv[1] });
  await ledger.begin('a', 'x');
  limit(100);
  console.log(await ledger.begin('b', 'x'.repeat(200)).catch(({ code }) => code));
  limit('unlimited');
  await ledger.begin('c', 'x');
`;

test.runIf(process.platform === 'linux')('a write that fails in the middle of a line damages nothing', async () => {
  const { stdout, stderr } = spawnSync(process.execPath, ['--input-type=module', '--eval', FILLED, folder], {
    encoding: 'utf8',
  });
  expect({ stdout, stderr }).toEqual({ stdout: 'EFBIG\n', stderr: '' });
  const ledger = await opened();
  expect(['a', 'b', 'c'].map((id) => ledger.stateOf(id))).toEqual(['interrupted', undefined, 'interrupted']);
});
