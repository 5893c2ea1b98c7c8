import { readFile, symlink } from 'node:fs/promises';
import { userInfo } from 'node:os';
import { dirname, join } from 'node:path';
import { describe, expect, test, vi } from 'vitest';
import { fakeTerminal, type FakeTerminal } from './fake-terminal.ts';
import type { Printed } from './in-process.ts';
import { playground } from './playground.ts';
import { runsFixture } from './runs-fixture.ts';
import type { Step } from './scripted-openai.ts';

// Starting processes takes a long time on a busy machine.
vi.setConfig({ testTimeout: 30_000 });

const fixture = runsFixture();
const configure = (toml: string): Promise<void> => fixture.play.write('treadle.toml', toml);
const policy = (...args: readonly string[]): Promise<Printed> => fixture.treadle('policy', ...args);

describe('policy explain', () => {
  test('shows each rule, what it saw, and which decided', async () => {
    const { code, stdout, stderr } = await policy('explain', 'read', '{"path": "notes.txt"}');
    expect([code, stderr]).toEqual([0, '']);
    const file = JSON.stringify(join(fixture.play.folder, 'notes.txt'));
    expect(stdout.split('\n')).toEqual([
      'RULE         VERDICT  SAW',
      'allowed      -        the run may call all its tools',
      'rate         -        calls are not counted',
      `autonomy     allow    level 1 (supervised); it would read ${file}`,
      'scopes       -        no principal',
      'permissions  allow    it needs "file_read"',
      'commands     -        it runs no commands',
      `paths        allow    read ${file}`,
      'private      -        it reads no private paths',
      'domains      -        it makes no requests',
      'devices      -        it uses this machine only',
      'sessions     -        it uses no sessions',
      'exposure     -        the run has seen neither private data nor content from outside',
      'tools        -        no entry for "read"',
      'Verdict: allow, by the rule paths',
      '',
    ]);
  });

  test.each([
    ['a secret', ['read', '{"path": ".env"}'], 'deny, by the rule paths: reads of ', undefined],
    ['a read outside', ['read', '{"path": "/srv/x"}'], 'ask, by the rule autonomy', 'paths.read = ["**", "/srv/x"]'],
    ['a read of home', ['read', '{"path": "~/x"}'], 'ask, by the rule autonomy', 'paths.read = ["**", "~/x"]'],
    ['loopback', ['fetch', '--touch', 'url=http://127.0.0.1/x'], 'deny, by the rule domains', undefined],
  ])('without configuration: %s', async (_, args, verdict, line) => {
    const { code, stdout } = await policy('explain', ...args);
    expect(code).toBe(0);
    expect(stdout).toContain(`Verdict: ${verdict}`);
    if (line === undefined) expect(stdout).not.toContain('To allow it');
    else expect(stdout).toContain(`To allow it, set in [policy] of treadle.toml: ${line}\n`);
  });

  test.each([
    ['sh', 'command=npm test', 'commands.allow = ["npm test"]'],
    ['write', 'write=out/a.txt', 'paths.write = ["src/**", "out/a.txt"]'],
    ['write', 'write=a*.txt', 'paths.write = ["src/**", "a?.txt"]'],
    ['fetch', 'url=https://a.example:8443/x', 'domains.allow = ["a.example:8443"]'],
  ])('at level 2 suggests an entry for what %s touches, and the entry allows it', async (name, touch, line) => {
    const explain = async (more = ''): Promise<string> => {
      await configure(`[policy]\nautonomy = 2\n${more || 'paths.write = ["src/**"]'}\n`);
      return (await policy('explain', name, '--touch', touch)).stdout;
    };
    expect(await explain()).toContain(`To allow it, set in [policy] of treadle.toml: ${line}\n`);
    expect(await explain(line)).toContain('Verdict: allow');
  });

  const EXACT: readonly [touch: string, lines: string, others: readonly string[]][] = [
    [
      'write=a.txt',
      'autonomy = 2 and paths.write = ["a.txt"]',
      ['write=b.txt', 'write=a.txt/b', 'command=touch a.txt'],
    ],
    ['read=/srv/x', 'paths.read = ["**", "/srv/x"]', ['read=/srv/y', 'read=/srv/x/y', 'write=/srv/x']],
    [
      'command=npm test',
      'autonomy = 2 and commands.allow = ["npm test"]',
      ['command=npm run test', 'command=npm', 'write=a'],
    ],
    [
      'command=cat notes.txt | sort > out.txt',
      'autonomy = 2 and commands.allow = ["cat notes.txt", "sort"] and paths.write = ["out.txt"]',
      ['command=cat notes.txt > other.txt', 'command=cat out.txt', 'command=rm out.txt', 'write=other.txt'],
    ],
    [
      'command=grep -e "a b" /srv/x',
      'autonomy = 2 and commands.allow = ["grep -e * /srv/x"] and paths.read = ["**", "/srv/x"]',
      ['command=grep -e a /srv/y', 'command=grep -r a /srv/x', 'read=/srv/y'],
    ],
    [
      'url=https://a.example/x',
      'autonomy = 2 and domains.allow = ["a.example:443"]',
      [
        'url=https://b.example/x',
        'url=https://a.example:8443/x',
        'url=http://a.example/x',
        'url=https://b.a.example/x',
      ],
    ],
    [
      'command=curl https://a.example',
      'autonomy = 2 and commands.allow = ["curl https://a.example"] and domains.allow = ["a.example:443"]',
      ['command=curl https://b.example', 'command=wget https://a.example'],
    ],
  ];

  test.each(EXACT)('suggests for %s the lines that allow it and nothing beside it', async (touch, lines, others) => {
    const explain = async (what: string): Promise<string> => (await policy('explain', 'act', '--touch', what)).stdout;
    expect(await explain(touch)).toContain(`To allow it, set in [policy] of treadle.toml: ${lines}\n`);
    await configure(`[policy]\n${lines.replaceAll(' and ', '\n')}\n`);
    expect(await explain(touch)).toContain('Verdict: allow');
    for (const other of others) expect(await explain(other), other).not.toContain('Verdict: allow');
    expect(await policy('check')).toMatchObject({ code: 0, stdout: '' });
  });

  test('suggests entries for a link and for the place it leads to', async () => {
    await symlink('/srv/x', join(fixture.play.folder, 'link.txt'));
    const { stdout } = await policy('explain', 'act', '--touch', 'read=link.txt');
    expect(stdout).toContain('treadle.toml: paths.read = ["**", "/srv/x"]\n');
  });

  test('suggests no list for a path that an entry cannot name', async () => {
    const { stdout } = await policy('explain', 'act', '--touch', 'write= ');
    expect(stdout).toContain('To allow every call of the tool, set in [policy] of treadle.toml: tools.act = "allow"\n');
  });

  test.each(["command='*' now", 'command="my program" now'])(
    'suggests nothing for %s, which is unclear',
    async (touch) => {
      const { stdout } = await policy('explain', 'act', '--touch', touch);
      expect(stdout).toContain('is not analysed');
      expect(stdout).not.toContain('set in [policy]');
    },
  );

  test('says that an entry for a tool allows every call of it', async () => {
    const { stdout } = await policy('explain', 'write', '--touch', 'write=a.txt');
    expect(stdout).not.toContain('every call');
    await configure('[policy]\ntools.write = "ask"\n');
    const asked = await policy('explain', 'write', '--touch', 'write=a.txt');
    expect(asked.stdout).toContain(
      'To allow every call of the tool, set in [policy] of treadle.toml: tools.write = "allow"\n',
    );
  });

  test('knows links and all spellings of addresses', async () => {
    await symlink('.env', join(fixture.play.folder, 'harmless.txt'));
    const { stdout } = await policy('explain', 'read', '{"path": "harmless.txt"}');
    expect(stdout).toContain('Verdict: deny, by the rule paths: reads of ');
    expect(stdout).toContain(`a link to ${JSON.stringify(join(fixture.play.folder, '.env'))}`);
    const request = await policy('explain', 'fetch', '--touch', 'url=http://[64:ff9b::a9fe:a9fe]/');
    expect(request.stdout).toContain('port 80 (metadata)');
    expect(request.stdout).toContain('Verdict: deny, by the rule domains');
  });

  test('suggests the absolute path of a file above the folder', async () => {
    const { stdout } = await policy('explain', 'read', '{"path": "../x.txt"}');
    const file = join(dirname(fixture.play.folder), 'x.txt');
    expect(stdout).toContain(`To allow it, set in [policy] of treadle.toml: paths.read = ["**", "${file}"]\n`);
  });

  test('suggests nothing for a command that no entry can allow', async () => {
    const { stdout } = await policy('explain', 'sh', '--touch', 'command=$(cat cmd) --now');
    expect(stdout).toContain('Verdict: ask, by the rule commands');
    expect(stdout).not.toContain('To allow it');
  });

  test('--json prints the explanation', async () => {
    await configure('[policy]\ntools."edit:*" = "deny"\n');
    const { stdout } = await policy('explain', 'read', '{"path": "notes.txt"}', '--json');
    expect(JSON.parse(stdout)).toMatchObject({ verdict: { type: 'allow' }, rule: 'paths' });
  });

  test('says what the run has seen, and rejects what it cannot have', async () => {
    const seen = ['--seen', 'outside=a page', '--seen', 'private=a key\u202e'];
    const { code, stdout } = await policy('explain', 'read', '{"path": "notes.txt"}', ...seen);
    expect(code).toBe(0);
    expect(stdout).toContain('Seen: outside, a page\n');
    expect(stdout).toMatch(/Seen: private, a key.*202e/i);
    const wrong = await policy('explain', 'read', '{"path": "notes.txt"}', '--seen', 'inside=x');
    expect(wrong.code).not.toBe(0);
    expect(wrong.stderr).toContain('--seen cannot be "inside=x". It takes outside=WHAT or private=WHAT.');
  });

  test('judges the call for a key with its scopes', async () => {
    const key = (name: string, scope: string): string =>
      `[[server.keys]]\nname = "${name}"\nhash = "sha256:${name.repeat(64)}"\nscopes = ["${scope}"]\n`;
    await configure(key('a', 'tools:execute:grep') + key('b', 'tools:execute:read'));
    const explain = (name: string): Promise<Printed> => policy('explain', 'read', '{"path": "x"}', '--key', name);
    expect((await explain('a')).stdout).toContain('Verdict: deny, by the rule scopes');
    expect((await explain('b')).stdout).toContain('Verdict: allow');
    expect(await explain('c')).toMatchObject({ code: 2, stderr: expect.stringContaining('has no key "c"') });
  });

  test.each([
    [['reed', '{}'], 'The command has no tool "reed". Did you mean "read"? Tools: read, glob, grep, '],
    [['read', 'notes.txt'], `is not valid JSON. Give an object, such as '{"path": "x"}'.`],
    [['read', '{"paht": "x"}'], 'paht: is not expected here'],
    [
      ['sh', '--touch', 'file=x'],
      '--touch cannot be "file=x". It takes read=PATH, write=PATH, command=TEXT, url=URL, session=NAME or device=NAME.',
    ],
    [['sh', '--touch', 'read=a', '--on', 'moon:x'], '--on cannot be "moon:x". It takes one of device:NAME, ssh:NAME'],
    [['sh', '--touch', 'read=a', '--on', 'device:'], '--on cannot be "device:"'],
    [['read', '{"path": "a"}', '--on', 'device:pi'], '--on says where'],
    [['sh', '--touch', 'read='], '--touch cannot be "read="'],
  ])('rejects %j', async (args, message) => {
    const { code, stdout, stderr } = await policy('explain', ...args);
    expect([code, stdout, stderr]).toEqual([2, '', expect.stringContaining(message)]);
  });

  test('a permission is held only if neither table says false', async () => {
    const verdict = async (orchestrator: boolean, rules: boolean): Promise<string> => {
      await configure(
        `[orchestrator.tools.permissions]\nshell = ${orchestrator}\n[policy.permissions]\nshell = ${rules}\n[policy]\nautonomy = 3\n`,
      );
      return JSON.parse((await policy('explain', 'sh', '--touch', 'command=ls', '--json')).stdout).verdict.type;
    };
    expect([await verdict(true, true), await verdict(false, true), await verdict(true, false)]).toEqual([
      'allow',
      'deny',
      'deny',
    ]);
  });
});

