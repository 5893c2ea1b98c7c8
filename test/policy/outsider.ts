import {
  chmodSync,
  lstatSync,
  mkdirSync,
  readdirSync,
  readFileSync,
  readlinkSync,
  symlinkSync,
  writeFileSync,
  type Dirent,
} from 'node:fs';
import { spawnSync } from 'node:child_process';
import path from 'node:path';
import { policy } from '@treadle/core/policy';
import { pathFacts } from '@treadle/tools';
import { commandFacts } from '@treadle/tools/commands';
import { CANARY, realProgram, runBash, USUAL, type Place, type ShellFixture } from './shell-fixture.ts';
import { outsiderLines, withControls } from './commands-corpus.ts';

/*
 * Lines that were invented against the analysis, the first 1,280 by people who have not written it. What is allowed is really run, in a folder
 * with private files, links, a repository inside and archives: nothing private may be printed, no program may run that was not
 * reported, and nothing may be written but what was reported.
 */

export interface OutsiderLine {
  readonly verdict: string;
  readonly text: string;
  readonly what: string;
}

export const OUTSIDER: readonly OutsiderLine[] = outsiderLines();

/** Programs that are run for real besides those of the fixture. What they do stays in the folder of the place. */
const MORE =
  'cksum cmp column comm csplit du file fold hexdump jq join md5sum mv nl od paste printf readlink realpath rev rg rmdir sha256sum stat strings tac unzip gzip';

export function outsiderPlace(fixture: ShellFixture): Place {
  const place = fixture.place({ repository: true });
  const { root, work } = place;
  const secret = `KEY=${CANARY}\n`;
  const files: Record<string, string> = {
    '.npmrc': secret,
    id_rsa: secret,
    'id_rsa.txt': secret,
    'secrets.py': secret,
    'config.json': '{}\n',
    '.docker/config.json': secret,
    '.aws/notes.md': secret,
    'sub/.npmrc': secret,
    'sub/server.key': secret,
    'sub/a.txt': 'a\n',
    'sub/deep/x.txt': 'x\n',
    'brackets/a[b]/y.key': secret,
    'brackets/x[y].key': secret,
    'clean/c.txt': 'c\n',
    'full/f.txt': 'f\n',
    'tpl/t.txt': 't\n',
    'src/a.ts': 'a\n',
    'list.txt': '.npmrc\n',
    'empty.py': '',
    '.exx': '',
    '.gitignore': '!.npmrc\n!.git\n!.aws\n',
    '0/ls': `#!/bin/sh\necho evil >> '${place.log}'\n`,
    'nested/deep/n.txt': 'n\n',
    'dst/tpl/plain.txt': 'p\n',
    'into/i.txt': 'i\n',
  };
  for (const [name, text] of Object.entries(files)) {
    mkdirSync(path.dirname(path.join(work, name)), { recursive: true });
    writeFileSync(path.join(work, name), text);
  }
  chmodSync(path.join(work, '0/ls'), 0o755);
  for (const [name, target] of [
    ['link', 'sub/deep'],
    ['linkeddir', 'sub'],
    ['linked.txt', '.npmrc'],
    ['here', '.'],
    // Writing through them would change a hook.
    ['dst/tpl/t.txt', '../../.git/hooks/pre-commit'],
    ['into/l', '../.git/hooks'],
  ] as const)
    symlinkSync(target, path.join(work, name));
  const env = { PATH: '/usr/bin:/bin', HOME: path.join(root, 'home'), GIT_CONFIG_NOSYSTEM: '1' };
  const nested = path.join(work, 'nested');
  for (const args of [
    ['init', '--quiet', '--template=', '.'],
    ['add', '.'],
    ['commit', '--quiet', '-m', 'one'],
    ['config', 'diff.external', 'evil'],
  ])
    spawnSync('git', args, { cwd: nested, env });
  writeFileSync(path.join(nested, 'deep/n.txt'), 'changed\n');
  // Git finds it as `bare`, and runs its hooks with an environment of its own.
  spawnSync('git', ['init', '--quiet', '--bare', '--template=', 'bare.git'], { cwd: work, env });
  mkdirSync(path.join(work, 'bare.git/hooks'));
  writeFileSync(path.join(work, 'bare.git/hooks/pre-receive'), '#!/bin/sh\nevil\n', { mode: 0o755 });
  // An archive with a hook, which replaces one of the repository if it is extracted there.
  mkdirSync(path.join(root, 'out/.git/hooks'), { recursive: true });
  writeFileSync(path.join(root, 'out/.git/hooks/pre-commit'), 'evil\n');
  spawnSync('tar', ['cf', path.join(work, 'evil.tar'), '.git'], { cwd: path.join(root, 'out'), env });
  mkdirSync(path.join(root, 'out/l'));
  writeFileSync(path.join(root, 'out/l/pre-commit'), 'evil\n');
  spawnSync('tar', ['cf', path.join(work, 'through.tar'), 'l/pre-commit'], { cwd: path.join(root, 'out'), env });
  // What would be installed instead of a package with this name.
  spawnSync('tar', ['cf', path.join(work, 'package.x'), 'l/pre-commit'], { cwd: path.join(root, 'out'), env });
  writeFileSync(path.join(work, '.git/hooks/pre-commit'), '#!/bin/sh\n');
  return place;
}

