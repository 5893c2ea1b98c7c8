import { afterEach, beforeEach, describe, expect, test } from 'vitest';
import { playground, type Playground } from './playground.ts';
import { scriptedOpenAi, type ScriptedOpenAi, type Step } from './scripted-openai.ts';
import { stopLeftovers, treadle, type TreadleProcess } from './treadle-process.ts';

let play: Playground;
let server: ScriptedOpenAi | undefined;

beforeEach(async () => {
  play = await playground();
});
afterEach(async () => {
  stopLeftovers();
  await server?.close();
  server = undefined;
  await play.remove();
});

/** `treadle run` with a model that follows the script. */
async function run(
  steps: readonly Step[],
  args: readonly string[],
  options: { stdin?: string; env?: Record<string, string> } = { stdin: '' },
): Promise<TreadleProcess> {
  server = await scriptedOpenAi(steps);
  return treadle(['run', '--model', 'scripted', '--base-url', server.baseURL, ...args], {
    cwd: play.folder,
    ...options,
  });
}

const READ: Step = { calls: [{ name: 'read', arguments: '{"path":"notes.txt"}' }] };

test('the answer on standard output and only that, tool calls on standard error', async () => {
  const { ended } = await run([READ, { text: ['It says ', 'hello', '.'] }], ['What is in notes.txt?']);
  expect(await ended).toEqual({
    code: 0,
    signal: null,
    stdout: 'It says hello.\n',
    stderr: `#1 read {"path":"notes.txt"}\n#1 gave: the word is ${play.nonce}\n`,
  });
  const [first, second] = server!.requests;
  expect(first!.tools!.map((tool) => tool.function.name)).toEqual(['read', 'glob', 'grep']);
  expect(first!.messages.at(-1)).toMatchObject({ role: 'user', content: 'What is in notes.txt?' });
  expect(JSON.stringify(second!.messages.at(-1))).toContain(play.nonce);
});

