import { existsSync, mkdirSync, mkdtempSync, rmSync, symlinkSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, beforeEach, describe, expect, test } from 'vitest';
import { AgentFileError, folderAgents, parseAgentFile, type FolderAgents } from './index.ts';

let root: string;
beforeEach(() => {
  root = mkdtempSync(join(tmpdir(), 'agents-'));
});
afterEach(() => rmSync(root, { recursive: true, force: true }));

const place = (name: string): string => join(root, name);

function write(name: string, text: string): void {
  mkdirSync(join(place(name), '..'), { recursive: true });
  writeFileSync(place(name), text);
}

const open = (...folders: readonly string[]): Promise<FolderAgents> => folderAgents({ folders: folders.map(place) });
const namesOf = (agents: FolderAgents): readonly string[] => agents.list().map(({ name }) => name);

const MARKDOWN = '---\ndescription: Reviews.\ntools: Read, Grep\n---\n\nRead the *diff* first.\n';

describe('a file', () => {
  test('can be YAML, JSON or Markdown', async () => {
    write('a/one.yaml', 'name: one\ndescription: One.\nconstraints:\n  max_retries: 2\n');
    write('a/two.json', '{"name": "two", "description": "Two."}');
    write('a/three.md', MARKDOWN);
    write('a/README.md', '# These are our agents');
    write('a/notes.txt', 'x');
    write('a/.hidden.yaml', 'x');
    const agents = await open('a');
    expect(agents.problems()).toEqual([]);
    expect(agents.list()).toEqual([
      { name: 'one', description: 'One.', constraints: { max_retries: 2 } },
      {
        name: 'three',
        description: 'Reviews.',
        tools: ['Read', 'Grep'],
        instructions: 'Read the *diff* first.',
      },
      { name: 'two', description: 'Two.' },
    ]);
    expect(agents.fileOf('two')).toBe(place('a/two.json'));
  });

  test.each<[string, string, object]>([
    ['a.yaml', 'name: a\ndescription: A.\ntemperature: hot\n', { line: 3, key: 'temperature', message: /from 0 to 2/ }],
    [
      'a.yaml',
      'name: a\ndescription: A.\nconstraints:\n  max_retries: 1\n  max_itertions: 3\n',
      { line: 5, key: 'constraints.max_itertions', message: /Did you mean "max_iterations"\?/ },
    ],
    ['a.yaml', 'name: a\ndescription: A.\ntools:\n  - read\n  - "a b"\n', { line: 5, key: 'tools[1]' }],
    ['a.yaml', 'name: a\ndescription: A.\ntoolz:\n  - read\n', { line: 3, key: 'toolz' }],
    ['a.yaml', 'description: A.\ngovernance:\n  command:\n    - ls\n', { line: 3, key: 'governance.command' }],
    ['a.yaml', 'description: A.\nownership:\n  escalation_target: x\n', { line: 2, key: 'ownership.owner' }],
    ['a.yaml', 'name: a\n', { line: 1, key: 'description', message: /It is missing/ }],
    ['a.yaml', 'name: a\nname: b\n', { line: 2, message: /not valid YAML/ }],
    ['a.yaml', 'name: "a\n', { message: /not valid YAML/ }],
    ['a.yaml', 'x: &x 1\ny: *x\n', { line: 2, message: /alias/ }],
    ['a.yaml', '- a\n', { line: 1, message: /has no keys/ }],
    ['a.yaml', '', { line: 1, message: /has no keys/ }],
    ['a.json', '{"name": "a",\n "description": "A.",\n "tempearture": 1}', { line: 3, key: 'tempearture' }],
    ['a.json', '{"name": "a",\n "description": "A.",}', { line: 2, message: /not valid JSON/ }],
    ['a.json', 'name: a', { message: /not valid JSON/ }],
    ['a.md', 'No front matter', { line: 1, message: /no front matter/ }],
    ['a.md', '---\ndescription: A.\nmodle: x\n---\nHi', { line: 3, key: 'modle', message: /Did you mean "model"\?/ }],
    [
      'a.md',
      '---\ndescription: A.\ninstructions: x\n---\nHi',
      { line: 3, key: 'instructions', message: /Omit the key/ },
    ],
    ['Not A Name.yaml', 'description: A.\n', { line: 1, key: 'name', message: /It is missing/ }],
    ['a.toml', '', { message: /Use .yaml, .json or .md/ }],
  ])('%s with %j has a problem', (name, text, expected) => {
    const parsed = parseAgentFile(text, `/agents/${name}`);
    expect(parsed.type).toBe('invalid');
    const { message, ...rest } = expected as { message?: RegExp };
    const [problem] = parsed.type === 'invalid' ? parsed.problems : [];
    expect(problem).toMatchObject({ file: `/agents/${name}`, ...rest });
    if (message) expect(problem!.message).toMatch(message);
  });

  test('that is nested too deeply has a problem', () => {
    const parsed = parseAgentFile(`description: ${'['.repeat(20_000)}`, '/agents/a.yaml');
    expect(parsed).toMatchObject({
      problems: [{ file: '/agents/a.yaml', message: expect.stringMatching(/not valid YAML|nested too deeply/) }],
    });
  });

  test('that is bad leaves the others working', async () => {
    write('a/bad.yaml', 'name: bad\n');
    write('a/good.yaml', 'description: Good.\n');
    write('a/large.yaml', `description: "${'x'.repeat(300_001)}"`);
    writeFileSync(place('a/latin.yaml'), Buffer.from([0x6e, 0xff]));
    mkdirSync(place('a/folder.yaml'));
    const agents = await open('a');
    expect(namesOf(agents)).toEqual(['good']);
    expect(agents.problems().map(({ file, message }) => [file.slice(root.length), message])).toEqual([
      ['/a/bad.yaml', 'It is missing. Say in one line what the agent is for.'],
      ['/a/large.yaml', 'It cannot be used: large.yaml has 300016 bytes, and 300000 are allowed.'],
      ['/a/latin.yaml', 'It is not a text in UTF-8.'],
    ]);
  });

  test('outside of the folder is not read, also not through a link', async () => {
    write('secret.yaml', 'description: Secret.\n');
    write('a/good.yaml', 'description: Good.\n');
    symlinkSync(place('secret.yaml'), place('a/link.yaml'));
    symlinkSync(place('a/good.yaml'), place('a/same.yaml'));
    const agents = await open('a');
    expect(namesOf(agents)).toEqual(['good', 'same']);
    expect(agents.problems()).toMatchObject([
      { file: place('a/link.yaml'), message: expect.stringContaining('elsewhere') },
    ]);
  });
});

