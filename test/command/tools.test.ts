import { mkdir, readFile, symlink } from 'node:fs/promises';
import { userInfo } from 'node:os';
import { join } from 'node:path';
import { describe, expect, test } from 'vitest';
import { command, type Printed } from './in-process.ts';
import { fakeTerminal } from './fake-terminal.ts';
import { READ, runsFixture } from './runs-fixture.ts';

const fixture = runsFixture();
const tools = (...args: readonly string[]): Promise<Printed> => fixture.treadle('tools', ...args);
const run = (...args: readonly string[]): Promise<Printed> => fixture.treadle('run', ...fixture.model(), ...args);
const offered = (request = 0): readonly string[] =>
  (fixture.server.requests[request]!.tools ?? []).map((tool) => tool.function.name);
const instructions = (): string => String(fixture.server.requests[0]!.messages[0]!.content);
const READ_HOSTS = { calls: [{ name: 'read', arguments: '{"path":"/etc/hosts"}' }] };

describe('tools list and show', () => {
  test('lists every tool with its effect, its permissions and a sentence', async () => {
    await fixture.play.write('treadle.toml', '[policy.permissions]\nfile_read = false\n');
    const { code, stdout, stderr } = await tools('list');
    expect([code, stderr]).toEqual([0, '']);
    expect(stdout).toMatch(/^NAME +EFFECT +PERMISSIONS +DESCRIPTION\n/);
    expect(stdout).toMatch(/^read +pure +file_read +\(disabled: permissions\.file_read = false\)$/m);
    expect(stdout).toMatch(/^question +idempotent +- +Ask the user a question/m);
    for (const line of stdout.split('\n')) expect(line.length).toBeLessThanOrEqual(120);
  });

  test('shows the description, the limits and the schema of a tool', async () => {
    const { code, stdout } = await tools('show', 'question');
    expect(code).toBe(0);
    expect(stdout).toMatch(/^question: Ask the user a question/);
    expect(stdout).toContain('\nTime limit:   10 s\n');
    expect(stdout).toContain('"prompt"');
    expect((await tools('show', 'task')).stdout).toContain('Time limit:   none of its own');
    expect(JSON.parse((await tools('show', 'read', '--json')).stdout)).toMatchObject({
      name: 'read',
      effect: 'pure',
      permissions: ['file_read'],
      parameters: { required: ['path'] },
    });
  });

  test('suggests the nearest name', async () => {
    expect(await tools('show', 'raed')).toMatchObject({
      code: 2,
      stderr: expect.stringContaining('There is no tool "raed". Did you mean "read"? Tools: read, glob, grep'),
    });
  });
});

describe('tools call', () => {
  test('prints the result, also as JSON', async () => {
    const args = ['call', 'read', '{"path": "notes.txt"}'] as const;
    const { code, stdout, stderr } = await tools(...args);
    expect([code, stderr]).toEqual([0, '']);
    expect(stdout).toContain(`the word is ${fixture.play.nonce}`);
    const json = JSON.parse((await tools(...args, '--json')).stdout);
    expect(json).toMatchObject({ type: 'tool-result', name: 'read', isError: false });
    const piped = await command(['tools', 'call', 'read', '-'], fixture.play.folder, '{"path": "notes.txt"}');
    expect(piped).toMatchObject({ code: 0, stdout });
  });

  test.each([
    [1, ['read', '{"path": "missing"}'], 'There is no "missing"'],
    [1, ['read', '{"path": ".env"}'], 'was denied'],
    [1, ['read', '{"path": "/etc/hosts"}'], 'Nobody can be asked, and --yes is not given.'],
    [2, ['read', '{"paht": "x"}'], 'paht'],
    [2, ['read', '{"path"'], 'The arguments are not JSON'],
    [2, ['read', '["x"]'], 'have to be a JSON object'],
    [2, ['reed'], 'There is no tool "reed". Did you mean "read"?'],
    [2, ['task', '{"task_description": "x"}'], 'A task needs a model'],
  ])('exits with %d for %j', async (exit, args, text) => {
    const { code, stdout, stderr } = await tools('call', ...args);
    expect([code, stdout]).toEqual([exit, '']);
    expect(stderr).toContain(text);
    expect(stderr).not.toContain('should not have happened');
  });

  test('--yes approves what is asked about, and not what is denied', async () => {
    const hosts = await readFile('/etc/hosts', 'utf8');
    const { code, stdout } = await tools('call', 'read', '{"path": "/etc/hosts"}', '--yes', '--json');
    expect(code).toBe(0);
    expect(stdout).toContain(JSON.stringify(hosts.split('\n')[0]).slice(1, -1));
    expect(await tools('call', 'read', '{"path": ".env"}', '--yes')).toMatchObject({
      code: 1,
      stderr: expect.stringContaining('was denied'),
    });
  });

  test('prints the output of a command as it is', async () => {
    const printed = await tools('call', 'bash', '{"command": "echo one; echo two"}', '--yes');
    expect(printed).toMatchObject({ code: 0, stdout: 'one\ntwo\n' });
  });

  test('asks on a terminal', async () => {
    const { type, shows, exit } = fakeTerminal(
      ['tools', 'call', 'read', '{"path": "/etc/hosts"}'],
      fixture.play.folder,
    );
    await shows('Allow it? ');
    type('n\r');
    await shows('The user said no.');
    expect(await exit).toBe(1);
  });

  test('a tool that the configuration disables is an error', async () => {
    await fixture.play.write('treadle.toml', '[orchestrator.tools.permissions]\nfile_read = false\n');
    expect(await tools('call', 'read', '{"path": "notes.txt"}')).toMatchObject({
      code: 2,
      stderr: expect.stringContaining('disabled in treadle.toml with permissions.file_read = false'),
    });
  });
});