test('the store and a configuration with other names are denied, like .treadle and treadle.toml', async () => {
  await fixture.play.write('team.toml', '[store]\nurl = "sqlite:data/team.db"\n');
  const verdict = async (path: string): Promise<string> => {
    const call = ['read', JSON.stringify({ path })] as const;
    const { stdout } = await policy('explain', ...call, '--config', 'team.toml', '--json');
    return JSON.parse(stdout).verdict.type;
  };
  const paths = [
    'team.toml',
    'data/team.db',
    'data/team.db-wal',
    'treadle.toml',
    '.treadle/treadle.db',
    'data/other.txt',
  ];
  expect(await Promise.all(paths.map(verdict))).toEqual(['deny', 'deny', 'deny', 'deny', 'deny', 'allow']);
});

test('the file that a linked store leads to is denied, too', async () => {
  await fixture.play.write('data/real.db', '');
  await fixture.play.write('.treadle/.gitignore', '*');
  await symlink('../data/real.db', join(fixture.play.folder, '.treadle/treadle.db'));
  const verdict = async (path: string): Promise<string> => {
    const { stdout } = await policy('explain', 'read', JSON.stringify({ path }), '--json');
    return JSON.parse(stdout).verdict.type;
  };
  const paths = ['.treadle/treadle.db', 'data/real.db', 'data/real.db-wal', 'data/other.txt'];
  expect(await Promise.all(paths.map(verdict))).toEqual(['deny', 'deny', 'deny', 'allow']);
});

