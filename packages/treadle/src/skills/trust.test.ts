import { appendFile, mkdtemp, rm, stat } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, beforeEach, expect, test, vi } from 'vitest';
import { isTrusted, rememberTrust } from './trust.ts';

let home: string;
beforeEach(async () => {
  home = await mkdtemp(join(tmpdir(), 'treadle-trust-'));
  vi.stubEnv('HOME', home);
});
afterEach(async () => {
  vi.unstubAllEnvs();
  await rm(home, { recursive: true });
});

const file = (): string => join(home, '.treadle/trusted-skills.jsonl');

test('answers that are given at the same time are all remembered', async () => {
  const projects = Array.from({ length: 50 }, (_, index) => `/project ${index}`);
  await Promise.all(projects.map((project) => rememberTrust(project, 'sha256:a')));
  expect(await Promise.all(projects.map((project) => isTrusted(project, 'sha256:a')))).toEqual(
    projects.map(() => true),
  );
  expect((await stat(file())).mode & 0o777).toBe(0o600);
});

test('the last answer about a project counts, also after one that was not written whole', async () => {
  expect(await isTrusted('/p', 'sha256:a')).toBe(false);
  await rememberTrust('/p', 'sha256:a');
  await appendFile(file(), '{"project":"/p","finger');
  expect(await isTrusted('/p', 'sha256:a')).toBe(true);
  await rememberTrust('/p', 'sha256:b');
  expect([await isTrusted('/p', 'sha256:a'), await isTrusted('/p', 'sha256:b')]).toEqual([false, true]);
  await appendFile(file(), 'null\n[]\n{"project":1}\n{"project":"/q"}\n');
  expect([await isTrusted('/q', 'sha256:b'), await isTrusted('/p', 'sha256:b')]).toEqual([false, true]);
});
