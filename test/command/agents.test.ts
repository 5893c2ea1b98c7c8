import { cpSync } from 'node:fs';
import { rm } from 'node:fs/promises';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { afterEach, beforeEach, describe, expect, test, vi } from 'vitest';
import { fakeTerminal } from './fake-terminal.ts';
import { command, type Printed } from './in-process.ts';
import { playground, type Playground } from './playground.ts';
import { scriptedOpenAi, type ScriptedOpenAi, type Step } from './scripted-openai.ts';

const EXAMPLES = fileURLToPath(new URL('../../examples/agents', import.meta.url));

let play: Playground;
let home: Playground;
let server: ScriptedOpenAi | undefined;

beforeEach(async () => {
  [play, home] = [await playground(), await playground()];
  vi.stubEnv('HOME', home.folder);
});
afterEach(async () => {
  vi.unstubAllEnvs();
  await server?.close();
  server = undefined;
  await play.remove();
  await home.remove();
});

const agents = (...args: readonly string[]): Promise<Printed> => command(['agents', ...args], play.folder);
/** Without tools that start programs, no sandbox is looked for. */
const TOOLS = ['--tools', 'read-only,write'];
const runOn = (...args: readonly string[]): Promise<Printed> => agents('run', ...args, ...TOOLS, '--store', 'memory:');

async function scripted(steps: readonly Step[], ...args: readonly string[]): Promise<Printed> {
  server = await scriptedOpenAi(steps);
  return agents('run', ...args, '--model', 'scripted', '--base-url', server.baseURL);
}

const call = (name: string, args: object): Step => ({ calls: [{ name, arguments: JSON.stringify(args) }] });
const lastText = (index: number): string => JSON.stringify(server!.requests[index]!.messages.at(-1));

/** The level that allows most, and no sandbox. */
const FREE = '[orchestrator.tools]\nenable_sandboxing = false\n[policy]\nautonomy = 3\n';

const LOOKER = 'description: Looks.\ninputs:\n  path: { type: string, required: true }\ntools: [read]\n';

describe('the examples', () => {
  beforeEach(() => cpSync(EXAMPLES, join(play.folder, 'agents'), { recursive: true }));

  test('are listed and have no problems', async () => {
    const { stdout, code } = await agents('list');
    expect(code).toBe(0);
    expect(stdout).toMatch(
      /^NAME +INPUTS +DESCRIPTION\ndesk +task +Lets other agents do .*\nfinder .*\nsummarizer .*\n$/,
    );
    expect(await agents('check')).toEqual({ code: 0, stdout: '3 agents are fine.\n', stderr: '' });
  });

  test.each([
    ['finder', '--question', 'read notes.txt'],
    ['summarizer', '--path', 'notes.txt'],
    ['desk', '--task', 'agent_summarizer {"path": "notes.txt"}'],
  ])('%s runs on the demo model', async (...args) => {
    const { stdout, code } = await runOn(...args, '--quiet');
    expect(code).toBe(0);
    expect(stdout).toContain(play.nonce);
  });
});