describe('policy check', () => {
  test('accepts a valid file', async () => {
    await configure('[policy]\nautonomy = 2\ncommands.allow = ["npm test"]\n');
    expect(await policy('check')).toEqual({ code: 0, stdout: '', stderr: 'Checked treadle.toml: no problems.\n' });
  });

  test('names the key, what was found and what would be right, as every command does', async () => {
    await configure('[policy]\nautonomy = 4\ntools.read = "yes"\ntools."a b" = "ask"\n');
    const { code, stdout, stderr } = await policy('check');
    expect([code, stderr]).toEqual([1, 'Checked treadle.toml: 3 problems.\n']);
    expect(stdout).toContain('treadle.toml: policy: the entry "a b" of tools is "ask". It must be an entry for');
    expect(stdout).toContain('treadle.toml: policy.autonomy is 4. It must be one of 0, 1, 2, 3.\n');
    expect(stdout).toContain('treadle.toml: policy.tools.read is "yes". It must be one of "allow", "ask", "deny".\n');
    const run = await fixture.treadle('run', '--model', 'demo', 'hello');
    expect(run).toMatchObject({ code: 2, stderr: `treadle: ${stdout}` });
  });

  test('warns about entries that can never apply', async () => {
    await fixture.play.write(
      'other.toml',
      '[policy]\nautonomy = 0\ntools.reed = "deny"\ntools."read:line" = "deny"\ncommands.allow = ["ls"]\n',
    );
    const { code, stdout, stderr } = await policy('check', 'other.toml');
    expect([code, stderr]).toEqual([0, 'Checked other.toml: 3 warnings.\n']);
    expect(stdout).toContain('policy.tools names "read:line", which never applies: the tool has no operations.');
    expect(stdout).toContain(
      'warning: other.toml: policy.commands.allow never applies: at level 0 only reads are allowed',
    );
    expect(stdout).toMatch(/"reed", which is not a tool of the command: read, glob, grep, .* Did you mean read\?/);
    expect(JSON.parse((await policy('check', 'other.toml', '--json')).stdout)).toMatchObject({
      file: 'other.toml',
      problems: [],
      warnings: [expect.any(String), expect.any(String), expect.any(String)],
    });
  });

  test('exits with 2 for a file that is missing or is not TOML', async () => {
    expect(await policy('check')).toMatchObject({
      code: 2,
      stderr: expect.stringContaining('There is no treadle.toml'),
    });
    await configure('[policy\n');
    expect(await policy('check')).toMatchObject({
      code: 2,
      stderr: expect.stringContaining('treadle.toml:1:8: This is not TOML'),
    });
  });
});

