import {
  closeSync,
  existsSync,
  mkdirSync,
  mkdtempSync,
  openSync,
  readdirSync,
  readFileSync,
  realpathSync,
  rmSync,
  symlinkSync,
  writeFileSync,
} from 'node:fs';
import { tmpdir } from 'node:os';
import { basename, dirname, join, relative, resolve } from 'node:path';
import { tool, type Tool } from '@treadle/core';
import { policy, type RulePolicy } from '@treadle/core/policy';
import { DeniedError, guardedFiles, pathFacts, type FileOps } from '@treadle/tools';
import { afterEach, beforeEach, describe, expect, test } from 'vitest';
import { needs } from '../needs.ts';
import { attempt, explained, linesOf } from './attempt.ts';

const CANARY = 'canary-4711';
const MARK = 'written by the attack';

/** What a usual project allows. */
const RULES = {
  autonomy: 2,
  paths: { read: ['**'], write: ['src/**', 'docs/**', 'test/**', '*.md', 'package.json'], deny: ['caf\u00e9/**'] },
} as const;

let base: string;
let fd: number;

beforeEach(() => {
  base = realpathSync(mkdtempSync(join(tmpdir(), 'treadle-paths-')));
  const put = (file: string, text = CANARY): void => {
    mkdirSync(dirname(join(base, file)), { recursive: true });
    writeFileSync(join(base, file), text);
  };
  for (const file of ['out/secret.txt', 'work-besides/secret.txt', 'home/notes.txt']) put(file);
  for (const file of ['.env', '.env.local', 'src/app/.env.production', '.git/config', '.treadle/runs.db'])
    put(`work/${file}`);
  for (const file of ['keys/id_rsa', 'keys/id_ed25519.bak', 'keys/server.pem', 'treadle.toml']) put(`work/${file}`);
  for (const file of ['.ssh/id_ed25519', '.aws/credentials', '.azure/accessTokens.json', '.kube/config'])
    put(`home/${file}`);
  for (const file of ['.docker/config.json', '.netrc', '.git-credentials']) put(`home/${file}`);
  put('home/.config/gcloud/application_default_credentials.json');
  put('work/caf\u00e9/secret.txt');
  for (const file of ['src/a.txt', 'package.json', 'src/app/main.ts', 'deep/x', '.git/hooks/sample'])
    put(`work/${file}`, 'harmless');
  const links = {
    'link-file': '../out/secret.txt',
    'link-folder': '../out',
    'link-absolute': join(base, 'out'),
    chain: 'link-file',
    'deep/up': '../..',
    'src/self': '.',
    'link-root': '/',
    'link-work': '.',
    'link-proc': '/proc/self/root',
    'env-link': '.env',
    hidden: '.git',
    'inner-link': 'src/a.txt',
    'inner-folder': 'src/app',
    'src/link-out': '../../out',
    'src/link-file': '../../out/secret.txt',
    'src/dangling': '../../out/new.txt',
    'src/hooks': '../.git/hooks',
    'src/environment': '../.env',
  };
  for (const [name, target] of Object.entries(links)) symlinkSync(target, join(base, 'work', name));
  fd = openSync(join(base, 'out/secret.txt'), 'r');
});

afterEach(() => {
  closeSync(fd);
  rmSync(base, { recursive: true });
});

function filled(path: string): string {
  const values: Record<string, string> = {
    out: join(base, 'out'),
    work: join(base, 'work'),
    pid: String(process.pid),
    fd: String(fd),
    up: relative(process.cwd(), join(base, 'out')),
    dots: './'.repeat(3000),
  };
  return path.replace(/\{(\w+)\}/g, (_, name: string) => values[name]!);
}

/**
 * Where a careless tool on some system would end up: it replaces `~`, ends names at a NUL, and finds names in another case or
 * Unicode form. It normalises paths that the kernel does not take.
 */
function carelessly(path: string): string {
  const text = path.split('\0')[0]!.replace(/^~\w*/, join(base, 'home'));
  const named = text.startsWith('/') ? text : `${join(base, 'work')}/${text}`;
  if (existsSync(named)) return named;
  const at = named.lastIndexOf('/');
  const [folder, name] = [named.slice(0, at), named.slice(at + 1)];
  return name !== '' && existsSync(folder) ? `${folder}/${storedName(folder, name)}` : similarPath(resolve(named));
}

function similarPath(path: string): string {
  if (existsSync(path)) return path;
  const folder = similarPath(dirname(path));
  return join(folder, storedName(folder, basename(path)));
}

function storedName(folder: string, name: string): string {
  const key = (one: string): string => one.normalize('NFC').toLowerCase();
  const names = existsSync(folder) ? readdirSync(folder) : [];
  return names.find((one) => key(one) === key(name)) ?? name;
}

const input = { type: 'object', properties: { path: { type: 'string' } }, required: ['path'] } as const;

