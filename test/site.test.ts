import { globSync, mkdtempSync, readFileSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { apiPages, type ApiPage } from '../scripts/api-docs.ts';
import { buildSite } from '../scripts/site/build.ts';

const root = path.resolve(import.meta.dirname, '..');

describe('npm run docs', () => {
  const folder = mkdtempSync(path.join(tmpdir(), 'treadle-site-'));
  afterAll(() => rmSync(folder, { recursive: true }));

  let problems: readonly string[];
  const pages = new Map<string, string>();
  beforeAll(async () => {
    problems = await buildSite(folder);
    for (const file of globSync('**/*.html', { cwd: folder })) {
      pages.set(file.replaceAll(path.sep, '/'), readFileSync(path.join(folder, file), 'utf8'));
    }
  });

  test('finds every file that a page links to', () => {
    expect(problems).toEqual([]);
  });

  test('writes a page for every Markdown file in docs/', () => {
    const sources = globSync('docs/**/*.md', { cwd: root });
    expect(pages.size).toBeGreaterThan(sources.length);
    expect([...pages.keys()]).toEqual(expect.arrayContaining(['index.html', 'errors.html', 'tools/index.html']));
  });

  test('writes links to files and headings that exist', () => {
    const ids = new Map(
      [...pages].map(([file, html]) => [file, new Set([...html.matchAll(/ id="([^"]*)"/g)].map(([, id]) => id!))]),
    );
    const files = new Set(globSync('**/*.*', { cwd: folder }).map((file) => file.replaceAll(path.sep, '/')));
    const broken = [...pages].flatMap(([page, html]) =>
      [...html.matchAll(/ (?:href|src)="([^"]*)"/g)].flatMap(([, url]) => {
        if (/^(https?|mailto|data):/.test(url!)) return [];
        const [file, anchor] = url!.split('#');
        const target = file === '' ? page : path.posix.join(path.posix.dirname(page), file!);
        const exists = files.has(target) && (anchor === undefined || ids.get(target)?.has(anchor));
        return exists ? [] : [`${page}: ${url}`];
      }),
    );
    expect(broken).toEqual([]);
  });

  test('writes pages that load nothing from other hosts', () => {
    const loaded = /<(?:script|img|link|iframe)[^>]+(?:src|href)="https?:/;
    expect([...pages].filter(([, html]) => loaded.test(html)).map(([page]) => page)).toEqual([]);
    expect(readFileSync(path.join(folder, 'style.css'), 'utf8')).not.toMatch(/url\(|@import/);
  });

  test('lists every page of docs/ in the navigation, which is that of docs/README.md', () => {
    const home = pages.get('index.html')!;
    const listed = globSync('docs/*.md', { cwd: root })
      .map((file) => path.basename(file, '.md'))
      .filter((name) => name !== 'README');
    expect(listed.filter((name) => !home.includes(`<li><a href="${name}.html"`))).toEqual([]);
  });

  test('writes an index of the sections for the search', () => {
    const index = JSON.parse(
      readFileSync(path.join(folder, 'search-index.js'), 'utf8')
        .replace(/^window\.searchIndex = /, '')
        .replace(/;\n$/, ''),
    ) as string[][];
    const section = index.find(([page, heading]) => page === 'Durable runs' && heading === 'One driver');
    expect(section?.slice(0, 3)).toEqual(['Durable runs', 'One driver', 'durable-runs.html#one-driver']);
    expect(section?.[3]).toContain('A process that drives a run has its lease');
  });
});

describe('the API reference', () => {
  let core: ApiPage['exports'];
  beforeAll(async () => {
    const pages = await apiPages();
    core = pages.find(({ entry }) => entry === '@treadle/core')!.exports;
  });

  test('has every name that a package exports', async () => {
    const names = core.map(({ name }) => name);
    expect(names).toEqual(
      expect.arrayContaining([...Object.keys(await import('@treadle/core')), 'LoopOptions', 'Outcome']),
    );
    expect(new Set(names).size).toBe(names.length);
  });

  test('has the comment and the declaration of an export', () => {
    const tool = core.find(({ name }) => name === 'tool');
    expect(tool?.comment).toMatch(/^Creates a tool\./);
    expect(tool?.declaration).toMatch(/^function tool<const S extends Schema/);
  });

  test.each(['ToolDefinition', 'ToolContext'])('docs/writing-tools.md has every field of %s', (name) => {
    const found = core.find((one) => one.name === name);
    const fields = [...found!.declaration.matchAll(/^ {2}readonly (\w+)\??:/gm)].map(([, field]) => field!);
    const section = readFileSync(path.join(root, 'docs/writing-tools.md'), 'utf8').split('## All options')[1]!;
    const rows = new Set([...section.split('\n## ')[0]!.matchAll(/^\| `(\w+)`/gm)].map(([, row]) => row!));
    expect(fields.length).toBeGreaterThan(10);
    expect(fields.filter((field) => !rows.has(field))).toEqual([]);
  });
});
