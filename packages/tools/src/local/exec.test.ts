import { execFileSync, spawnSync } from 'node:child_process';
import {
  existsSync,
  mkdirSync,
  mkdtempSync,
  readdirSync,
  readFileSync,
  realpathSync,
  rmSync,
  writeFileSync,
} from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { afterEach, beforeEach, expect, test } from 'vitest';
import { DeniedError } from '../denied.ts';
import type { ExecRequest, Execution, Ops } from '../ops.ts';
import { programEnvironment } from './environment.ts';
import { local } from './local.ts';

let folder: string;
let ops: Ops;
const started: Execution[] = [];
const ON_LINUX = process.platform === 'linux';

beforeEach(() => {
  folder = realpathSync(mkdtempSync(join(tmpdir(), 'treadle-exec-')));
  ops = local(folder);
});
afterEach(async () => {
  await Promise.all(started.splice(0).map((execution) => execution.kill()));
  rmSync(folder, { recursive: true });
});

async function start(argv: ExecRequest['argv'], request: Partial<ExecRequest> = {}): Promise<Execution> {
  const execution = await ops.exec.start({ argv, ...request });
  started.push(execution);
  return execution;
}

const sh = (script: string, request: Partial<ExecRequest> = {}): Promise<Execution> =>
  start(['sh', '-c', script], request);

async function textOf({ output }: Execution): Promise<string> {
  let text = '';
  for await (const { stream, bytes } of output)
    text += `${stream === 'stderr' ? '!' : ''}${Buffer.from(bytes).toString()}`;
  return text;
}

/** A zombie has ended. */
function isAlive(pid: number): boolean {
  const stat = `/proc/${pid}/stat`;
  if (!existsSync(stat)) return false;
  const text = readFileSync(stat, 'utf8');
  return text[text.lastIndexOf(')') + 2] !== 'Z';
}

test('starts a program without a shell, in the folder, and returns its output and exit code', async () => {
  const execution = await start(['printf', '%s', '$HOME; rm *']);
  expect(await textOf(execution)).toBe('$HOME; rm *');
  expect(await execution.exit).toEqual({ exitCode: 0, signal: undefined });
  const other = await sh('pwd; echo oops >&2; exit 3');
  const text = await textOf(other);
  expect(text).toContain(`${folder}\n`);
  expect(text).toContain('!oops\n');
  expect(await other.exit).toEqual({ exitCode: 3, signal: undefined });
  expect(await (await sh('kill -9 $$')).exit).toEqual({ exitCode: undefined, signal: 'SIGKILL' });
});

test('gives a program an empty input and no terminal, or the input that is written', async () => {
  expect(await textOf(await sh('cat; (: </dev/tty) 2>/dev/null || echo none'))).toBe('none\n');
  const writable = await start(['cat'], { writable: true });
  await writable.write('hello');
  writable.endInput();
  expect(await textOf(writable)).toBe('hello');
  await writable.exit;
  await expect(writable.write('late')).rejects.toThrow('does not read its input any more');
});

test('a program waits while nobody reads its output', async () => {
  const execution = await sh('head -c 1000000 /dev/zero; echo done > done');
  const reader = execution.output[Symbol.asyncIterator]();
  let bytes = (await reader.next()).value!.bytes.length;
  await sleep(50);
  expect(existsSync(join(folder, 'done'))).toBe(false);
  for (let next = await reader.next(); !next.done; next = await reader.next()) bytes += next.value.bytes.length;
  expect(bytes).toBe(1_000_000);
  expect(await execution.exit).toMatchObject({ exitCode: 0 });
});

test('the output ends soon after the exit, even if another process keeps it open or writes without end', async () => {
  const quiet = await sh('sleep 1000 & echo $!');
  const pid = Number(await textOf(quiet));
  expect(await quiet.exit).toMatchObject({ exitCode: 0 });
  expect(isAlive(pid)).toBe(ON_LINUX);
  await quiet.kill();
  expect(isAlive(pid)).toBe(false);

  const loud = await sh('yes & sleep 0.1');
  let length = 0;
  for await (const { bytes } of loud.output) length += bytes.length;
  expect(length).toBeGreaterThan(0);
});

/** Each starts a process that tries to survive, and prints its pid. */
const ESCAPES = [
  // in the background
  'sleep 1000 & echo $!',
  // ignores signals
  `sh -c 'trap "" TERM HUP INT; while :; do sleep 1000; done' & echo $!`,
  // in another session
  'setsid sleep 1000 & echo $!',
  // left the session and its parent
  `(setsid sh -c 'echo $$; exec sleep 1000' &)`,
  // and has closed its output
  `(setsid sh -c 'echo $$; exec sleep 1000 >/dev/null 2>&1 </dev/null' &)`,
  // has another environment
  'env -i sleep 1000 >/dev/null 2>&1 & echo $!',
  // is in another session, and has another environment, and the output
  `(setsid env -i sh -c 'echo $$; exec sleep 1000' &)`,
  // and has closed its output too
  `(setsid env -i sh -c 'echo $$; exec sleep 1000 >/dev/null 2>&1 </dev/null' &)`,
];

