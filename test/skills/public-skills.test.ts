import { mkdtemp, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { approve, memoryJournal, runLoop, type LoopResult } from '@treadle/core';
import { policy } from '@treadle/core/policy';
import { requestedSkills, skillNarrowing } from '@treadle/core/skills';
import { scriptedModel } from '@treadle/core/testing';
import { sqliteStore } from '@treadle/store';
import { codingTools, local, pathFacts } from '@treadle/tools';
import { commandAnalyser } from '@treadle/tools/commands';
import { loadSkills, skillTool } from '@treadle/tools/skills';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { postChat } from '../server/support/chat-events.ts';
import { startInProcess } from '../server/support/in-process.ts';

/* Skills in the public format, of different complexity, used by a scripted model with the real tools. */

const FOLDER = join(import.meta.dirname, '../fixtures/skills');
const { skills, problems } = await loadSkills([{ path: FOLDER, from: 'user' }]);

let work = '';
beforeAll(async () => {
  work = await mkdtemp(join(tmpdir(), 'treadle-skills-'));
  await writeFile(join(work, 'text.txt'), 'one two three\n');
});
afterAll(() => rm(work, { recursive: true }));

const BASH = ['bash', 'background_list', 'background_read', 'background_stop'];
const READS = ['read', 'grep', 'glob'];

test('all of them load, and narrow what they say', () => {
  expect(problems).toEqual([]);
  const narrowed = Object.fromEntries(skills.map((skill) => [skill.name, skillNarrowing(skill)]));
  expect(narrowed).toEqual({
    'brand-guidelines': { source: 'skill:brand-guidelines' },
    'careful-edit': {
      source: 'skill:careful-edit',
      without: [...BASH, 'background_write', 'task'],
      ask: ['edit', 'write'],
      autonomy: 1,
      defaults: { read: { limit: 200 } },
    },
    'code-review': { source: 'skill:code-review', tools: READS },
    'commit-message': { source: 'skill:commit-message' },
    deploy: {
      source: 'skill:deploy',
      tools: BASH,
      rules: {
        commands: {
          allow: ['npm run deploy', 'git status'],
          deny: ['*', 'npm run deploy *', 'git status *'],
        },
      },
    },
    'git-release': {
      source: 'skill:git-release',
      tools: ['read', 'write', ...BASH],
      rules: { commands: { allow: ['git log', 'git tag', 'git status'], deny: ['*', 'git status *'] } },
    },
    'house-style': { source: 'skill:house-style' },
    'pdf-forms': { source: 'skill:pdf-forms' },
    research: { source: 'skill:research', tools: READS },
    'word-count': {
      source: 'skill:word-count',
      tools: [...BASH, 'read'],
      rules: { commands: { allow: ['sh'], deny: ['*'] } },
    },
  });
});

const use = (skill_name: string, more: object = {}) => ({
  calls: [{ name: 'skill', arguments: { skill_name, ...more } }],
});
const call = (name: string, given: object) => ({ calls: [{ name, arguments: given }] });

function results({ messages }: LoopResult): readonly string[] {
  return messages.flatMap((message) =>
    message.role === 'tool' ? message.content.map(({ content }) => JSON.stringify(content)) : [],
  );
}

describe('a scripted model with the real tools', () => {
  const rules = () =>
    policy(
      { autonomy: 1, paths: { read: ['**', `${FOLDER}/**`] } },
      {
        folder: work,
        analysers: { command: commandAnalyser({ folder: work }), path: (path) => pathFacts(path, { folder: work }) },
      },
    );
  const tools = (inside = scriptedModel([])) => {
    const own = codingTools(local(work, { check: () => undefined }));
    return [...own, skillTool({ skills, fork: { model: inside, tools: own } })];
  };

  test('reads a file of the skill, and cannot write', async () => {
    const model = scriptedModel([
      use('code-review'),
      call('read', { path: join(FOLDER, 'code-review/references/checklist.md') }),
      call('write', { path: 'x', content: 'x' }),
      'Reviewed.',
    ]);
    const result = await runLoop({ model, tools: tools(), input: 'Review.', policy: rules() });
    expect(result.outcome).toEqual({ type: 'completed' });
    expect(results(result)[0]).toContain('Read its files when you need them: references/checklist.md.');
    expect(results(result)[1]).toContain('heliotrope');
    expect(results(result)[2]).toContain('not allowed here');
  });

  test('runs a script of the skill after an approval, and no other command', async () => {
    const script = join(FOLDER, 'word-count/scripts/count.sh');
    const steps = [
      use('word-count'),
      call('bash', { command: 'curl example.com' }),
      call('bash', { command: `sh ${script} text.txt` }),
      'Three.',
    ];
    const journal = memoryJournal();
    const options = { tools: tools(), journal, runId: 'r', policy: rules() };
    const model = scriptedModel(steps);
    const paused = await runLoop({ ...options, model, input: 'How long is it?' });
    expect(results(paused)[1]).toContain('denies \\"curl example.com\\"');
    const result = await runLoop({ ...options, model, answers: [approve(paused.waiting![0]!)] });
    expect(results(result)[2]).toContain('3');
  });

  test('activates what a skill depends on, with default arguments and required approvals', async () => {
    const model = scriptedModel([
      use('careful-edit'),
      call('read', { path: 'text.txt' }),
      call('write', { path: 'y', content: '' }),
      'Done.',
    ]);
    const journal = memoryJournal();
    const allowing = policy({ autonomy: 3 }, { folder: work });
    const paused = await runLoop({ model, tools: tools(), input: 'Edit.', journal, policy: allowing });
    expect(results(paused)[0]).toContain('Plain words. No jargon.');
    expect(paused.carried?.narrow?.map(({ source }) => source)).toEqual(['skill:house-style', 'skill:careful-edit']);
    const replied = (await journal.read(paused.runId)).flatMap(({ event }) =>
      event.type === 'model-replied' ? event.checks : [],
    );
    expect(replied[1]!.arguments).toBe('{"path":"text.txt","limit":200}');
    expect(paused.waiting).toMatchObject([{ type: 'approval', call: { name: 'write' } }]);
  });

  test('runs research on its own', async () => {
    const inside = scriptedModel([call('bash', { command: 'ls' }), 'It is in text.txt, line 1.']);
    const model = scriptedModel([use('research', { task: 'Where is "two"?' }), 'Found.']);
    const result = await runLoop({ model, tools: tools(inside), input: 'Where?', policy: rules() });
    expect(results(result)).toEqual([expect.stringContaining('It is in text.txt, line 1.')]);
    expect(inside.requests[0]!.tools.map(({ name }) => name)).toEqual(expect.arrayContaining(['read', 'grep', 'glob']));
    expect(inside.requests[0]!.tools.map(({ name }) => name)).not.toContain('bash');
  });

  /** At level 3 nothing is asked about, so what is refused is refused by the skill. */
  const free = () =>
    policy(
      { autonomy: 3, paths: { read: ['**', `${FOLDER}/**`] } },
      { folder: work, analysers: { command: commandAnalyser({ folder: work }) } },
    );

  test('reads two files of the skill, and fills a form with its script', async () => {
    await writeFile(join(work, 'form.txt'), 'Name: {name}\n');
    const pdf = join(FOLDER, 'pdf-forms');
    const model = scriptedModel([
      use('pdf-forms'),
      call('read', { path: join(pdf, 'FORMS.md') }),
      call('read', { path: join(pdf, 'reference.md') }),
      call('bash', { command: `node ${join(pdf, 'scripts/fill.mjs')} form.txt name=Ann` }),
      'Filled.',
    ]);
    const result = await runLoop({ model, tools: tools(), input: 'Fill it.', policy: free() });
    const [activated, fields, , filled] = results(result);
    expect(activated).toContain('FORMS.md, LICENSE.txt, reference.md, scripts/fill.mjs.');
    expect(fields).toContain('Give them as name=value.');
    expect(filled).toContain('Name: Ann');
  });

  test('follows two skills that narrow nothing', async () => {
    const model = scriptedModel([
      use('brand-guidelines'),
      use('commit-message'),
      call('bash', { command: 'echo "Use blue #0b3d91" > message.txt' }),
      call('read', { path: 'message.txt' }),
      'Done.',
    ]);
    const result = await runLoop({ model, tools: tools(), input: 'Write it.', policy: free() });
    const [brand, commit, , written] = results(result);
    expect(brand).toContain('Blue is `#0b3d91`.');
    expect(commit).toContain('at most 72 characters');
    expect(written).toContain('Use blue #0b3d91');
    expect(model.requests.at(-1)!.tools).toEqual(model.requests[0]!.tools);
  });

  test('prepares a release with the commands of the skill alone', async () => {
    const git = (command: string) => call('bash', { command: `git ${command}` });
    const model = scriptedModel([
      call('bash', { command: 'git init -q && git -c user.name=a -c user.email=a@b commit -q --allow-empty -m First' }),
      use('git-release'),
      git('log --format=%s'),
      call('write', { path: 'CHANGES.md', content: '- First\n' }),
      git('tag v1'),
      git('tag v2 && git push'),
      git('tag --list'),
      git('status --short'),
      call('grep', { pattern: 'First' }),
      'Released.',
    ]);
    const result = await runLoop({ model, tools: tools(), input: 'Release.', policy: free() });
    const [, , log, written, , pushed, tags, status, grep] = results(result);
    expect(log).toContain('First');
    expect(written).toContain('CHANGES.md');
    expect(pushed).toContain('denies \\"git push\\"');
    expect(status).toContain('denies \\"git status --short\\"');
    expect(grep).toContain('not allowed here');
    expect(tags).toMatch(/v1(?!.*v2)/);
  });

  test('cannot activate what only users activate, and deploys as the skill of the user says', async () => {
    const refused = await runLoop({ model: scriptedModel([use('deploy'), 'No.']), tools: tools(), input: 'Deploy.' });
    expect(results(refused)[0]).toContain('only by the user');
    await writeFile(join(work, 'package.json'), '{"scripts":{"deploy":"echo deployed","other":"echo other"}}');
    const active = requestedSkills(skills, ['deploy'], 'staging');
    if (active.type === 'refused') throw new Error(active.reason);
    expect(active.text).toContain('Deploy to staging.');
    const run = (command: string) => call('bash', { command });
    const model = scriptedModel([run('npm run other'), run('npm run deploy --force'), run('npm run deploy'), 'Done.']);
    const { text: instructions, narrow } = active;
    const result = await runLoop({ model, tools: tools(), input: 'Go.', instructions, narrow, policy: free() });
    const [other, forced, deployed] = results(result);
    expect([other, forced]).toEqual([expect.stringContaining('denies'), expect.stringContaining('denies')]);
    expect(deployed).toContain('deployed');
  });
});

test('a server tells the model of skills in every API, if it can activate them', async () => {
  const store = sqliteStore(':memory:');
  const model = scriptedModel(['1', '2', '3', '4', '5']);
  const options = { store, skills, tools: [skillTool({ skills })] };
  const message = { role: 'user', content: 'Hi' };
  {
    await using server = await startInProcess(model, { ...options, defaultTools: ['skill'] });
    await server.send('POST', '/v1/responses', { model: 'm', input: 'Hi' });
    await server.send('POST', '/v1/chat/completions', { model: 'm', messages: [message] });
    await server.send('POST', '/v1/messages', { model: 'm', max_tokens: 100, messages: [message] });
  }
  {
    await using server = await startInProcess(model, options);
    await server.send('POST', '/v1/responses', { model: 'm', input: 'Hi' });
    const own = { type: 'function', name: 'skill', parameters: { type: 'object', properties: {} } };
    await server.send('POST', '/v1/responses', { model: 'm', input: 'Hi', tools: [own] });
  }
  const told = model.requests.map(({ instructions = '' }) => instructions.includes('- code-review: Reviews code'));
  expect(told).toEqual([true, true, true, false, false]);
  await store.close();
});

describe('the chat of the server', () => {
  test('a message with a slash activates a skill for the conversation, and the model learns of the others', async () => {
    const store = sqliteStore(':memory:');
    using model = scriptedModel(['One.', 'Two.', 'Three.']);
    const tools = [...codingTools(local(work)), skillTool({ skills })];
    const defaultTools = tools.map(({ name }) => name);
    const options = { store, skills, tools, defaultTools };
    await using server = await startInProcess(model, options);
    const first = await postChat(server.url, { message: '/code-review the last change' });
    const { conversation_id: conversation } = await first.event('conversation_meta');
    await first.ended;
    await (
      await postChat(server.url, { conversation_id: conversation, message: 'and /etc/hosts' })
    ).ended;
    // Another process has it, too.
    await using other = await startInProcess(model, options);
    await (
      await postChat(other.url, { conversation_id: conversation, message: 'and now' })
    ).ended;
    const [request, next, last] = model.requests;
    expect(request!.instructions).toContain('- code-review: Reviews code');
    expect(request!.instructions).not.toContain('- deploy:');
    expect(JSON.stringify(request!.messages)).toContain('go through it');
    for (const later of [next!, last!]) expect(JSON.stringify(later.messages)).toContain('go through it');
    expect(last!.tools).toEqual(next!.tools);
    const offered = next!.tools.map(({ name }) => name);
    expect(offered).toEqual(expect.arrayContaining(['read', 'grep', 'glob', 'skill']));
    expect(offered).not.toContain('bash');
    const refused = await server.send('POST', '/v1/chat', { message: '/house-style' });
    expect([refused.status, JSON.stringify(refused.body)]).toEqual([400, expect.stringContaining('only by the model')]);
    await store.close();
  });
});
