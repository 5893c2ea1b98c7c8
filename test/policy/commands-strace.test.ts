import { spawnSync } from 'node:child_process';
import { existsSync, readFileSync, rmSync } from 'node:fs';
import path from 'node:path';
import fc from 'fast-check';
import { policy } from '@treadle/core/policy';
import { commandFacts } from '@treadle/tools/commands';
import { afterAll, expect, test } from 'vitest';
import { needs } from '../needs.ts';
import { missingPrograms, realProgram, runBash, shellFixture, type Place } from './shell-fixture.ts';

const strace = realProgram('strace');
const hasStrace = strace !== undefined && spawnSync(strace, ['-V']).status === 0;
const canTrace = needs('strace, and programs such as env and find', hasStrace && missingPrograms().length === 0);

const fixture = shellFixture();
afterAll(() => fixture[Symbol.dispose]());

const ALLOWED = 'ls cat head wc grep sort sed awk env xargs timeout nice setsid find bash sh'.split(' ');

/* Commands by the grammar of the shell, with programs and files that are allowed and some that are not. */

const oneOf = (...texts: readonly string[]): fc.Arbitrary<string> => fc.constantFrom(...texts);

const name = fc.oneof(
  { weight: 12, arbitrary: oneOf('ls', 'cat', 'wc', 'sort', 'echo', 'true', 'printf %s') },
  {
    weight: 1,
    arbitrary: oneOf(
      'evil',
      './ls',
      'tools/ls',
      "e'v'il",
      '\\evil',
      '$x',
      'ev{il,}',
      '$(echo evil)',
      "$'\\x65vil'",
      '"ls"',
      "l's'",
      '~/ls',
      'f',
      'git-ls',
    ),
  },
);
const word = fc.oneof(
  {
    weight: 8,
    arbitrary: oneOf('a.txt', 'b.txt', '-n', './a.txt', '"a.txt"', "'b.txt'", './*.txt', 'a*', 'tools', '--'),
  },
  {
    weight: 1,
    arbitrary: oneOf(
      '*.txt',
      '{a,b}.txt',
      '[ab].txt',
      '1',
      '$((1+2))',
      '"$x"',
      '$x',
      '${x}',
      '.env',
      '.en*',
      '../out/secret',
      '"$(evil)"',
      '`evil`',
      '${y:-$(evil)}',
      '<(evil)',
      '$HOME',
      '*',
      '"${x#a}"',
      '$((x))',
      '$((y[0]))',
      '${x@P}',
      '~',
      '..',
      '%s',
      '{}',
    ),
  },
);
const separator = oneOf('; ', ' && ', ' || ', ' | ', '\n', '; ', ' && ', ' | ', ' & ');
const wrapper = oneOf(
  ...Array.from({ length: 30 }, () => ''),
  'CI=1 ',
  'env CI=1 ',
  'env ',
  'env A=1 ',
  'nice ',
  'nice -n 3 ',
  'timeout 5 ',
  'setsid -w ',
  'command ',
  'exec ',
  'xargs ',
  '! ',
  'time ',
  'A=1 ',
  'PATH=. ',
  '>o ',
  'env -i ',
  'builtin ',
  'eval ',
  'xargs -n 1 ',
  'x=evil ',
  'timeout -s KILL 5 ',
  'env -u A ',
);
const redirection = oneOf(
  ...Array.from({ length: 20 }, () => ''),
  ' > o',
  ' 2>&1',
  ' < a.txt',
  ' >> o',
  ' < .env',
  ' <<< evil',
  ' > "$(evil)"',
  ' <<E\nevil $(ls)\nE\n',
  " <<'E'\nevil\nE\n",
  ' &> o',
  ' < <(ls)',
);

const quoted = (text: string): string => `'${text.replaceAll("'", String.raw`'\''`)}'`;

