import {
  existsSync,
  mkdirSync,
  mkdtempSync,
  readFileSync,
  realpathSync,
  renameSync,
  rmSync,
  symlinkSync,
  writeFileSync,
} from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { registry, runLoop, textOf, type SettledResult, type Tool, type ToolContext, type Touch } from '@treadle/core';
import { policy, REQUIRED_PROMISES, type PolicyRules } from '@treadle/core/policy';
import { scriptedModel } from '@treadle/core/testing';
import { afterEach, beforeEach, describe, expect, test } from 'vitest';
import { local } from '../local/local.ts';
import type { Ops } from '../ops.ts';
import { loadSkillDefinitions } from './load.ts';
import { packageTool } from './package-tool.ts';

let folder: string;
let skills: string;
beforeEach(() => {
  const root = realpathSync(mkdtempSync(join(tmpdir(), 'treadle-package-')));
  folder = join(root, 'work');
  skills = join(root, 'skills', 'own');
  mkdirSync(folder);
  mkdirSync(join(skills, 'bin'), { recursive: true });
});
afterEach(() => rmSync(join(folder, '..'), { recursive: true }));

/** The tool of a package whose program is a shell script. */
async function packaged(script: string, more = '', ops: Ops = local(folder)): Promise<Tool> {
  writeFileSync(join(skills, 'bin', 'x'), `#!/bin/sh\n${script}\n`, { mode: 0o755 });
  writeFileSync(
    join(skills, 'skill.toml'),
    `[[tools]]\nname = "x"\nbinary = "bin/x"\ndescription = "X"\n${more || PARAMETERS}\n`,
  );
  const { tools, problems } = await loadSkillDefinitions(skills);
  expect(problems).toEqual([]);
  return packageTool(tools[0]!, ops);
}

const PARAMETERS = `parameters = { path = "string", names = { type = "array", items = { type = "string" } }, all = "boolean" }`;

type Result = Extract<SettledResult, { type: 'result' }>;

/** Calls the tool without a run. */
async function call(
  tool: Tool,
  input: Readonly<Record<string, unknown>> = {},
  options: Parameters<ReturnType<typeof registry>['execute']>[2] = {},
): Promise<Omit<Result, 'content' | 'type'> & { readonly text: string }> {
  const only = registry();
  only.register(tool, 'test');
  const { content, type: _, ...facts } = (await only.execute(tool.name, input, options)) as Result;
  return { text: textOf(content), ...facts };
}

describe('a call', () => {
  test('starts the program without a shell, in the working folder, with its key', async () => {
    const tool = await packaged('pwd; echo "$TREADLE_CALL_KEY"; printf "<%s>" "$@"; echo warning >&2');
    const input = { path: '$(touch evil); "', names: ['a b', '-x'], all: true };
    const { text, isError } = await call(tool, input, { key: 'run/1' });
    expect(isError).toBe(false);
    expect(text.split('\n').toSorted()).toEqual(
      [folder, 'run/1', `<--path><$(touch evil); "><--names><a b><--names=-x><--all>warning`, ''].toSorted(),
    );
    expect(existsSync(join(folder, 'evil'))).toBe(false);
  });

  test('gives all arguments as JSON on the standard input, if the file says so', async () => {
    const tool = await packaged('echo "$#"; cat', `input = "json"\n${PARAMETERS}`);
    const input = { path: 'a\nb', names: [], all: false };
    expect((await call(tool, input)).text).toBe(`0\n${JSON.stringify(input)}`);
    // A program that does not read it is not waited for.
    const deaf = await packaged('echo done', `input = "json"\n${PARAMETERS}`);
    expect((await call(deaf, { path: 'x'.repeat(1_000_000) })).text).toBe('done\n');
  });

  test('has the exit code and the errors of a program that fails', async () => {
    const tool = await packaged('echo out; echo why >&2; exit 3');
    expect(await call(tool)).toMatchObject({
      isError: true,
      errorType: 'execution_failed',
      exitCode: 3,
      stderr: 'why\n',
    });
  });

  test('is not made with arguments that the parameters do not allow', async () => {
    const tool = await packaged('touch ran');
    expect(await call(tool, { path: 1 })).toMatchObject({ isError: true, errorType: 'invalid_params' });
    expect(await call(tool, { other: 'x' })).toMatchObject({ errorType: 'invalid_params' });
    expect(await call(tool, { path: 'a\0b' })).toMatchObject({ errorType: 'invalid_params' });
    expect(await call(tool, { path: 'x'.repeat(4_000_000) })).toMatchObject({
      errorType: 'invalid_params',
      text: expect.stringContaining('The arguments of x are too long for the system.'),
    });
    expect(existsSync(join(folder, 'ran'))).toBe(false);
  });

  test('fails if the program is gone, cannot be executed, or was replaced by a link', async () => {
    const tool = await packaged('echo here');
    const program = join(skills, 'bin', 'x');
    writeFileSync(join(folder, 'evil'), '#!/bin/sh\ntouch ran\n', { mode: 0o755 });
    renameSync(program, `${program}.old`);
    expect(await call(tool)).toMatchObject({
      errorType: 'not_found',
      text: expect.stringContaining('It is the program of x, from the package "own".'),
    });
    symlinkSync(join(folder, 'evil'), program);
    expect(await call(tool)).toMatchObject({ errorType: 'permission_denied' });
    rmSync(program);
    writeFileSync(program, 'echo', { mode: 0o644 });
    // Root may execute nothing that nobody may.
    expect(await call(tool)).toMatchObject({ errorType: 'permission_denied' });
    expect(existsSync(join(folder, 'ran'))).toBe(false);
  });
});

