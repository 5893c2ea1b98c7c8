import { existsSync } from 'node:fs';
import { chmod, mkdir, readdir, readFile, rm, symlink, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { installedEngine } from '@treadle/tools/sandbox';
import { afterEach, beforeEach, describe, expect, test, vi } from 'vitest';
import { needs } from '../needs.ts';
import { fakeTerminal } from './fake-terminal.ts';
import { command, type Printed } from './in-process.ts';
import { playground, type Playground } from './playground.ts';
import { scriptedOpenAi, type ScriptedOpenAi, type Step } from './scripted-openai.ts';

let play: Playground;
let home: Playground;
let server: ScriptedOpenAi | undefined;

beforeEach(async () => {
  [play, home] = [await playground(), await playground()];
  vi.stubEnv('HOME', home.folder);
  // The end of the project.
  await mkdir(join(play.folder, '.git'));
});
afterEach(async () => {
  vi.unstubAllEnvs();
  await server?.close();
  server = undefined;
  await play.remove();
  await home.remove();
});

const OWN = '.treadle/skills';
const skill = (front: string, text = 'Do it well.'): string => `---\n${front}\n---\n${text}\n`;

async function run(steps: readonly Step[], args: readonly string[], sub = 'run', stdin = ''): Promise<Printed> {
  server = await scriptedOpenAi(steps);
  const flags = ['--model', 'scripted', '--base-url', server.baseURL, '--tools', 'read-only,write,question'];
  return command([sub, ...flags, ...args], play.folder, stdin);
}

const system = (index = 0): string => String(server!.requests[index]!.messages[0]!.content);
const offered = (index: number): readonly string[] => server!.requests[index]!.tools!.map((tool) => tool.function.name);
const lastText = (index: number): string => JSON.stringify(server!.requests[index]!.messages.at(-1));
const read = (path: string) => ({ name: 'read', arguments: JSON.stringify({ path: join(home.folder, path) }) });
const use = (skill_name: string): Step => ({ calls: [{ name: 'skill', arguments: JSON.stringify({ skill_name }) }] });

describe('a run', () => {
  test('learns of the skills of the user, activates one and reads its files, and nothing else', async () => {
    await home.write(`${OWN}/count/SKILL.md`, skill('description: Counts words\nallowed-tools: Read'));
    await home.write(`${OWN}/count/reference.md`, 'the reference');
    await home.write(`${OWN}/count/.env`, 'KEY=the secret');
    await home.write(`${OWN}/other/SKILL.md`, skill('description: d'));
    await home.write(`${OWN}/other/reference.md`, 'the secret');
    await home.write('.treadle/secret.txt', 'the secret');
    await symlink(join(home.folder, '.treadle/secret.txt'), join(home.folder, OWN, 'count/link.md'));
    const others = [`${OWN}/other/reference.md`, '.treadle/secret.txt', `${OWN}/count/.env`, `${OWN}/count/link.md`];
    const steps: readonly Step[] = [
      { calls: [read(`${OWN}/count/reference.md`)] },
      use('count'),
      { calls: [read(`${OWN}/count/reference.md`), ...others.map(read), { name: 'glob', arguments: '{}' }] },
      { text: ['ok'] },
    ];
    const { stdout, code } = await run(steps, ['go']);
    expect([code, stdout]).toEqual([0, 'ok\n']);
    expect(lastText(1)).toContain('was denied');
    expect(system()).toContain('# Available skills');
    expect(system()).toContain('\n- count: Counts words');
    expect(lastText(2)).toContain('Do it well.');
    expect(offered(2)).toEqual(expect.arrayContaining(['read', 'skill', 'question']));
    expect(offered(2)).not.toContain('write');
    const results = JSON.stringify(server!.requests[3]!.messages.slice(-6));
    expect(results).toContain('the reference');
    expect(results).not.toContain('the secret');
    expect(results.split('was denied')).toHaveLength(1 + others.length);
    expect(results).toContain('The tool \\"glob\\" is not allowed here');
  });

  test('activates skills that the user names, from the first turn on', async () => {
    await home.write(
      `${OWN}/one/SKILL.md`,
      skill('description: d\nallowed-tools: Read\ndependencies: [two]', 'For $ARGUMENTS.'),
    );
    await home.write(`${OWN}/two/SKILL.md`, skill('description: d\ninvocation_mode: user', 'Second.'));
    const { code } = await run([{ text: ['ok'] }], ['--skill', 'one', 'the task']);
    expect(code).toBe(0);
    expect(lastText(0)).toMatch(/the task.*Second\..*For the task\./);
    expect(offered(0)).toContain('read');
    expect(offered(0)).not.toContain('write');
  });

  test.each([
    [['--skill', 'on'], 'There is no skill "on". Did you mean "one"?'],
    [['--skill', 'own'], 'can be activated only by the model'],
  ])('%j is an error before anything runs', async (args, message) => {
    await home.write(`${OWN}/one/SKILL.md`, skill('description: d'));
    await home.write(`${OWN}/own/SKILL.md`, skill('description: d\ninvocation_mode: model'));
    const { code, stderr } = await run([], [...args, 'go']);
    expect([code, server!.requests.length]).toEqual([2, 0]);
    expect(stderr).toContain(message);
  });

  test('uses the skills of a project only after they were trusted, and asks again after a change', async () => {
    await play.write('.claude/skills/deploy/SKILL.md', skill('description: Deploys'));
    const untrusted = await run([{ text: ['ok'] }], ['go']);
    expect(untrusted.stderr).toContain('1 skill of the project are not trusted, and not used: deploy.');
    expect(offered(0)).not.toContain('skill');
    const named = await run([], ['--skill', 'deploy', 'go']);
    expect([named.code, server!.requests.length]).toEqual([2, 0]);
    expect(named.stderr).toMatch(
      /The skill "deploy" is not used, because the skills of the project are not trusted\. Use them with --trust-skills, or/,
    );
    await server!.close();
    const inChat = await run([], [], 'chat', '/deploy now\n');
    expect(inChat.stdout + inChat.stderr).toContain('The skill "deploy" is not used');
    expect(server!.requests).toEqual([]);
    await server!.close();
    const [fingerprint] = /sha256:[\da-f]{64}/.exec(untrusted.stderr)!;
    await server!.close();

    const byFlag = await run([{ text: ['ok'] }], ['--trust-skills', 'go']);
    expect(byFlag.stderr).not.toContain('trusted');
    expect(system()).toContain('- deploy: Deploys');
    await server!.close();

    await play.write('treadle.toml', `[orchestrator.tools]\ntrusted_skills = ["${fingerprint}"]\n`);
    await run([{ text: ['ok'] }], ['go']);
    expect(offered(0)).toContain('skill');
    await server!.close();

    await play.write('.claude/skills/deploy/run.sh', 'echo changed');
    const changed = await run([{ text: ['ok'] }], ['go']);
    expect(changed.stderr).toContain('are not trusted');
    expect(offered(0)).not.toContain('skill');
  });

  test('tells of ten problems with skills, and of how many more there are', async () => {
    for (let index = 0; index < 12; index++) await home.write(`${OWN}/s${index}/SKILL.md`, 'no front matter');
    const { stderr } = await run([{ text: ['ok'] }], ['go']);
    expect(stderr.match(/A skill is not used/g)).toHaveLength(10);
    expect(stderr).toContain('2 more problems with skills: treadle skills check');
  });

  test('resumes with its skills, and stays narrowed', async () => {
    await home.write(`${OWN}/ask/SKILL.md`, skill('description: d\nallowed-tools: Read\napprovals: [read]'));
    await home.write(`${OWN}/ask/reference.md`, 'the reference');
    const reads: Step = { calls: [read(`${OWN}/ask/reference.md`)] };
    const paused = await run([use('ask')], ['--ask', 'always', 'go']);
    expect(paused.code).toBe(4);
    const [id] = /run_\w+/.exec(paused.stderr)!;
    await server!.close();
    server = await scriptedOpenAi([reads, { text: ['ok'] }, reads, { text: ['forked'] }]);
    const flags = ['--model', 'scripted', '--base-url', server.baseURL, '--yes'];
    const resumed = await command(['runs', 'resume', id, ...flags], play.folder);
    expect([resumed.code, resumed.stdout]).toEqual([0, 'ok\n']);
    expect(offered(0)).toEqual(['read', 'question', 'skill']);
    expect(lastText(1)).toContain('the reference');
    const changed = ['--result', 't2.tool.0=changed'];
    const forked = await command(['runs', 'fork', id, ...changed, ...flags], play.folder);
    expect(forked).toMatchObject({ code: 0, stdout: 'forked\n' });
    expect(offered(2)).toEqual(['read', 'question', 'skill']);
    expect([lastText(2), lastText(3)]).toEqual([
      expect.stringContaining('changed'),
      expect.stringContaining('the reference'),
    ]);
  });
});

test('on a terminal, the user is asked once about the skills of a project, until they change', async () => {
  await play.write('.agents/skills/deploy/SKILL.md', skill('description: Deploys'));
  server = await scriptedOpenAi([{ text: ['one'] }, { text: ['two'] }, { text: ['three'] }]);
  const args = ['run', '--model', 'scripted', '--base-url', server.baseURL, '--tools', 'read-only', 'go'];
  const terminal = fakeTerminal(args, play.folder);
  await terminal.shows('brings 1 skill: deploy.');
  await terminal.shows('[y/N]');
  terminal.type('y\n');
  expect(await terminal.exit).toBe(0);
  await command(args, play.folder);
  expect([0, 1].map((index) => offered(index).includes('skill'))).toEqual([true, true]);
  expect(JSON.parse(await readFile(join(home.folder, '.treadle/trusted-skills.jsonl'), 'utf8'))).toEqual({
    project: play.folder,
    fingerprint: expect.stringMatching(/^sha256:/),
  });
  await play.write('.agents/skills/deploy/SKILL.md', skill('description: Deploys everything'));
  expect((await command(args, play.folder)).stderr).toContain('are not trusted');
  expect(offered(2).includes('skill')).toBe(false);
});

test('an explanation says what the policy has judged, with the skills that are active', async () => {
  await home.write(`${OWN}/ask/SKILL.md`, skill('description: d\nallowed-tools: Read\nautonomy: 0\napprovals: [read]'));
  await home.write(`${OWN}/ask/reference.md`, 'the reference');
  server = await scriptedOpenAi([use('ask'), { calls: [read(`${OWN}/ask/reference.md`)] }, { text: ['ok'] }]);
  const flags = ['--model', 'scripted', '--base-url', server.baseURL, '--tools', 'read-only'];
  const terminal = fakeTerminal(['run', ...flags, 'go'], play.folder, 200);
  await terminal.shows('Allow it?');
  terminal.type('e\n');
  await terminal.shows('level 0 (read-only)');
  await terminal.shows('Allow it?');
  terminal.type('y\n');
  expect(await terminal.exit).toBe(0);
  expect(terminal.screen()).not.toContain('denied by');
  expect(lastText(2)).toContain('the reference');
});

describe('a chat', () => {
  test('activates a skill with a slash for the rest of the conversation, and lifts it only by hand', async () => {
    await home.write(`${OWN}/review/SKILL.md`, skill('description: Reviews\nallowed-tools: Read'));
    await home.write(`${OWN}/review/reference.md`, 'the reference');
    await home.write(`${OWN}/own/SKILL.md`, skill('description: d\ninvocation_mode: model'));
    const reads: Step = { calls: [read(`${OWN}/review/reference.md`)] };
    const lines = [
      '/review this change',
      'and this',
      '/skills',
      '/own',
      '/reviw',
      '/lift skill:review',
      'free',
      '',
    ].join('\n');
    const steps = [{ text: ['one'] }, reads, { text: ['two'] }, use('own'), reads, { text: ['three'] }];
    const { stdout, stderr } = await run(steps, [], 'chat', lines);
    expect(stdout).toContain('three');
    expect(lastText(0)).toMatch(/"this change\\n\\nThe skill.*Do it well\./);
    expect([0, 1, 4].map((index) => offered(index).includes('write'))).toEqual([false, false, true]);
    expect([lastText(2), lastText(5)]).toEqual([
      expect.stringContaining('the reference'),
      expect.stringContaining('was denied'),
    ]);
    const shown = stdout + stderr;
    expect(shown).toContain('/review (active): Reviews');
    expect(shown).toContain('The skill "own" can be activated only by the model.');
    expect(shown).toContain('There is no command /reviw. Did you mean "/review"?');
  });
});

describe('treadle skills', () => {
  const skills = (...args: readonly string[]): Promise<Printed> => command(['skills', ...args], play.folder);

  test('new writes a skill that is valid, list shows it, and it is not written again', async () => {
    const { stdout } = await skills('new', 'release-notes');
    expect(stdout).toBe(`${join(home.folder, OWN, 'release-notes/SKILL.md')}\n`);
    expect((await skills('new', 'release-notes')).stderr).toContain('has a SKILL.md already');
    expect((await skills('new', '../x')).stderr).toContain('cannot be the name of a skill');
    await skills('new', 'mine', '--project');
    const listed = await skills('list');
    expect(listed.stdout).toMatch(/^release-notes +user +active +What this skill does/m);
    expect(listed.stdout).toMatch(/^mine +project +untrusted/m);
    expect(listed.stderr).toMatch(/fingerprint sha256:/);
  });

  test('check explains what a skill narrows and asks for, and what is wrong', async () => {
    const front = 'description: d\nallowed-tools: Read Bash(git log:*) Read(x) Telepathy\nautonomy: 1\nmodel: big';
    await play.write('outside/good/SKILL.md', skill(front));
    await home.write(`${OWN}/lost/SKILL.md`, skill('description: d\ndependencies: gone'));
    await home.write(`${OWN}/bad/SKILL.md`, skill('name: bad'));
    const one = await skills('check', './outside/good');
    expect(one.code).toBe(0);
    expect(one.stdout.split('\n')).toEqual([
      'good: activated by the user and the model',
      '  Allowed tools: read, bash, background_list, background_read, background_stop, telepathy',
      '  Allowed commands: git log; no others',
      '  Autonomy: at most level 1 (supervised)',
      '  Note: Telepathy is not a tool of the command. A tool of an MCP server can have this name.',
      '  Note: Read(x) cannot be checked, so its calls are asked about or blocked.',
      '  Note: allowed-tools narrows: it does not let calls run without being asked about.',
      '  Note: These keys have no effect: model.',
      '',
    ]);
    const all = await skills('check');
    expect(all.code).toBe(1);
    expect(all.stdout).toContain('Problem: There is no skill "gone", which the skill "lost" depends on.');
    expect(all.stdout).toMatch(/Does not load: .*bad\/SKILL\.md, line 1, description: It is missing/);
    const { stdout } = await command(['doctor', '--no-test', '--json'], play.folder);
    expect(JSON.parse(stdout).checks).toEqual(
      expect.arrayContaining([
        { name: 'skills', status: 'ok', message: '1 skill' },
        { name: 'skills', status: 'warning', message: expect.stringContaining('bad/SKILL.md, line 1, description') },
      ]),
    );
  });

  test('show prints what the model gets', async () => {
    await home.write(`${OWN}/a/SKILL.md`, skill('description: About a\ndisallowed-tools: write'));
    const { stdout } = await skills('show', 'a');
    expect(stdout).toContain('- Blocked tools: write');
    expect(JSON.parse((await skills('show', 'a', '--json')).stdout)).toMatchObject({
      narrowing: { source: 'skill:a', without: ['write'] },
    });
    expect((await skills('show', 'b')).code).toBe(2);
  });

  test('add copies the skills of a folder without links, and replaces nothing', async () => {
    await play.write('pack/one/SKILL.md', skill('description: d'));
    await play.write('pack/one/scripts/run.sh', 'echo 1');
    await symlink('/etc/passwd', join(play.folder, 'pack/one/passwd'));
    await play.write('pack/two/SKILL.md', skill('name: BAD\ndescription: d'));
    const { code, stdout, stderr } = await skills('add', './pack');
    expect([code, stdout]).toEqual([1, `Added one to ${join(home.folder, OWN, 'one')}\n`]);
    expect(stderr).toMatch(/Not added: .*two\/SKILL\.md, line 2, name/);
    expect(await readFile(join(home.folder, OWN, 'one/scripts/run.sh'), 'utf8')).toBe('echo 1');
    expect(existsSync(join(home.folder, OWN, 'one/passwd'))).toBe(false);
    expect((await skills('add', './pack/one')).stderr).toContain('one exists');
    expect((await skills('add', './missing')).code).toBe(2);
  });

  test('add clones a repository, and a folder of it', async () => {
    const { execFileSync } = await import('node:child_process');
    const repository = join(play.folder, 'repository');
    await play.write('repository/skills/pdf/SKILL.md', skill('description: d'));
    const git = (...args: readonly string[]): unknown =>
      execFileSync('git', ['-C', repository, '-c', 'user.name=a', '-c', 'user.email=a@b', ...args]);
    git('init', '-q');
    git('add', '.');
    git('commit', '-qm', 'skills');
    const { code, stderr } = await skills('add', `file://${repository}#skills`);
    expect([code, existsSync(join(home.folder, OWN, 'pdf/SKILL.md'))]).toEqual([0, true]);
    expect(stderr).toContain('treadle skills check');
    expect((await skills('add', `file://${repository}#../..`)).stderr).toContain('leads out of the repository');
    await play.write('elsewhere/other/SKILL.md', skill('description: d'));
    await symlink(join(play.folder, 'elsewhere'), join(repository, 'linked'));
    git('add', '.');
    git('commit', '-qm', 'link');
    expect((await skills('add', `file://${repository}#linked`)).stderr).toContain('leads out of the repository');
    expect(existsSync(join(home.folder, OWN, 'other'))).toBe(false);
    await rm(repository, { recursive: true });
    expect((await skills('add', `file://${repository}`)).stderr).toContain('cannot be cloned');
  });

  test('skills_path names another folder; inside of the project it has to be trusted', async () => {
    await play.write('own/a/SKILL.md', skill('description: d'));
    await home.write('elsewhere/b/SKILL.md', skill('description: d'));
    await play.write('treadle.toml', '[orchestrator.tools]\nskills_path = "own"\n');
    expect((await skills('list')).stdout).toMatch(/^a +project +untrusted/m);
    await writeFile(join(play.folder, 'treadle.toml'), '[orchestrator.tools]\nskills_path = "~/elsewhere"\n');
    expect((await skills('list')).stdout).toMatch(/^b +user +active/m);
  });
});

describe.runIf(needs('bubblewrap', installedEngine('bubblewrap') !== undefined))(
  'a script of a skill in the sandbox',
  () => {
    const script = (name: string): string => `sh ${join(home.folder, OWN, 'work/scripts', name)}`;
    const bash = (name: string, more: object = {}): Step => ({
      calls: [{ name: 'bash', arguments: JSON.stringify({ command: script(name), ...more }) }],
    });
    const answers = (): readonly string[] =>
      server!.requests.at(-1)!.messages.flatMap(({ role, content }) => (role === 'tool' ? String(content) : []));
    const runScripts = async (...steps: readonly Step[]): Promise<Printed> => {
      server = await scriptedOpenAi([use('work'), ...steps, { text: ['done'] }]);
      const flags = ['--model', 'scripted', '--base-url', server.baseURL, '--tools', 'bash', '--yes'];
      return command(['run', ...flags, 'go'], play.folder);
    };

    beforeEach(async () => {
      await home.write(`${OWN}/work/SKILL.md`, skill('description: Works\nallowed-tools: Bash(sh:*)'));
    });

    test('reads its own folder, writes to the project alone, and sees nothing else of the home folder', async () => {
      await home.write('private.txt', 'secret');
      await home.write(
        `${OWN}/work/scripts/go.sh`,
        `cd "$(dirname "$0")" && cat data.txt\ncat ${home.folder}/private.txt\n` +
          `touch evil || echo refused\necho made > ${play.folder}/made.txt\n`,
      );
      await home.write(`${OWN}/work/scripts/data.txt`, 'its data\n');
      expect(await runScripts(bash('go.sh'))).toMatchObject({ code: 0, stdout: 'done\n' });
      expect(answers()[1]).toContain('its data\n');
      expect(answers()[1]).toContain('refused');
      expect(answers()[1]).not.toContain('secret');
      expect(await readFile(join(play.folder, 'made.txt'), 'utf8')).toBe('made\n');
      expect(existsSync(join(home.folder, OWN, 'work/scripts/evil'))).toBe(false);
    });

    test('is seen only while its skill is active, also by a shell that runs on, without its private files', async () => {
      const folder = join(home.folder, OWN);
      for (const name of ['work', 'other']) await home.write(`${OWN}/${name}/data.txt`, `data of ${name}\n`);
      await home.write(`${OWN}/other/SKILL.md`, skill('description: d'));
      await home.write(`${OWN}/work/.env`, 'KEY=hidden\n');
      await home.write(`${OWN}/pack/skill.toml`, '[[tools]]\nname = "say"\nbinary = "bin"\ndescription = "Says"\n');
      await home.write(`${OWN}/pack/bin`, `#!/bin/sh\ncat ${folder}/*/data.txt ${folder}/pack/data.txt\n`);
      await chmod(join(folder, 'pack/bin'), 0o755);
      await home.write(`${OWN}/pack/data.txt`, 'data of pack\n');
      await play.write('look.sh', `cat ${folder}/*/data.txt ${folder}/work/.env\n`);
      await home.write(`${OWN}/work/SKILL.md`, skill('description: Works\nallowed-tools: Bash say'));
      const bash = (input: object) => ({ name: 'bash', arguments: JSON.stringify(input) });
      const shell = bash({ command: 'sh look.sh', session: 'main' });
      const there = bash({ command: 'pwd', workdir: join(folder, 'work') });
      const looks = [shell, there, { name: 'say', arguments: '{}' }];
      server = await scriptedOpenAi([{ calls: looks }, use('work'), { calls: looks }, { text: ['done'] }]);
      const flags = ['--model', 'scripted', '--base-url', server.baseURL, '--tools', 'bash,say', '--yes'];
      await command(['run', ...flags, 'go'], play.folder);
      const [before, thereBefore, saidBefore, , meanwhile, thereThen, said] = answers();
      const seen = (text = ''): readonly string[] => text.match(/data of \w+|hidden/g) ?? [];
      expect([before, meanwhile].map(seen)).toEqual([[], ['data of work']]);
      expect([saidBefore, said].map(seen)).toEqual([
        ['data of pack', 'data of pack'],
        ['data of pack', 'data of work', 'data of pack'],
      ]);
      expect(thereBefore).toContain('denied');
      expect(thereThen).toBe(`${join(folder, 'work')}\n`);
    });

    test('belongs to a project above the working folder: its folder can be read, and nothing else there', async () => {
      await play.write('.agents/skills/deep/SKILL.md', skill('description: d\nallowed-tools: Read Bash'));
      await play.write('.agents/skills/deep/run.sh', `echo ran\ncat ${play.folder}/secret.txt\n`);
      await play.write('secret.txt', 'the secret');
      await play.write('sub/treadle.toml', '[policy]\nautonomy = 2\n');
      const at = (path: string): string => join(play.folder, path);
      const read = (path: string) => ({ name: 'read', arguments: JSON.stringify({ path: at(path) }) });
      const sh = { name: 'bash', arguments: JSON.stringify({ command: `sh ${at('.agents/skills/deep/run.sh')}` }) };
      const calls = [read('.agents/skills/deep/run.sh'), read('secret.txt'), sh];
      server = await scriptedOpenAi([use('deep'), { calls }, { text: ['done'] }]);
      const flags = ['--model', 'scripted', '--base-url', server.baseURL, '--tools', 'read,bash', '--trust-skills'];
      expect(await command(['run', ...flags, 'go'], at('sub'))).toMatchObject({ code: 5, stdout: 'done\n' });
      const [, own, other, ran] = answers();
      expect(own).toContain('echo ran');
      expect(other).toContain('was denied');
      expect(ran).toContain('ran\n');
      expect(answers().join('')).not.toContain('the secret');
    });

    test('that hangs, forks or floods is ended, and the run goes on', async () => {
      await home.write(`${OWN}/work/scripts/hang.sh`, 'trap "" TERM\nwhile :; do sleep 1000; done\n');
      const marked = `sleep 1000; : ${play.folder}`;
      await home.write(
        `${OWN}/work/scripts/fork.sh`,
        `for i in 1 2 3 4 5; do setsid sh -c "${marked}" & done\necho started\nwait\n`,
      );
      await home.write(`${OWN}/work/scripts/flood.sh`, 'head -c 20000000 /dev/zero | tr "\\\\0" x\n');
      const soon = { timeout_ms: 300 };
      const printed = await runScripts(bash('hang.sh', soon), bash('flood.sh'), bash('fork.sh', soon));
      expect(printed).toMatchObject({ code: 0, stdout: 'done\n' });
      const [, hung, flooded, forked] = answers();
      expect([hung, forked]).toEqual([expect.stringContaining('300 ms'), expect.stringContaining('300 ms')]);
      expect(forked).toContain('started');
      expect(await processesWith(marked)).toEqual([]);
      expect(flooded).toContain('xxx');
      expect(flooded!.length).toBeLessThan(100_000);
    });
  },
);

/** The processes of the machine whose command line contains a text. */
async function processesWith(text: string): Promise<readonly string[]> {
  const ids = (await readdir('/proc')).filter((name) => /^\d+$/.test(name));
  const lines = await Promise.all(ids.map((id) => readFile(`/proc/${id}/cmdline`, 'utf8').catch(() => '')));
  return lines.filter((line) => line.includes(text));
}
