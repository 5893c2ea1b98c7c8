import fc from 'fast-check';
import { describe, expect, test } from 'vitest';
import { policy } from '../policy/policy.ts';
import { runLoop } from '../driver/run.ts';
import { forkRun } from '../journal/fork.ts';
import { memoryJournal } from '../journal/memory.ts';
import { isNarrowing } from '../machine/narrowing.ts';
import { textOf } from '../messages.ts';
import { scriptedModel } from '../testing/scripted-model.ts';
import { tool, type Tool } from '../tools/tool.ts';
import { activateSkills, requestedSkills } from './activate.ts';
import { skillsSection, skillText } from './disclosure.ts';
import { skillFolders, type Skill } from './skill.ts';
import { skillNarrowing, toolEntry } from './skill-narrowing.ts';

function skillNamed(name: string, more: Partial<Skill> = {}): Skill {
  return {
    name,
    description: `About ${name}.`,
    text: `How to ${name}.`,
    folder: `/skills/${name}`,
    files: [],
    invocation: 'both',
    execution: 'inline',
    dependencies: [],
    status: 'active',
    ...more,
  };
}

describe('entries of lists of tools', () => {
  test.each([
    ['read', ['read'], undefined],
    ['Read', ['read'], undefined],
    ['MultiEdit', ['edit'], undefined],
    ['git_commit', ['git_commit'], undefined],
    ['mcp__github__create_issue', ['github__create_issue'], undefined],
    ['mcp__github', ['github__*'], undefined],
    ['mcp__github__*', ['github__*'], undefined],
    ['Read(docs/**)', ['read'], { type: 'unknown' }],
    ['WebFetch(domain:example.com)', ['web_fetch'], { type: 'unknown' }],
  ])('%s', (text, tools, form) => {
    expect(toolEntry(text)).toEqual({ text, tools, ...(form && { form }) });
  });

  test.each([
    ['Bash', undefined],
    ['Bash(*)', undefined],
    ['Bash(git:*)', { type: 'prefix', words: 'git' }],
    ['Bash(git *)', { type: 'prefix', words: 'git' }],
    ['Bash(git  add:*)', { type: 'prefix', words: 'git add' }],
    ['Bash(npm run test)', { type: 'exact', words: 'npm run test' }],
    ['Bash(python scripts/*.py)', { type: 'unknown' }],
    ['bash(rm -rf /tmp/{a,b})', { type: 'unknown' }],
  ])('%s', (text, form) => {
    const entry = toolEntry(text);
    expect(entry.tools[0]).toBe('bash');
    expect(entry.form).toEqual(form);
  });
});

test('a run may read the folders of its active skills, and has seen nothing private then', async () => {
  const skills = [skillNamed('review', { folder: '/u/.treadle/skills/review' })];
  const read = tool({
    name: 'read',
    description: 'Reads',
    input: { type: 'object', properties: { path: { type: 'string' } } },
    effect: 'pure',
    touches: ({ path }) => [{ type: 'read', path: String(path) }],
    execute: (_, { narrowedBy }) => `for ${narrowedBy?.join()}`,
  });
  const rules = policy({ autonomy: 1 }, { folder: '/work', readable: skillFolders(skills) });
  const calls = [{ name: 'read', arguments: { path: '/u/.treadle/skills/review/a.md' } }];
  const outcome = async (narrow: readonly object[]): Promise<unknown> => {
    const options = { model: scriptedModel([{ calls }, 'Done.']), tools: [read], input: 'go', policy: rules };
    const { messages, carried } = await runLoop({ ...options, narrow });
    const [answer] = messages.flatMap((message) => (message.role === 'tool' ? message.content : []));
    return [textOf(answer!.content), carried?.exposure];
  };
  expect(await outcome([])).toEqual([expect.stringContaining('was denied'), undefined]);
  const active = activateSkills(skills, ['review'], { by: 'user' });
  if (active.type === 'refused') throw new Error(active.reason);
  expect(await outcome(active.narrow)).toEqual(['for skill:review', undefined]);
});