describe('a hostile program', () => {
  /** The processes that the program has started and that still run. A zombie does not. */
  const survivors = (): readonly string[] =>
    readFileSync(join(folder, 'pids'), 'utf8')
      .trim()
      .split('\n')
      .filter((pid) => existsSync(`/proc/${pid}/stat`) && !/\) Z /.test(readFileSync(`/proc/${pid}/stat`, 'utf8')));

  test('that hangs is killed at its time limit', async () => {
    const tool = await packaged('sleep 60', 'timeout_ms = 50');
    expect(await call(tool)).toMatchObject({
      errorType: 'timeout',
      text: '[timed out after 50 ms, and was killed with all processes that it started. Ask for less, or tell the user.]',
    });
  });

  test('that forks is killed with all its processes when the call is stopped', async () => {
    const tool = await packaged(
      "for i in 1 2 3; do (setsid sh -c 'echo $$ >>pids; while :; do sleep 60; done' &); done\n" +
        'while [ "$(wc -l <pids 2>/dev/null || echo 0)" -lt 3 ]; do sleep 0.01; done\necho started; sleep 60',
      'timeout_ms = 30000',
    );
    const stop = new AbortController();
    const report = (progress: unknown): void => void (String(progress).includes('started') && stop.abort());
    expect((await call(tool, {}, { signal: stop.signal, report })).isError).toBe(true);
    await expect.poll(survivors, { interval: 5, timeout: 10_000 }).toEqual([]);
  });

  test('that leaves processes behind loses them when it ends', async () => {
    const tool = await packaged(
      "(setsid sh -c 'echo $$ >>pids; exec sleep 60' >/dev/null 2>&1 &)\nwhile [ ! -s pids ]; do sleep 0.01; done\necho done",
      'timeout_ms = 30000',
    );
    expect((await call(tool)).text).toBe('done\n');
    expect(survivors()).toEqual([]);
  });

  test('that floods its output is read with little memory, and the model gets its head and tail', async () => {
    const tool = await packaged(
      'echo first; head -c 30000000 /dev/zero | tr "\\0" x; echo; echo last',
      'timeout_ms = 20000',
    );
    const { text } = await call(tool);
    expect(text.length).toBeLessThan(20_000);
    expect(text).toMatch(/^first\n[^]*bytes left out[^]*\nlast\n$/);
  });

  test('that prints escape sequences and binary data does not reach a terminal', async () => {
    const tool = await packaged(String.raw`printf '\033]0;evil\007\033[31mred\033[0m\r\n'`, 'timeout_ms = 5000');
    expect((await call(tool)).text).toBe('red\n');
  });
});