const calling = (name: string, input: object): Step => ({ calls: [{ name, arguments: JSON.stringify(input) }] });
const OUTSIDE = calling('read', { path: '/srv/notes.txt' });
const lastResult = (): string => String(fixture.server.requests.at(-1)!.messages.at(-1)!.content);

describe('where nobody can be asked', () => {
  test('a read outside the folder is denied with the line that allows it', async () => {
    let seen = '';
    const run = async (code: number): Promise<string> => {
      await fixture.script(OUTSIDE, { text: ['Done.'] });
      const started = fixture.start('run', ...fixture.model(), 'look');
      started.child.stdin.end();
      const { stderr, ...ended } = await started.ended;
      expect(ended).toMatchObject({ code, stdout: 'Done.\n' });
      seen = stderr;
      return lastResult();
    };
    const denial = await run(5);
    expect(denial).toContain('Nobody can be asked here. To allow it, set in [policy] of treadle.toml: ');
    const line = 'paths.read = ["**", "/srv/notes.txt"]';
    expect(seen).toContain(
      `read is denied, because nobody can be asked, and --yes is not given. To allow it, set in [policy] of treadle.toml: ${line}\n`,
    );
    expect(seen).toMatch(
      /Completed, but calls of read were denied, so the task may not be done\. See above for why\.\n$/,
    );
    await configure(`[policy]\n${/treadle\.toml: (.*)$/.exec(denial)![1]}\n`);
    expect(await run(0)).toContain('There is no "/srv/notes.txt"');
  });

  test.each([
    ['chat', 5],
    ['run --ask never', 5],
  ])('treadle %s denies it too, and exits with %i', async (words, code) => {
    await fixture.script(OUTSIDE, { text: ['Done.'] });
    const started = fixture.start(...words.split(' '), ...fixture.model(), ...(words === 'chat' ? [] : ['look']));
    started.child.stdin.end('look\n');
    expect(await started.ended).toMatchObject({ code, stderr: expect.stringContaining('read is denied, because') });
    expect(lastResult()).toContain('Nobody can be asked here.');
  });

  test.each(['--quiet', '--json'])('run %s exits with 5 too, and says what was denied', async (flag) => {
    await fixture.script(OUTSIDE, { text: ['Done.'] });
    const { code, stderr } = await fixture.treadle('run', flag, ...fixture.model(), 'look');
    expect([code, stderr]).toEqual([
      5,
      expect.stringMatching(/^read is denied, because [^]*\nCompleted, but calls of read/),
    ]);
  });

  test.each([['--no-agents-md'], ['--yes']])(
    'a write that the rules deny ends the run with 5, and a read does not: run %s',
    async (flag) => {
      const denied = async (tool: string, input: object): Promise<readonly unknown[]> => {
        await fixture.script(calling(tool, input), { text: ['Done.'] });
        const { code, stderr } = await fixture.treadle('run', '--quiet', flag, ...fixture.model(), 'look');
        return [code, stderr];
      };
      expect(await denied('write', { path: '.env', content: 'A=1' })).toEqual([
        5,
        expect.stringMatching(
          /^write is denied: writes of "[^"]*\.env" are denied by "\*\*\/\.env\*"\.?\nCompleted, but calls of write were denied/,
        ),
      ]);
      expect(await denied('read', { path: '.env' })).toEqual([0, '']);
    },
  );

  test('that line allows the read, and neither links to other files nor secrets beside it', async () => {
    const other = await playground();
    await other.write('.env', 'PASSWORD=opensesame\n');
    await symlink(join(other.folder, '.env'), join(other.folder, 'link.txt'));
    await symlink('/etc/passwd', join(other.folder, 'away.txt'));
    await configure(`[policy]\npaths.read = ["**", ${JSON.stringify(`${other.folder}/**`)}]\n`);
    const reads = ['notes.txt', '.env', 'link.txt', 'away.txt'].map((name) => join(other.folder, name));
    const calls = [
      ...reads.map((path) => ({ name: 'read', arguments: JSON.stringify({ path }) })),
      { name: 'grep', arguments: JSON.stringify({ pattern: 'PASSWORD|root:|word', path: other.folder }) },
    ];
    await fixture.script({ calls }, { text: ['Done.'] });
    await fixture.treadle('run', ...fixture.model(), 'look');
    const results = fixture.server.requests.at(-1)!.messages.filter(({ role }) => role === 'tool');
    expect(results.map(({ content }) => String(content))).toEqual([
      expect.stringContaining(other.nonce),
      expect.stringContaining('denied by "**/.env*"'),
      expect.stringContaining('denied by "**/.env*"'),
      expect.stringContaining('at level 1 (supervised) it is asked about'),
      expect.stringContaining('notes.txt:1: '),
    ]);
    expect(String(results.at(-1)!.content)).not.toMatch(/opensesame|root:/);
    await other.remove();
  });

  test('a tool that an entry allows finds files, though an entry denies all others', async () => {
    await configure('[policy.tools]\ngrep = "allow"\n"*" = "deny"\n');
    await fixture.script(calling('grep', { pattern: fixture.play.nonce }), { text: ['Done.'] });
    await fixture.treadle('run', ...fixture.model(), 'look');
    expect(lastResult()).toContain(`notes.txt:1: `);
  });

  test('secrets are neither read nor found by a search', async () => {
    await fixture.play.write('.env', 'PASSWORD=opensesame\n');
    await fixture.play.write('src/.env.local', 'PASSWORD=opensesame\n');
    await fixture.play.write('src/.env.example', 'PASSWORD=example\n');
    await fixture.script(calling('read', { path: '.env' }), calling('grep', { pattern: 'PASSWORD' }), {
      text: ['Done.'],
    });
    const { code } = await fixture.treadle('run', ...fixture.model(), 'look');
    expect(code).toBe(0);
    const seen = JSON.stringify(fixture.server.requests.at(-1)!.messages);
    expect(seen).toContain('was denied');
    expect(seen).toContain('src/.env.example:1: PASSWORD=example');
    expect(seen).not.toContain('opensesame');
  });
});