test('an entry for an MCP server is about all its tools', async () => {
  const names = ['github__list', 'github__close', 'githubber__list', 'read'];
  const tools = names.map((name) => tool({ name, description: name, effect: 'pure', execute: () => name }));
  const offered = async (more: Partial<Skill>): Promise<readonly string[]> => {
    const model = scriptedModel(['Done.']);
    await runLoop({ model, tools, input: 'go', narrow: skillNarrowing(skillNamed('s', more)) });
    return model.requests[0]!.tools.map(({ name }) => name);
  };
  expect(await offered({ disallowedTools: ['mcp__github'] })).toEqual(['githubber__list', 'read']);
  expect(await offered({ disallowedTools: ['mcp__read'] })).toEqual(names);
  expect(await offered({ allowedTools: ['Read', 'mcp__github__*'] })).toEqual([
    'github__list',
    'github__close',
    'read',
  ]);
  const asked = await runLoop({
    model: scriptedModel([{ calls: [{ name: 'github__close' }, { name: 'githubber__list' }] }]),
    tools,
    input: 'go',
    journal: memoryJournal(),
    narrow: skillNarrowing(skillNamed('s', { approvals: ['mcp__github'] })),
  });
  expect(asked.waiting).toMatchObject([{ type: 'approval', call: { name: 'github__close' } }]);
});

describe('what a skill narrows', () => {
  const narrow = (more: Partial<Skill>) => skillNarrowing(skillNamed('s', more));

  test('nothing, but it has a source, so that it is known to be active', () => {
    expect(narrow({})).toEqual({ source: 'skill:s' });
  });

  test('the tools that it allows; "disallowed-tools" alone means all but these', () => {
    expect(narrow({ allowedTools: ['Read', 'Grep'], autonomy: 1 })).toEqual({
      source: 'skill:s',
      tools: ['read', 'grep'],
      autonomy: 1,
    });
    expect(narrow({ disallowedTools: ['Write', 'Read(x)'] })).toEqual({
      source: 'skill:s',
      without: ['write', 'read'],
    });
  });

  test('commands, by rules; nothing is typed into programs then', () => {
    expect(narrow({ allowedTools: ['Bash(git:*)', 'Bash(npm test)', 'Bash(git status)'] })).toEqual({
      source: 'skill:s',
      tools: ['bash', 'background_list', 'background_read', 'background_stop'],
      rules: { commands: { allow: ['git', 'npm test', 'git status'], deny: ['*', 'npm test *'] } },
    });
    expect(narrow({ allowedTools: ['Bash(git:*)', 'Bash'] })).not.toHaveProperty('rules');
    expect(narrow({ disallowedTools: ['Bash(rm:*)'], approvals: ['Bash(git push:*)', 'write'] })).toEqual({
      source: 'skill:s',
      ask: ['write'],
      rules: { commands: { ask: ['git push'], deny: ['rm'] } },
    });
  });

  test('default arguments, also by the public names of tools', () => {
    const defaults = { Bash: { timeout_ms: 5 }, read: { limit: 1 }, Read: { offset: 2 } };
    expect(skillNarrowing(skillNamed('s', { defaults })).defaults).toEqual({
      bash: { timeout_ms: 5 },
      read: { limit: 1, offset: 2 },
    });
  });

  test('forms that no rule can express are asked about', () => {
    expect(narrow({ allowedTools: ['Bash(git:*)', 'Bash(x/*.py)', 'Read(docs/**)'] })).toMatchObject({
      ask: ['read'],
      rules: { commands: { allow: ['git'], ask: ['*'] } },
    });
  });

  const entry = fc.constantFrom('Read', 'write', 'Bash', 'Bash(git:*)', 'Bash(ls)', 'Bash(a*b)', 'Edit(x)', 'grep');
  const list = fc.option(fc.array(entry, { maxLength: 4 }), { nil: undefined });

  test('is always a valid narrowing, with rules that a policy accepts', () => {
    fc.assert(
      fc.property(list, list, list, (allowedTools, disallowedTools, approvals) => {
        const lists = { ...(allowedTools && { allowedTools }), ...(disallowedTools && { disallowedTools }) };
        const made = narrow({ ...lists, ...(approvals && { approvals }) });
        expect(isNarrowing(made)).toBe(true);
        if (made.rules) policy({ autonomy: 3, ...made.rules });
      }),
    );
  });
});