test('parallel calls, and one that is refused', async () => {
  const calls = [
    { name: 'glob', arguments: '{"pattern":"*"}' },
    { name: 'read', arguments: '{"path":"../secret"}' },
    { name: 'reed', arguments: '{}' },
  ];
  const { stdout, stderr, code } = await (await run([{ calls }, { text: ['ok'] }], ['go'])).ended;
  expect([code, stdout]).toEqual([0, 'ok\n']);
  expect(stderr).toMatch(/^#\d glob \{"pattern":"\*"\}$/m);
  expect(stderr).toMatch(/^#\d gave 2 lines: \.treadle\/$/m);
  expect(stderr).toMatch(/^#\d error: .*lies outside the working folder/m);
  expect(stderr).toMatch(/^#\d reed \{\}$/m);
});

describe('--json and --quiet', () => {
  test('--json prints the whole result and nothing else there', async () => {
    const { stdout, stderr } = await (await run([READ, { text: ['done'] }], ['--json', 'go'])).ended;
    expect(JSON.parse(stdout)).toMatchObject({
      runId: expect.any(String),
      outcome: { type: 'completed' },
      waiting: [],
      text: 'done',
      turns: 2,
      calls: 1,
      usage: { inputTokens: 20, outputTokens: 10 },
      messages: [{ role: 'user' }, { role: 'assistant' }, { role: 'tool' }, { role: 'assistant' }],
    });
    expect(stderr).toContain('#1 read');
  });
  test('--quiet says nothing but what went wrong', async () => {
    expect(await (await run([READ, { text: ['done'] }], ['--quiet', 'go'])).ended).toMatchObject({
      stdout: 'done\n',
      stderr: '',
    });
  });
});

describe('the task comes from standard input', () => {
  test.each([[[]], [['-']]])('with %j', async (args) => {
    const { ended } = await run([{ text: ['ok'] }], args, { stdin: '  do this\nand that\n' });
    expect(await ended).toMatchObject({ code: 0, stdout: 'ok\n' });
    expect(server!.requests[0]!.messages.at(-1)).toMatchObject({ role: 'user', content: 'do this\nand that' });
  });
});

describe('exit codes', () => {
  test('failed is 1, with the reason', async () => {
    const { ended } = await run([{ status: 401, message: 'wrong key' }], ['go']);
    expect(await ended).toMatchObject({
      code: 1,
      stdout: '',
      stderr: expect.stringMatching(/^Failed \(auth\): .*wrong key/),
    });
  });

  test('exhausted is 3, and --max-turns is what limits', async () => {
    const { ended } = await run([{ ...READ, text: ['Let me look.'] }], ['--max-turns', '1', 'go']);
    const { code, stdout, stderr } = await ended;
    expect([code, stdout]).toEqual([3, '']);
    expect(stderr).toContain("The model's last words: Let me look.");
    expect(stderr).toContain('Stopped at the limit of turns (--max-turns), after 1 turn and 1 call.');
  });

  test('paused is 4 without a terminal to ask on, and says what it waits for', async () => {
    const { code, stdout, stderr } = await (await run([READ], ['--ask', 'go'])).ended;
    expect([code, stdout]).toEqual([4, '']);
    expect(stderr).toContain('Paused: it waits for approval of read {"path":"notes.txt"}.');
    expect(stderr).toContain('no terminal to ask on');
    expect(stderr).not.toContain(play.nonce);
  });

  test('a paused run as JSON', async () => {
    const { code, stdout } = await (await run([READ], ['--ask', '--json', 'go'])).ended;
    const result = JSON.parse(stdout);
    expect([code, result.outcome]).toEqual([4, undefined]);
    expect(result.waiting).toMatchObject([
      { type: 'approval', call: { name: 'read', arguments: '{"path":"notes.txt"}' } },
    ]);
  });

  test('stopped with Ctrl-C is 130, and says what was done and how to go on', async () => {
    const { child, ended } = await run([READ, { hang: 'I am still th' }], ['go'], {});
    await server!.answered(2);
    child.kill('SIGINT');
    const { code, stdout, stderr } = await ended;
    expect([code, stdout]).toEqual([130, '']);
    expect(stderr).toContain(`#1 gave: the word is ${play.nonce}`);
    expect(stderr).toContain('Stopping; Ctrl-C again quits at once.');
    expect(stderr).toMatch(
      new RegExp(
        '^Stopped after 2 turns and 1 call\\.\\n' +
          `Go on with: treadle runs resume run_[0-9a-f]{8} --model scripted --base-url ${server!.baseURL}\\n` +
          'End it with: treadle runs cancel run_[0-9a-f]{8}\\n$',
        'm',
      ),
    );
  });

  test('stopped as JSON holds everything until then', async () => {
    const { child, ended } = await run([READ, { hang: '…' }], ['--json', 'go'], {});
    await server!.answered(2);
    child.kill('SIGINT');
    const result = JSON.parse((await ended).stdout);
    expect(result).toMatchObject({
      runId: expect.stringMatching(/^run_/),
      detached: true,
      messages: [{ role: 'user' }, { role: 'assistant' }, { role: 'tool' }],
    });
    expect(result).not.toHaveProperty('outcome');
  });

  test('where nothing is kept Ctrl-C cancels', async () => {
    const { child, ended } = await run([READ, { hang: '…' }], ['--store', 'memory:', '--json', 'go'], {});
    await server!.answered(2);
    child.kill('SIGINT');
    const { code, stdout, stderr } = await ended;
    expect(code).toBe(130);
    expect(JSON.parse(stdout)).toMatchObject({ outcome: { type: 'cancelled', phase: 'model' } });
    expect(stderr).toContain('Cancelling; Ctrl-C again quits at once.');
    expect(stderr).toContain('Cancelled while the model was answering, after 2 turns and 1 call.');
    expect(stderr).not.toContain('resume');
  });
});

test('--finish confirm asks once more before the answer counts', async () => {
  const { ended } = await run([{ text: ['first'] }, { text: ['confirmed'] }], ['--finish', 'confirm', 'go']);
  expect(await ended).toMatchObject({ code: 0, stdout: 'confirmed\n' });
});

test('an answer that was cut is told so', async () => {
  const { ended } = await run([{ text: ['half an ans'], finish: 'length' }], ['go']);
  expect(await ended).toMatchObject({ code: 0, stdout: 'half an ans\n', stderr: expect.stringContaining('cut off') });
});

test('ends quietly when nobody reads', async () => {
  const { child, ended } = await run([{ text: ['x'.repeat(1_000_000)] }], ['go'], {});
  child.stdout.destroy();
  expect(await ended).toMatchObject({ code: 0, signal: null, stderr: '' });
});

test('no colours where no terminal is, and no control characters of others', async () => {
  await play.write('notes.txt', '\u001b]0;owned\u0007');
  const { stderr } = await (await run([READ, { text: ['ok'] }], ['go'])).ended;
  expect(stderr).not.toContain('\u001b');
  expect(stderr).toContain('\\u001b]0;owned');
});