describe('what a call touches', () => {
  const inSandbox = (promises: readonly string[]): Ops => {
    const { files, exec } = local(folder);
    const sandbox = {
      engine: 'test',
      promises,
      outside: exec,
      openRoom: () => Promise.reject(new Error('not here')),
      blocked: () => undefined,
    };
    return { files, exec: { ...exec, sandbox } as Ops['exec'] };
  };
  const verdictOf = async (tool: Tool, input: unknown, rules: PolicyRules): Promise<string> => {
    const { touches, permissions = [], sandbox } = tool;
    const call = { name: 'x', touches: touches!(input), permissions, ...(sandbox && { sandbox: sandbox(input) }) };
    return (await policy(rules, { folder }).explain(call)).verdict.type;
  };

  test('is what the file declares', async () => {
    const tool = await packaged(
      '',
      `${PARAMETERS}\ntouches = [{ type = "read", path = "{path|.}" }, { type = "write", path = "{names}" }]`,
    );
    expect(tool.touches!({ names: ['a', 'b'] })).toEqual([
      { type: 'read', path: '.' },
      { type: 'write', path: 'a' },
      { type: 'write', path: 'b' },
    ]);
    // An argument that it needs is absent: the policy gets `unknown`.
    expect(() => tool.touches!({ path: 'a' })).toThrow('{names} has no text');
    const harmless = await packaged('', 'touches = []');
    expect(await verdictOf(harmless, {}, { autonomy: 1 })).toBe('allow');
  });

  test('is unknown if nothing is declared, and is asked about', async () => {
    const tool = await packaged('');
    expect(tool.touches!({ path: 'a' })).toEqual([{ type: 'unknown' } satisfies Touch]);
    for (const autonomy of [1, 2] as const) expect(await verdictOf(tool, {}, { autonomy })).toBe('ask');
  });

  test('is not asked about inside a sandbox that keeps the promises of the policy', async () => {
    const kept = await packaged('', PARAMETERS, inSandbox(REQUIRED_PROMISES));
    const command = `'${join(skills, 'bin', 'x')}' '--path' 'it'\\''s'`;
    expect(kept.touches!({ path: "it's" })).toEqual([{ type: 'command', command }]);
    expect(await verdictOf(kept, {}, { autonomy: 2 })).toBe('allow');
    expect(await verdictOf(kept, {}, { autonomy: 1 })).toBe('ask');
    const weak = await packaged('', PARAMETERS, inSandbox(REQUIRED_PROMISES.slice(1)));
    expect(await verdictOf(weak, {}, { autonomy: 2 })).toBe('ask');
  });
});

test('verify says what became of a call by its exit code', async () => {
  const script = 'case "$2" in done) echo "result of $TREADLE_CALL_KEY";; not) exit 75;; *) exit 1;; esac';
  writeFileSync(join(skills, 'bin', 'v'), `#!/bin/sh\n${script}\n`, { mode: 0o755 });
  const tool = await packaged('', `${PARAMETERS}\nverify = "bin/v"`);
  const context = {
    signal: new AbortController().signal,
    key: 'run/2',
    report() {},
    hold: registryHold,
  } as unknown as ToolContext;
  const verified = (path: string): unknown => tool.verify!({ path }, context);
  expect(await verified('done')).toEqual({ type: 'done', result: { content: 'result of run/2\n' } });
  expect(await verified('not')).toEqual({ type: 'not-done' });
  expect(await verified('other')).toEqual({ type: 'unknown' });
});

const registryHold = async (_: string, open: () => unknown): Promise<unknown> => ({
  resource: await open(),
  isNew: true,
});

test('the model gets the schema without the extension, and the result of the program', async () => {
  const tool = await packaged('echo "$2"', `${PARAMETERS}\npermissions = ["network"]\ntouches = []`);
  const model = scriptedModel([{ calls: [{ name: 'x', arguments: { path: 'hello' } }] }, 'Done.']);
  const { messages } = await runLoop({ model, tools: [tool], input: 'Go.' });
  expect(JSON.stringify(messages.find(({ role }) => role === 'tool'))).toContain('hello');
  expect(JSON.stringify(model.requests)).not.toMatch(/evoclaw|bin\/x|sandbox|network/);
  expect(model.requests[0]!.tools).toMatchObject([{ name: 'x', description: 'X' }]);
});
