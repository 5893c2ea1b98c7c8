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
import { afterEach, beforeEach, expect, test } from 'vitest';
import { fakeTerminal } from './fake-terminal.ts';
import { command, type Printed } from './in-process.ts';
import { scriptedOpenAi, type ScriptedOpenAi, type Step } from './scripted-openai.ts';

let folder: string;
let provider: ScriptedOpenAi | undefined;

beforeEach(() => {
  folder = realpathSync(mkdtempSync(join(tmpdir(), 'treadle-hooks-')));
});
afterEach(async () => {
  await provider?.close();
  provider = undefined;
  rmSync(folder, { recursive: true, force: true });
});

const file = (name: string, text: string): void => writeFileSync(join(folder, name), text);

/** Configures a scripted model, and the module with this code. */
async function configure(code: string, ...steps: readonly Step[]): Promise<void> {
  await provider?.close();
  provider = await scriptedOpenAi(steps);
  file(
    'treadle.toml',
    `[models.main]\nmodel = "m"\nbase_url = "${provider.baseURL}"\n[hooks]\nmodule = "treadle.hooks.mjs"\n`,
  );
  file('treadle.hooks.mjs', code);
}

const treadle = (...args: readonly string[]): Promise<Printed> => command(args, folder);

const NO_PASSWORDS = `
export const guardrails = {
  output: [({ text }) => !text.includes('password') || 'The answer contains a password.'],
};`;

test('guardrails of the module stop runs and chats', async () => {
  await configure(
    NO_PASSWORDS,
    { text: ['The password is 1.'] },
    { text: ['The password is 1.'] },
    { text: ['Fine.'] },
  );
  const stopped = await treadle('run', 'Log me in.');
  expect(stopped.code).toBe(1);
  expect(stopped.stderr).toContain('The answer contains a password.');
  const chat = await command(['chat'], folder, 'Log me in.\n');
  expect(chat.stderr).toContain('The answer contains a password.');
  expect(await treadle('run', 'Hello')).toMatchObject({ code: 0, stdout: 'Fine.\n' });
});

test('result filters of the module change what the model sees', async () => {
  const code = `
    export const resultFilters = [{
      name: 'secrets',
      filter: ({ content }) => ({ type: 'changed', content: content.map(({ text }) => text.replace(/sk-\\w+/g, '[key]')).join('') }),
    }];`;
  const read = { calls: [{ name: 'read', arguments: '{"path":"notes.txt"}' }] };
  await configure(code, read, { text: ['Done.'] });
  file('notes.txt', 'sk-1234');
  expect(await treadle('run', 'Read notes.txt')).toMatchObject({ code: 0 });
  const last = JSON.stringify(provider!.requests[1]!.messages.at(-1));
  expect(last).toContain('[key]');
  expect(last).not.toContain('sk-1234');
});

test('filters and the check of answers apply to a single call, whose result is what a model would get', async () => {
  const code = `
    export const guardrails = { input: [() => 'No model.'] };
    export const verifyAnswer = () => ({ type: 'refused', reason: 'nobody may answer here.' });
    export const resultFilters = [{ name: 'none', filter: () => ({ type: 'changed', content: '[text]' }) }];`;
  await configure(code);
  file('notes.txt', 'sk-1234');
  expect(await treadle('tools', 'call', 'read', '{"path":"notes.txt"}')).toMatchObject({ code: 0, stdout: '[text]\n' });
  const write = ['tools', 'call', 'write', '{"path":"a.txt","content":"a"}'];
  const { type, shows, exit, screen } = fakeTerminal(write, folder);
  await shows('Allow it?');
  type('y\r');
  expect(await exit).toBe(4);
  expect(screen()).toContain('was refused: nobody may answer here.');
  expect(existsSync(join(folder, 'a.txt'))).toBe(false);
});

test('a run with guardrails is resumed with them, and not without', async () => {
  await configure(NO_PASSWORDS, { status: 400, message: 'down' }, { text: ['The password is 1.'] });
  expect(await treadle('run', 'Log me in.')).toMatchObject({ code: 1 });
  const toml = readFileSync(join(folder, 'treadle.toml'), 'utf8');
  file('treadle.toml', toml.replace(/\[hooks\][^]*/, ''));
  const without = await treadle('runs', 'resume', 'run_');
  expect(without.stderr).toContain('was started with guardrails, which are code, and module in [hooks] is not set');
  file('treadle.toml', toml);
  const resumed = await treadle('runs', 'resume', 'run_');
  expect(resumed.stderr).toContain('The answer contains a password.');
});

