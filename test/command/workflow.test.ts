import { readFileSync } from 'node:fs';
import { mkdir, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { afterEach, beforeEach, describe, expect, test, vi } from 'vitest';
import { command, type Printed } from './in-process.ts';
import { playground, type Playground } from './playground.ts';

let play: Playground;
let home: Playground;

beforeEach(async () => {
  [play, home] = [await playground(), await playground()];
  vi.stubEnv('HOME', home.folder);
  await mkdir(join(play.folder, 'workflows'));
});
afterEach(async () => {
  vi.unstubAllEnvs();
  await play.remove();
  await home.remove();
});

const workflow = (...args: readonly string[]): Promise<Printed> => command(['workflow', ...args], play.folder);
/** Without tools that start programs, no sandbox is looked for. */
const TOOLS = ['--tools', 'read-only,write'];
const runOn = (...args: readonly string[]): Promise<Printed> =>
  workflow('run', ...args, ...TOOLS, '--store', 'memory:');

async function file(name: string, text: string, folder = 'workflows'): Promise<void> {
  await mkdir(join(play.folder, folder), { recursive: true });
  await writeFile(join(play.folder, folder, name), text);
}

const NOTES = `
description: Reads a file
inputs: { path: { type: string, required: true } }
steps:
  - { id: notes, action: run_tool, tool: read, inputs: { path: "\${{ inputs.path }}" } }
  - { id: long, action: condition, if: "size(string(steps.notes.output)) > 3", then: [cut] }
  - { id: cut, action: transform, inputs: { text: "Notes: \${{ steps.notes.output }}" } }
outputs: { text: "\${{ steps.cut.output.text }}" }
`;

describe('treadle workflow', () => {
  test('runs a workflow and prints its outputs', async () => {
    await file('notes.yaml', NOTES);
    const { code, stdout, stderr } = await runOn('notes', '--path', 'notes.txt', '--json');
    expect(stderr).not.toContain('Error');
    expect(code).toBe(0);
    expect(JSON.parse(stdout)).toMatchObject({
      output: { text: expect.stringContaining(play.nonce) },
      termination_reason: 'completed',
    });
  });

  test('has more steps than a model may call', async () => {
    const steps = Array.from(
      { length: 24 },
      (_, at) =>
        `{ id: s${at}, action: run_tool, tool: glob, inputs: { pattern: "*.${at}" }, depends_on: [${at === 0 ? '' : `s${at - 1}`}] }`,
    );
    await file(
      'chain.yaml',
      `description: Many\nsteps: [${steps.join(', ')}]\noutputs: { last: "\${{ steps.s23.output }}" }\n`,
    );
    const map = `{ id: each, action: map, over: "\${{ inputs.all }}", steps: [{ id: one, action: run_tool, tool: glob, inputs: { pattern: "*.\${{ item }}" } }] }`;
    const sub = '{ id: chain, action: sub_workflow, workflow: chain }';
    await file('many.yaml', `description: Many\ninputs: { all: { type: array } }\nsteps: [${map}, ${sub}]\n`);
    const all = Array.from({ length: 60 }, (_, at) => at);
    const { stdout, stderr } = await runOn('many', JSON.stringify({ all }), '--json');
    expect(stderr).not.toContain('Failed');
    const { output } = JSON.parse(stdout) as { readonly output: { readonly each: readonly string[] } };
    expect(output.each).toHaveLength(60);
  });

  test('calls agents and other workflows', async () => {
    await file('notes.yaml', NOTES);
    await file('finder.md', '---\ndescription: Finds\ntools: [read]\n---\nFind.\n', 'agents');
    await file(
      'both.yaml',
      `
description: Both
steps:
  - { id: sub, action: sub_workflow, workflow: notes, inputs: { path: notes.txt } }
  - { id: agent, action: invoke_agent, agent: finder, inputs: { task: read notes.txt } }
`,
    );
    expect((await workflow('check')).stdout).toBe('2 workflows are fine.\n');
    const { code, stdout } = await runOn('both', '--json');
    expect(code).toBe(0);
    const { output } = JSON.parse(stdout) as { output: { sub: { text: string }; agent: unknown } };
    expect(output.sub.text).toContain(play.nonce);
    expect(JSON.stringify(output.agent)).toContain(play.nonce);
  });

  test('a dry run does nothing, and shows what is known', async () => {
    await file('notes.yaml', NOTES);
    const { code, stdout } = await runOn('notes', '--path', 'missing.txt', '--dry-run');
    expect({ code, stdout }).toEqual({
      code: 0,
      stdout: [
        'notes: run_tool read',
        '  inputs: {"path":"missing.txt"}',
        'long: condition',
        '  if: "${{ size(string(steps.notes.output)) > 3 }}"',
        'cut: transform, if its condition holds',
        '  inputs: {"text":"Notes: ${{ steps.notes.output }}"}',
        '',
      ].join('\n'),
    });
  });

  test('lists, draws and writes workflows', async () => {
    expect((await workflow('list')).stdout).toBe('There are no workflows. "treadle workflow new NAME" writes one.\n');
    const { code, stdout } = await workflow('new', 'publish');
    expect({ code, stdout: stdout.trim() }).toEqual({
      code: 0,
      stdout: join(play.folder, 'workflows', 'publish.yaml'),
    });
    expect(readFileSync(stdout.trim(), 'utf8')).toContain('name: publish');
    expect((await workflow('check')).stdout).toBe('1 workflow is fine.\n');
    expect((await workflow('new', 'publish')).stderr).toContain('"publish" exists');
    expect((await workflow('list')).stdout).toMatch(
      /^NAME +INPUTS +STEPS +DESCRIPTION\npublish +pattern +3 +What this/,
    );
    expect((await workflow('graph', 'publish')).stdout).toBe(
      'flowchart LR\n  files["files<br/>run_tool glob"]\n  ok["ok<br/>wait_approval"]\n  report["report<br/>transform"]\n' +
        '  files --> ok\n  ok --> report\n  files --> report\n',
    );
    expect((await workflow('graph', 'publish', '--format', 'svg')).stdout).toMatch(/^<svg [^]*<\/svg>\n$/);
  });

  test('names the file, the line and the key of everything that is wrong', async () => {
    await file('broken.yaml', 'description: x\nsteps:\n  - { id: a, action: run_tol, tool: read }\n');
    await file(
      'lacking.yaml',
      `description: x
steps:
  - { id: a, action: run_tool, tool: reed, inputs: {} }
  - { id: b, action: run_tool, tool: read, inputs: { pth: x } }
  - id: c
    action: invoke_agent
    agent: nobody
  - { id: d, action: transform, inputs: { x: 1 } }
  - { id: e, action: transform, value: "\${{ steps.d.output.y }}" }
  - { id: f, action: run_tool, tool: read, inputs: { path: 7 } }
`,
    );
    await file(
      'loop.yaml',
      'description: x\nsteps:\n  - { id: a, action: parallel, steps: [{ id: b, action: sub_workflow, workflow: round }] }\n',
    );
    await file('round.yaml', 'description: x\nsteps:\n  - { id: a, action: invoke_agent, agent: loop }\n');
    await file(
      'ends.yaml',
      'description: x\ninputs: { n: { type: integer } }\nsteps:\n  - { id: a, action: sub_workflow, workflow: ends, when: inputs.n > 0, inputs: { n: 0 } }\n',
    );
    const { code, stdout } = await workflow('check');
    expect(code).toBe(1);
    const at = (name: string): string => join(play.folder, 'workflows', name);
    for (const line of [
      `${at('broken.yaml')}, line 3, steps[0].action: It is "run_tol". Did you mean "run_tool"?`,
      `${at('lacking.yaml')}, line 3, steps[0].tool: There is no tool "reed".`,
      `${at('lacking.yaml')}, line 4, steps[1].inputs.pth: The tool "read" has no input "pth".`,
      `${at('lacking.yaml')}, line 4, steps[1].inputs: The tool "read" needs the input "path"`,
      `${at('lacking.yaml')}, line 7, steps[2].agent: There is no agent "nobody".`,
      `${at('lacking.yaml')}, line 10, steps[5].inputs.path: The tool "read" does not take this input: path: Instance type "number"`,
      `${at('loop.yaml')}, line 3, steps[0].steps[0].workflow: The workflow calls itself without an end: loop → round → loop.`,
      `${at('round.yaml')}, line 3, steps[0].agent: The workflow calls itself without an end: round → loop → round.`,
      `The output of the step "d" has no field "y". Did you mean "x"? It has x.`,
    ]) {
      expect(stdout).toContain(line);
    }
    expect(stdout).not.toContain('ends.yaml');
    expect((await runOn('lacking')).stderr).toMatch(/there is no tool "reed"|depends on the agent "nobody"/);
    expect((await runOn('broken')).stderr).toContain('is not used');
    expect((await runOn('nothing')).stderr).toContain('There is no agent "nothing"');
  });

  test('waits for an approval, and is resumed by the definition that it was started with', async () => {
    await file('ok.yaml', 'description: x\nsteps:\n  - { id: ok, action: wait_approval, message: Go? }\n');
    const store = `sqlite:${join(play.folder, 'store.db')}`;
    const paused = await workflow('run', 'ok', ...TOOLS, '--store', store, '--json');
    expect(paused.code).toBe(4);
    const { run_id: id, waiting } = JSON.parse(paused.stdout) as { run_id: string; waiting: [{ effect: string }] };
    await file('ok.yaml', 'description: x\nsteps:\n  - { id: other, action: wait_approval, message: Other? }\n');
    const resumed = await command(
      ['runs', 'resume', id, '--approve', waiting[0].effect, '--store', store],
      play.folder,
    );
    expect(resumed).toMatchObject({ code: 0, stdout: expect.stringContaining('{"ok":{"approved":true}}') });
  });

  test('forks a run from a step, with the current definition and other inputs', async () => {
    const define = (last: string): Promise<void> =>
      file(
        'flow.yaml',
        `description: x
inputs: { who: { type: string, default: Ada } }
steps:
  - { id: one, action: run_tool, tool: glob, inputs: { pattern: "*.txt" } }
  - { id: two, action: ${last}, depends_on: one }
  - { id: three, action: transform, value: "\${{ string(steps.two.output) + ' for ' + inputs.who }}" }
outputs: { three: "\${{ steps.three.output }}" }
`,
      );
    const store = ['--store', `sqlite:${join(play.folder, 'store.db')}`];
    const outputOf = ({ stdout }: Printed): unknown => (JSON.parse(stdout) as { text: string }).text;
    await define('transform, value: 2');
    const first = await workflow('run', 'flow', ...TOOLS, ...store, '--json');
    const { run_id: id } = JSON.parse(first.stdout) as { run_id: string };
    await define('run_tool, tool: read, inputs: { path: notes.txt }');
    const fork = (...args: readonly string[]): Promise<Printed> =>
      command(['runs', 'fork', id, ...args, ...store], play.folder);
    const current = await fork('--step', 'two', '--current-definition', '--input', '{"who": "Bob"}', '--json');
    expect(current.stderr).not.toContain('Failed');
    expect(outputOf(current)).toContain(`${play.nonce}`);
    expect(outputOf(current)).toContain(' for Bob');
    expect(outputOf(await fork('--step', 'three', '--json'))).toBe('{"three":"2 for Ada"}');
    expect((await fork('--step', 'four')).stderr).toContain('has not come to a step "four"');
    expect((await fork('--step', 'two', '--at', '1')).stderr).toContain('cannot be combined');
  });
});