const command = fc.letrec<{ simple: string; list: string; node: string }>((tie) => ({
  simple: fc
    .tuple(wrapper, name, fc.array(word, { maxLength: 3 }), redirection)
    .map(([before, program, words, after]) => `${before}${[program, ...words].join(' ')}${after}`),
  list: fc
    .tuple(tie('node'), fc.array(fc.tuple(separator, tie('node')), { maxLength: 2 }))
    .map(
      ([first, rest]) =>
        first + rest.map(([by, next]) => (first.endsWith('\n') ? `: ${by}${next}` : by + next)).join(''),
    ),
  node: fc.oneof(
    { maxDepth: 3, depthSize: 'small', withCrossShrink: true },
    { weight: 16, arbitrary: tie('simple') },
    { weight: 1, arbitrary: tie('list').map((inner) => `(${inner}\n)`) },
    { weight: 1, arbitrary: tie('list').map((inner) => `{ ${inner}\n}`) },
    { weight: 1, arbitrary: tie('list').map((inner) => `echo "$(${inner}\n)"`) },
    { weight: 1, arbitrary: tie('list').map((inner) => `f() { ${inner}\n}`) },
    { weight: 1, arbitrary: fc.tuple(tie('list'), tie('list')).map(([a, b]) => `if ${a}\nthen ${b}\nfi`) },
    { weight: 1, arbitrary: fc.tuple(word, tie('list')).map(([a, b]) => `for x in ${a} b; do ${b}\ndone`) },
    { weight: 1, arbitrary: fc.tuple(word, tie('list')).map(([a, b]) => `case ${a} in a*) ${b}\n;; *) true;; esac`) },
    {
      weight: 1,
      arbitrary: fc
        .tuple(oneOf('sh -c ', 'bash -c ', 'eval ', 'bash -e -c ', 'bash <<< ', 'trap ', 'env bash -c '), tie('list'))
        .map(([a, b]) => `${a}${quoted(b)}${a === 'trap ' ? ' EXIT' : ''}`),
    },
    {
      weight: 1,
      arbitrary: fc.tuple(name, word).map(([a, b]) => `find . -maxdepth 1 -name '*.txt' -exec ${a} ${b} {} \\;`),
    },
    { weight: 1, arbitrary: fc.tuple(oneOf('x', 'y', 'PATH', 'IFS'), word).map(([a, b]) => `${a}=${b}`) },
    {
      weight: 1,
      arbitrary: fc.tuple(oneOf('cd tools', 'cd ..', 'cd', 'cd ../out'), tie('list')).map(([a, b]) => `${a} && ${b}`),
    },
    {
      weight: 1,
      arbitrary: oneOf(
        'sed -n 1p a.txt',
        "sed '1e evil' a.txt",
        "awk '{ print }' a.txt",
        'awk \'BEGIN { system("evil") }\'',
        "sed 's/a/evil/e' a.txt",
        'set -- evil',
        'unset x',
        'read x < a.txt',
        'alias ls=evil',
        'export x=evil',
        'local x',
      ),
    },
  ),
})).list;

/** Programs that were started, and files that were opened, by their absolute paths. */
function traced(place: Place, text: string): { programs: string[]; files: string[] } {
  const output = path.join(place.root, 'trace');
  rmSync(output, { force: true });
  const { status, signal, error } = spawnSync(
    strace ?? 'strace',
    [
      '-f',
      '-qq',
      '-y',
      '-s',
      '4096',
      '-e',
      'trace=execve,open,openat,creat',
      '-e',
      'signal=none',
      '-o',
      output,
      '/bin/bash',
      '-c',
      text,
    ],
    {
      cwd: place.work,
      env: { PATH: place.tools, HOME: path.join(place.root, 'home'), LC_ALL: 'C' },
      stdio: 'ignore',
      timeout: 20_000,
    },
  );
  if (error && !('code' in error && error.code === 'ETIMEDOUT')) throw error;
  if (status === null && signal === null) throw new Error('strace did not run');
  const lines = existsSync(output) ? readFileSync(output, 'utf8').split('\n') : [];
  const programs = lines.flatMap((line) => /execve\("([^"]*)".* = 0$/.exec(line)?.[1] ?? []);
  const files = lines.flatMap((line) => /(?:open|openat|creat)\(.* = \d+<([^>]*)>$/.exec(line)?.[1] ?? []);
  return { programs: programs.slice(1), files };
}

test.skipIf(!canTrace)(
  'starts only allowed programs and opens no denied files when the policy allows a command',
  async () => {
    const place = fixture.place();
    const rules = {
      autonomy: 2,
      commands: { allow: ALLOWED },
      paths: { write: ['**'] },
      rate: { minute: 1e6, second: 1e6 },
    } as const;
    const analysers = { command: (text: string) => commandFacts(text, { folder: place.work }) };
    const { explain } = policy(rules, { folder: place.work, analysers });
    let allowed = 0;
    let started = 0;
    let refused = 0;
    await fc.assert(
      fc.asyncProperty(command, async (text) => {
        const { verdict } = await explain({ name: 'shell', touches: [{ type: 'command', command: text }] });
        if (verdict.type !== 'allow') {
          refused++;
          return;
        }
        allowed++;
        const { programs, files } = traced(place, text);
        started += programs.length;
        const permitted = ALLOWED.map((one) => path.join(place.tools, one));
        expect(programs.filter((program) => !permitted.includes(program))).toEqual([]);
        expect(files.filter((file) => file.startsWith(path.join(place.root, 'out')) || file.endsWith('/.env'))).toEqual(
          [],
        );
        expect(place.ran()).toEqual([]);
      }),
      { numRuns: Number(process.env['TREADLE_STRACE_RUNS'] ?? 400), interruptAfterTimeLimit: 50_000 },
    );
    // The property says something only if many commands of both kinds occurred.
    expect(allowed).toBeGreaterThan(40);
    expect(started).toBeGreaterThan(40);
    expect(refused).toBeGreaterThan(40);
  },
);

test.skipIf(!canTrace)('sees a program that is not allowed, if it runs', async () => {
  const place = fixture.place();
  expect(traced(place, 'ls; evil').programs.map((program) => path.basename(program))).toContain('evil');
  expect(traced(place, 'cat < .env').files).toContain(path.join(place.work, '.env'));
  expect(await runBash('ls', place, place.tools)).toContain('a.txt');
});
