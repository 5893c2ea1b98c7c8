import { spawnSync } from 'node:child_process';
import {
  chmodSync,
  mkdirSync,
  mkdtempSync,
  readdirSync,
  readFileSync,
  realpathSync,
  rmSync,
  symlinkSync,
  writeFileSync,
} from 'node:fs';
import { tmpdir } from 'node:os';
import path from 'node:path';
import fc from 'fast-check';
import { policy, type CommandFacts } from '@treadle/core/policy';
import { commandFacts } from '@treadle/tools/commands';
import { ORDINARY } from './commands-corpus.ts';
import { USUAL } from './shell-fixture.ts';

/*
 * Ordinary lines with random changes. What is still allowed is run by bash with programs that only record their arguments:
 * it starts nothing but what the analysis has reported, with exactly these arguments, and writes nothing else.
 */

const PIECES = [
  ...';|&$(){}<>*?[]\'"\\`~=-#!^%@:,. \n\t/+0a',
  '$(evil)',
  '`evil`',
  '; evil',
  '&& evil',
  '| evil',
  '|| evil',
  '\nevil',
  '&',
  '<<E',
  "<<'E'\nevil\nE\n",
  '$x',
  '${x}',
  '"$x"',
  'x=evil;',
  "$'\\x65'",
  '../out/s',
  '/etc/passwd',
  '.env',
  '--',
  '-c',
  '-e',
  '-o',
  '--output=',
  'evil',
  '{a,b}',
  '>out.txt',
  '2>&1',
  '>&2',
  '<a.txt',
  'for f in a b; do ',
  ' done',
  'if ',
  ' then ',
  ' fi',
  '! ',
  'time ',
  '( ',
  ' )',
  'cd .. && ',
  'cd sub; ',
  'sh -c ',
  "sh -c 'ls'",
  'env A=1 ',
  'env CI=1 ',
  'xargs ',
  'eval ',
  'exec ',
  '$?',
  '"$?"',
  '~',
  '~/',
  './*',
  'a*',
  '-*',
  'PATH=. ',
  'CI=1 ',
  'IFS=x ',
  'alias ls=evil;',
  'f() { evil; }; ',
  'echo ',
  'echo evil | ',
  '\\\n',
  '$((1))',
  '[[ a ]]',
  '\u00a0',
  '\r',
];
const bases = ORDINARY.filter(({ isAsked }) => !isAsked).map(({ command }) => command);

type Change = readonly [
  kind: 'insert' | 'remove' | 'replace' | 'splice',
  at: number,
  piece: string,
  other: string,
  count: number,
];

function changed(text: string, [kind, share, piece, other, count]: Change): string {
  const at = Math.floor(share * (text.length + 1));
  if (kind === 'insert') return text.slice(0, at) + piece + text.slice(at);
  if (kind === 'remove') return text.slice(0, at) + text.slice(at + count);
  if (kind === 'replace') return text.slice(0, at) + piece + text.slice(at + count);
  return text.slice(0, at) + other.slice(Math.floor(share * other.length));
}

export const mutations: fc.Arbitrary<string> = fc
  .tuple(
    fc.constantFrom(...bases),
    fc.array(
      fc.tuple(
        fc.constantFrom('insert' as const, 'insert' as const, 'remove' as const, 'replace' as const, 'splice' as const),
        fc.double({ min: 0, max: 1, noNaN: true, maxExcluded: true }),
        fc.constantFrom(...PIECES),
        fc.constantFrom(...bases),
        fc.integer({ min: 1, max: 4 }),
      ),
      { minLength: 1, maxLength: 2 },
    ),
  )
  .map(([base, changes]) => changes.reduce(changed, base));

export interface Checked {
  readonly allowed: number;
  readonly started: number;
  readonly wrong: readonly { readonly text: string; readonly why: string }[];
}

/** Judges the lines, and runs those that are allowed. */
export async function checkLines(lines: Iterable<string>): Promise<Checked> {
  const root = mkdtempSync(path.join(realpathSync(tmpdir()), 'treadle-mutations-'));
  try {
    const [bin, work, log] = [path.join(root, 'bin'), path.join(root, 'work'), path.join(root, 'log')];
    for (const folder of [
      bin,
      path.join(work, 'sub'),
      path.join(work, 'src'),
      path.join(root, 'out'),
      path.join(root, 'home'),
    ])
      mkdirSync(folder, { recursive: true });
    writeFileSync(
      path.join(bin, 'stub'),
      // A file for each process, because they may run at the same time. `cat` alone is how a here-document becomes an argument.
      `#!/bin/sh\n[ "\${0##*/}$#" = cat0 ] && exec /bin/cat\nprintf '%s\\0' "\${0##*/}" "$@" > '${log}'/$$\n`,
    );
    chmodSync(path.join(bin, 'stub'), 0o755);
    const names = new Set([...(USUAL.commands?.allow ?? []).map((entry) => entry.split(' ')[0]!), 'evil', 'E', 'A']);
    for (const name of names) if (name !== 'echo') symlinkSync('stub', path.join(bin, name));
    for (const name of ['a.txt', 'b.txt', 'src/a.ts', 'sub/c.txt', '.env', '-x'])
      writeFileSync(path.join(work, name), '');
    writeFileSync(path.join(root, 'out/secret'), '');
    const { explain } = policy(USUAL, {
      folder: work,
      analysers: { command: (command) => commandFacts(command, { folder: work }) },
    });
    const wrong: { text: string; why: string }[] = [];
    let [allowed, started] = [0, 0];
    for (const text of lines) {
      const { verdict } = await explain({ name: 'shell', touches: [{ type: 'command', command: text }] });
      if (verdict.type !== 'allow') continue;
      allowed++;
      const facts = commandFacts(text, { folder: work });
      rmSync(log, { recursive: true, force: true });
      mkdirSync(log);
      const before = filesBelow(root);
      spawnSync('/bin/bash', ['-c', text], {
        cwd: work,
        env: { PATH: bin, HOME: path.join(root, 'home') },
        stdio: 'ignore',
        timeout: 10_000,
      });
      const ran = readdirSync(log).map((file) => readFileSync(path.join(log, file), 'utf8'));
      started += ran.length;
      wrong.push(...unexpected(facts, ran, newFiles(root, before)).map((why) => ({ text, why })));
    }
    return { allowed, started, wrong };
  } finally {
    rmSync(root, { recursive: true, force: true });
  }
}

function unexpected({ programs, touches }: CommandFacts, ran: readonly string[], created: readonly string[]): string[] {
  const known = new Set(programs.map(({ name, args }) => [name, ...args].join('\0')));
  const writes = touches.filter(({ type }) => type === 'write').map((touch) => path.normalize(touch.path));
  return [
    ...ran.filter((one) => !known.has(one.slice(0, -1))).map((one) => `it runs ${JSON.stringify(one)}`),
    ...created
      .filter((file) => !file.startsWith('log') && !writes.includes(path.relative('work', file)))
      .map((file) => `it writes ${file}`),
  ];
}

function filesBelow(root: string): ReadonlySet<string> {
  return new Set(readdirSync(root, { recursive: true, encoding: 'utf8' }));
}

/** They are removed again. */
function newFiles(root: string, before: ReadonlySet<string>): string[] {
  const created = [...filesBelow(root)].filter((file) => !before.has(file));
  for (const file of created)
    if (!file.startsWith('log')) rmSync(path.join(root, file), { recursive: true, force: true });
  return created;
}