test('the module verifies answers, and learns which ones were rejected', async () => {
  const log = join(folder, 'audit.log');
  const code = `
    import { appendFileSync } from 'node:fs';
    export const verifyAnswer = () => ({ type: 'refused', reason: 'nobody may answer here.' });
    export const audit = {
      rejectedAnswer: ({ code, reason }) => appendFileSync(${JSON.stringify(log)}, code + ': ' + reason + '\\n'),
    };`;
  await configure(code, { calls: [{ name: 'write', arguments: '{"path":"a.txt","content":"a"}' }] });
  const { type, shows, exit, screen } = fakeTerminal(['run', 'Write a.txt'], folder);
  await shows('Allow it?');
  type('y\r');
  expect(await exit).toBe(4);
  expect(screen()).toContain('was refused: nobody may answer here.');
  expect(readFileSync(log, 'utf8')).toMatch(/^answer-refused: .*: nobody may answer here\.\n$/);
  expect(existsSync(join(folder, 'a.txt'))).toBe(false);
});

test.each([
  ['export const guardrail = {};', 'exports "guardrail", which is not a hook. Did you mean "guardrails"?'],
  ['export const verifyAnswer = 1;', 'treadle.toml: hooks.module has 1 as "verifyAnswer". Use a function.'],
  ['export const audit = {};', 'Use an object with the function "rejectedAnswer".'],
  ['throw new Error("broken here");', 'treadle.toml: hooks.module cannot be loaded: broken here'],
  ['export const = 1;', 'treadle.toml: hooks.module cannot be loaded: '],
  ['export default { guardrails: {} };', 'hooks.module has a default export. Write "export const guardrails = …"'],
])('reports the module %s', async (code, problem) => {
  await configure(code);
  for (const args of [['run', 'Hello'], ['chat'], ['serve'], ['mcp', 'serve']]) {
    const { code: exit, stderr } = await treadle(...args);
    expect([exit, stderr]).toEqual([2, expect.stringContaining(problem)]);
  }
});

test('reports a module that is not there, and a path that is none', async () => {
  await configure('');
  rmSync(join(folder, 'treadle.hooks.mjs'));
  expect((await treadle('run', 'Hello')).stderr).toContain('treadle.hooks.mjs, which is not a file.');
  mkdirSync(join(folder, 'treadle.hooks.mjs'));
  expect((await treadle('run', 'Hello')).stderr).toContain('treadle.hooks.mjs, which is not a file.');
  file('treadle.toml', '[hooks]\nmodule = "hooks"');
  expect((await treadle('run', 'Hello')).stderr).toContain('hooks.module');
});

test('a CommonJS module is rejected, because it could not be loaded again', async () => {
  await configure('');
  file('package.json', '{ "type": "commonjs" }');
  file('hooks.js', 'exports.guardrails = { output: [() => true] };');
  file('treadle.toml', '[hooks]\nmodule = "hooks.js"');
  const problem = 'hooks.module has a default export. Write "export const guardrails = …"';
  expect((await treadle('run', 'Hello')).stderr).toContain(problem);
  file('treadle.toml', '[hooks]\nmodule = "hooks.cjs"');
  expect((await treadle('run', 'Hello')).stderr).toContain('such as "treadle.hooks.ts"');
});

test('agents can neither read nor write the configuration and the module, also behind links', async () => {
  await configure('');
  mkdirSync(join(folder, 'behind'));
  for (const name of ['treadle.hooks.mjs', 'treadle.toml']) {
    renameSync(join(folder, name), join(folder, 'behind', `real-${name}`));
    symlinkSync(join('behind', `real-${name}`), join(folder, name));
  }
  for (const path of [
    'treadle.hooks.mjs',
    'treadle.toml',
    'behind/real-treadle.hooks.mjs',
    'behind/real-treadle.toml',
  ]) {
    for (const [tool, input] of [
      ['read', { path }],
      ['write', { path, content: '' }],
    ] as const) {
      const { stdout } = await treadle('policy', 'explain', tool, JSON.stringify(input));
      expect([path, tool, stdout]).toEqual([path, tool, expect.stringMatching(/^paths +deny/m)]);
    }
  }
});
