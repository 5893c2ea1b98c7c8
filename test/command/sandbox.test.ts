import { mkdirSync, mkdtempSync, realpathSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, beforeEach, describe, expect, test } from 'vitest';
import { installedEngine } from '@treadle/tools/sandbox';
import { needs } from '../needs.ts';
import { useDisk } from '../on-disk.ts';
import { fakeTerminal } from './fake-terminal.ts';
import { command, type Printed } from './in-process.ts';
import { scriptedOpenAi, type Step } from './scripted-openai.ts';

useDisk();

let folder: string;
beforeEach(() => {
  folder = realpathSync(mkdtempSync(join(tmpdir(), 'treadle-command-sandbox-')));
});
afterEach(() => rmSync(folder, { recursive: true, force: true }));

const configured = (toml: string): void => writeFileSync(join(folder, 'treadle.toml'), toml);
/** Without what the helper removes, so that the line about the sandbox is seen. */
const run = (script: string, more: object = {}): Promise<Printed> =>
  command(['tools', 'call', 'bash', '--yes', JSON.stringify({ command: script, ...more })], folder);

/** A scripted model, and the flags that name it. */
async function scripted(...steps: readonly Step[]): Promise<AsyncDisposable & { readonly flags: readonly string[] }> {
  const { baseURL, close } = await scriptedOpenAi(steps);
  return { flags: ['--model', 'scripted', '--base-url', baseURL], [Symbol.asyncDispose]: close };
}

test('keys that name no engine, tool or promise are refused', async () => {
  for (const [toml, problem] of [
    [
      '[orchestrator.tools]\nsandbox_engine = "docker"',
      'must be one of auto, bubblewrap, firejail, podman, seatbelt, none',
    ],
    ['[orchestrator.tools.sandboxing]\nread = "none"', 'orchestrator.tools.sandboxing.read is not known'],
    ['[policy.sandbox]\nrequire = ["netwerk"]', 'Did you mean network?'],
    ['[policy.sandbox]\nexpose = true', 'policy.sandbox.expose'],
    ['[mcp.servers.a]\nurl = "https://example.com"\nsandbox = true', 'sandbox is only for servers with command'],
  ] as const) {
    configured(toml);
    const { code, stderr } = await run('true');
    expect([code, stderr]).toEqual([2, expect.stringContaining(problem)]);
  }
});

test('an engine that is named and does not work is an error', async () => {
  // Firejail filters no hosts, and no engine works on both systems.
  for (const engine of ['firejail', process.platform === 'darwin' ? 'bubblewrap' : 'seatbelt']) {
    configured(`[orchestrator.tools]\nsandbox_engine = "${engine}"\n[policy.sandbox]\nrequire = ["hosts"]`);
    const { code, stderr } = await run('true');
    expect(code).toBe(2);
    expect(stderr).toContain(`orchestrator.tools.sandbox_engine is "${engine}", which cannot be used here.`);
  }
});

describe.runIf(needs('bubblewrap', installedEngine('bubblewrap') !== undefined))('with bubblewrap', () => {
  beforeEach(() => mkdirSync(join(folder, '.git', 'hooks'), { recursive: true }));

  test('a command runs inside, and an error says what may have been stopped', async () => {
    const { stderr, stdout } = await run('touch /usr/x');
    expect(stdout).toBe('');
    expect(stderr).toContain('Read-only file system');
    expect(stderr).toContain('The sandbox may have stopped this');
    expect(stderr).toContain('outside: "why it is needed"');
  });

  test('private paths of the configuration are hidden', async () => {
    configured('[policy.private]\npaths = ["local.json"]');
    for (const name of ['local.json', '.env.example']) writeFileSync(join(folder, name), name);
    expect((await run('cat .env.example; cat ./local* 2>/dev/null || true')).stdout).toBe('.env.example\n');
  });

  test('a run that was paused without a sandbox is resumed inside one, with the other parameters of bash', async () => {
    configured('[orchestrator.tools]\nenable_sandboxing = false');
    const calling = (input: object): Step => ({ calls: [{ name: 'bash', arguments: JSON.stringify(input) }] });
    await using model = await scripted(
      calling({ command: 'ls -d /sys' }),
      calling({ command: 'ls -d /sys', outside: 'to compare' }),
      { text: ['Done.'] },
    );
    const first = fakeTerminal(['run', 'go', ...model.flags], folder);
    await first.shows('Allow it?');
    first.type('\u0003');
    expect(await first.exit).toBe(130);
    configured('');
    const second = fakeTerminal(['runs', 'resume', 'run_', ...model.flags], folder);
    await second.shows('Allow it?');
    second.type('y\r');
    await second.shows('[exit code 2]');
    await second.shows('Allow it?');
    second.type('y\r');
    await second.shows('returned: /sys');
    await second.shows('Done.');
    expect(await second.exit).toBe(0);
  });

  test('a run that was paused inside a sandbox is resumed without one only if that is accepted', async () => {
    const ask = {
      calls: [{ name: 'bash', arguments: JSON.stringify({ command: 'ls -d /sys', outside: 'to compare' }) }],
    };
    await using model = await scripted(ask, { text: ['Done.'] });
    const first = fakeTerminal(['run', 'go', ...model.flags], folder);
    await first.shows('Allow it?');
    first.type('\u0003');
    expect(await first.exit).toBe(130);
    configured('[orchestrator.tools]\nenable_sandboxing = false');
    const second = fakeTerminal(['runs', 'resume', 'run_', ...model.flags], folder);
    await second.shows('"bash" has a different parameters');
    expect(await second.exit).toBe(2);
  });

  test('a call with outside runs outside', async () => {
    expect((await run('ls -d /sys', { outside: 'to compare' })).stdout).toBe('/sys\n');
    expect((await run('ls -d /sys')).stdout).toBe('');
  });

  test('none and enable_sandboxing = false say what that means', async () => {
    for (const toml of ['sandbox_engine = "none"', 'enable_sandboxing = false']) {
      configured(`[orchestrator.tools]\n${toml}`);
      let written = '';
      const stderr = { write: (text: string) => (written += text) };
      const args = ['tools', 'call', 'bash', '--yes', '{"command":"true"}'];
      await command(args, folder, {
        stderr: Object.assign(new (await import('node:stream')).PassThrough(), stderr),
      }).catch(() => {});
      expect(written).toContain('No sandbox, as treadle.toml says. Commands run with all your rights');
    }
  }, 20_000);

  test('an exposed file can be read, and one tool can have another engine', async () => {
    writeFileSync(join(folder, '.npmrc'), 'registry');
    configured('[policy.sandbox]\nexpose = [".npmrc"]\n[orchestrator.tools.sandboxing]\ngit = "none"');
    expect((await run('cat .npmrc')).stdout).toBe('registry\n');
  });
});