test('a second file with a name is an error that names both', async () => {
  write('a/x.yaml', 'name: same\ndescription: First.\n');
  write('b/y.md', '---\nname: same\ndescription: Second.\n---\n');
  write('b/z.yaml', 'description: Other.\n');
  const agents = await open('a', 'b', 'none');
  expect(agents.get('same')).toMatchObject({ description: 'First.' });
  expect(namesOf(agents)).toEqual(['same', 'z']);
  const [problem, ...others] = agents.problems();
  expect(others).toEqual([]);
  expect(problem).toMatchObject({ file: place('b/y.md'), line: 2, key: 'name' });
  expect(problem!.message).toContain(place('a/x.yaml'));
  expect(problem!.message).toContain(place('b/y.md'));
});

test('has a default agent', async () => {
  write('a/x.yaml', 'description: X.\n');
  const agents = await folderAgents({ folders: [place('a')], default: 'x' });
  expect(agents.get('__default__')).toMatchObject({ name: 'x' });
  expect((await open('a')).get('__default__')).toBeUndefined();
});

describe('reload', () => {
  test('takes over what was added, changed and removed, and tells that', async () => {
    write('a/x.yaml', 'description: X.\n');
    write('a/y.yaml', 'description: Y.\n');
    const agents = await open('a');
    let changes = 0;
    const stop = agents.onChange(() => changes++);
    const before = agents.get('x')!;
    await agents.reload();
    expect(changes).toBe(0);
    expect(agents.get('x')).toBe(before);
    write('a/x.yaml', 'description: X is changed.\n');
    rmSync(place('a/y.yaml'));
    write('a/z.yaml', 'description: Z.\n');
    await agents.reload();
    expect(changes).toBe(1);
    expect(agents.list().map(({ description }) => description)).toEqual(['X is changed.', 'Z.']);
    expect(before.description).toBe('X.');
    stop();
    rmSync(place('a'), { recursive: true });
    await agents.reload();
    expect([changes, agents.list()]).toEqual([1, []]);
  });

  test('never shows a part of a change while many use the agents', async () => {
    for (let n = 0; n < 20; n++) write(`a/x${n}.yaml`, 'description: version 0\n');
    const agents = await open('a');
    const seen = new Set<string>();
    let done = false;
    const reader = (async () => {
      while (!done) {
        const versions = new Set(agents.list().map(({ description }) => description));
        seen.add([...versions].join());
        expect(agents.list()).toHaveLength(20);
        await new Promise(setImmediate);
      }
    })();
    for (let version = 1; version <= 5; version++) {
      for (let n = 0; n < 20; n++) write(`a/x${n}.yaml`, `description: version ${version} \n`);
      await Promise.all([agents.reload(), agents.reload(), agents.reload()]);
    }
    done = true;
    await reader;
    expect(agents.list().every(({ description }) => description === 'version 5')).toBe(true);
    expect([...seen].filter((one) => one.includes(','))).toEqual([]);
  });
});

describe('writing', () => {
  const agent = { name: 'x', description: 'X.', instructions: 'Do it.\nWell.', tools: ['read'] };

  test.each(['x.yaml', 'x.json', 'x.md'])('replaces %s in its own format', async (name) => {
    write(
      `a/${name}`,
      { json: '{"description": "Old."}', yaml: 'description: Old.', md: '---\ndescription: Old.\n---\n' }[
        name.split('.')[1] as 'json'
      ]!,
    );
    const agents = await open('a', 'b');
    await agents.write(agent);
    expect(agents.list()).toEqual([agent]);
    expect(agents.fileOf('x')).toBe(place(`a/${name}`));
    await agents.remove('x');
    expect([agents.list(), agents.problems()]).toEqual([[], []]);
  });

  test('creates a file in the first folder', async () => {
    const agents = await open('a', 'b');
    await agents.write(agent);
    expect(agents.fileOf('x')).toBe(place('a/x.yaml'));
    expect(agents.list()).toEqual([agent]);
  });

  test('leaves other folders and other files alone', async () => {
    write('a/y.yaml', 'name: other\ndescription: Y.\n');
    write('b/x.yaml', 'description: X.\n');
    const agents = await open('a', 'b');
    await expect(agents.write(agent)).rejects.toThrow(`is defined in ${place('b/x.yaml')}`);
    await expect(agents.remove('x')).rejects.toThrow(AgentFileError);
    await expect(agents.remove('none')).rejects.toThrow('There is no agent "none".');
    await expect(agents.write({ ...agent, name: 'y' })).rejects.toThrow('y.yaml exists, and is not the file');
    symlinkSync(place('outside.yaml'), place('a/z.yaml'));
    await expect(agents.write({ ...agent, name: 'z' })).rejects.toThrow(AgentFileError);
    expect(existsSync(place('outside.yaml'))).toBe(false);
    await expect((await open()).write(agent)).rejects.toThrow('no folder');
  });
});
