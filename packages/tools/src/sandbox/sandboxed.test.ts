import { mkdirSync, mkdtempSync, readFileSync, realpathSync, rmSync, writeFileSync, existsSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { needs } from '../../../../test/needs.ts';
import { local } from '../local/local.ts';
import type { ExecOps, Room } from '../ops.ts';
import { installedEngine } from './engines.ts';
import { sandboxed } from './sandboxed.ts';

const engine = installedEngine('bubblewrap');

let folder: string;
beforeEach(() => {
  folder = realpathSync(mkdtempSync(join(tmpdir(), 'treadle-sandboxed-')));
});
afterEach(() => rmSync(folder, { recursive: true, force: true }));

describe.runIf(needs('bubblewrap', engine !== undefined))('sandboxed', () => {
  const opened = (options = {}): ExecOps => sandboxed(local(folder), engine!, options).exec;

  async function run(
    exec: ExecOps,
    script: string,
    room?: Room,
  ): Promise<{ text: string; exitCode: number | undefined }> {
    const execution = await exec.start({ argv: ['bash', '-c', script], ...(room && { room }) });
    let text = '';
    for await (const { bytes } of execution.output) text += Buffer.from(bytes).toString();
    return { text, exitCode: (await execution.exit).exitCode };
  }

  it('runs a program in the folder, and returns its output and exit code', async () => {
    writeFileSync(join(folder, 'a.txt'), 'text');
    expect(await run(opened(), 'cat a.txt; echo >b.txt; exit 7')).toEqual({ text: 'text', exitCode: 7 });
    expect(existsSync(join(folder, 'b.txt'))).toBe(true);
  });

  it('shares /tmp, the home folder and the loopback within a room only', async () => {
    const exec = opened();
    const [room, other] = await Promise.all([exec.sandbox!.openRoom(), exec.sandbox!.openRoom()]);
    const show = 'echo $(ls -A /tmp | wc -l) $(test -e ~/b && echo home) $(readlink /proc/self/ns/net)';
    const here = await run(exec, `touch /tmp/a ~/b; ${show}`, room);
    expect(await run(exec, show, room)).toEqual(here);
    expect((await run(exec, show, other)).text).not.toContain('home');
    await room.close();
    await expect(run(exec, 'true', room)).rejects.toThrow('closed');
    await other.close();
  });

  it('is busy while a program runs in the room', async () => {
    const exec = opened();
    const room = await exec.sandbox!.openRoom();
    const execution = await exec.start({ argv: ['cat'], writable: true, room });
    expect(room.isBusy()).toBe(true);
    execution.endInput();
    await execution.exit;
    expect(room.isBusy()).toBe(false);
    await room.close();
  });

  it('shows a private file that is exposed', async () => {
    mkdirSync(join(folder, 'sub'));
    for (const name of ['.npmrc', 'sub/.npmrc', '.env']) writeFileSync(join(folder, name), name);
    const exec = opened({ expose: ['.npmrc'] });
    expect((await run(exec, 'cat .npmrc; cat sub/.npmrc .env 2>/dev/null')).text).toBe('.npmrc');
  });

  it('renames a configuration that a program creates, and says so', async () => {
    const { text } = await run(opened(), 'echo x >treadle.toml');
    expect(text).toContain('commands may not create treadle.toml');
    expect(existsSync(join(folder, 'treadle.toml'))).toBe(false);
    expect(readFileSync(join(folder, 'treadle.toml.blocked'), 'utf8')).toBe('x\n');
  });

  it('reports a missing program as it is reported without a sandbox', async () => {
    await expect(opened().start({ argv: ['treadle-missing-program'] })).rejects.toMatchObject({ code: 'ENOENT' });
  });

  it('refuses a folder that contains the home folder', () => {
    expect(() => sandboxed(local(folder), engine!, { home: join(folder, 'me') })).toThrow('cannot protect');
    expect(() => sandboxed(local('/'), engine!)).toThrow('cannot protect');
  });

  it('kills everything that a program has started', async () => {
    const execution = await opened().start({ argv: ['bash', '-c', 'setsid sleep 4321 & echo started; sleep 4321'] });
    for await (const { bytes } of execution.output) {
      if (Buffer.from(bytes).toString().includes('started')) break;
    }
    await execution.kill();
    expect((await execution.exit).signal).toBe('SIGKILL');
  });

  it('says what it may have stopped', () => {
    const { blocked } = opened().sandbox!;
    expect(blocked('curl: (6) Could not resolve host: example.com')).toContain('there is no network');
    expect(blocked('touch: cannot touch /etc/x: Read-only file system')).toContain('can be written');
    expect(blocked('1 test failed')).toBeUndefined();
  });
});