function carelessTool(use: string, ran: string[]): Tool {
  return tool({
    name: use,
    description: `A tool that can ${use} every file`,
    input,
    touches: ({ path }) => [{ type: use as 'read' | 'write', path: String(path) }],
    permissions: [use === 'read' ? 'file_read' : 'file_write'],
    execute: ({ path }) => {
      ran.push(String(path));
      const place = carelessly(String(path));
      if (use === 'read') return readFileSync(place, 'utf8');
      mkdirSync(dirname(place), { recursive: true });
      writeFileSync(place, MARK);
      return `written ${realpathSync.native(place)}`;
    },
  });
}

function usualPolicy(): RulePolicy {
  const place = { folder: join(base, 'work'), home: join(base, 'home') };
  return policy(RULES, { ...place, analysers: { path: (path) => pathFacts(path, place) } });
}

function guarded(rules: RulePolicy): FileOps {
  return guardedFiles({
    folder: join(base, 'work'),
    home: join(base, 'home'),
    async check({ path, target = path }, type) {
      const touches = [...new Set([path, target])].map((one) => ({ type, path: one }));
      const { verdict } = await rules.explain({ name: type, touches });
      return verdict.type === 'allow' ? undefined : (verdict.reason ?? 'it is asked about');
    },
  });
}

const ATTACKS = linesOf('attack-paths.tsv') as [use: string, verdict: string, path: string, trick: string][];
const ORDINARY = linesOf('ordinary-paths.tsv') as [use: string, path: string][];

test('the corpus has at least 60 attacks and 50 ordinary paths, each once', () => {
  expect(new Set(ATTACKS.map(([use, , path]) => `${use} ${path}`)).size).toBe(ATTACKS.length);
  expect(new Set(ATTACKS.map(([use, , , trick]) => `${use} ${trick}`)).size).toBe(ATTACKS.length);
  expect(ATTACKS.length).toBeGreaterThanOrEqual(60);
  expect(new Set(ORDINARY.map(String)).size).toBe(ORDINARY.length);
  expect(ORDINARY.length).toBeGreaterThanOrEqual(50);
});

describe.runIf(needs('Linux, for /proc', process.platform === 'linux'))('attacks', () => {
  test.for(ATTACKS)('%s is %s for %j: %s', async ([use, verdict, written]) => {
    const path = filled(written);
    const rules = usualPolicy();
    const ran: string[] = [];
    const careless = carelessTool(use, ran);

    // With the policy: nothing happens, and the attempt is recorded.
    const touches = [{ type: use as 'read' | 'write', path }];
    const { result, recorded } = await attempt(careless, { path }, rules);
    expect(recorded).toMatchObject({ type: verdict, touches });
    expect(await explained(rules, careless, touches)).toBe(verdict);
    expect(ran).toEqual([]);
    expect(result ?? '').not.toContain(CANARY);

    // With the guard alone: it does not open the file either.
    const before = snapshot();
    const files = guarded(rules);
    const used = use === 'read' ? files.open(path) : files.write(path, MARK);
    await expect(used).rejects.toThrow(DeniedError);
    expect(snapshot()).toEqual(before);

    // Without a policy: it succeeds.
    const unchecked = await attempt(careless, { path });
    expect(ran).toEqual([path]);
    if (use === 'read') expect(unchecked.result).toBe(CANARY);
    else expect(readFileSync(/^written (.*)$/.exec(unchecked.result!)![1]!, 'utf8')).toBe(MARK);
    expect(unchecked.recorded).toBeUndefined();
  });
});

test.for(ORDINARY)('%s is allowed for %j', async ([use, written]) => {
  const path = filled(written);
  const rules = usualPolicy();
  const ran: string[] = [];
  const careless = { ...carelessTool(use, ran), execute: () => void ran.push(path) };
  const { recorded } = await attempt(careless, { path }, rules);
  const touches = [{ type: use as 'read' | 'write', path }];
  expect(recorded).toMatchObject({ type: 'allow', touches });
  expect(await explained(rules, careless, touches)).toBe('allow');
  expect(ran).toEqual([path]);
  if (use === 'write') return guarded(rules).write(path, 'text');
  const found = await guarded(rules)
    .stat(path)
    .then(
      () => true,
      (error: NodeJS.ErrnoException) => error.code !== 'ENOENT' && expect.unreachable(error.message),
    );
  expect(found).toBe(existsSync(resolve(base, 'work', path)));
});

/** Every file with its content. Links are not followed. */
function snapshot(folder = base): string[] {
  return readdirSync(folder, { withFileTypes: true }).flatMap((item) => {
    const path = join(folder, item.name);
    if (item.isDirectory()) return snapshot(path);
    return item.isFile() ? `${path}=${readFileSync(path, 'utf8')}` : path;
  });
}
