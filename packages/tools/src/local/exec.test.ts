import { execFileSync, spawnSync } from 'node:child_process';
import { existsSync, mkdtempSync, readdirSync, realpathSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, beforeEach, describe, expect, test } from 'vitest';
import type { ExecRequest, Execution, Ops } from '../ops.ts';
import { execContract, isAlive, outputText } from '../testing/ops-contract.ts';
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

describe('programs of this machine', () => {
  execContract({ test, beforeEach, afterEach }, (place) => local(place));
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

test('refuses words with NUL, and a folder that does not exist', async () => {
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
  const text = await outputText(execution);
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
  expect(await outputText(await start([ripgrep!, '--no-config', '--version']))).toMatch(/^ripgrep \d+/);
});
