import { once } from 'node:events';
import { readdir, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { DatabaseSync } from 'node:sqlite';
import { runLoop } from '@treadle/core';
import { scriptedModel } from '@treadle/core/testing';
import type { StoreReport } from '@treadle/store';
import type { Io } from 'treadle';
import { describe, expect, test, vi } from 'vitest';
import { fakeTerminal } from './fake-terminal.ts';
import { command } from './in-process.ts';
import { runsFixture } from './runs-fixture.ts';

const fixture = runsFixture();
const pathOf = (name: string): string => join(fixture.play.folder, name);
const addRun = (runId: string): Promise<unknown> =>
  fixture.inStore((journal) => runLoop({ model: scriptedModel(['Done.']), input: runId, journal, runId }));
const ids = async (): Promise<readonly string[]> => (await fixture.runs()).map(({ runId }) => runId);

function damage(file: string, sql: string): void {
  const db = new DatabaseSync(pathOf(file));
  db.exec(sql);
  db.close();
}

describe('store backup and store restore', () => {
  test('copy the store to a file and back, and keep what was replaced', async () => {
    await addRun('old');
    expect(await fixture.treadle('store', 'backup', 'b.db')).toEqual({
      code: 0,
      stdout: '',
      stderr: `Copied 1 run, 2 entries to ${pathOf('b.db')}\n`,
    });
    await addRun('new');
    const { code, stdout, stderr } = await fixture.treadle('store', 'restore', 'b.db');
    expect([code, stdout]).toEqual([0, '']);
    expect(stderr).toMatch(
      /^Restored 1 run, 2 entries from \S+b\.db\nThe replaced store is kept in \S+\.replaced-\S+Z\n$/,
    );
    expect(await ids()).toEqual(['old']);
    const replaced = (await readdir(pathOf('.treadle'))).find((name) => name.includes('.replaced-'));
    const listed = await fixture.treadle('runs', 'list', '--store', `sqlite:.treadle/${replaced}`);
    expect(listed.stdout).toMatch(/^new {2,}completed/m);
  });

  test('create the store where the configuration says', async () => {
    await addRun('a');
    await fixture.treadle('store', 'backup', 'b.db');
    await fixture.play.write('treadle.toml', '[store]\nurl = "sqlite:data/runs.db"\n');
    expect(await fixture.treadle('store', 'restore', 'b.db')).toMatchObject({ code: 0 });
    expect((await fixture.treadle('runs', 'list', '--store', 'sqlite:data/runs.db')).stdout).toContain('completed');
  });

  test('do not replace a file without --force', async () => {
    await addRun('a');
    await fixture.treadle('store', 'backup', 'b.db');
    await addRun('b');
    const { code, stderr } = await fixture.treadle('store', 'backup', 'b.db');
    expect([code, stderr]).toEqual([2, expect.stringContaining('b.db exists. Choose another name, or replace it')]);
    expect((await fixture.treadle('store', 'backup', 'b.db', '--force')).stderr).toContain('Copied 2 runs');
  });

  test('work while a process drives a run, or refuse', async () => {
    await addRun('a');
    await fixture.script({ hang: 'Hm' });
    const { child } = fixture.start('run', ...fixture.model(), 'go');
    await fixture.server.answered(1);
    expect(await fixture.treadle('store', 'backup', 'b.db')).toMatchObject({ code: 0 });
    const { code, stderr } = await fixture.treadle('store', 'restore', 'b.db');
    expect([code, stderr]).toEqual([
      1,
      expect.stringMatching(/is open in another process, so nothing was replaced\. Stop/),
    ]);
    child.kill('SIGKILL');
    await once(child, 'close');
    expect(await fixture.treadle('store', 'restore', 'b.db')).toMatchObject({ code: 0 });
    const { stdout } = await fixture.treadle('runs', 'list', '--status', 'interrupted', '--json');
    expect(JSON.parse(stdout)).toMatchObject([{ title: 'go', standing: 'interrupted' }]);
  });

  test('report what is damaged with exit code 1', async () => {
    await addRun('a');
    damage('.treadle/treadle.db', 'DELETE FROM entries WHERE seq = 1');
    const { code, stderr } = await fixture.treadle('store', 'backup', 'b.db');
    expect(code).toBe(1);
    expect(stderr).toMatch(
      /^Copied 1 run, 0 entries .*\nThe store is damaged, and so is the copy:\na\n {2}Entry 1 of run "a"/,
    );
    const refused = await fixture.treadle('store', 'restore', 'b.db');
    expect([refused.code, refused.stderr]).toEqual([1, expect.stringMatching(/is damaged, so nothing.*--force/)]);
    expect(await fixture.treadle('store', 'restore', 'b.db', '--force')).toMatchObject({ code: 0 });
  });

  test.each([
    [['backup', 'b.db'], /There are no runs yet: .*treadle\.db does not exist/],
    [['check'], /There are no runs yet/],
    [['backup', 'b.db', '--store', 'memory:'], /A memory: store ends with the command/],
    [['backup'], /treadle store backup needs FILE/],
  ])('%j is a mistake without a store or a file', async (args, message) => {
    const { code, stdout, stderr } = await fixture.treadle('store', ...args);
    expect([code, stdout, stderr]).toEqual([2, '', expect.stringMatching(message)]);
    expect(await readdir(fixture.play.folder)).toEqual(['notes.txt']);
  });
});

describe('on a terminal', () => {
  test('work that takes longer than a second shows its progress', async () => {
    await addRun('a');
    let now = performance.now();
    using _ = vi.spyOn(performance, 'now').mockImplementation(() => (now += 1_001));
    const { exit, screen } = fakeTerminal(['store', 'backup', 'b.db'], fixture.play.folder);
    expect(await exit).toBe(0);
    expect(screen()).toMatch(/Copied 0 of 0 MB.*Checked 1 of 1 runs and responses.*Copied 1 run, 2 entries to/s);
  });

  test('Ctrl-C stops a backup, which leaves nothing behind', async () => {
    await addRun('a');
    const interrupts = new AbortController();
    const io = { onInterrupt: interruptOn(interrupts.signal) };
    const stopped = command(['store', 'backup', 'b.db'], fixture.play.folder, io);
    interrupts.abort();
    expect(await stopped).toEqual({ code: 130, stdout: '', stderr: 'Stopped. Nothing was changed.\n' });
    expect((await readdir(fixture.play.folder)).toSorted()).toEqual(['.treadle', 'notes.txt']);
  });
});

/** Ctrl-C when the signal aborts, or at once if it has. */
function interruptOn(signal: AbortSignal): Io['onInterrupt'] {
  return (listener) => {
    if (signal.aborted) listener();
    else signal.addEventListener('abort', listener);
    return () => signal.removeEventListener('abort', listener);
  };
}

describe('store check', () => {
  test('exits with 0 if everything is intact', async () => {
    await addRun('a');
    expect(await fixture.treadle('store', 'check')).toEqual({
      code: 0,
      stdout: '',
      stderr: 'Checked 1 run, 2 entries: no problems.\n',
    });
  });

  test('lists the problems by run and exits with 1', async () => {
    await addRun('a');
    await addRun('b');
    damage('.treadle/treadle.db', 'DELETE FROM entries WHERE run = 1 AND seq = 1');
    const { code, stdout, stderr } = await fixture.treadle('store', 'check');
    expect([code, stderr]).toEqual([1, 'Checked 2 runs, 2 entries: 1 problem.\n']);
    expect(stdout).toMatch(
      /^a\n {2}Entry 1 of run "a" is missing.* or delete the run; other runs are not affected\.\n$/,
    );
    const json = await fixture.treadle('store', 'check', '--json');
    expect(json.code).toBe(1);
    expect(JSON.parse(json.stdout) as StoreReport).toMatchObject({
      runs: 2,
      problems: [{ part: 'entries', runId: 'a', message: expect.any(String) }],
    });
  });

  test('rejects a file that is not a store', async () => {
    await writeFile(pathOf('x.db'), 'no database at all, but long enough to look at '.repeat(20));
    const { code, stderr } = await fixture.treadle('store', 'check', '--store', 'sqlite:x.db');
    expect([code, stderr]).toEqual([1, expect.stringContaining('is not an SQLite database')]);
  });
});
