import { readFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { afterEach, describe, expect, test } from 'vitest';
import { command } from './in-process.ts';
import { stopLeftovers, treadle, type Ended } from './treadle-process.ts';

afterEach(stopLeftovers);

const RUNS = 'list show resume cancel fork replay diff export import delete prune'.split(' ');

const run = (...args: string[]): Promise<Ended> => treadle(args, { cwd: tmpdir(), stdin: '' }).ended;

describe('help', () => {
  test.each([[['--help']], [['-h']], [['help']]])('%j lists the commands', async (args) => {
    const { code, stdout, stderr } = await run(...args);
    expect([code, stderr]).toEqual([0, '']);
    expect(stdout).toMatch(/^Usage: treadle <command>/);
    expect(stdout).toMatch(/^ {2}run {2,}\S/m);
    expect(stdout).toMatch(/^ {2}chat {2,}\S/m);
    expect(stdout).toMatch(/^ {2}serve {2,}\S/m);
  });

  test.each([[['run', '--help']], [['help', 'run']]])('%j lists the flags and exit codes', async (args) => {
    const { code, stdout } = await command(args, tmpdir());
    expect(code).toBe(0);
    for (const flag of [
      'model',
      'base-url',
      'config',
      'cwd',
      'max-turns',
      'finish',
      'tools',
      'ask',
      'yes',
      'no-agents-md',
      'store',
      'json',
      'quiet',
      'help',
    ]) {
      expect(stdout).toContain(` --${flag}`);
    }
    for (const exit of [0, 1, 2, 3, 4, 130]) expect(stdout).toMatch(new RegExp(`^ {2}${exit} +\\S`, 'm'));
    for (const line of stdout.split('\n')) expect(line.length).toBeLessThanOrEqual(120);
  });
});

test.each([
  ['serve', ['host', 'port', 'model', 'base-url', 'store', 'config', 'cwd', 'help']],
  ['store check', ['json', 'store', 'config', 'cwd', 'help']],
  ['policy explain', ['touch', 'key', 'json', 'config', 'cwd', 'help'], ' TOOL [JSON]'],
  ['policy check', ['json', 'cwd', 'help'], ' [FILE]'],
  ['tools list', ['json', 'config', 'cwd', 'help']],
  ['tools show', ['json', 'config', 'cwd', 'help'], ' TOOL'],
  ['tools call', ['yes', 'json', 'log', 'config', 'cwd', 'help'], ' TOOL [JSON]'],
  ['key new', ['name', 'tenant', 'scope', 'help']],
])('%s --help', async (name, flags, given = '') => {
  const { code, stdout, stderr } = await command([...name.split(' '), '--help'], tmpdir());
  expect([code, stderr]).toEqual([0, '']);
  expect(stdout.startsWith(`Usage: treadle ${name}${given} [flags]\n`)).toBe(true);
  for (const flag of flags) expect(stdout).toContain(` --${flag}`);
  for (const line of stdout.split('\n')) expect(line.length).toBeLessThanOrEqual(120);
});

test.each(['backup', 'restore'])('store %s --help', async (name) => {
  const { code, stdout } = await command(['store', name, '--help'], tmpdir());
  expect(code).toBe(0);
  expect(stdout).toMatch(new RegExp(`^Usage: treadle store ${name} FILE \\[flags\\]\\n`));
  for (const line of stdout.split('\n')) expect(line.length).toBeLessThanOrEqual(120);
});

describe('help on runs', () => {
  test.each([[['runs', '--help']], [['runs', '-h']], [['runs', 'help']], [['help', 'runs']]])(
    '%j lists the commands',
    async (args) => {
      const { code, stdout, stderr } = await command(args, tmpdir());
      expect([code, stderr]).toEqual([0, '']);
      for (const name of RUNS) expect(stdout).toMatch(new RegExp(`^  runs ${name} `, 'm'));
    },
  );

  test.each(RUNS)('runs %s --help', async (name) => {
    const { code, stdout } = await command(['runs', name, '--help'], tmpdir());
    expect(code).toBe(0);
    expect(stdout).toMatch(new RegExp(`^Usage: treadle runs ${name}.* \\[flags\\]\\n`));
    expect(stdout).toContain(' --store URL');
    expect((await command(['help', 'runs', name], tmpdir())).stdout).toBe(stdout);
    for (const line of stdout.split('\n')) expect(line.length).toBeLessThanOrEqual(120);
  });

  test('runs without a command shows the help on standard error', async () => {
    const { code, stdout, stderr } = await command(['runs'], tmpdir());
    expect([code, stdout]).toEqual([2, '']);
    expect(stderr).toMatch(/^Usage: treadle runs <command>/);
  });
});

test('--version prints the version of the package', async () => {
  const file = readFileSync(new URL('../../packages/treadle/package.json', import.meta.url), 'utf8');
  expect(await run('--version')).toMatchObject({ code: 0, stdout: `${JSON.parse(file).version}\n` });
});

describe('mistakes exit with 2 and an error on standard error', () => {
  test.each([
    [[], /^Usage: treadle/],
    [
      ['chta'],
      /^treadle: There is no command "chta"\. Did you mean "chat"\? Commands: serve, run, chat, init, doctor, runs, trace, status, metrics, logs, memory, budgets, store, tools, skills, agents, workflow, schedule, edge, mcp, policy, models, key, completion\./,
    ],
    [['--verison'], /^treadle: --verison is not a command\. Did you mean "--version"\?/],
    [['run', '--modle', 'x', 'task'], /^treadle: treadle run has no flag --modle\. Did you mean "--model"\?/],
    [['run', '--finish=maybe', 'task'], /It takes plain or confirm/],
    [['run', '   '], /The task is empty/],
    [['run'], /The task is empty/],
    [['run', '--cwd', '/nothing/here', 'task'], /--cwd \/nothing\/here is not a folder/],
    [['run', '--config', 'missing.toml', 'task'], /missing\.toml cannot be read/],
    [['run', '--model', 'gpt-x', 'task'], /There is no key for gpt-x: set the environment variable OPENAI_API_KEY/],
    [['run', '--model', 'm', '--base-url', 'http://u:p@localhost/v1', 'task'], /"baseURL" holds a password/],
    [['chat', 'words'], /takes no argument/],
    [['serve', 'words'], /takes no argument/],
    [['serve', '--port', '65536'], /--port cannot be "65536"\. It takes a whole number from 0 to 65535/],
    [['serve', '--host', 'http://x'], /--host cannot be "http:\/\/x"\. It takes a host such as 127\.0\.0\.1/],
    [['key'], /^Usage: treadle key <command>/],
    [
      ['key', 'new', '--scope', 'all'],
      /--scope cannot be "all"\. It takes agents:invoke, agents:invoke:NAME, agents:write, tools:execute, tools:execute:TOOL, runs:read, runs:write, chat:read, chat:write, metrics:read, logs:read, memory:read or memory:write\./,
    ],
    [['key', 'new', '--name', 'a b'], /--name cannot be "a b"\. It takes at most 64 letters/],
  ])('%j', async (args, message) => {
    const { code, stdout, stderr } = await command(args, tmpdir());
    expect(stderr).toMatch(message);
    expect(stderr).not.toMatch(/\n {4}at /);
    expect([code, stdout]).toEqual([2, '']);
  });
});
