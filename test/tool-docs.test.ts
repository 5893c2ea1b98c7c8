import { spawnSync } from 'node:child_process';
import { readdirSync, readFileSync } from 'node:fs';
import path from 'node:path';
import { expect, test } from 'vitest';
import { toolPages } from '../scripts/tool-docs.ts';
import { needs } from './needs.ts';

const folder = path.resolve(import.meta.dirname, '..', 'docs', 'tools');

const hasGit = spawnSync('git', ['--version']).status === 0;

test.runIf(needs('git', hasGit))('the pages of the tools are current; if not, run npm run docs:tools', async () => {
  const pages = await toolPages();
  expect(readdirSync(folder).toSorted()).toEqual(pages.map(({ file }) => file).toSorted());
  for (const { file, text } of pages) expect(readFileSync(path.join(folder, file), 'utf8')).toBe(`${text}\n`);
});