describe('a run with skills', () => {
  const NAMES = ['read', 'write', 'grep', 'edit'];
  const names = fc.subarray(NAMES);
  const skill = fc.record({ allowedTools: fc.option(names, { nil: undefined }), disallowedTools: names });
  const three = fc.tuple(skill, skill, skill);
  const plain = (name: string): Tool => tool({ name, description: name, effect: 'pure', execute: () => name });
  const order = fc.shuffledSubarray([0, 1, 2], { minLength: 3 });

  function skillsFrom(all: readonly Partial<Record<keyof Skill, unknown>>[]): readonly Skill[] {
    return all.map(({ allowedTools, ...more }, i) =>
      skillNamed(`s${i}`, { ...more, ...(allowedTools !== undefined && { allowedTools }) } as Partial<Skill>),
    );
  }

  function activating(skills: readonly Skill[]): Tool {
    return tool({
      name: 'skill',
      description: 'skill',
      effect: 'pure',
      unnarrowed: true,
      input: { type: 'object', properties: { name: { type: 'string' } } },
      execute: ({ name }) => {
        const activation = activateSkills(skills, [String(name)], { by: 'model' });
        return activation.type === 'refused'
          ? activation.reason
          : { content: activation.text, narrow: activation.narrow };
      },
    });
  }

  async function offered(skills: readonly Skill[], activations: readonly number[]): Promise<readonly string[][]> {
    const calls = activations.map((i) => ({ calls: [{ name: 'skill', arguments: { name: `s${i}` } }] }));
    const model = scriptedModel([...calls, 'done']);
    await runLoop({ model, tools: [activating(skills), ...NAMES.map(plain)], input: 'go', repeatLimit: 0 });
    return model.requests.map(({ tools }) => tools.map(({ name }) => name).filter((name) => name !== 'skill'));
  }

  test('has the same tools after any order of activations, and each activation only takes tools away', async () => {
    await fc.assert(
      fc.asyncProperty(three, order, order, async (given, first, second) => {
        const skills = skillsFrom(given);
        const [one, two] = [await offered(skills, first), await offered(skills, second)];
        expect(one.at(-1)).toEqual(two.at(-1));
        const expected = NAMES.filter((name) =>
          skills.every(
            ({ allowedTools = NAMES, disallowedTools = [] }) =>
              allowedTools.includes(name) && !disallowedTools.includes(name),
          ),
        );
        expect(one.at(-1)).toEqual(expected);
        one.forEach((now, i) => i > 0 && expect(one[i - 1]).toEqual(expect.arrayContaining([...now])));
      }),
      { numRuns: 30 },
    );
  });

  test('stays narrowed when it is continued, and in a fork', async () => {
    const skills = [skillNamed('s0', { allowedTools: ['read'] }), skillNamed('s1', { disallowedTools: ['read'] })];
    const tools = [activating(skills), ...NAMES.map(plain)];
    const journal = memoryJournal();
    const call = (name: string) => ({ calls: [{ name: 'skill', arguments: { name } }] });
    const first = await runLoop({ model: scriptedModel([call('s0'), 'ok']), tools, journal, runId: 'r', input: 'go' });
    const names = (model: ReturnType<typeof scriptedModel>) => model.requests[0]!.tools.map(({ name }) => name);

    const next = scriptedModel(['ok']);
    await runLoop({ model: next, tools, input: 'more', carried: first.carried! });
    expect(names(next)).toEqual(['skill', 'read']);

    const runId = await forkRun({ journal, runId: 'r', at: 2, changes: { instructions: 'other' } });
    const forked = scriptedModel(['ok']);
    await runLoop({ model: forked, tools, journal, runId });
    expect(names(forked)).toEqual(['skill', 'read']);
  });
});