describe('--tools', () => {
  test.each([
    ['read-only', ['read', 'glob', 'grep']],
    ['read, todoread', ['read', 'todoread']],
    ['none', []],
  ])('%s offers %j', async (list, names) => {
    await fixture.script({ text: ['ok'] });
    expect(await run('--tools', list, 'go')).toMatchObject({ code: 0 });
    expect(offered()).toEqual(names);
  });

  test('by default all tools are offered, and the instructions say that the model can act', async () => {
    await fixture.script({ text: ['ok'] }, { text: ['ok'] });
    await run('go');
    expect(offered()).toEqual(expect.arrayContaining(['read', 'todowrite', 'question', 'task']));
    expect(instructions()).toContain('You can look into it and change it with your tools.');
  });

  test.each([
    [
      'reed',
      '--tools names "reed", which is not a tool. Did you mean "read"? Sets of tools: read-only, coding, packages, none.',
    ],
    ['read,none', '--tools names "none" and other tools.'],
    ['', '--tools needs a value'],
  ])('%j is an error', async (list, text) => {
    await fixture.script();
    expect(await run('--tools', list, 'go')).toMatchObject({ code: 2, stderr: expect.stringContaining(text) });
  });

  test('a resumed run has the same tools again, also those of its tasks', async () => {
    await fixture.script(READ, { status: 500, message: 'down' });
    await run('--tools', 'read,task', 'go');
    const task = { calls: [{ name: 'task', arguments: '{"task_description":"count"}' }] };
    await fixture.script(task, { text: ['two'] }, { text: ['done'] });
    const { runId } = (await fixture.runs())[0]!;
    const { code, stdout } = await fixture.treadle('runs', 'resume', runId, ...fixture.model());
    expect([code, stdout]).toEqual([0, 'done\n']);
    expect([offered(0), offered(1), offered(2)]).toEqual([['read', 'task'], ['read'], ['read', 'task']]);
  });

  test('without a terminal, a question is answered at once', async () => {
    await fixture.script({ calls: [{ name: 'question', arguments: '{"prompt":"Which?"}' }] }, { text: ['ok'] });
    expect(await run('go')).toMatchObject({ code: 0, stdout: 'ok\n' });
    expect(JSON.stringify(fixture.server.requests[1]!.messages.at(-1))).toContain('Nobody can answer');
  });
});

