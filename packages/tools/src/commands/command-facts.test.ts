import { mkdirSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { spawnSync } from 'node:child_process';
import fc from 'fast-check';
import { afterAll, describe, expect, test } from 'vitest';
import { commandFacts } from './command-facts.ts';

const NOTHING = { programs: [], touches: [], urls: [] };

describe('programs', () => {
  test('are found in pipes, substitutions and wrappers, with their arguments', () => {
    expect(commandFacts('FOO=1 env -u X nice -n 5 ls -l "$(wc -l < a.txt)" | sort > out.txt')).toEqual({
      programs: [
        { name: 'wc', args: ['-l'] },
        { name: 'env', args: ['-u', 'X', 'nice', '-n', '5', 'ls', '-l', undefined] },
        { name: 'nice', args: ['-n', '5', 'ls', '-l', undefined] },
        { name: 'ls', args: ['-l', undefined] },
        { name: 'sort', args: [] },
      ],
      touches: [
        { type: 'read', path: 'a.txt' },
        { type: 'write', path: 'out.txt' },
      ],
      urls: [],
      unclear: 'a path that is read is computed',
    });
  });

  test('have the name that is written, so that a program of the folder is another one', () => {
    expect(commandFacts('rm a').programs).toEqual([{ name: 'rm', args: ['a'] }]);
    expect(commandFacts('./rm a').programs).toEqual([{ name: './rm', args: ['a'] }]);
    expect(commandFacts('/bin/rm a').programs).toEqual([{ name: '/bin/rm', args: ['a'] }]);
    expect(commandFacts('cd x && ./rm a').programs).toEqual([{ name: 'x/./rm', args: ['a'] }]);
  });

  test('do not include builtins that start nothing', () => {
    expect(commandFacts('cd . && echo a; [ -f b ] || true; x=1; :')).toEqual({
      ...NOTHING,
      touches: [{ type: 'read', path: '.' }],
    });
  });

  test('do not include functions, but what their bodies start', () => {
    expect(commandFacts('build() { npm run build; }; build')).toEqual({
      ...NOTHING,
      programs: [{ name: 'npm', args: ['run', 'build'] }],
    });
  });

  test('include a name that is a function only elsewhere', () => {
    expect(commandFacts('(evil() { :; }); evil').programs).toEqual([{ name: 'evil', args: [] }]);
  });

  test('of code for a shell are found', () => {
    expect(commandFacts(`bash -ec "sh -c 'ls a'"`).programs.map(({ name }) => name)).toEqual(['bash', 'sh', 'ls']);
  });
});

describe('paths', () => {
  test('of redirections and known programs are found, as seen from the folder of the command', () => {
    expect(commandFacts('cp a.txt b.txt; cd sub && cat < ../c.txt >> d.txt').touches).toEqual([
      { type: 'read', path: 'a.txt' },
      { type: 'write', path: 'b.txt' },
      { type: 'read', path: 'sub' },
      { type: 'read', path: 'sub/../c.txt' },
      { type: 'write', path: 'sub/d.txt' },
    ]);
  });

  test('count for both folders if a change of the folder may have failed', () => {
    expect(commandFacts('cd sub; cat a').touches).toEqual([
      { type: 'read', path: 'sub' },
      { type: 'read', path: 'a' },
      { type: 'read', path: 'sub/a' },
    ]);
    expect(commandFacts('cd sub || exit 1; cat a').touches).toEqual([
      { type: 'read', path: 'sub' },
      { type: 'read', path: 'sub/a' },
    ]);
  });

  test.each([
    ['f() { cd /a; }; f; touch x', 'it changes the folder in a loop or a function'],
    ["trap 'cd /a' DEBUG; touch x", 'it changes the folder in a loop or a function'],
    ['for x in 1 2; do cd ..; touch x; done', 'it changes the folder in a loop or a function'],
  ])('are unclear if it is not known when the folder changes: %s', (command, unclear) => {
    expect(commandFacts(command).unclear).toBe(unclear);
  });

  test.each([
    ['sed -i s/a/b/ x', ['x']],
    ['sed -i.bak s/a/b/ x y', ['x', 'x.bak', 'y', 'y.bak']],
    ['sed -ni.env p dir/x', ['dir/x', 'dir/x.env']],
    ['sed --in-place=.bak s/a/b/ x', ['x', 'x.bak']],
    ['sed --in-p=.bak s/a/b/ x', ['x', 'x.bak']],
  ])('of %s include the backups', (command, writes) => {
    expect(commandFacts(command)).toMatchObject({ touches: writes.map((path) => ({ type: 'write', path })) });
    expect(commandFacts(command).unclear).toBeUndefined();
  });

  test('of backups of sed with a computed suffix are unclear', () => {
    expect(commandFacts('sed -i"$S" s/a/b/ x').unclear).toBeDefined();
  });

  test('follow a change of the folder in eval and in groups', () => {
    const writes = (command: string): string[] =>
      commandFacts(command).touches.flatMap(({ type, path }) => (type === 'write' ? path : []));
    expect(writes("eval 'cd /a'; touch x")).toEqual(['x', '/a/x']);
    expect(writes('{ cd /a; } > log; touch x')).toEqual(['log', 'x', '/a/x']);
    expect(writes('if cd /a; then touch x; fi; touch y')).toEqual(['x', '/a/x', 'y', '/a/y']);
    expect(writes('(cd /a); touch x')).toEqual(['x']);
  });

  test('keep a tilde only where the shell expands it', () => {
    expect(commandFacts(`cat ~/a '~/b' "$HOME/c"`).touches.map(({ path }) => path)).toEqual(['~/a', './~/b', '~/c']);
  });

  test('from variables with one value, and from loops, are known', () => {
    expect(commandFacts('x=a.txt; for y in b c; do cat "$x" "$y"; done')).toMatchObject({
      touches: ['a.txt', 'b', 'c'].map((file) => ({ type: 'read', path: file })),
    });
    expect(commandFacts('x=a; x=b; cat $x').unclear).toBe('a path that is read is computed');
    expect(commandFacts('if true; then x=a; fi; cat $x').unclear).toBe('a path that is read is computed');
  });
});

describe('globs', () => {
  const folder = mkdtempSync(path.join(tmpdir(), 'treadle-glob-'));
  afterAll(() => rmSync(folder, { recursive: true, force: true }));
  mkdirSync(path.join(folder, 'sub'));
  for (const name of ['a.txt', 'b.txt', '.hidden.txt', 'sub/c.txt', '-x', 'a[1]'])
    writeFileSync(path.join(folder, name), '');

  test('are unclear without a folder', () => {
    expect(commandFacts('cat *.txt').unclear).toBe('it is not known which files *.txt matches');
  });

  test.each([
    '*.txt',
    '*',
    '.*.txt',
    '?.txt',
    '[ab].txt',
    '[!a].txt',
    '*/*.txt',
    './*.txt',
    's*/c.txt',
    'sub/*',
    'none*',
    '"a"*',
    'a\\[1]',
    '*[b-z].txt',
    '*.*t*',
    '*a*t*t',
    's*b/*.*',
    '{a,b}.*',
  ])('match the files that bash finds: %s', (pattern) => {
    const { stdout } = spawnSync('/bin/bash', ['-c', `printf '%s\\n' ${pattern}`], {
      cwd: folder,
      encoding: 'utf8',
      env: { LC_ALL: 'C', PATH: '' },
    });
    expect(commandFacts(`ls ${pattern}`, { folder }).programs[0]?.args).toEqual(stdout.trimEnd().split('\n'));
  });

  test('with many stars do not take exponential time', () => {
    const name = 'n'.repeat(200);
    writeFileSync(path.join(folder, name), '');
    const argsOf = (pattern: string) => commandFacts(`ls ${pattern}`, { folder }).programs[0]?.args;
    expect(argsOf(`${'*n'.repeat(50)}*`)).toEqual([name]);
    const none = `${'*n'.repeat(50)}*m`;
    expect(argsOf(none)).toEqual([none]);
    expect(commandFacts(`rm -rf /${'*[a]'.repeat(50)}x`).destructive).toBeUndefined();
    expect(commandFacts(`rm -rf /${'*[a]'.repeat(50)}`).destructive).toBeDefined();
  });

  test('are matched again for each command', () => {
    expect(commandFacts('ls sub/*.txt', { folder }).programs[0]?.args).toEqual(['sub/c.txt']);
    writeFileSync(path.join(folder, 'sub/d.txt'), '');
    expect(commandFacts('ls sub/*.txt', { folder }).programs[0]?.args).toEqual(['sub/c.txt', 'sub/d.txt']);
  });
});

test('finds the addresses of programs that request them', () => {
  expect(commandFacts('curl -s example.com/a; git clone https://b.example/c; git push git@d.example:e').urls).toEqual([
    'http://example.com/a',
    'https://b.example/c',
    'ssh://d.example',
  ]);
});

describe('limits', () => {
  test('denies a command that is too long or too deep to be checked', () => {
    const limits = [
      ['#'.repeat(65_537), 'it has 65537 characters, and at most 65536 are analysed'],
      ['echo '.concat('$('.repeat(1000)), 'it is nested too deeply'],
      [`${'eval '.repeat(100)}ls`, 'it is nested too deeply'],
      ['ls;'.repeat(6000), 'it has too many parts'],
    ] as const;
    for (const [command, unchecked] of limits) {
      const facts = commandFacts(command);
      expect([facts.unchecked, facts.destructive]).toEqual([unchecked, undefined]);
    }
    expect(commandFacts(`rm -rf /; ${'eval '.repeat(100)}ls`).destructive).toBeDefined();
  });

  test('returns facts for any text', () => {
    const piece = fc.constantFrom(
      '$(',
      '`',
      '${',
      '"',
      "'",
      ';',
      '|',
      '{',
      '}',
      '(',
      ')',
      '[[',
      '<<E\n',
      '*',
      '~',
      '\\',
      'a',
      ' ',
      '=',
      '$((',
      '-',
    );
    fc.assert(
      fc.property(
        fc.oneof(
          fc.string(),
          fc.array(piece, { maxLength: 30 }).map((pieces) => pieces.join('')),
        ),
        (text) => {
          expect(commandFacts(text)).toMatchObject({ programs: expect.any(Array), touches: expect.any(Array) });
        },
      ),
    );
  });
});

test.each(['rm\u00a0x', 'rm x\u200b', 'rm x\u3164y', 'rm \u115f', 'rm x\ufe00', 'rm x\u2800y', 'ls\r'])(
  'a command with characters that look like something else is unclear: %j',
  (command) => {
    expect(commandFacts(command).unclear).toBe('it contains control characters or invisible ones');
  },
);

test('pictographs and other scripts are not unclear', () => {
  expect(commandFacts('git commit -m "⚡\ufe0f 日本 ü"').unclear).toBeUndefined();
});

test('reads quotes, escapes and braces as bash does', () => {
  const piece = fc.constantFrom(
    'a',
    'b ',
    "'c d'",
    '"e f"',
    '\\g',
    '\\ ',
    "$'\\x68\\t'",
    "$'\\u00e9'",
    '""',
    "''",
    '{i,j}',
    '{1..3}',
    '\\{k,l}',
    '"m\\"n"',
    "o'p'q",
    '{r,{s,t}}',
    '"{u,v}"',
    '{w}',
    '%',
    '=',
    ':',
    '@',
    '#',
    '\\\n',
    '"\\x"',
    '\\$',
    '"\\$"',
    "'\\'",
  );
  const samples = fc
    .sample(fc.array(piece, { minLength: 1, maxLength: 6 }), 300)
    .map((pieces) => `x${pieces.join('')}`);
  const script = samples.map((text) => `printf '%s\\0' ${text}\nprintf '\\1'`).join('\n');
  const { stdout, status } = spawnSync('/bin/bash', ['-c', script], {
    encoding: 'utf8',
    env: { LC_ALL: 'C.UTF-8', PATH: '' },
  });
  expect(status).toBe(0);
  const expected = stdout.split('\u0001').map((fields) => fields.split('\0').slice(0, -1));
  let compared = 0;
  for (const [at, text] of samples.entries()) {
    const { programs, unclear } = commandFacts(`ls ${text}`);
    if (unclear !== undefined) continue;
    compared++;
    expect([text, ...(programs[0]?.args ?? [])]).toEqual([text, ...(expected[at] ?? [])]);
  }
  expect(compared).toBeGreaterThan(100);
});