describe('agents list, show and check', () => {
  test('name the files that are not used, and why', async () => {
    await play.write('agents/good.yaml', 'description: Good.\n');
    await play.write('agents/bad.yaml', 'description: Bad.\ntemperatur: 1\n');
    const { stdout, stderr } = await agents('list');
    expect(stdout).toContain('good');
    const problem = `${join(play.folder, 'agents/bad.yaml')}, line 2, temperatur: There is no such key. Did you mean "temperature"?`;
    expect(stderr).toContain(`Not used: ${problem}`);
    expect(await agents('check')).toMatchObject({ code: 1, stdout: expect.stringContaining(`Problem: ${problem}`) });
    expect(await agents('check', 'good')).toMatchObject({ code: 0 });
    expect(await agents('run', 'bad')).toMatchObject({ code: 2, stderr: expect.stringContaining(problem) });
    const { problems } = JSON.parse((await agents('list', '--json')).stdout);
    expect(problems).toMatchObject([{ line: 2, key: 'temperatur' }]);
  });

  test('the command says in one line that files are not used, if there are agents', async () => {
    await play.write('agents/bad.yaml', 'x: 1\n');
    const notice = '1 file of agents is not used. "treadle agents check" says why.';
    const run = ['run', 'what is 6 * 7?', '--store', 'memory:', '--no-tools'];
    expect((await command(run, play.folder)).stderr).not.toContain('agents');
    await play.write('agents/good.yaml', 'description: Good.\n');
    expect((await command(run, play.folder)).stderr).toContain(notice);
  });

  test('check of a name finds the file, whatever its name is', async () => {
    await play.write('agents/file.yaml', 'name: other\ndescription: Other.\ngovernance: { approvals: [write] }\n');
    expect((await agents('check', 'other')).stdout).toMatch(/^Note: .*file\.yaml, line 3, governance\.approvals: /);
  });

  test('check names what is not there', async () => {
    await play.write('agents/a.yaml', 'description: A.\ntools: [raed]\n');
    await play.write('agents/b.yaml', 'description: B.\ndependencies: [gone]\n');
    await play.write('agents/c.yaml', 'description: C.\nmodel: none-such\n');
    await play.write('agents/d.yaml', 'description: D.\nskills: [none]\ngovernance: { approvals: [write] }\n');
    const { code, stdout } = await agents('check');
    expect(code).toBe(1);
    expect(stdout).toMatch(/a\.yaml, line 2, tools\[0\]: .*there is no tool "raed"\. Did you mean "read"\?/);
    expect(stdout).toContain('it depends on the agent "gone", which does not exist.');
    expect(stdout).toMatch(/c\.yaml, line 2, model: .*none-such/);
    expect(stdout).toContain('There is no skill "none"');
    expect(stdout).toMatch(/Note: .*d\.yaml, line 3, governance\.approvals: It has no effect/);
  });

  test('check names all that an agent lacks, with key and line', async () => {
    const parts = 'model: none-such\ntools: [read, raed,\n  "agent:gone"]\nskills: [none]\ndependencies:\n  - gone\n';
    await play.write('agents/a.yaml', `description: A.\n${parts}`);
    const { problems } = JSON.parse((await agents('check', '--json')).stdout);
    const file = join(play.folder, 'agents/a.yaml');
    expect(problems).toEqual([
      { file, line: 2, key: 'model', message: expect.stringContaining('none-such') },
      { file, line: 3, key: 'tools[1]', message: expect.stringContaining('"raed"') },
      { file, line: 4, key: 'tools[2]', message: expect.stringContaining('"gone"') },
      { file, line: 5, key: 'skills[0]', message: expect.stringContaining('"none"') },
      { file, line: 7, key: 'dependencies[0]', message: expect.stringContaining('"gone"') },
    ]);
  });

  test('show has the prompt and the schemas', async () => {
    await play.write('agents/looker.yaml', LOOKER);
    const { stdout } = await agents('show', 'looker');
    expect(stdout).toContain('# Identity\nYou are "looker".');
    expect(stdout).toContain('Usage: treadle agents run looker --path …');
    expect(JSON.parse((await agents('show', 'looker', '--json')).stdout)).toMatchObject({
      definition: { name: 'looker' },
      input_schema: { required: ['path'] },
      narrowings: [],
    });
  });

  test('without agents, say how to write one', async () => {
    expect((await agents('list')).stdout).toContain('"treadle agents new NAME" writes one.');
    expect(await agents('run', 'x')).toMatchObject({
      code: 2,
      stderr: expect.stringContaining('treadle agents new x'),
    });
    const { stdout, code } = await agents('new', 'x');
    expect([code, stdout]).toEqual([0, `${join(play.folder, 'agents/x.md')}\n`]);
    expect(await agents('check')).toMatchObject({ code: 0 });
    expect(await agents('new', 'x')).toMatchObject({ code: 2, stderr: expect.stringContaining('exists') });
    expect(await agents('new', 'X y')).toMatchObject({
      code: 2,
      stderr: expect.stringContaining('cannot be the name'),
    });
    expect((await agents('new', 'y', '--user')).stdout).toBe(`${join(home.folder, '.treadle/agents/y.md')}\n`);
    expect((await agents('list')).stdout).toContain('\ny ');
  });

  test('are in the folders of the configuration', async () => {
    await play.write('treadle.toml', '[agents]\npath = ["team"]\ndefault = "looker"\n');
    await play.write('team/looker.yaml', LOOKER);
    await play.write('agents/other.yaml', 'description: Other.\n');
    expect((await agents('list')).stdout).not.toContain('other');
    expect(await runOn('__default__', '--path', 'notes.txt', '--quiet')).toMatchObject({
      code: 0,
      stdout: expect.stringContaining(play.nonce),
    });
  });
});