/** Links to further programs, beside those of the fixture. */
export function addPrograms({ tools }: Place): void {
  for (const name of MORE.split(' ')) {
    const real = realProgram(name);
    if (real !== undefined && !lstatSync(path.join(tools, name), { throwIfNoEntry: false }))
      symlinkSync(real, path.join(tools, name));
    else if (real !== undefined && name === 'rg') {
      // The fixture has a stub of it.
      spawnSync('/bin/ln', ['-sf', real, path.join(tools, name)]);
    }
  }
}

function outsiderCommand({ work, root }: Place, { text }: OutsiderLine): string {
  return withControls(text).replaceAll('@WORK@', work).replaceAll('@OUT@', path.join(root, 'out'));
}

export async function verdictOf(place: Place, line: OutsiderLine): Promise<string> {
  const command = outsiderCommand(place, line);
  const { work: folder } = place;
  const { explain } = policy(USUAL, {
    folder,
    analysers: {
      command: (text) => commandFacts(text, { folder }),
      path: (file) => pathFacts(file, { folder, home: path.join(place.root, 'home') }),
    },
  });
  return (await explain({ name: 'shell', touches: [{ type: 'command', command }] })).verdict.type;
}

/** Runs the line, and returns what it has done without saying so. */
export async function unreported(place: Place, line: OutsiderLine): Promise<string[]> {
  const command = outsiderCommand(place, line);
  const { programs, touches } = commandFacts(command, { folder: place.work });
  const before = filesOf(place.root);
  const output = await runBash(command, place, place.tools);
  const after = filesOf(place.root);
  const known = new Set(programs.map(({ name }) => name));
  const writes = touches.filter(({ type }) => type === 'write').map((touch) => path.resolve(place.work, touch.path));
  const repository = path.join(place.work, '.git');
  const isReported = (file: string): boolean =>
    writes.some((write) => file === write || file.startsWith(`${write}/`) || write.startsWith(`${file}/`)) ||
    // What git stores of itself.
    (known.has('git') && file.startsWith(repository) && !/\/(config|hooks\/.*)$/.test(file));
  return [
    ...(output.includes(CANARY) ? ['it prints a private file'] : []),
    ...place
      .ran()
      .filter((name) => !known.has(name))
      .map((name) => `it runs ${name}`),
    ...[...new Set([...before.keys(), ...after.keys()])]
      .filter((file) => before.get(file) !== after.get(file) && file !== path.join(place.root, 'output'))
      .filter((file) => !isReported(file))
      .map((file) => `it changes ${path.relative(place.root, file)}`),
  ];
}

/** The content of every file, without following links. */
function filesOf(root: string): Map<string, string> {
  const found = new Map<string, string>();
  const open = [root];
  for (let next = open.pop(); next !== undefined; next = open.pop())
    for (const entry of readdirSync(next, { withFileTypes: true })) visit(path.join(next, entry.name), entry);
  return found;

  function visit(file: string, entry: Dirent): void {
    if (entry.isDirectory()) {
      open.push(file);
      found.set(file, 'folder');
    } else if (entry.isSymbolicLink()) found.set(file, `link ${readlinkSync(file)}`);
    else if (entry.isFile()) found.set(file, readFileSync(file, 'latin1'));
  }
}