describe('activation', () => {
  const skills = [
    skillNamed('a', { dependencies: ['b', 'c'], autonomy: 2 }),
    skillNamed('b', { dependencies: ['a'], invocation: 'user', allowedTools: ['read'] }),
    skillNamed('c', { text: 'Do $ARGUMENTS and $ARGUMENTS.' }),
    skillNamed('broken', { dependencies: ['missing'] }),
    skillNamed('off', { status: 'disabled' }),
    skillNamed('own', { invocation: 'model' }),
  ];

  test('includes dependencies, also in a circle, each once', () => {
    const activation = activateSkills(skills, ['a'], { by: 'model' });
    expect(activation).toMatchObject({ type: 'activated', narrow: [{ source: 'skill:b' }, {}, { source: 'skill:a' }] });
  });

  test('puts what the user wrote into the text', () => {
    expect(activateSkills(skills, ['c'], { by: 'user', task: '$& x' })).toMatchObject({
      text: expect.stringContaining('Do $& x and $& x.'),
    });
  });

  test('by a message does not narrow the run to what a skill needs that runs on its own', () => {
    const all = [...skills, skillNamed('lone', { execution: 'fork', allowedTools: ['read'], dependencies: ['a'] })];
    expect(requestedSkills(all, ['lone', 'c'], 'it')).toMatchObject({
      type: 'activated',
      text: expect.stringMatching(/Do it and it\.\n\nRun the skill "lone": call the tool "skill"/),
      narrow: [{ source: 'skill:c' }, { source: 'skill:lone' }],
    });
    expect(requestedSkills(all, ['lone', 'off'])).toMatchObject({ type: 'refused' });
  });

  test.each([
    ['zz', 'model', 'There is no skill "zz".'],
    ['broken', 'user', 'There is no skill "missing", which the skill "broken" depends on.'],
    ['off', 'user', 'The skill "off" is disabled.'],
    ['b', 'model', 'The skill "b" can be activated only by the user.'],
    ['own', 'user', 'The skill "own" can be activated only by the model.'],
  ] as const)('of %s by the %s is refused', (name, by, reason) => {
    expect(activateSkills(skills, [name], { by })).toEqual({ type: 'refused', reason });
  });
});

describe('what a model learns', () => {
  test('a line for each skill that it may activate, up to a limit', () => {
    const skills = [
      skillNamed('b'),
      skillNamed('a', { status: 'deprecated' }),
      skillNamed('c', { invocation: 'user' }),
    ];
    expect(skillsSection(skills).split('\n').slice(2)).toEqual(['- a: About a. (deprecated)', '- b: About b.']);
    expect(skillsSection(skills, 30).split('\n').slice(2)).toEqual([
      '- a: About a. (deprecated)',
      expect.stringMatching(/^There are 1 more skills.*"search"/),
    ]);
    expect(skillsSection([])).toBe('');
  });

  test('the whole text of an active skill, with what is enforced and its files', () => {
    const skill = skillNamed('s', {
      allowedTools: ['Read', 'Bash(git:*)'],
      disallowedTools: ['write'],
      approvals: ['read'],
      autonomy: 1,
      files: ['scripts/a.sh', 'notes.md'],
    });
    expect(skillText(skill)).toBe(
      [
        'The skill "s" is active. Follow it for the task at hand.',
        'While it is active, this is enforced, and only a person can lift it:\n' +
          '- Allowed tools: read, bash, background_list, background_read, background_stop\n' +
          '- Allowed commands: git; no others\n- Blocked tools: write\n- Autonomy: at most level 1 (supervised)\n' +
          '- Required approvals: read',
        'Its folder is /skills/s. Read its files when you need them: scripts/a.sh, notes.md.',
        'How to s.',
      ].join('\n\n'),
    );
  });
});