describe('inputs', () => {
  beforeEach(() =>
    play.write(
      'agents/echo.yaml',
      'description: Echoes.\ninputs:\n' +
        '  text: { type: string, required: true, description: What to echo }\n' +
        '  times: { type: integer, default: 1 }\n  loud: { type: boolean }\n  tone: { type: string, enum: [kind, curt] }\n' +
        '  model: { type: string }\n',
    ),
  );

  const inputsOf = async (...args: readonly string[]): Promise<unknown> => {
    const { code, stderr } = await scripted([{ text: ['ok'] }], 'echo', ...args, ...TOOLS, '--store', 'memory:');
    if (code !== 0) throw new Error(stderr);
    return JSON.parse(String(server!.requests[0]!.messages.at(-1)!.content));
  };

  test('can be flags, JSON, a file or a text', async () => {
    await play.write('in.json', '{"text": "from a file"}');
    await play.write('in.txt', 'plain\n');
    const flags = ['--text', 'x', '--times', '3', '--loud', '--tone', 'curt', '--input-model', 'm'];
    expect(await inputsOf(...flags)).toEqual({ text: 'x', times: 3, loud: true, tone: 'curt', model: 'm' });
    expect(await inputsOf('{"text": "y", "times": 2}')).toEqual({ text: 'y', times: 2 });
    expect(await inputsOf('{"text": "y"}', '--text', 'z')).toEqual({ text: 'z', times: 1 });
    expect(await inputsOf('@in.json')).toEqual({ text: 'from a file', times: 1 });
    expect(await inputsOf('@in.txt')).toEqual({ text: 'plain', times: 1 });
    expect(await inputsOf('--text', '@in.txt')).toEqual({ text: 'plain\n', times: 1 });
    expect(await inputsOf('just a text')).toEqual({ text: 'just a text', times: 1 });
  });

  test.each([
    [[], 'text: It is missing (What to echo).'],
    [['--text', 'x', '--times', 'three'], '--times cannot be "three". It takes JSON (integer)'],
    [['--text', 'x', '--times', '1.5'], 'times: '],
    [['--text', 'x', '--tone', 'rude'], '--tone cannot be "rude". It takes kind or curt.'],
    [['--txt', 'x'], 'has no flag --txt. Did you mean "--text"?'],
    [['{"txt": "x"}'], 'has no input "txt". Did you mean "text"?'],
    [['{"text": '], 'is not a JSON object with the inputs of "echo"'],
    [['@none.json'], 'There is no file none.json.'],
  ])('%j are refused', async (args, message) => {
    expect(await runOn('echo', ...args)).toMatchObject({ code: 2, stderr: expect.stringContaining(message) });
  });

  test('that are missing are asked for on a terminal', async () => {
    const terminal = fakeTerminal(
      ['agents', 'run', 'echo', '--store', 'memory:', '--quiet', '--model', 'demo', ...TOOLS],
      play.folder,
    );
    await terminal.shows('What to echo\ntext: ');
    terminal.type('what is 6 * 7?\r');
    await terminal.shows('6 * 7 = 42');
    expect(await terminal.exit).toBe(0);
  });

  test('are listed in the help', async () => {
    const { stdout } = await agents('run', 'echo', '--help');
    expect(stdout).toContain('--text TEXT|@FILE');
    expect(stdout).toContain('What to echo (required)');
  });
});