describe('on a terminal', () => {
  const open = async (steps: readonly Step[], ...args: readonly string[]): Promise<FakeTerminal> => {
    await fixture.script(...steps);
    return fakeTerminal([...args, ...fixture.model()], fixture.play.folder);
  };
  const asked = async ({ shows }: FakeTerminal): Promise<void> => {
    await shows('read wants to run with {"path":"/srv/notes.txt"}\n  reads /srv/notes.txt\n');
    await shows('(at level 1 (supervised) it is asked about, because it would read "/srv/notes.txt")\n  until 20');
    await shows('Allow it? [y/N/a/e] ');
  };

  test.each([
    ['run', ['run', 'look']],
    ['chat', ['chat', '--plain']],
  ])('%s explains, asks again after a bad key, and denies at n', async (name, args) => {
    const terminal = await open([OUTSIDE, { text: ['Done.'] }], ...args);
    const { type, shows } = terminal;
    if (name === 'chat') {
      await shows('> ');
      type('look\r');
    }
    // On a screen for many decisions it says the same in fewer lines.
    if (name === 'chat') await shows('read wants to run\n  reads /srv/notes.txt\nAllow it? [y/N/a/e] ');
    else await asked(terminal);
    type('e\r');
    await shows('RULE         VERDICT  SAW\n');
    await shows('Verdict: ask, by the rule autonomy');
    await shows('Allow it? [y/N/a/e] ');
    type('q\r');
    await shows('Answer y (yes), n (no), a (yes, for the rest of this run or chat) or e (explain): ');
    type('n\r');
    await shows('Done.\n');
    if (name === 'chat') type('/exit\r');
    expect(await terminal.exit).toBe(0);
    expect(lastResult()).toContain('The user said no.');
  });

  test('a allows the same for the rest of the run, and asks about something else', async () => {
    await configure('[policy]\npaths.read = ["src/**"]\n');
    const notes = calling('read', { path: 'notes.txt' });
    const other = calling('grep', { pattern: 'word' });
    const terminal = await open([notes, notes, other, { text: ['Done.'] }], 'run', 'look');
    const { shows, type } = terminal;
    await shows('  reads notes.txt\n');
    await shows('Allow it? [y/N/a/e] ');
    type('a\r');
    await shows('#1 returned: 1 the word is');
    await shows('#2 returned: 1 the word is');
    await shows('  reads .\n');
    await shows('Allow it? [y/N/a/e] ');
    type('y\r');
    await shows('Done.\n');
    expect(await terminal.exit).toBe(0);
    expect(terminal.screen().match(/Allow it\?/g)).toHaveLength(2);
    const { stdout } = await fixture.treadle('runs', 'show', 'run_');
    expect(stdout).toContain(`t1.approval.0 approved by ${userInfo().username}`);
  });

  test('y allows a read outside the folder', async () => {
    const other = await playground();
    const path = join(other.folder, 'notes.txt');
    const terminal = await open([calling('read', { path }), { text: ['Done.'] }], 'run', 'look');
    await terminal.shows('Allow it? [y/N/a/e] ');
    terminal.type('y\r');
    await terminal.shows('Done.\n');
    expect(await terminal.exit).toBe(0);
    expect(lastResult()).toContain(other.nonce);
    await other.remove();
  });

  test('a run that is interrupted at the question asks again when it is resumed', async () => {
    await configure('[policy]\napprovals.minutes = 5\n');
    const first = await open([OUTSIDE, { text: ['Done.'] }], 'run', 'look');
    await asked(first);
    first.type('\u0003');
    await first.shows('Paused: waits for approval of read');
    await first.shows('Without an approval until 20');
    expect(await first.exit).toBe(130);
    const second = fakeTerminal(['runs', 'resume', 'run_', ...fixture.model()], fixture.play.folder);
    await asked(second);
    second.type('y\r');
    await second.shows('#1 error: The tool "read" failed');
    await second.shows('Done.\n');
    expect(await second.exit).toBe(0);
  });

  test('does not ask somebody who may not answer', async () => {
    await configure('[policy]\napprovals.approvers = ["ann", "bob"]\napprovals.required = 2\n');
    const terminal = await open([OUTSIDE], 'run', 'look');
    await terminal.shows('Paused: waits for approval of read');
    await terminal.shows('Without an approval by 2 of ann, bob until 20');
    expect(await terminal.exit).toBe(4);
    expect(terminal.screen()).not.toContain('Allow it?');
  });
});