test.runIf(ON_LINUX).each([
  ['runs', '; sleep 1000'],
  ['has exited', ''],
])('kills all descendants while the program %s', async (_, last) => {
  const execution = await sh(ESCAPES.join('; ').replaceAll('&;', '&') + last);
  let text = '';
  for await (const { bytes } of execution.output) {
    text += Buffer.from(bytes).toString();
    if (text.split('\n').length > ESCAPES.length) break;
  }
  const pids = text.trim().split('\n').map(Number);
  if (last === '') await execution.exit;
  expect(pids.map(isAlive)).toEqual(ESCAPES.map(() => true));
  await execution.kill();
  expect(pids.map(isAlive)).toEqual(ESCAPES.map(() => false));
  await execution.exit;
});

test.runIf(ON_LINUX)('kills by a mark what was started with it, and nothing else', async () => {
  const marked = await sh('(setsid env -i sleep 1000 >/dev/null 2>&1 & echo $!); sleep 1000', { mark: 'abc1' });
  const other = await sh('echo started; sleep 1000', { mark: 'abc' });
  let escaped = 0;
  for await (const { bytes } of marked.output) {
    escaped = Number(Buffer.from(bytes).toString());
    break;
  }
  for await (const _ of other.output) break;
  expect(isAlive(escaped)).toBe(true);
  await ops.exec.killMarked('abc1');
  expect(await marked.exit).toMatchObject({ signal: 'SIGKILL' });
  expect([isAlive(escaped), isAlive(other.process.pid)]).toEqual([false, true]);
});

test.runIf(ON_LINUX)('programs are killed when the process that has started them exits', async () => {
  const script = `
    import { local } from ${JSON.stringify(new URL('local.ts', import.meta.url).href)};
    const { exec } = local('.');
    const execution = await exec.start({ argv: ['sh', '-c', '(setsid sleep 1000 & echo $!); echo $$; exec sleep 1000'] });
    let text = '';
    for await (const { bytes } of execution.output) {
      text += Buffer.from(bytes).toString();
      if (text.split('\\n').length > 2) break;
    }
    process.stdout.write(text, () => process.exit(0));`;
  const args = ['--conditions=treadle-source', '--input-type=module', '-e', script];
  const { stdout, stderr } = spawnSync(process.execPath, args, { encoding: 'utf8', cwd: folder });
  expect([stderr, stdout]).toEqual(['', expect.stringMatching(/^\d+\n\d+\n$/)]);
  // The process does not wait for their end.
  await expect.poll(() => stdout.trim().split('\n').map(Number).map(isAlive)).toEqual([false, false]);
});

test('checks the folder that a program runs in', async () => {
  mkdirSync(join(folder, 'sub'));
  writeFileSync(join(folder, 'file'), '');
  expect(await textOf(await sh('pwd', { workdir: 'sub' }))).toBe(`${folder}/sub\n`);
  await expect(sh('pwd', { workdir: '..' })).rejects.toThrow(DeniedError);
  await expect(sh('pwd', { workdir: 'missing' })).rejects.toMatchObject({ code: 'ENOENT' });
  await expect(sh('pwd', { workdir: 'file' })).rejects.toMatchObject({ code: 'ENOTDIR' });
  await expect(start(['no-such-program'])).rejects.toMatchObject({ code: 'ENOENT', path: 'no-such-program' });
  await expect(start(['printf', '\0'])).rejects.toMatchObject({ code: 'ERR_INVALID_ARG_VALUE' });
  const gone = local(join(folder, 'gone')).exec;
  await expect(gone.start({ argv: ['pwd'] })).rejects.toThrow('There is no folder');
});

test.runIf(ON_LINUX)('keeps no files open after programs that do not start or whose output nobody reads', async () => {
  const open = (): number => readdirSync('/proc/self/fd').length;
  const before = open();
  for (let i = 0; i < 20; i++) {
    await expect(start(['no-such-program'])).rejects.toThrow('ENOENT');
    await expect(start(['printf', '\0'])).rejects.toThrow('null bytes');
  }
  await (await start(['true'])).kill();
  // Some pipes are kept for the next programs.
  expect(open() - before).toBeLessThanOrEqual(32);
});

