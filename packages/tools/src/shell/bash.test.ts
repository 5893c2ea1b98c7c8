import { existsSync, mkdirSync, mkdtempSync, readFileSync, realpathSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { registry, runLoop, textOf, type LoopOptions, type SettledResult, type ToolResult } from '@treadle/core';
import { policy } from '@treadle/core/policy';
import { scriptedModel } from '@treadle/core/testing';
import { afterEach, beforeEach, describe, expect, test } from 'vitest';
import { commandFacts } from '../commands/command-facts.ts';
import { DeniedError } from '../denied.ts';
import { local } from '../local/local.ts';
import type { Ops } from '../ops.ts';
import { codingTools } from '../tool-sets.ts';
import { bashTool } from './bash.ts';

let folder: string;
let ops: Ops;
const ON_LINUX = process.platform === 'linux';

beforeEach(() => {
  folder = realpathSync(mkdtempSync(join(tmpdir(), 'treadle-bash-')));
  ops = local(folder);
});
afterEach(() => rmSync(folder, { recursive: true }));

type Result = Extract<SettledResult, { type: 'result' }>;

/** Calls the tool without a run. */
async function bash(
  input: Readonly<Record<string, unknown>>,
  options: Parameters<ReturnType<typeof registry>['execute']>[2] = {},
): Promise<Omit<Result, 'content' | 'type'> & { readonly text: string }> {
  const only = registry();
  only.register(bashTool(ops), 'test');
  const { content, type: _, ...facts } = (await only.execute('bash', input, options)) as Result;
  return { text: textOf(content), ...facts };
}

type Step = [name: string, input: Readonly<Record<string, unknown>>];

/** Makes calls in a run, one per turn. The next call may depend on the results. */
async function runCalls(
  steps: readonly (Step | ((results: readonly string[]) => Step))[],
  options: Partial<LoopOptions> = {},
): Promise<ToolResult[]> {
  const results: ToolResult[] = [];
  const texts = (): string[] => results.map(({ content }) => textOf(content));
  const model = scriptedModel([
    ...steps.map((step) => () => {
      const [name, input] = typeof step === 'function' ? step(texts()) : step;
      return { calls: [{ name, arguments: input }] };
    }),
    'Done.',
  ] as never);
  await runLoop({
    model,
    tools: codingTools(ops),
    input: 'Go.',
    ...options,
    onItem: (item) => void (item.type === 'call-answered' && results.push(item.result as never)),
  } as LoopOptions);
  return results;
}

/** A zombie has ended. */
function isAlive(pid: number): boolean {
  const stat = `/proc/${pid}/stat`;
  if (!existsSync(stat)) return false;
  const text = readFileSync(stat, 'utf8');
  return text[text.lastIndexOf(')') + 2] !== 'Z';
}

describe('a command', () => {
  test('returns what it prints, and runs in the working folder or in workdir', async () => {
    mkdirSync(join(folder, 'a b'));
    expect(await bash({ command: 'pwd; echo oops >&2' })).toEqual({
      text: expect.stringMatching(new RegExp(`^(${folder}\noops\n|oops\n${folder}\n)$`)),
      isError: false,
    });
    expect(await bash({ command: 'pwd', workdir: 'a b' })).toMatchObject({ text: `${folder}/a b\n` });
    expect(await bash({ command: ':' })).toMatchObject({ text: '[exit code 0]' });
    expect(await bash({ command: '[[ a == a ]] && echo "${BASH_VERSION:+bash}"' })).toMatchObject({ text: 'bash\n' });
    const home = { HOME: folder, PATH: process.env['PATH']!, SSH_CLIENT: 'x' };
    writeFileSync(join(folder, '.bashrc'), 'echo from bashrc');
    ops = local(folder, { env: home });
    expect(await bash({ command: 'echo alone' })).toMatchObject({ text: 'alone\n' });
    expect(await bash({ command: '-x; echo next' })).toMatchObject({ text: expect.stringContaining('next\n') });
  });

  test('that fails shows its output and exit code', async () => {
    expect(await bash({ command: 'echo out; echo err >&2; exit 3' })).toEqual({
      text: expect.stringMatching(/^(out\nerr|err\nout)\n\[exit code 3\]$/),
      isError: true,
      errorType: 'execution_failed',
      exitCode: 3,
      stderr: 'err\n',
    });
    expect(await bash({ command: 'kill -SEGV $$' })).toMatchObject({ text: '[killed by SIGSEGV]', isError: true });
    expect(await bash({ command: 'echo "unterminated' })).toMatchObject({ exitCode: 2 });
  });

  test('reports its output as progress', async () => {
    const reported: unknown[] = [];
    await bash({ command: 'printf "\\e[31mred\\e[0m\\n"' }, { report: (text) => reported.push(text) });
    expect(reported).toEqual(['red\n']);
    let chars = 0;
    await bash(
      { command: 'head -c 1000000 /dev/zero | tr "\\0" x' },
      { report: (text) => (chars += String(text).length) },
    );
    expect(chars).toBeGreaterThan(200_000);
    expect(chars).toBeLessThan(500_000);
  });

  test('that takes too long is killed with all its processes, and its output is returned', async () => {
    const command = 'echo started; setsid sleep 1000 & echo $! > pid; sleep 1000';
    const result = await bash({ command, timeout_ms: 500 });
    expect(result).toMatchObject({ isError: true, errorType: 'timeout' });
    expect(result.text).toMatch(/^started\n\[timed out after 500 ms, and was killed .* Command: echo started/);
    expect(result.text).toContain(
      'Give a larger timeout_ms (at most 300000), run it with background: true if that is offered',
    );
    if (ON_LINUX) expect(isAlive(Number(readFileSync(join(folder, 'pid'), 'utf8')))).toBe(false);
  });

  test.runIf(ON_LINUX)('without a run leaves no process behind', async () => {
    const { text } = await bash({ command: 'nohup sleep 1000 >/dev/null 2>&1 & echo $!' });
    await expect.poll(() => isAlive(Number(text)), { interval: 5, timeout: 10_000 }).toBe(false);
  });

  test('that is cancelled is killed before the run ends', async () => {
    const controller = new AbortController();
    const model = scriptedModel([{ calls: [{ name: 'bash', arguments: { command: 'echo $$; setsid sleep 1000' } }] }]);
    let pid = 0;
    await runLoop({
      model,
      tools: codingTools(ops),
      input: 'Go.',
      signal: controller.signal,
      onItem(item) {
        if (item.type !== 'tool-report') return;
        pid = Number(item.progress);
        controller.abort();
      },
    });
    expect(pid).toBeGreaterThan(0);
    expect(isAlive(pid)).toBe(false);
  });

  test.runIf(ON_LINUX)('may leave processes behind, which end with the run', async () => {
    const results = await runCalls([
      ['bash', { command: 'nohup sleep 1000 >/dev/null 2>&1 & echo $!' }],
      ([pid]) => ['bash', { command: `kill -0 ${Number(pid)} && echo alive` }],
    ]);
    const [pid, alive] = results.map(({ content }) => textOf(content));
    expect(alive).toBe('alive\n');
    expect(isAlive(Number(pid))).toBe(false);
  });

  test.each<[string, Record<string, unknown>, string, RegExp]>([
    ['a missing workdir', { command: 'ls', workdir: 'nowhere' }, 'not_found', /There is no "nowhere"/],
    ['a file as workdir', { command: 'ls', workdir: 'file' }, 'not_found', /"file" is not a folder/],
    ['a workdir outside', { command: 'ls', workdir: '../..' }, 'permission_denied', /outside the working folder/],
    ['a workdir with a NUL byte', { command: 'ls', workdir: 'a\0b' }, 'permission_denied', /cannot be used/],
    ['a NUL byte', { command: 'echo a\0b' }, 'invalid_params', /contains a NUL byte/],
  ])('is refused with %s', async (_, input, errorType, text) => {
    writeFileSync(join(folder, 'file'), '');
    expect(await bash(input)).toMatchObject({ isError: true, errorType, text: expect.stringMatching(text) });
  });

  test.each<Record<string, unknown>>([
    {},
    { command: 5 },
    { command: '' },
    { command: 'ls', timeout_ms: 0 },
    { command: 'ls', timeout_ms: 300_001 },
    { command: 'ls', session: '../x' },
    { command: 'ls', other: 1 },
    { command: 'x'.repeat(65_537) },
  ])('with invalid arguments is not run', async (input) => {
    expect(await bash(input)).toMatchObject({ isError: true, text: expect.stringContaining('are not valid') });
  });

  test.each([
    ['control characters', 'echo "\u0007\u001b[2Ja\u0008"', 'a\n'],
    ['10,000 alternatives', `echo {${Array.from({ length: 10_000 }, (_, i) => i).join(',')}} | wc -w`, '10000\n'],
    ['unpaired surrogates', 'printf %s "\ud800" | wc -c', '3\n'],
    ['output to /dev/stderr', 'echo a | tee /dev/stderr > /dev/stdout', 'a\na\n'],
    ['a read of the input', 'read -r x || echo empty', 'empty\n'],
  ])('with %s runs', async (_, command, text) => {
    expect(await bash({ command })).toMatchObject({ text, isError: false });
  });
});

describe('the output', () => {
  test('keeps head and tail, and says what was left out', async () => {
    const { text } = await bash({ command: 'seq 1 100000' });
    expect(text.length).toBeLessThan(11_000);
    expect(text).toMatch(/^1\n2\n3\n/);
    expect(text).toMatch(/\n\[… about [\d,]+ bytes left out\. To see it, write the output to a file/);
    expect(text).toMatch(/\n99999\n100000\n$/);
    const shorter = await bash({ command: 'seq 1 5000' });
    expect(shorter.text).toMatch(/\n\[… [\d,]+ characters left out\./);
  });

  test.each([
    ['binary', 'head -c 100000 /dev/zero', /^\[binary output of [\d,]+ bytes\]/],
    ['names after NUL bytes', `printf 'some-file.txt\\0other-file.txt\\0'`, /^some-file\.txt\nother-file\.txt\n$/],
    ['invalid UTF-8', `printf 'a\\xffb\\n'`, /^a\ufffdb\n$/],
    ['a progress bar', `printf '10%%\\r50%%\\r100%%\\r\\n'; printf 'crlf\\r\\n'`, /^100%\ncrlf\n$/],
    ['escapes', `printf '\\e]0;title\\a\\e[1;31mred\\e[0m\\e(B\\n'`, /^red\n$/],
    [
      'a long line',
      'head -c 1000000 /dev/zero | tr "\\0" x',
      /^x{1800}\[… [\d,]+ characters of this line left out …\]x+\n/,
    ],
  ])('is readable with %s', async (_, command, text) => {
    const result = await bash({ command });
    expect(result.text).toMatch(text);
    expect(result.text.length).toBeLessThan(11_000);
  });

  test('without end is stopped at the time limit', async () => {
    const result = await bash({ command: 'yes', timeout_ms: 300 });
    expect(result).toMatchObject({ errorType: 'timeout' });
    expect(result.text).toMatch(/^y\ny\n[^]*left out[^]*y\n\[timed out/);
  });
});

describe('a session', () => {
  const inSession = (command: string, more: Record<string, unknown> = {}): Step => [
    'bash',
    { command, session: 'dev', ...more },
  ];
  const texts = (results: readonly ToolResult[]): string[] => results.map(({ content }) => textOf(content));

  test('keeps folder, variables and functions, and tells that it is new', async () => {
    mkdirSync(join(folder, 'sub'));
    const results = await runCalls([
      inSession('cd sub; x=5; f() { echo "f $x"; }'),
      inSession('pwd; f'),
      inSession('cat; echo "it\'s"; echo err >&2; false'),
      inSession('printf no-newline', { workdir: '.' }),
      inSession('pwd'),
      ['bash', { command: 'echo "[$x]"', session: 'other' }],
    ]);
    const note = '[session dev: a new shell in the working folder]\n';
    expect(texts(results)).toEqual([
      `${note}[exit code 0]`,
      `${folder}/sub\nf 5\n`,
      `it's\nerr\n[exit code 1]`,
      'no-newline',
      `${folder}\n`,
      '[session other: a new shell in the working folder]\n[]\n',
    ]);
    expect(results[2]).toMatchObject({ isError: true, errorType: 'execution_failed', exitCode: 1 });
  });

  test('that a command ends or blocks is replaced by a new one', async () => {
    const results = await runCalls([
      inSession('x=1; echo before; exit 7'),
      inSession('echo "[$x]"'),
      inSession('echo slow; sleep 1000', { timeout_ms: 500 }),
      inSession('echo "unterminated'),
      inSession('echo after'),
      inSession('if true; then (echo'),
      inSession('cat <<EOF\nin a here-document\nEOF'),
      inSession('exec >/dev/null; pwd'),
      inSession('exec >&2; pwd'),
      inSession('echo $$ > pid'),
      ['bash', { command: 'pid=$(cat pid); kill -9 $pid; while kill -0 $pid 2>/dev/null; do sleep 0.01; done' }],
      inSession('echo new'),
    ]);
    const [exited, next, slow, broken, after, , here, silent, last, , , killed] = texts(results);
    expect(exited).toContain('before\n[The command ended with exit code 7. The shell of session dev has ended');
    expect(next).toBe('[session dev: a new shell in the working folder]\n[]\n');
    expect(slow).toMatch(/^slow\n\[timed out after 500 ms[^]*The next call starts a new one\.\]$/);
    expect(results[2]).toMatchObject({ errorType: 'timeout' });
    expect(broken).toMatch(/^\[session dev: a new shell[^]*unexpected EOF[^]*\[exit code \d\]$/);
    expect(after).toBe('after\n');
    expect(here).toBe('in a here-document\n');
    expect(silent).toBe('[exit code 0]');
    expect(last).toBe(`${folder}\n`);
    expect(killed).toBe('[session dev: a new shell in the working folder]\nnew\n');
  });

  test('does not wait for a command that its place refuses', async () => {
    const { exec } = ops;
    const refusing: typeof exec = {
      ...exec,
      async start(request) {
        const execution = await exec.start(request);
        const write = async (text: string): Promise<void> => {
          if (text.includes('reboot')) throw new DeniedError('The device refuses it.');
          await execution.write(text);
        };
        return { ...execution, write };
      },
    };
    ops = { ...ops, exec: refusing };
    const results = await runCalls([inSession('x=1'), inSession('reboot'), inSession('echo "[$x]"')]);
    expect(results[1]).toMatchObject({ isError: true });
    expect(texts(results).slice(1)).toEqual([expect.stringContaining('The device refuses it.'), '[1]\n']);
  });

  test.runIf(ON_LINUX)('ends with the run, with all its processes', async () => {
    const [first] = await runCalls([inSession('setsid sleep 1000 >/dev/null & echo $!')]);
    const pid = Number(textOf(first!.content).split('\n')[1]);
    expect(pid).toBeGreaterThan(0);
    expect(isAlive(pid)).toBe(false);
  });

  test('is not blocked by a process in the background that prints', async () => {
    const results = await runCalls([
      inSession('(head -c 1000000 /dev/zero | tr "\\0" x; echo; echo ready; touch ready) & :'),
      inSession('while [ ! -e ready ]; do sleep 0.01; done; echo next'),
    ]);
    expect(texts(results).join('')).toMatch(/ready\n[^]*next\n$/);
  });
});

test('without bash, sh runs commands and sessions', async () => {
  const { files, exec } = local(folder);
  const missing = Object.assign(new Error('spawn bash ENOENT'), { code: 'ENOENT', path: 'bash' });
  const start: Ops['exec']['start'] = (request) =>
    request.argv[0] === 'bash' ? Promise.reject(missing) : exec.start(request);
  ops = { files, exec: { start, killMarked: exec.killMarked } };
  const results = await runCalls([
    ['bash', { command: 'echo "[$BASH_VERSION]"' }],
    ['bash', { command: 'x=5; echo "unterminated', session: 'dev' }],
    ['bash', { command: 'x=5', session: 'dev' }],
    ['bash', { command: 'echo "$x"', session: 'dev' }],
  ]);
  const [one, broken, , five] = results.map(({ content }) => textOf(content));
  expect(one).toBe('[]\n');
  expect(broken).toMatch(/\[exit code 2\]$/);
  expect(five).toBe('5\n');
});

test('a policy asks about commands in a folder that is not known', async () => {
  const { explain } = policy(
    { autonomy: 2, commands: { allow: ['ls', 'rm'] }, paths: { write: ['sub/**'] } },
    { folder, analysers: { command: (command) => commandFacts(command, { folder }) } },
  );
  const tools = new Map(codingTools(ops).map((one) => [one.name, one]));
  const verdict = async (name: string, input: object): Promise<string> => {
    const { permissions, touches } = tools.get(name)!;
    return (await explain({ name, touches: touches!(input), permissions: permissions ?? [] })).verdict.type;
  };
  expect(await verdict('bash', { command: 'rm x', workdir: 'sub' })).toBe('allow');
  expect(await verdict('bash', { command: 'rm -rf ~', workdir: 'sub' })).toBe('deny');
  expect(await verdict('bash', { command: 'rm x', workdir: '..' })).not.toBe('allow');
  expect(await verdict('bash', { command: 'rm x', session: 'dev' })).toBe('ask');
  expect(await verdict('background_write', { handle: 'x', text: 'rm x\n' })).toBe('ask');
  expect(await verdict('background_write', { handle: 'x', text: 'rm -rf ~\n' })).toBe('deny');
});

test('the policy judges the command in its folder; the folder of a session is not known', () => {
  const { touches } = bashTool(ops);
  expect(touches!({ command: 'rm x' })).toEqual([{ type: 'command', command: 'rm x' }]);
  expect(touches!({ command: 'rm x', workdir: "it's" })).toEqual([
    { type: 'command', command: `cd 'it'\\''s' || exit\nrm x` },
  ]);
  expect(touches!({ command: 'rm x', session: 'dev' })).toEqual([
    { type: 'command', command: 'cd "$FOLDER_OF_THE_SESSION" || exit\nrm x' },
  ]);
});
