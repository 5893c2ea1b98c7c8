import { chmod, mkdir, mkdtemp, rm, symlink, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { installedEngine } from '@treadle/tools/sandbox';
import { afterEach, beforeEach, describe, expect, test, vi } from 'vitest';
import { needs } from '../needs.ts';
import { command, type Printed } from './in-process.ts';
import { runsFixture } from './runs-fixture.ts';

const fixture = runsFixture();
const tools = (...args: readonly string[]): Promise<Printed> => fixture.treadle('tools', ...args);

let skills: string;
beforeEach(async () => {
  skills = await mkdtemp(join(tmpdir(), 'treadle-skills-'));
  await configure();
});
afterEach(async () => {
  vi.unstubAllEnvs();
  await rm(skills, { recursive: true });
});

function configure(more = ''): Promise<void> {
  return fixture.play.write('treadle.toml', `[orchestrator.tools]\nskills_path = "${skills}"\n${more}`);
}

/** A package with one tool, which prints what the script prints. */
async function writePackage(name: string, { script = 'echo "$@"', more = '', folder = skills } = {}): Promise<void> {
  const program = join(folder, name, 'bin', 'x');
  await mkdir(join(folder, name, 'bin'), { recursive: true });
  await writeFile(program, `#!/bin/sh\n${script}\n`);
  await chmod(program, 0o755);
  const text = `[[tools]]\nname = "${name}"\nbinary = "bin/x"\ndescription = "Says ${name}"\nparameters = { word = "string" }\n${more}`;
  await writeFile(join(folder, name, 'skill.toml'), text);
}

describe('tools of packages', () => {
  test('are listed, described and called under the policy', async () => {
    await writePackage('say', { more: 'permissions = ["network"]\n' });
    expect((await tools('list')).stdout).toMatch(/^say +once +network +Says say$/m);
    expect(JSON.parse((await tools('show', 'say', '--json')).stdout)).toMatchObject({
      timeout_ms: { default: 40_000 },
      parameters: { properties: { word: { type: 'string' } } },
    });
    expect(await tools('call', 'say', '{"word": "hello"}')).toMatchObject({ code: 1 });
    expect(await tools('call', 'say', '{"word": "hello"}', '--yes')).toMatchObject({
      code: 0,
      stdout: '--word hello\n',
    });
    await configure('permissions.network = false\n');
    expect((await tools('list')).stdout).toMatch(/^say .*\(disabled: permissions\.network = false\)$/m);
  });

  test('get no secrets of the environment', async () => {
    vi.stubEnv('MY_API_KEY', 'the secret');
    vi.stubEnv('MY_PLACE', 'the place');
    await configure('enable_sandboxing = false\n');
    await writePackage('say', { script: 'env', more: 'touches = []\n' });
    const { stdout } = await tools('call', 'say', '{}');
    expect(stdout).toContain('MY_PLACE=the place');
    expect(stdout).toMatch(/^TREADLE_CALL_KEY=\S+$/m);
    expect(stdout).not.toContain('the secret');
  });

  test('are offered to models beside the tools of the command, or alone', async () => {
    await writePackage('say', { more: 'touches = []\n' });
    await fixture.script({ calls: [{ name: 'say', arguments: '{"word":"hi"}' }] }, { text: ['Done.'] });
    const { code } = await fixture.treadle('run', ...fixture.model(), '--tools', 'packages', 'Say hi.');
    expect(code).toBe(0);
    const [first, second] = fixture.server.requests;
    expect(first!.tools!.map((one) => one.function.name)).toEqual(['say']);
    expect(second!.messages.at(-1)).toMatchObject({ role: 'tool', content: '--word hi\n' });
    await fixture.script({ text: ['Done.'] });
    await fixture.treadle('run', ...fixture.model(), 'Say hi.');
    expect(fixture.server.requests[0]!.tools!.map((one) => one.function.name)).toEqual(
      expect.arrayContaining(['read', 'bash', 'say']),
    );
  });

  test('that cannot be used are named with the reason, and the others work', async () => {
    await writePackage('say');
    await writePackage('bad', { more: 'timeout = 3\n' });
    await writePackage('read');
    await writePackage('odd', { more: '"\\u001b[31m" = 1\n' });
    await writePackage('film', { more: 'permissions = ["camera"]\n' });
    await writePackage('boxed', { more: 'sandboxing = "bubblewrap"\n' });
    await fixture.script({ text: ['Done.'] });
    await configure('enable_sandboxing = false\n');
    const { stderr } = await fixture.treadle('run', ...fixture.model(), '--tools', 'packages', 'Go.');
    const problems = [
      `${skills}/bad/skill.toml:6: tools[0].timeout is not known. Allowed here: name,`,
      `${skills}/read: the built-in tools are used instead of those of the package: read.`,
      `${skills}/film: film is not offered, because it needs a permission that does not exist: camera.`,
    ];
    for (const problem of problems) expect(stderr).toContain(problem);
    expect(stderr).toContain(`${skills}/odd/skill.toml:6: `);
    expect(stderr).not.toContain('\u001b[31m');
    expect(stderr).toContain(
      'Not offered, because the sandbox bubblewrap that they ask for does not work here: boxed.',
    );
    expect(fixture.server.requests[0]!.tools!.map((one) => one.function.name)).toEqual(['say']);
    const doctor = await fixture.treadle('doctor', '--no-test');
    expect(doctor.stdout).toContain('warn  tool packages: 4 packages with 2 tools\n');
    for (const problem of problems) expect(doctor.stdout).toContain(problem);
  });
});

test.runIf(needs('bubblewrap', installedEngine('bubblewrap') !== undefined))(
  'a tool that declares nothing runs unasked at level 2 only inside a sandbox, which shows its package read-only',
  async () => {
    const script =
      'here="$(dirname "$0")"; head -n 1 "$here/../skill.toml"; touch "$here/evil" 2>/dev/null || echo refused';
    await writePackage('say', { script });
    await configure('[policy]\nautonomy = 2\n');
    expect(await tools('call', 'say')).toMatchObject({ code: 0, stdout: '[[tools]]\nrefused\n' });
    await configure('enable_sandboxing = false\n[policy]\nautonomy = 2\n');
    expect(await tools('call', 'say')).toMatchObject({
      code: 1,
      stderr: expect.stringContaining('it would touch something that its tool does not declare'),
    });
  },
);

describe('tools of packages of the project', () => {
  const runOwn = (...args: readonly string[]): Promise<Printed> =>
    fixture.treadle('run', ...fixture.model(), ...args, 'Go.');
  const offered = (): readonly string[] => (fixture.server.requests[0]!.tools ?? []).map((one) => one.function.name);
  const sayOwn = { calls: [{ name: 'own', arguments: '{"word":"hi"}' }] };
  const answers = (): readonly unknown[] =>
    fixture.server.requests.at(-1)!.messages.flatMap(({ role, content }) => (role === 'tool' ? content : []));

  let inProject: string;
  beforeEach(async () => {
    inProject = join(fixture.play.folder, 'skills');
    await writePackage('own', { folder: inProject, more: 'touches = []\n' });
    await fixture.play.write(
      'treadle.toml',
      '[orchestrator.tools]\nskills_path = "skills"\nenable_sandboxing = false\n',
    );
  });

  test('are used only after they were trusted, and no more after a change', async () => {
    await fixture.script({ text: ['Done.'] });
    const { stderr } = await runOwn();
    expect(stderr).toContain('1 package of tools of the project are not trusted, and not used: own.');
    expect(offered()).not.toContain('own');
    const [fingerprint] = /sha256:[\da-f]{64}/.exec(stderr)!;
    expect(await tools('call', 'own', '--yes')).toMatchObject({ code: 2 });
    await fixture.play.write(
      'treadle.toml',
      `[orchestrator.tools]\nskills_path = "skills"\ntrusted_skills = ["${fingerprint}"]\n`,
    );
    expect(await tools('call', 'own', '{"word": "hi"}')).toMatchObject({ code: 0, stdout: '--word hi\n' });
    await fixture.play.write('skills/own/lib/a/b/c/d/e/f/g/x.txt', 'changed');
    expect((await tools('list')).stderr).toContain('own/skill.toml: The package is not loaded, because the project');
    await fixture.play.write('skills/own/lib/a/b/c/d/e/f/g/h/x.txt', 'too deep to be looked at');
    expect((await tools('list')).stderr).toContain('folders more than 8 deep');
  });

  test('are used with the flag as they were then: what a run has changed is not run', async () => {
    const change = { calls: [{ name: 'bash', arguments: '{"command":"echo echo evil >> skills/own/bin/x"}' }] };
    await fixture.script(sayOwn, change, sayOwn, { text: ['Done.'] });
    await runOwn('--trust-skills', '--yes');
    const [first, , last] = answers();
    expect(first).toBe('--word hi\n');
    expect(last).toContain('The package "own" has changed since it was loaded, so it was not run.');
  });

  test.runIf(needs('bubblewrap', installedEngine('bubblewrap') !== undefined))(
    'cannot be changed by commands in the sandbox, also not between the comparison and the start',
    async () => {
      const change = 'echo evil >> skills/own/bin/x; mv skills/own skills/other; echo made > skills/new.txt; echo end';
      const bash = { calls: [{ name: 'bash', arguments: JSON.stringify({ command: change }) }] };
      await fixture.play.write(
        'treadle.toml',
        '[orchestrator.tools]\nskills_path = "skills"\nsandbox_engine = "bubblewrap"\n',
      );
      await fixture.script(bash, sayOwn, { text: ['Done.'] });
      await runOwn('--trust-skills', '--yes');
      const [changed, said] = answers();
      expect(changed).toMatch(/Read-only file system[^]*end/);
      expect(said).toBe('--word hi\n');
    },
  );

  test('are trusted together with its skills', async () => {
    await fixture.play.write('skills/know/SKILL.md', '---\ndescription: Knows\n---\nText');
    await fixture.script({ text: ['Done.'] });
    const { stderr } = await runOwn();
    expect(stderr).toContain('1 skill and 1 package of tools of the project are not trusted, and not used: know, own.');
    await fixture.script({ text: ['Done.'] });
    await runOwn('--trust-skills');
    expect(offered()).toEqual(expect.arrayContaining(['own', 'skill']));
  });

  test('are those of the whole repository, also for a folder in it', async () => {
    await fixture.play.write('.git/HEAD', '');
    await fixture.play.write('sub/treadle.toml', '[orchestrator.tools]\nskills_path = "../skills"\n');
    const { stdout, stderr } = await tools('list', '--cwd', 'sub');
    expect(stdout).not.toMatch(/^own /m);
    expect(stderr).toContain('is not loaded, because the project brings it, and is not trusted.');
  });

  test('do not take the name of a tool of the user while they are not trusted', async () => {
    vi.stubEnv('HOME', skills);
    await writePackage('own', {
      folder: join(skills, '.treadle', 'skills'),
      script: 'echo mine',
      more: 'version = "1.0.0"\n',
    });
    await writePackage('own', { folder: inProject, script: 'echo theirs', more: 'version = "9.0.0"\n' });
    expect(await tools('call', 'own', '--yes')).toMatchObject({ code: 0, stdout: 'mine\n' });
  });

  test('are not loaded with a link, also if they are trusted', async () => {
    await symlink('/etc', join(inProject, 'own', 'etc'));
    await fixture.script({ text: ['Done.'] });
    expect((await runOwn('--trust-skills')).stderr).toContain('"etc" is not a plain file');
    expect(offered()).not.toContain('own');
  });
});

test('a run that is resumed keeps the version of a tool that it had', async () => {
  await writePackage('say', { script: 'echo old', more: 'touches = []\nversion = "1.0.0"\n' });
  const say = { calls: [{ name: 'say', arguments: '{}' }] };
  await fixture.script(say, { status: 400, message: 'no' });
  await fixture.treadle('run', ...fixture.model(), '--tools', 'packages', 'Say it.');
  await mkdir(join(skills, 'newer', 'bin'), { recursive: true });
  await writeFile(join(skills, 'newer', 'bin', 'x'), '#!/bin/sh\necho new\n', { mode: 0o755 });
  await writeFile(
    join(skills, 'newer', 'skill.toml'),
    '[[tools]]\nname = "say"\nbinary = "bin/x"\ndescription = "Says it"\nversion = "2.0.0"\ntouches = []\n',
  );
  expect((await tools('list')).stdout).toMatch(/^say +once +- +Says it\nsay_v1 +once +- +Says say$/m);
  await fixture.script({ calls: [{ name: 'say', arguments: '{"word":"again"}' }] }, { text: ['Done.'] });
  const [stored] = await fixture.runs();
  expect(await fixture.treadle('runs', 'resume', stored!.runId, ...fixture.model())).toMatchObject({ code: 0 });
  expect(fixture.server.requests[1]!.messages.at(-1)).toMatchObject({ role: 'tool', content: 'old\n' });
});

test('a chat takes over changed packages with its next message', async () => {
  await configure('enable_sandboxing = false\n');
  const script = 'sed -i "s/Says say/Says more/" "$(dirname "$0")/../skill.toml"';
  await writePackage('say', { script, more: 'touches = []\n' });
  await fixture.script({ calls: [{ name: 'say', arguments: '{}' }] }, { text: ['One.'] }, { text: ['Two.'] });
  const args = ['chat', ...fixture.model(), '--tools', 'packages'];
  const { code } = await command(args, fixture.play.folder, 'one\ntwo\n');
  expect(code).toBe(0);
  expect(fixture.server.requests.map(({ tools: offered }) => offered!.map((one) => one.function.description))).toEqual([
    ['Says say'],
    ['Says say'],
    ['Says more'],
  ]);
});
