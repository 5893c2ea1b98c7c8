import { mkdir, mkdtemp, rm, writeFile } from 'node:fs/promises';
import { ServerResponse } from 'node:http';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { pathToFileURL } from 'node:url';
import { expect, test, vi } from 'vitest';
import { served } from '../../test/served.ts';
import type { Memory } from './limits.ts';
import { pageRoutes } from './page.ts';

test('all responses send the same bytes of a file, and none is counted', async () => {
  const folder = await mkdtemp(path.join(tmpdir(), 'treadle-page-'));
  await mkdir(path.join(folder, 'assets'));
  await writeFile(path.join(folder, 'index.html'), '<!doctype html>');
  await writeFile(path.join(folder, 'assets', 'page.js'), 'run();');
  const counted: number[] = [];
  const memory: Memory = { used: 0, holder: () => ({ hold: (bytes) => counted.push(bytes), release: () => {} }) };
  const routes = pageRoutes(() => {}, pathToFileURL(`${folder}/`));
  const moved = routes.map((one) => ({ ...one, path: `/page${one.path}`.replace(/\/$/, '') }));
  await using at = await served({ memory, routes: moved });
  const end = vi.spyOn(ServerResponse.prototype, 'end');
  const texts: string[] = [];
  for (const file of ['', 'assets/page.js', 'assets/page.js'])
    texts.push(await (await fetch(`${at.url}/page/${file}`)).text());
  const [, first, second] = end.mock.calls.map(([bytes]) => bytes);
  end.mockRestore();
  // Claude Code asks so whether there is a server.
  expect((await fetch(`${at.url}/page/`, { method: 'HEAD' })).status).toBe(200);
  await rm(folder, { recursive: true });
  expect(texts).toEqual(['<!doctype html>', 'run();', 'run();']);
  expect(second).toBe(first);
  expect(counted).toEqual([]);
});
