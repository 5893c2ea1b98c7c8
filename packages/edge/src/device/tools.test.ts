import { chmodSync, mkdirSync, mkdtempSync, realpathSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { processRunner } from './process-runner.ts';
import type { Outcome, Runner, ToolSettings } from './runner.ts';
import { inProcessRunner } from './tools.ts';

let root: string;
const runners: Runner[] = [];

beforeEach(() => {
  root = realpathSync(mkdtempSync(join(tmpdir(), 'treadle-device-')));
  mkdirSync(join(root, 'work'));
});
afterEach(async () => {
  await Promise.all(runners.splice(0).map((one) => one.close()));
  rmSync(root, { recursive: true });
});

const settings = (changed: Partial<ToolSettings> = {}): ToolSettings => ({
  folder: join(root, 'work'),
  capabilities: ['file_read', 'file_write', 'shell', 'git'],
  offer: ['coding', 'packages'],
  skills: [join(root, 'skills')],
  sandboxing: 'none',
  timeoutMs: 30_000,
  rules: {},
  onAsk: 'allow',
  ops: true,
  hide: [join(root, 'work', 'agent')],
  ...changed,
});

function runner(changed: Partial<ToolSettings> = {}, make: (given: ToolSettings) => Runner = inProcessRunner): Runner {
  const made = make(settings(changed));
  runners.push(made);
  return made;
}

function call(on: Runner, tool: string, parameters: object = {}, more: object = {}): Promise<Outcome> {
  const { signal } = new AbortController();
  return on.call({ tool, parameters: { ...parameters }, key: 'r1', timeoutMs: 30_000, signal, ...more }, () => {});
}

/** A package with one tool, whose program is a shell script. */
function addPackage(name: string, toml: string, script: string): void {
  const folder = join(root, 'skills', name);
  mkdirSync(join(folder, 'bin'), { recursive: true });
  writeFileSync(join(folder, 'skill.toml'), `[skill]\nname = "${name}"\nversion = "1.2.0"\ndescription = "x"\n${toml}`);
  writeFileSync(join(folder, 'bin', 'run'), `#!/bin/sh\n${script}\n`);
  chmodSync(join(folder, 'bin', 'run'), 0o755);
}

const TEMPERATURE = `[[tools]]
name = "temperature"
description = "The temperature of the CPU"
binary = "bin/run"
effect = "pure"
timeout_ms = 4000
permissions = ["shell"]
touches = [{ type = "read", path = "/sys/class/thermal" }]
parameters = { type = "object", properties = { unit = { type = "string", enum = ["C", "F"] } } }
`;

describe('what a device offers', () => {
  it('has the built-in tools and those of packages that its capabilities allow', async () => {
    addPackage('pi-tools', TEMPERATURE, 'echo "temp=45.6°C"');
    const { tools, skills, ops, folder, notices } = await runner().describe();
    expect(tools.map(({ name }) => name)).toEqual(
      'read glob grep write edit apply_patch bash git_status git_diff git_log git_commit git_branch temperature'.split(
        ' ',
      ),
    );
    expect(tools.at(-1)).toMatchObject({
      name: 'temperature',
      effect: 'pure',
      timeout_ms: 4_000,
      permissions: ['shell'],
      touches: [{ type: 'read', path: '/sys/class/thermal' }],
      evoclaw: { binary: 'bin/run', skill: 'pi-tools', version: '1.2.0' },
    });
    expect(tools[0]).toMatchObject({ name: 'read', builtin: true, effect: 'pure' });
    expect([skills, ops, folder]).toEqual([
      [{ name: 'pi-tools', version: '1.2.0' }],
      { exec: true },
      join(root, 'work'),
    ]);
    expect(notices).toEqual([
      'There is no sandbox, as the configuration says: programs run with all rights of the agent.',
    ]);
  });

  it('leaves out what its capabilities do not allow, and says what they lack', async () => {
    addPackage('pi-tools', TEMPERATURE, 'echo no');
    const on = runner({ capabilities: ['file_read'] });
    const { tools, ops } = await on.describe();
    expect(tools.map(({ name }) => name)).toEqual(['read', 'glob', 'grep']);
    expect(ops).toEqual({ exec: false });
    expect(await call(on, 'temperature')).toEqual({
      status: 'error',
      error: 'Permission denied (requires: shell).',
      error_type: 'permission_denied',
      requires: ['shell'],
    });
    await expect(on.operate('start', { request: { argv: ['true'] } })).rejects.toThrow('the capability shell');
  });

  it('refuses settings that cannot be meant', async () => {
    await expect(runner({ offer: ['baash'] }).describe()).rejects.toThrow('[tools] offer names baash');
    await expect(runner({ rules: { level: 7 } }).describe()).rejects.toThrow('[policy]');
    await expect(runner({ sandboxing: 'podmann' }).describe()).rejects.toThrow('does not work on this device');
  });
});

describe('a call', () => {
  it('has text, exit code and error type as the design document has them', async () => {
    addPackage('pi-tools', TEMPERATURE, 'echo "temp=45.6°C"');
    const on = runner();
    expect(await call(on, 'temperature', { unit: 'C' })).toEqual({
      status: 'success',
      result: 'temp=45.6°C\n',
      stderr: '',
      exit_code: 0,
    });
    expect(await call(on, 'nothing')).toMatchObject({
      error_type: 'not_found',
      error: expect.stringMatching(/^There is no tool 'nothing'\. Available tools: read, glob, .*temperature\.$/),
    });
    expect(await call(on, 'temperature', { unit: 'K' })).toMatchObject({
      error_type: 'invalid_params',
      error: expect.stringContaining('Optional: unit.'),
    });
    expect(await call(on, 'bash', { command: 'echo oops >&2; exit 3' })).toMatchObject({
      error_type: 'execution_failed',
      exit_code: 3,
      stderr: 'oops\n',
    });
    expect(await call(on, 'bash', { command: 'sleep 60' }, { timeoutMs: 50 })).toMatchObject({ error_type: 'timeout' });
  });

  it('may read outside of the folder, because the orchestrator has decided that', async () => {
    writeFileSync(join(root, 'hostname'), 'raspberrypi\n');
    expect(await call(runner(), 'read', { path: join(root, 'hostname') })).toMatchObject({
      status: 'success',
      result: expect.stringContaining('raspberrypi'),
    });
  });

  it("is refused by the device's own policy, whatever the orchestrator allows", async () => {
    writeFileSync(join(root, 'work', '.env'), 'SECRET=1');
    mkdirSync(join(root, 'work', 'agent'));
    writeFileSync(join(root, 'work', 'agent', 'ledger.jsonl'), 'x');
    const on = runner({ rules: { commands: { deny: ['reboot'] } } });
    expect(await call(on, 'bash', { command: 'reboot now' })).toMatchObject({
      error_type: 'permission_denied',
      requires: ['shell'],
    });
    expect(await call(on, 'bash', { command: 'rm -rf /' })).toMatchObject({ error_type: 'permission_denied' });
    expect(await call(on, 'read', { path: 'agent/ledger.jsonl' })).toMatchObject({
      error: expect.stringContaining("belongs to the device's agent"),
    });
    const strict = runner({ onAsk: 'deny' });
    expect(await call(strict, 'bash', { command: 'touch x' })).toMatchObject({ error_type: 'permission_denied' });
  });

  it('is refused so too if it is a command of a tool of the orchestrator, also in a session', async () => {
    const on = runner({ rules: { commands: { deny: ['factor'] } } });
    const start = (...argv: readonly string[]) => on.operate('start', { request: { argv, writable: true } });
    for (const argv of [
      ['factor', '6'],
      ['bash', '--norc', '-c', '--', 'factor'],
      ['sh', '-c', '--', 'true; factor 6'],
    ])
      await expect(start(...argv)).rejects.toThrow('"factor"');
    const { execution } = await start('bash', '--noprofile', '--norc');
    const say = (text: string) => on.operate('input', { execution, text });
    await expect(say("command eval 'factor' </dev/null\n")).rejects.toThrow('"factor"');
    await say("command eval 'echo it runs' </dev/null\nexit\n");
    const { chunks } = await on.operate('pull', { execution, bytes: 100 });
    expect(JSON.stringify(chunks)).toContain(Buffer.from('it runs\n').toString('base64'));
    const { execution: other } = await start('cat');
    await on.operate('input', { execution: other, text: 'factor' });
  });

  it('is refused so too if the device asks about files, and nobody is there', async () => {
    writeFileSync(join(root, 'outside'), 'x');
    writeFileSync(join(root, 'work', 'inside'), 'x');
    const on = runner({ onAsk: 'deny' });
    for (const [op, args] of [
      ['open', { path: join(root, 'outside') }],
      ['list', { path: root }],
      ['write', { path: 'inside', data: '' }],
      ['remove', { path: 'inside' }],
      ['rename', { from: 'inside', to: 'other' }],
    ] as const)
      await expect(on.operate(op, args), op).rejects.toThrow('nobody is there');
    expect(await on.operate('open', { path: 'inside' })).toMatchObject({ type: 'file' });
    expect(await on.operate('list', { path: '.' })).toMatchObject({ entries: [{}] });
    expect(await runner().operate('open', { path: join(root, 'outside') })).toMatchObject({ type: 'file' });
  });

  it('counts for a rate only if its own policy has one', async () => {
    const outcomes = (on: Runner): Promise<readonly Outcome[]> =>
      Promise.all(Array.from({ length: 12 }, () => call(on, 'glob', { pattern: '*' })));
    const isRefused = ({ error_type: type }: Outcome): boolean => type === 'permission_denied';
    expect((await outcomes(runner())).filter(isRefused)).toEqual([]);
    expect((await outcomes(runner({ rules: { rate: { second: 2 } } }))).filter(isRefused)).not.toEqual([]);
  });

  it('gives a tool the id of the request, and reports what it prints', async () => {
    addPackage('key', TEMPERATURE.replace('temperature', 'key'), 'echo "$TREADLE_CALL_KEY"');
    const printed: unknown[] = [];
    const { signal } = new AbortController();
    const outcome = await runner().call(
      { tool: 'key', parameters: {}, key: 'run_1/t1.tool.0', timeoutMs: 9_000, signal },
      (text) => printed.push(text),
    );
    expect([outcome.result, printed.join('')]).toEqual(['run_1/t1.tool.0\n', 'run_1/t1.tool.0\n']);
  });

  it('returns images as blocks', async () => {
    const png = 'iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg==';
    writeFileSync(join(root, 'work', 'shot.png'), Buffer.from(png, 'base64'));
    const { content } = await call(runner(), 'read', { path: 'shot.png' });
    expect(content).toContainEqual(expect.objectContaining({ type: 'image', mediaType: 'image/png' }));
  });

  it('ends when it is cancelled', async () => {
    const controller = new AbortController();
    const ended = call(runner(), 'bash', { command: 'sleep 60' }, { signal: controller.signal });
    controller.abort();
    expect(await ended).toMatchObject({ status: 'error', error_type: 'cancelled' });
  });
});

describe('in a process of its own', () => {
  it('runs calls, survives the end of that process, and starts it again when it is needed', async () => {
    const on = runner({}, (given) => processRunner(given));
    expect((await on.describe()).tools).toHaveLength(12);
    const printed: unknown[] = [];
    const { signal } = new AbortController();
    const shared = { tool: 'bash', key: 'r', timeoutMs: 20_000, signal };
    expect(
      await on.call({ ...shared, parameters: { command: 'echo hi; echo $PPID > pid' } }, (text) => printed.push(text)),
    ).toMatchObject({ result: 'hi\n' });
    expect(printed).toEqual(['hi\n']);
    // The shell is a child of the process that runs the tools.
    const killed = await on.call({ ...shared, parameters: { command: 'kill -9 $PPID; sleep 5' } }, () => {});
    expect(killed).toMatchObject({ error_type: 'interrupted' });
    expect(await call(on, 'bash', { command: 'echo again' })).toMatchObject({ result: 'again\n' });
    const controller = new AbortController();
    const ended = call(on, 'bash', { command: 'sleep 60' }, { signal: controller.signal });
    controller.abort();
    expect(await ended).toMatchObject({ error_type: 'cancelled' });
    await expect(on.operate('stat', { path: 'missing' })).rejects.toMatchObject({ code: 'ENOENT' });
  });
});