test('processes with the same store share the rates', async () => {
  await configure('[policy]\nrate.minute = 1\n');
  const read = calling('read', { path: 'notes.txt' });
  for (const expected of [fixture.play.nonce, 'there may be 1 calls in a minute']) {
    await fixture.script(read, { text: ['Done.'] });
    const started = fixture.start('run', ...fixture.model(), 'look');
    started.child.stdin.end();
    expect(await started.ended).toMatchObject({ code: 0 });
    expect(lastResult()).toContain(expected);
  }
});

test('the history of chats cannot be read by tools, wherever the store is', async () => {
  await configure('[store]\nurl = "sqlite:data/runs.db"\n');
  for (const path of ['data/runs.db.chat-history', '.treadle/treadle.db.chat-history']) {
    await fixture.play.write(path, '"hunter2"\n');
    const { code, stdout, stderr } = await fixture.treadle('tools', 'call', 'read', JSON.stringify({ path }), '--yes');
    expect([code, stdout, stderr]).toEqual([1, '', expect.stringContaining('denied')]);
  }
});

test('--log appends a line per call, without secrets', async () => {
  await fixture.play.write('calls.log', '{}\n');
  const secret = 'sk-0123456789abcdef';
  await fixture.script(calling('grep', { pattern: `key ${secret}` }), OUTSIDE, { text: ['Done.'] });
  const { code } = await fixture.treadle('run', '--log', 'calls.log', ...fixture.model(), 'look');
  expect(code).toBe(5);
  const text = await readFile(join(fixture.play.folder, 'calls.log'), 'utf8');
  const lines = text
    .trim()
    .split('\n')
    .map((line) => JSON.parse(line) as object);
  const subject = userInfo().username;
  const common = {
    timestamp: expect.stringMatching(/^20/),
    runId: expect.stringMatching(/^run_/),
    subject,
    supervised: true,
  };
  expect(lines).toEqual([
    {},
    { ...common, tool: 'grep', parameters: { pattern: 'key [redacted]' }, success: true, rule: 'paths' },
    {
      ...common,
      tool: 'read',
      parameters: { path: '/srv/notes.txt' },
      success: false,
      error: expect.stringContaining('was denied: at level 1'),
      errorType: expect.any(String),
      rule: 'autonomy',
    },
  ]);
  const failed = await fixture.treadle('run', '--log', 'no/such/folder.log', ...fixture.model(), 'look');
  expect(failed).toMatchObject({
    code: 2,
    stderr: expect.stringContaining('The log no/such/folder.log cannot be written'),
  });
});

test('stricter rules apply to an open approval when the run is resumed', async () => {
  await fixture.script(OUTSIDE, { text: ['Done.'] });
  const terminal = fakeTerminal(['run', 'look', ...fixture.model()], fixture.play.folder);
  await terminal.shows('Allow it? ');
  terminal.type('\u0003');
  expect(await terminal.exit).toBe(130);
  await configure('[policy]\npaths.deny = ["/srv/**"]\n');
  expect(await fixture.treadle('runs', 'resume', 'run_', ...fixture.model())).toMatchObject({
    code: 0,
    stdout: 'Done.\n',
  });
  expect(lastResult()).toContain('was denied: reads of "/srv/notes.txt" are denied by "/srv/**"');
});
