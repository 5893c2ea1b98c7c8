import { execFileSync } from 'node:child_process';
import { Worker } from 'node:worker_threads';
import { expect, test, vi } from 'vitest';
import { JobError, runJob } from './run-job.ts';

const never = new AbortController().signal;
const SEARCH = { ignoreCase: false, output: 'content', context: 0, maxMatches: 10 } as const;

let seed = 1;
const bytes = Uint8Array.from({ length: 300_000 }, () => {
  seed = (seed * 1_103_515_245 + 12_345) % 2 ** 31;
  return seed & 65_536 ? 0x61 : 0x62;
});

/** Takes several seconds, because the expression has very many states. */
function spin(signal: AbortSignal): Promise<unknown> {
  return runJob('searchTexts', { ...SEARCH, pattern: '(a|b)*a(a|b){300}[cd]', files: [bytes] }, signal);
}

const find = (pattern: string): Promise<unknown> =>
  runJob('searchTexts', { ...SEARCH, pattern, files: [Buffer.from('a\nb')] }, never);

test('returns what the job returns', async () => {
  expect(await find('b')).toEqual({
    type: 'searched',
    files: [{ matches: 1, lines: [{ number: 2, isMatch: true, text: 'b' }] }],
  });
});

test('rejects with the message of a job that throws, and runs further jobs', async () => {
  const broken = { bytes: new Uint8Array(10), firstPage: 1, maxPages: 1, maxChars: 1 };
  await expect(runJob('pdfText', broken, never)).rejects.toThrow(JobError);
  expect(await find('b')).toMatchObject({ type: 'searched' });
});

test('an abort ends jobs that run with their threads, and jobs that wait', async () => {
  const terminate = vi.spyOn(Worker.prototype, 'terminate');
  const stop = new AbortController();
  const spinning = Array.from({ length: 8 }, () => spin(stop.signal));
  const settled = Promise.allSettled(spinning);
  stop.abort(new Error('enough'));
  for (const one of await settled) expect(one).toMatchObject({ reason: new Error('enough') });
  expect(terminate).toHaveBeenCalled();
  terminate.mockRestore();
  expect(await find('b')).toMatchObject({ type: 'searched' });
  await expect(spin(stop.signal)).rejects.toThrow('enough');
  await expect(spin(AbortSignal.timeout(100))).rejects.toThrow(/timeout/);
});

test('jobs that wait run when others are done', async () => {
  const found = await Promise.all(Array.from({ length: 12 }, () => find('a')));
  expect(found).toHaveLength(12);
});

test('idle workers do not keep the process alive', () => {
  const script = `
    import { runJob } from ${JSON.stringify(new URL('./run-job.ts', import.meta.url).href)};
    const paths = Buffer.from('b\\0a\\0');
    const found = await runJob('selectPaths', { paths, patterns: ['**'] }, new AbortController().signal);
    console.log(JSON.stringify(found));`;
  const run = ['--input-type=module', '--disable-warning=ExperimentalWarning', '--eval', script];
  expect(execFileSync(process.execPath, run, { encoding: 'utf8', timeout: 30_000 })).toBe('"a\\u0000b"\n');
});