test('programs get no secrets, and need no terminal', async () => {
  const given = {
    PATH: '/bin',
    HOME: '/home/ada',
    SSH_AUTH_SOCK: '/tmp/agent',
    HTTPS_PROXY: 'http://me:pw@proxy',
    OPENAI_API_KEY: 'x',
    GITHUB_TOKEN: 'x',
    AWS_SECRET_ACCESS_KEY: 'x',
    AWS_ACCESS_KEY_ID: 'x',
    DB_PASSWORD: 'x',
    PGPASSWORD: 'x',
    DATABASE_URL: 'postgres://ada:pw@db/x',
    GITHUB_PAT: 'x',
    MYSQL_PWD: 'x',
    DOCKER_AUTH_CONFIG: 'x',
    'npm_config_//npm.example/:_authToken': 'x',
    SLACK_WEBHOOK_URL: 'x',
    SENTRY_DSN: 'x',
    AZURE_STORAGE_CONNECTION_STRING: 'x',
    MYPASS: 'x',
    SIGNING: 'x',
    COSIGN_PASSPHRASE: 'x',
    DEPLOYKEY: 'x',
    GIT_CONFIG_COUNT: '1',
    GIT_CONFIG_KEY_0: 'http.extraheader',
    GIT_CONFIG_VALUE_0: 'x',
    // The names do not tell.
    MINE: `ghp_${'x'.repeat(36)}`,
    STRIPE: `sk_live_${'x'.repeat(24)}`,
    SIGNER: '-----BEGIN RSA PRIVATE KEY-----',
    BASH_ENV: '/tmp/evil',
    'BASH_FUNC_ls%%': '() { rm; }',
    KEYBOARD: 'us',
    TOKENIZERS_PARALLELISM: 'false',
    OLDPWD: '/tmp/desk-sk-1234567890abcdef',
    GIT_AUTHOR_NAME: 'Ada',
    XAUTHORITY: '/tmp/.Xauthority',
    COMPAT: '1',
  };
  const { PATH, HOME, SSH_AUTH_SOCK, HTTPS_PROXY, KEYBOARD, TOKENIZERS_PARALLELISM } = given;
  const { OLDPWD, GIT_AUTHOR_NAME, XAUTHORITY, COMPAT } = given;
  expect(programEnvironment(given)).toEqual({
    PATH,
    HOME,
    SSH_AUTH_SOCK,
    HTTPS_PROXY,
    KEYBOARD,
    TOKENIZERS_PARALLELISM,
    OLDPWD,
    GIT_AUTHOR_NAME,
    XAUTHORITY,
    COMPAT,
    TERM: 'dumb',
    PAGER: 'cat',
    GIT_PAGER: 'cat',
    GIT_EDITOR: 'true',
    GIT_TERMINAL_PROMPT: '0',
    GIT_CONFIG_COUNT: '8',
    GIT_CONFIG_KEY_0: 'safe.bareRepository',
    GIT_CONFIG_VALUE_0: 'explicit',
    GIT_CONFIG_KEY_1: 'core.fsmonitor',
    GIT_CONFIG_VALUE_1: 'false',
    GIT_CONFIG_KEY_2: 'core.hooksPath',
    GIT_CONFIG_VALUE_2: '/dev/null',
    GIT_CONFIG_KEY_3: 'core.pager',
    GIT_CONFIG_VALUE_3: 'cat',
    GIT_CONFIG_KEY_4: 'diff.ignoreSubmodules',
    GIT_CONFIG_VALUE_4: 'dirty',
    GIT_CONFIG_KEY_5: 'diff.submodule',
    GIT_CONFIG_VALUE_5: 'short',
    GIT_CONFIG_KEY_6: 'status.submoduleSummary',
    GIT_CONFIG_VALUE_6: 'false',
    GIT_CONFIG_KEY_7: 'submodule.recurse',
    GIT_CONFIG_VALUE_7: 'false',
  });
  const { exec } = local(folder, { env: { PATH: process.env['PATH']!, ONLY: 'this' } });
  const execution = await exec.start({ argv: ['env'], env: { ADDED: 'that' } });
  const text = await textOf(execution);
  expect(text.split('\n').map((line) => line.replace(/^(TREADLE_PROCESS_).*/, '$1'))).toEqual(
    expect.arrayContaining(['ONLY=this', 'ADDED=that', 'TREADLE_PROCESS_']),
  );
  expect(text).not.toContain('HOME');
});

test('git runs nothing that a file of the folder names', async () => {
  const git = (command: string, env: Record<string, string> = {}): string =>
    execFileSync('sh', ['-c', command], { cwd: folder, encoding: 'utf8', env: { PATH: process.env['PATH']!, ...env } });
  const user = 'git -c user.name=a -c user.email=a@example.com';
  git('git init -q . && git init -q --bare src && printf "#!/bin/sh\\ntouch ran\\n" > evil && chmod +x evil');
  git('cp evil .git/hooks/pre-commit && git -C src config core.fsmonitor "touch $PWD/ran; false" && mkdir src/w');
  git('git -C src config core.bare false && git -C src config core.worktree w');
  const safe = programEnvironment({ PATH: process.env['PATH'] });
  git(`${user} commit -q --allow-empty -m x; cd src && git status; :`, safe);
  expect(existsSync(join(folder, 'ran'))).toBe(false);
  git(`${user} commit -q --allow-empty -m x`);
  expect(existsSync(join(folder, 'ran'))).toBe(true);
});

test('has the ripgrep of the package', async () => {
  const { ripgrep } = ops.exec;
  expect(await textOf(await start([ripgrep!, '--no-config', '--version']))).toMatch(/^ripgrep \d+/);
});
