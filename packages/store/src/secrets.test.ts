import { chmod, mkdtemp, readdir, readFile, rm, stat, symlink, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, beforeEach, expect, test } from 'vitest';
import { fileSecrets, memorySecrets } from './secrets.ts';

let base: string;
let folder: string;
beforeEach(async () => {
  base = await mkdtemp(join(tmpdir(), 'treadle-secrets-'));
  folder = join(base, 'runs.db.secrets');
});
afterEach(() => rm(base, { recursive: true }));

const secretFile = async (): Promise<string> => {
  const names = await readdir(folder);
  return join(
    folder,
    names.find((name) => name.endsWith('.secret'))!,
  );
};

test.each([
  ['files', () => fileSecrets(folder)],
  ['memory', () => memorySecrets()],
])('%s: sets, replaces and deletes secrets by name', async (_, open) => {
  const secrets = open();
  expect(await secrets.get('a')).toBeUndefined();
  await secrets.delete('a');
  await secrets.set('a', 'one');
  await secrets.set('../A', 'other');
  await secrets.set('a', 'two');
  expect([await secrets.get('a'), await secrets.get('../A'), await secrets.get('A')]).toEqual([
    'two',
    'other',
    undefined,
  ]);
  await secrets.delete('a');
  expect(await secrets.get('a')).toBeUndefined();
  expect(await secrets.get('../A')).toBe('other');
});

test('only this user can access the files, and Git ignores them', async () => {
  await fileSecrets(folder).set('a', 'one');
  expect((await stat(folder)).mode & 0o777).toBe(0o700);
  expect((await stat(await secretFile())).mode & 0o777).toBe(0o600);
  expect(await readFile(join(folder, '.gitignore'), 'utf8')).toBe('*\n');
  expect(await readdir(folder)).toHaveLength(2);
});

test('another process sees the new value', async () => {
  const [first, second] = [fileSecrets(folder), fileSecrets(folder)];
  await first.set('a', 'one');
  await Promise.all(
    Array.from({ length: 20 }, (_, index) => [first, second][index % 2]!.set('a', 'x'.repeat(index + 1))),
  );
  expect(await second.get('a')).toBe(await first.get('a'));
  expect(await second.get('a')).toMatch(/^x{1,20}$/);
});

test('rejects a file that others can read, and a link', async () => {
  const secrets = fileSecrets(folder);
  await secrets.set('a', 'one');
  const file = await secretFile();
  await chmod(file, 0o644);
  await expect(secrets.get('a')).rejects.toThrow(/other users may access it\. Run: chmod 600/);
  await rm(file);
  await writeFile(join(base, 'elsewhere'), 'planted', { mode: 0o600 });
  await symlink(join(base, 'elsewhere'), file);
  await expect(secrets.get('a')).rejects.toThrow('ELOOP');
  await secrets.set('a', 'two');
  expect(await readFile(join(base, 'elsewhere'), 'utf8')).toBe('planted');
  expect(await secrets.get('a')).toBe('two');
});