describe('a run', () => {
  test('case 30: does a task in several steps with the real shell', async () => {
    await play.write(
      'agents/worker.md',
      '---\ndescription: Works.\ntools: [bash, read]\noutputs:\n  lines: { type: integer, required: true }\n---\nWork.\n',
    );
    const steps: readonly Step[] = [
      call('bash', { command: 'printf "one\\ntwo\\n" > made.txt' }),
      call('bash', { command: 'wc -l < made.txt' }),
      { text: ['It has 2 lines.'] },
      { text: ['It has 2 lines.'] },
      { text: ['{"lines": 2}'] },
    ];
    const { stdout, code } = await scripted(steps, 'worker', '--yes', '--json', '--task-id', 'job 7');
    expect(code).toBe(0);
    expect(JSON.parse(stdout)).toMatchObject({
      output: { lines: 2 },
      raw_response: '{"lines": 2}',
      model: 'scripted',
      iterations: 5,
      tool_calls_made: 2,
      tools_used: ['bash'],
      termination_reason: 'completed',
    });
    expect(lastText(2)).toContain('2');
    const { stdout: listed } = await command(['runs', 'list', '--json'], play.folder);
    expect(JSON.parse(listed)).toMatchObject([{ task: 'job 7', labels: { agent: 'worker' } }]);
  });

  test('is bounded by the definition, whatever the policy allows', async () => {
    await play.write('treadle.toml', FREE);
    await play.write(
      'agents/bound.yaml',
      'description: Bound.\ntools: [read, write, "Bash(git status)"]\nautonomy_level: full\n' +
        'governance:\n  paths: { read: ["src/**"], write: ["src/**"] }\n  approvals: [write]\n',
    );
    await play.write('src/a.txt', 'inside');
    const steps: readonly Step[] = [
      call('read', { path: 'notes.txt' }),
      call('read', { path: 'src/a.txt' }),
      call('bash', { command: 'ls' }),
      call('write', { path: 'docs/b.txt', content: 'x' }),
      call('read', { path: 'src/a.txt', limit: 1 }),
      call('read', { path: 'agents/bound.yaml' }),
      { text: ['ok'] },
    ];
    const { code } = await scripted(steps, 'bound', '--no-confirm', '--ask=never');
    expect(code).toBe(5);
    expect(lastText(1)).toContain('agent:bound: reads of');
    expect(lastText(2)).toContain('inside');
    expect(lastText(3)).toMatch(/agent:bound: .*denies/);
    expect(lastText(4)).toContain('agent:bound: writes of');
    expect(lastText(6)).toContain('agent:bound: reads of');
  });

  test('that waits is resumed by its definition, although the file has changed or is gone', async () => {
    const file = 'agents/writer.yaml';
    await play.write(
      file,
      'description: Writes.\ntools: [write]\ngovernance: { approvals: [write] }\noutputs:\n  done: { type: string, required: true }\n',
    );
    await play.write('treadle.toml', FREE);
    const write = call('write', { path: 'made.txt', content: 'x' });
    const paused = await scripted([write, { text: ['Made.'] }, { text: ['Made.'] }], 'writer', ...TOOLS);
    expect(paused.code).toBe(4);
    const [, id] = /runs resume (\S+)/.exec(paused.stderr)!;
    await play.write(file, 'description: Reads only.\ntools: [read]\n');
    const shown = await command(['runs', 'show', id!], play.folder);
    expect(shown.stdout).toContain(
      'The definition of the agent "writer" has changed (description, tools, governance, outputs)',
    );
    const args = ['--approve', 't1.approval.0', '--model', 'scripted', '--base-url', server!.baseURL];
    const resumed = await command(['runs', 'resume', id!, ...args], play.folder);
    expect(resumed).toMatchObject({ code: 0, stdout: expect.stringContaining('"done": "Made."') });
    expect(resumed.stderr).toContain(
      'The definition of the agent "writer" has changed (description, tools, governance, outputs). The run keeps the definition',
    );
    await rm(join(play.folder, 'agents'), { recursive: true });
    const forked = await command(
      ['runs', 'fork', id!, '--at', '3', '--model', 'scripted', '--base-url', server!.baseURL],
      play.folder,
    );
    expect(forked.stderr).toContain('does not exist any more');
  });

  test('prints only the confirmed answer', async () => {
    await play.write('agents/looker.yaml', 'description: Looks.\ntools: [read]\n');
    const steps = [{ text: ['First.'] }, { text: ['Second.'] }];
    expect(await scripted(steps, 'looker', ...TOOLS)).toMatchObject({ code: 0, stdout: 'Second.\n' });
  });

  test('stays in its working folder, in which its commands run', async () => {
    await play.write('treadle.toml', FREE);
    await play.write(
      'agents/inner.yaml',
      'description: Inner.\ntools: [bash, glob, write]\ngovernance: { working_dir: src }\n',
    );
    await play.write('src/a.txt', 'inside');
    const steps: readonly Step[] = [
      call('bash', { command: 'ls' }),
      call('glob', { pattern: '*.txt' }),
      call('bash', { command: 'cat ../notes.txt' }),
      call('write', { path: 'src/b.txt', content: 'x' }),
      call('bash', { command: 'ls', workdir: '.' }),
      call('write', { path: 'b.txt', content: 'x' }),
      { text: ['ok'] },
    ];
    expect(await scripted(steps, 'inner', '--no-confirm', '--ask=never')).toMatchObject({ code: 5 });
    expect(lastText(1)).toContain('a.txt');
    expect(lastText(1)).not.toContain('notes.txt');
    expect(lastText(2)).toContain('src/a.txt');
    expect(lastText(3)).not.toContain(play.nonce);
    expect(lastText(3)).toContain('denied');
    expect(lastText(4)).not.toContain('denied');
    expect(lastText(5)).toContain('denied');
    expect(lastText(6)).toContain('denied');
  });

  test('finds nothing in files that its definition denies, also if it searches the folder above them', async () => {
    await play.write('treadle.toml', FREE);
    await play.write(
      'agents/finder.yaml',
      'description: Finds needles.\ntools: [grep, glob]\ngovernance: { paths: { deny: ["private/**"] } }\n',
    );
    await play.write('private/a.txt', 'needle 1');
    await play.write('open/b.txt', 'needle 2');
    const steps: readonly Step[] = [
      call('grep', { pattern: 'needle' }),
      call('glob', { pattern: 'private/*' }),
      call('grep', { pattern: 'Finds', path: '.' }),
      { text: ['ok'] },
    ];
    expect(await scripted(steps, 'finder', ...TOOLS, '--no-confirm')).toMatchObject({ code: 0 });
    expect(lastText(1)).toContain('needle 2');
    expect(lastText(1)).not.toContain('needle 1');
    expect(lastText(2)).toContain('does not allow reads');
    expect(lastText(3)).toContain('no match');
  });

  test('of a task that is given to an agent is resumed with it', async () => {
    await play.write('treadle.toml', FREE);
    const file = 'agents/looker.yaml';
    await play.write(file, `${LOOKER}governance: { approvals: [read] }\n`);
    server = await scriptedOpenAi([
      call('agents_list', {}),
      call('task', { task_description: 'Look.', agent: 'looker', inputs: { path: 'notes.txt' } }),
      call('read', { path: 'notes.txt' }),
      { text: ['Looked.'] },
      { text: ['Looked.'] },
      { text: ['Done.'] },
    ]);
    const flags = ['--model', 'scripted', '--base-url', server.baseURL, '--quiet'];
    const paused = await command(['run', 'go', ...flags], play.folder);
    expect(paused.code).toBe(4);
    expect(lastText(1)).toContain('- looker: Looks. Inputs: path.');
    const [, id] = /runs resume (\S+)/.exec(paused.stderr)!;
    await play.write(file, LOOKER.replace('Looks.', 'Changed.'));
    const approval = ['--approve', 't2.tool.0/t1.approval.0'];
    const resumed = await command(['runs', 'resume', id!, ...approval, ...flags], play.folder);
    expect(resumed).toMatchObject({ code: 0, stdout: 'Done.\n' });
    expect(lastText(3)).toContain(play.nonce);
    const prompt = String(server.requests[3]!.messages[0]!.content);
    expect(prompt).toContain('You are "looker".\nLooks.');
  });
});
