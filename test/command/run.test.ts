import { readFile, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { Readable } from 'node:stream';
import { afterEach, beforeEach, describe, expect, test } from 'vitest';
import { parse } from 'yaml';
import { command, type Printed } from './in-process.ts';
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

/** Runs `treadle run` with a scripted model in this process. */
async function run(steps: readonly Step[], args: readonly string[], stdin = ''): Promise<Printed> {
  server = await scriptedOpenAi(steps);
  return command(['run', '--model', 'scripted', '--base-url', server.baseURL, ...args], play.folder, stdin);
}

/** The same in its own process: for signals, exit codes and closed pipes. */
async function runProcess(
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

test('writes only the answer to standard output, and tool calls to standard error', async () => {
  const { ended } = await runProcess([READ, { text: ['It says ', 'hello', '.'] }], ['What is in notes.txt?']);
  expect(await ended).toEqual({
    code: 0,
    signal: null,
    stdout: 'It says hello.\n',
    stderr: `#1 read {"path":"notes.txt"}\n#1 returned: 1 the word is ${play.nonce}\n`,
  });
  const [first, second] = server!.requests;
  expect(first!.tools!.map((tool) => tool.function.name)).toEqual(
    expect.arrayContaining(['read', 'todowrite', 'question', 'task']),
  );
  expect(first!.messages.at(-1)).toMatchObject({ role: 'user', content: 'What is in notes.txt?' });
  expect(JSON.stringify(second!.messages.at(-1))).toContain(play.nonce);
});

test('shows parallel calls and a rejected call', async () => {
  const calls = [
    { name: 'glob', arguments: '{"pattern":"*"}' },
    { name: 'read', arguments: '{"path":"../secret"}' },
    { name: 'reed', arguments: '{}' },
  ];
  const { stdout, stderr, code } = await run([{ calls }, { text: ['ok'] }], ['go']);
  expect([code, stdout]).toEqual([5, 'ok\n']);
  expect(stderr).toMatch(/^#\d glob \{"pattern":"\*"\}$/m);
  expect(stderr).toMatch(/^#\d returned: notes\.txt$/m);
  expect(stderr).toMatch(/^#\d error: The call of "read" was denied/m);
  expect(stderr).toMatch(/^#\d reed \{\}$/m);
});

describe('--json and --quiet', () => {
  test('--json prints only the whole result', async () => {
    const { stdout, stderr } = await run([READ, { text: ['done'] }], ['--json', 'go']);
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
  test('--quiet prints no tool calls and no text before the answer', async () => {
    const steps = [{ ...READ, text: ['Let me look.'] }, { text: ['done'] }];
    expect(await run(steps, ['--quiet', 'go'])).toMatchObject({ stdout: 'done\n', stderr: '' });
  });
  test('without both, a pipe gets all text of the model, each reply on its own lines', async () => {
    const { code, stdout } = await run([{ ...READ, text: ['Let me look.'] }, { text: ['It', ' is'] }], ['go']);
    expect([code, stdout]).toEqual([0, 'Let me look.\nIt is\n']);
  });
});

describe('--stream-json', () => {
  const events = (stdout: string): readonly Record<string, unknown>[] =>
    stdout
      .trimEnd()
      .split('\n')
      .map((line) => JSON.parse(line) as Record<string, unknown>);

  test('prints the events of POST /v1/chat as JSON lines', async () => {
    const { code, stdout } = await run([READ, { text: ['It', ' is.'] }], ['--stream-json', '-p', 'go']);
    const all = events(stdout);
    expect(code).toBe(0);
    expect(all.map(({ seq }) => seq)).toEqual(all.map((_, index) => index + 1));
    const start = all.find(({ type }) => type === 'tool_call_start');
    expect(all).toMatchObject([
      { type: 'conversation_meta', title: 'go', model: 'scripted', run_id: expect.stringMatching(/^run_/) },
      { type: 'tool_call_start', name: 'read', arguments: '{"path":"notes.txt"}' },
      { type: 'memory' },
      { type: 'tool_call_result', id: start!['id'], is_error: false },
      { type: 'token_delta', delta: 'It' },
      { type: 'token_delta', delta: ' is.' },
      { type: 'usage', input_tokens: 20, output_tokens: 10 },
      { type: 'done', status: 'completed' },
    ]);
  });

  test('says what was denied, and the exit code does too', async () => {
    const write: Step = { calls: [{ name: 'write', arguments: '{"path":"a.txt","content":"x"}' }] };
    const { code, stdout } = await run([write, { text: ['No.'] }], ['--stream-json', 'go']);
    expect(code).toBe(5);
    expect(events(stdout)).toContainEqual(
      expect.objectContaining({ type: 'tool_call_decision', approved: false, source: 'policy' }),
    );
    expect(events(stdout).at(-1)).toMatchObject({ type: 'done', status: 'completed' });
  });

  test('ends with an error and the exit code for a limit and for a failed model', async () => {
    const limited = await run([READ, READ], ['--stream-json', '--max-turns', '1', 'go']);
    expect(limited.code).toBe(3);
    expect(events(limited.stdout).slice(-3)).toMatchObject([
      { type: 'error', code: 'max_turns' },
      { type: 'usage' },
      { type: 'done', status: 'incomplete' },
    ]);
    await server!.close();
    const failed = await run([{ status: 400, message: 'no such model' }], ['--stream-json', 'go']);
    expect(failed.code).toBe(1);
    expect(events(failed.stdout).at(-1)).toMatchObject({ type: 'done', status: 'failed' });
  });

  test('contradicts --json', async () => {
    const { code, stderr } = await run([], ['--json', '--stream-json', 'go']);
    expect([code, stderr]).toEqual([2, expect.stringContaining('Use one of them')]);
  });
});

describe('--prompt', () => {
  test('is the task, and - sends standard input with it', async () => {
    await run([{ text: ['ok'] }], ['-p', 'Review this', '-'], 'the change\n');
    expect(JSON.stringify(server!.requests[0]!.messages.at(-1))).toMatch(/Review this.*standard input.*the change/);
  });
  test('contradicts another task', async () => {
    expect(await run([], ['-p', 'one', 'two'])).toMatchObject({ code: 2 });
  });
});

describe('the GitHub workflow of docs/ci.md', () => {
  interface Job {
    readonly steps: readonly { readonly name?: string; readonly run?: string; readonly env?: Record<string, string> }[];
  }

  test('reviews a change with flags that the command has, and writes only the answer', async () => {
    const page = await readFile(new URL('../../docs/ci.md', import.meta.url), 'utf8');
    const workflow = parse(/```yaml\n([^]*?)```/.exec(page)![1]!);
    expect(workflow).toMatchObject({ on: 'pull_request', permissions: { contents: 'read', 'pull-requests': 'write' } });
    const { steps } = workflow.jobs.review as Job;
    const script = steps.find(({ name }) => name === 'Review the change')!.run!.replaceAll('\\\n', ' ');
    const [, flags] = /^git diff .* \| treadle run (.*) > review\.md$/m.exec(script)!;
    const args = [...flags!.matchAll(/"([^"]*)"|(\S+)/g)].map(([, quoted, plain]) => quoted ?? plain!);
    // The scripted model has no price.
    const at = args.indexOf('--max-cost');
    expect(args.splice(at, 2)).toEqual(['--max-cost', '1']);
    const { code, stdout, stderr } = await run([READ, { text: ['No bugs.'] }], args, 'diff --git a/x b/x\n');
    expect({ code, stdout, stderr }).toEqual({ code: 0, stdout: 'No bugs.\n', stderr: '' });
    const [{ messages, tools }] = server!.requests as [NonNullable<typeof server>['requests'][0]];
    expect(JSON.stringify(messages.at(-1))).toContain('diff --git a/x b/x');
    const names = tools!.map((tool) => tool.function.name);
    expect(names).toContain('read');
    for (const name of ['write', 'edit', 'bash']) expect(names).not.toContain(name);
  });
});

describe('--max-cost', () => {
  test('refuses what is not an amount', async () => {
    for (const text of ['0', 'much', '1,5', '-1']) {
      const { code, stderr } = await run([], [`--max-cost=${text}`, 'go']);
      expect([code, stderr]).toEqual([2, expect.stringContaining('--max-cost cannot be')]);
      await server!.close();
    }
    server = undefined;
  });
  test('refuses a model without a price', async () => {
    const { code, stderr } = await run([], ['--max-cost', '0.50', 'go']);
    expect([code, stderr]).toEqual([2, expect.stringContaining('without a known price')]);
  });
  test('stops a task that has cost so much', async () => {
    server = await scriptedOpenAi([READ, { text: ['ok'] }]);
    await writeFile(
      join(play.folder, 'treadle.toml'),
      `[models.main]\nmodel = "m"\nbase_url = "${server.baseURL}"\n[models.main.price]\ninput = 100_000\noutput = 0\n`,
    );
    const { code, stderr } = await command(['run', '--max-cost', '0.50', 'go'], play.folder);
    expect([code, stderr]).toEqual([3, expect.stringContaining('cost')]);
  });
});

describe('reads the task from standard input', () => {
  const TASK = '  do this\nand that\n';
  const expectTaskSent = (): void =>
    expect(server!.requests[0]!.messages.at(-1)).toMatchObject({ role: 'user', content: 'do this\nand that' });

  test('without an argument', async () => {
    const { ended } = await runProcess([{ text: ['ok'] }], [], { stdin: TASK });
    expect(await ended).toMatchObject({ code: 0, stdout: 'ok\n' });
    expectTaskSent();
  });

  test('with -', async () => {
    expect(await run([{ text: ['ok'] }], ['-'], TASK)).toMatchObject({ code: 0, stdout: 'ok\n' });
    expectTaskSent();
  });
});

describe('sends', () => {
  const PIXEL = 'iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg==';

  async function sent(...args: string[]): Promise<{ code: number; stdout: string; stderr: string }> {
    server = await scriptedOpenAi([{ text: ['ok'] }]);
    return command(['run', '--model', 'm', '--base-url', server.baseURL, ...args], play.folder);
  }
  const lastMessage = (): unknown => server!.requests[0]!.messages.at(-1)!.content;

  test('files after an @ with the task', async () => {
    await writeFile(join(play.folder, 'dot.png'), Buffer.from(PIXEL, 'base64'));
    expect(await sent('What is this?', '@notes.txt', '@dot.png')).toMatchObject({ code: 0, stdout: 'ok\n' });
    expect(lastMessage()).toEqual([
      { type: 'text', text: 'What is this?' },
      { type: 'text', text: `<file name="notes.txt">\nthe word is ${play.nonce}\n</file>` },
      { type: 'image_url', image_url: { url: `data:image/png;base64,${PIXEL}` } },
    ]);
  });

  test('a file as the task', async () => {
    expect(await sent('@notes.txt')).toMatchObject({ code: 0 });
    expect(lastMessage()).toBe(`the word is ${play.nonce}`);
  });

  test.each([
    [['@missing'], 'There is no file missing. If the text itself starts with @, put a space before it.'],
    [['one', 'two'], 'treadle run takes one task, but also got "two".'],
    [['@binary'], 'binary is an SQLite database.'],
    [['@folder'], 'folder cannot be read: it is a folder, not a file.'],
    [['@notes.txt/x'], 'notes.txt/x cannot be read: a part of its path is a file, not a folder.'],
    [['@latin1'], 'latin1 cannot be read: it is not a text in UTF-8. Convert it to UTF-8, or name another file.'],
    [['--system', '@folder', 'hi'], 'folder cannot be read: it is a folder, not a file.'],
    [['--system', '@latin1', 'hi'], 'latin1 cannot be read: it is not a text in UTF-8.'],
    [
      ['--output-schema', 'missing', 'hi'],
      'There is no file missing. --output-schema takes a file with a JSON Schema.\n',
    ],
    [['--output-schema', 'folder', 'hi'], 'folder cannot be read: it is a folder, not a file.'],
    [['--output-schema', 'binary', 'hi'], 'binary cannot be read: it is not a text in UTF-8.'],
    [['--config', 'folder', 'hi'], 'The configuration folder cannot be read: it is a folder, not a file.'],
    [['--config', 'latin1', 'hi'], 'The configuration latin1 cannot be read: it is not a text in UTF-8.'],
    [['--log', 'folder', 'hi'], 'The log folder cannot be written: it is a folder, not a file.'],
    [['--log', 'no/log', 'hi'], 'The log no/log cannot be written: its folder does not exist.'],
    [['--store', 'sqlite:folder', 'hi'], 'folder cannot be opened. Check that it is a file and not a folder'],
  ])('%j: an error, and nothing is sent', async (args, message) => {
    await play.write('binary', 'SQLite format 3\0');
    await play.write('folder/file', '');
    await writeFile(join(play.folder, 'latin1'), Buffer.from('caf\xe9', 'latin1'));
    expect(await sent(...args)).toMatchObject({ code: 2, stderr: expect.stringContaining(message) });
    expect(server!.requests).toEqual([]);
  });

  test('standard input that is not a text: an error', async () => {
    const stdin = Readable.from([Buffer.from('caf\xe9', 'latin1')]);
    expect(await command(['run', '-'], play.folder, { stdin })).toMatchObject({
      code: 2,
      stderr: 'treadle: Standard input cannot be read: it is not a text in UTF-8.\n',
    });
  });

  test('--system instead of the instructions of the command, and with --no-tools no tools', async () => {
    await sent('--no-tools', '--system', 'Speak French.', 'hi');
    expect(server!.requests[0]!.messages[0]).toEqual({ role: 'system', content: 'Speak French.' });
    expect(server!.requests[0]!.tools).toBeUndefined();
    expect(await sent('--no-tools', '--tools', 'read', 'hi')).toMatchObject({ code: 2 });
  });
});

describe('tool_support, with a provider that refuses tools', () => {
  const CALL = '<tool_call>{"name": "read", "arguments": {"path": "notes.txt"}}</tool_call>';

  /** The requests: whether each has tools, and whether its instructions describe them. */
  async function asked(
    line: string,
    ...texts: readonly string[]
  ): Promise<{ ended: Printed; seen: readonly string[] }> {
    const refuse = { status: 400, message: 'm does not support tools' };
    server = await scriptedOpenAi([refuse, ...texts.map((text) => ({ text: [text] }))]);
    const entry = `[models.m]\nprovider = "openai-compatible"\nmodel = "m"\nbase_url = "${server.baseURL}"\n${line}\n`;
    await play.write('treadle.toml', entry);
    const ended = await command(['run', '--model', 'm', '--tools', 'read', 'Which word?'], play.folder);
    const seen = server.requests.map(({ tools, messages }) =>
      tools ? 'tools' : JSON.stringify(messages[0]).includes('<tools>') ? 'described' : 'none',
    );
    return { ended, seen };
  }

  test('the run fails without it, and says what to set', async () => {
    const { ended, seen } = await asked('');
    expect(ended.code).toBe(1);
    expect(ended.stderr).toContain('set toolSupport (tool_support in treadle.toml) to "degrade" or "text"');
    expect(seen).toEqual(['tools']);
  });

  test('degrade: the model is asked again without tools', async () => {
    const { ended, seen } = await asked('tool_support = "degrade"', 'I cannot look.');
    expect([ended.code, ended.stdout, seen]).toEqual([0, 'I cannot look.\n', ['tools', 'none']]);
  });

  test('text: the instructions describe the tools, and calls are read from the text', async () => {
    const { ended, seen } = await asked('tool_support = "text"', CALL, 'Found.');
    expect([ended.code, ended.stdout, seen]).toEqual([0, 'Found.\n', ['tools', 'described', 'described']]);
    expect(server!.requests[2]!.messages.at(-1)!.content).toContain(play.nonce);
  });
});

describe('--output-schema', () => {
  const SCHEMA = '{"type":"object","properties":{"n":{"type":"number"}},"required":["n"],"additionalProperties":false}';

  test('prints only the validated answer, and asks again for another form', async () => {
    await play.write('schema.json', SCHEMA);
    server = await scriptedOpenAi([{ ...READ, text: ['I look.'] }, { text: ['seven'] }, { text: ['{"n":7}'] }]);
    const flags = ['--model', 'm', '--base-url', server.baseURL, '--output-schema', 'schema.json'];
    const { code, stdout, stderr } = await command(['run', ...flags, 'How many?'], play.folder);
    expect([code, JSON.parse(stdout)]).toEqual([0, { n: 7 }]);
    expect(stderr).toMatch(/^I look\.\n#1 read/);
    expect(server!.requests[0]).toMatchObject({ response_format: { type: 'json_schema' } });
  });

  test('works with the demo model', async () => {
    await play.write('schema.json', SCHEMA);
    const { code, stdout } = await command(['run', '--output-schema', 'schema.json', 'What is 6 * 7?'], play.folder);
    expect([code, JSON.parse(stdout)]).toEqual([0, { n: expect.any(Number) }]);
  });

  test.each([
    ['{', 'is not JSON'],
    ['[]', 'is not a JSON object'],
    ['{}', '--output-schema schema.json is not a valid JSON Schema: it is empty.'],
    ['{"city":{"type":"string"}}', 'is not a valid JSON Schema: it has no keyword of JSON Schema.'],
    ['{"type":"strng"}', 'is not a valid JSON Schema: there is no type "strng".'],
  ])('rejects a file with %s', async (text, message) => {
    await play.write('schema.json', text);
    const printed = await command(['run', '--output-schema', 'schema.json', 'hi'], play.folder);
    expect(printed).toMatchObject({ code: 2, stderr: expect.stringContaining(message) });
  });
});

describe('the turn limit', () => {
  const limitsOfRun = async (): Promise<unknown> => {
    const { stdout } = await command(['runs', 'list', '--json'], play.folder);
    const [{ runId }] = JSON.parse(stdout) as [{ runId: string }];
    const { stdout: exported } = await command(['runs', 'export', runId], play.folder);
    const { entry } = JSON.parse(exported.split('\n')[1]!);
    return { turns: entry.event.rules.maxTurns, ...entry.event.rules.limits };
  };

  test.each([
    ['by default', '', [], 100],
    ['of --max-turns', '', ['--max-turns', '130'], 130],
    ['at a lower level of the policy', '[policy]\nautonomy = 0\n', [], 100],
    ['of the configuration', '[orchestrator]\nmax_tool_iterations = 30\n', [], 30],
  ])('%s is not that of the level', async (_, toml, args, turns) => {
    await play.write('treadle.toml', toml);
    await run([{ text: ['Done.'] }], [...args, 'go']);
    expect(await limitsOfRun()).toEqual({ turns });
  });
});

describe('exits', () => {
  test('with 1 and the reason if the run fails', async () => {
    const { ended } = await runProcess([{ status: 401, message: 'wrong key' }], ['go']);
    expect(await ended).toMatchObject({
      code: 1,
      stdout: '',
      stderr: expect.stringMatching(/^Failed \(auth\): .*wrong key/),
    });
  });

  test('with 3 at the limit of --max-turns', async () => {
    const { code, stdout, stderr } = await run([{ ...READ, text: ['Let me look.'] }], ['--max-turns', '1', 'go']);
    expect([code, stdout]).toEqual([3, 'Let me look.\n']);
    expect(stderr).toMatch(/^#1 read /);
    expect(stderr).not.toContain('Last reply');
    expect(stderr).toContain('Stopped at the turn limit (--max-turns), after 1 turn and 1 call.');
  });

  test('with 4 and what it waits for if it pauses without a terminal', async () => {
    const { code, stdout, stderr } = await run([READ], ['--ask', 'go']);
    expect([code, stdout]).toEqual([4, '']);
    expect(stderr).toContain('Paused: waits for approval of read {"path":"notes.txt"}.');
    expect(stderr).toContain('no terminal to ask for approval');
    expect(stderr).not.toContain(play.nonce);
  });

  test('with 4 and the result as JSON if it pauses', async () => {
    const { code, stdout } = await run([READ], ['--ask', '--json', 'go']);
    const result = JSON.parse(stdout);
    expect([code, result.outcome]).toEqual([4, undefined]);
    expect(result.waiting).toMatchObject([
      { type: 'approval', call: { name: 'read', arguments: '{"path":"notes.txt"}' } },
    ]);
  });

  test('with 130 at Ctrl-C, and prints how to resume', async () => {
    const { child, shows, ended } = await runProcess([READ, { hang: 'I am still th' }], ['go'], {});
    await shows('I am still th');
    child.kill('SIGINT');
    const { code, stdout, stderr } = await ended;
    expect([code, stdout]).toEqual([130, 'I am still th\n']);
    expect(stderr).toContain(`#1 returned: 1 the word is ${play.nonce}`);
    expect(stderr).toContain('Stopping; press Ctrl-C again to quit immediately.');
    expect(stderr).toMatch(
      new RegExp(
        '^Stopped after 2 turns and 1 call\\.\\n' +
          `Resume with: treadle runs resume run_[0-9a-f]{8} --model scripted --base-url ${server!.baseURL}\\n` +
          'Cancel with: treadle runs cancel run_[0-9a-f]{8}\\n$',
        'm',
      ),
    );
  });

  test('with 130 at SIGTERM, when the commands of the run are killed', async () => {
    // Inside a sandbox, the pid is another one than here.
    await play.write('treadle.toml', '[orchestrator.tools]\nenable_sandboxing = false\n');
    const args = JSON.stringify({ command: 'echo $$ > pid; exec sleep 1000' });
    const { child, ended } = await runProcess([{ calls: [{ name: 'bash', arguments: args }] }], ['--yes', 'go'], {});
    const pid = async (): Promise<number> => Number(await readFile(join(play.folder, 'pid'), 'utf8').catch(() => ''));
    await expect.poll(pid, { timeout: 20_000 }).toBeGreaterThan(0);
    child.kill('SIGTERM');
    expect(await ended).toMatchObject({
      code: 130,
      stderr: expect.stringContaining('Resume with: treadle runs resume'),
    });
    const left = await pid();
    expect(() => process.kill(left, 0)).toThrow('ESRCH');
  });

  test('with 130 at Ctrl-C and the result so far as JSON', async () => {
    const { child, ended } = await runProcess([READ, { hang: '…' }], ['--json', 'go'], {});
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

  test('with 130 at Ctrl-C, and cancels a run in a memory: store', async () => {
    const { child, ended } = await runProcess([READ, { hang: '…' }], ['--store', 'memory:', '--json', 'go'], {});
    await server!.answered(2);
    child.kill('SIGINT');
    const { code, stdout, stderr } = await ended;
    expect(code).toBe(130);
    expect(JSON.parse(stdout)).toMatchObject({ outcome: { type: 'cancelled', phase: 'model' } });
    expect(stderr).toContain('Cancelling; press Ctrl-C again to quit immediately.');
    expect(stderr).toContain('Cancelled while the model was replying, after 2 turns and 1 call.');
    expect(stderr).not.toContain('resume');
  });
});

test('--finish confirm asks the model once more before it accepts the answer', async () => {
  const ended = await run([{ text: ['first'] }, { text: ['confirmed'] }], ['--finish', 'confirm', 'go']);
  expect(ended).toMatchObject({ code: 0, stdout: 'first\nconfirmed\n' });
});

test('reports an answer that was cut off', async () => {
  const ended = await run([{ text: ['half an ans'], finish: 'length' }], ['go']);
  expect(ended).toMatchObject({ code: 0, stdout: 'half an ans\n', stderr: expect.stringContaining('cut off') });
});

test('exits without an error when standard output is closed', async () => {
  const { child, ended } = await runProcess([{ text: ['x'.repeat(1_000_000)] }], ['go'], {});
  child.stdout.destroy();
  expect(await ended).toMatchObject({ code: 0, signal: null, stderr: '' });
});

test('prints no colours without a terminal, and escapes control characters', async () => {
  await play.write('notes.txt', '\u001b]0;owned\u0007');
  const { stderr } = await run([READ, { text: ['ok'] }], ['go']);
  expect(stderr).not.toContain('\u001b');
  expect(stderr).toContain('\\u001b]0;owned');
});
