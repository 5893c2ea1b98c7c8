import { afterEach, beforeEach, describe, expect, test } from 'vitest';
import { playground, type Playground } from './playground.ts';
import { stopLeftovers, treadle } from './treadle-process.ts';

let play: Playground;

beforeEach(async () => {
  play = await playground();
});
afterEach(async () => {
  stopLeftovers();
  await play.remove();
});

describe('without a key and without a configuration', () => {
  test('treadle run: the demo model reads the file and says what it is', async () => {
    const { code, stdout, stderr } = await treadle(['run', 'Read notes.txt'], { cwd: play.folder, stdin: '' }).ended;
    expect(code).toBe(0);
    expect(stdout).toContain(play.nonce);
    expect(stderr).toContain('demo model');
    expect(stderr).toContain('OPENAI_API_KEY');
    expect(stderr).toContain('#1 read ');
  });

  test('treadle chat: the demo model reads the file and says what it is, over a pipe', async () => {
    const { code, stdout, stderr } = await treadle(['chat'], { cwd: play.folder, stdin: 'Read notes.txt\n' }).ended;
    expect(code).toBe(0);
    expect(stdout).toMatch(/^Treadle .* demo/);
    expect(stdout).toContain(play.nonce);
    expect(stderr).toContain('demo model');
  });
});

test('treadle chat with empty input prints its greeting and exits with 0', async () => {
  const { code, stdout } = await treadle(['chat'], { cwd: play.folder, stdin: '' }).ended;
  expect([code, stdout.split('\n').length]).toEqual([0, 2]);
});