describe('--yes', () => {
  test('runs what is asked about, and records who approved it', async () => {
    await fixture.script(READ_HOSTS, { text: ['ok'] });
    expect(await run('--yes', 'go')).toMatchObject({ code: 0, stdout: 'ok\n' });
    expect(JSON.stringify(fixture.server.requests[1]!.messages.at(-1))).not.toContain('denied');
    const { runId } = (await fixture.runs())[0]!;
    const { stdout } = await fixture.treadle('runs', 'show', runId);
    expect(stdout).toContain(`allowed (rule autonomy, approved by ${userInfo().username} with --yes)`);
  });

  test('does not run what is denied', async () => {
    await fixture.script({ calls: [{ name: 'read', arguments: '{"path":".env"}' }] }, { text: ['ok'] });
    await run('--yes', 'go');
    expect(JSON.stringify(fixture.server.requests[1]!.messages.at(-1))).toContain('was denied');
  });

  test('the calls of a task are shown and logged', async () => {
    const task = { calls: [{ name: 'task', arguments: '{"task_description":"look"}' }] };
    await fixture.script(task, READ_HOSTS, { text: ['seen'] }, { text: ['ok'] });
    const { code, stderr } = await run('--yes', '--log', 'log.jsonl', 'go');
    expect(code).toBe(0);
    expect(stderr).toMatch(/^#1 task .*\n#1\.1 read .*\n#1\.1 returned .*\n#1 returned: seen$/m);
    const log = await readFile(join(fixture.play.folder, 'log.jsonl'), 'utf8');
    expect(log.trim().split('\n')).toEqual([
      expect.stringContaining('"tool":"read","parameters":{"path":"/etc/hosts"}'),
      expect.stringContaining('"tool":"task"'),
    ]);
  });

  test('does not approve for other people', async () => {
    await fixture.play.write('treadle.toml', '[policy]\napprovals.approvers = ["nobody"]\n');
    await fixture.script(READ_HOSTS);
    const { code, stderr } = await run('--yes', 'go');
    expect([code, stderr]).toEqual([4, expect.stringContaining('of nobody')]);
  });

  test.each(['always', 'never'])('contradicts --ask=%s', async (ask) => {
    await fixture.script();
    expect(await run('--yes', `--ask=${ask}`, 'go')).toMatchObject({
      code: 2,
      stderr: expect.stringContaining(`--yes approves what is asked about, and --ask=${ask} contradicts it.`),
    });
  });
});

describe('AGENTS.md', () => {
  const project = async (): Promise<string> => {
    const { play } = fixture;
    await mkdir(join(play.folder, '.git'));
    await play.write('AGENTS.md', 'Root rule.\n');
    await play.write('app/AGENTS.md', 'App rule.\n');
    await play.write('app/src/main.ts', '');
    return join(play.folder, 'app');
  };

  test('of the folder and its parents becomes part of the instructions, nearest last', async () => {
    await fixture.script({ text: ['ok'] });
    const { stderr } = await command(['run', ...fixture.model(), 'go'], join(await project(), 'src'));
    expect(stderr).toBe('Instructions: ../../AGENTS.md (11 B), ../AGENTS.md (10 B)\n');
    expect(instructions()).toMatch(/these instructions.*AGENTS\.md:\nRoot rule\.\n\n\.\.\/AGENTS\.md:\nApp rule\.$/s);
  });

  test.each([
    ['--no-agents-md', ['--no-agents-md'], ''],
    ['agents_md = false', [], '[orchestrator]\nagents_md = false\n'],
  ])('%s turns it off', async (_, flags, toml) => {
    await fixture.script({ text: ['ok'] });
    await fixture.play.write('AGENTS.md', 'Root rule.\n');
    await fixture.play.write('treadle.toml', toml);
    expect(await run(...flags, 'go')).toMatchObject({ code: 0, stderr: '' });
    expect(instructions()).not.toContain('Root rule.');
  });

  test('a long one is cut, an empty or binary one is ignored, and a link that leads out is not followed', async () => {
    await fixture.script({ text: ['ok'] });
    const folder = await project();
    await fixture.play.write('AGENTS.md', `Long. ${'é'.repeat(20_000)}`);
    await fixture.play.write('app/AGENTS.md', ' \n');
    await fixture.play.write('app/src/lib/AGENTS.md', 'no\0text');
    await symlink('/etc/hosts', join(folder, 'src', 'AGENTS.md'));
    const { stderr } = await command(['run', ...fixture.model(), 'go'], join(folder, 'src', 'lib'));
    expect(stderr).toBe(
      'Instructions: ../../../AGENTS.md (the first 32 kB of 40 kB)\n' +
        '../AGENTS.md is not used: it is a link that leads out of the project.\n' +
        'AGENTS.md is not used: it is not a text.\n',
    );
    expect(instructions()).toMatch(/Long\. é+\n\[the rest of the file is left out\]$/);
  });

  test('a resumed run keeps the instructions that it was started with', async () => {
    await fixture.script({ status: 500, message: 'down' });
    await fixture.play.write('AGENTS.md', 'Root rule.\n');
    await run('go');
    await fixture.play.write('AGENTS.md', 'Other rule.\n');
    await fixture.script({ text: ['ok'] });
    const { runId } = (await fixture.runs())[0]!;
    await fixture.treadle('runs', 'resume', runId, ...fixture.model());
    expect(instructions()).toContain('Root rule.');
    expect(instructions()).not.toContain('Other rule.');
  });
});
