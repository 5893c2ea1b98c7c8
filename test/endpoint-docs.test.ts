import { globSync, readFileSync } from 'node:fs';
import path from 'node:path';
import { beforeAll, describe, expect, test } from 'vitest';
import { endpointPage, endpoints, type Endpoint } from '../scripts/endpoint-docs.ts';

const docs = path.resolve(import.meta.dirname, '..', 'docs');
const read = (page: string): string => readFileSync(path.join(docs, page), 'utf8');

let all: readonly Endpoint[];
beforeAll(async () => {
  all = await endpoints();
});

/** `GET /v1/runs/{}`: pages may name the parameters in another way. */
const nameOf = (method: string, at: string): string => `${method} ${at.replaceAll(/\{\w+\}/g, '{}')}`;

interface Row {
  readonly page: string;
  /** In the form of `nameOf`. */
  readonly names: readonly string[];
  readonly scope: string | undefined;
  readonly includesBelow: boolean;
}

/** The rows of tables that begin with endpoints: `GET`, `DELETE /v1/runs/{id}`. */
function rowsOf(page: string): Row[] {
  const rows = [...read(page).matchAll(/^\| ([^|]*`(?:GET|POST|PATCH|DELETE)\b[^|]*)\| *([^|]*?) *\|/gm)];
  return rows.map(([, cell = '', second = '']) => {
    const found = [...cell.matchAll(/`(GET|POST|PATCH|DELETE)(?: (\/[^`?]*))?`/g)];
    const names = found.flatMap(([, method = ''], index) => {
      const at = found.slice(index).find(([, , given]) => given !== undefined)?.[2];
      return at === undefined ? [] : [nameOf(method, at)];
    });
    const scope = /^`\w+:\w+`$/.test(second) ? second : undefined;
    return { page, names, scope, includesBelow: cell.includes('and the routes below it') };
  });
}

test('docs/endpoints.md is current; if not, run npm run docs:endpoints', () => {
  expect(read('endpoints.md')).toBe(`${endpointPage(all)}\n`);
});

test('tables of other pages have only endpoints that exist, with their scopes', () => {
  const scopes = new Map(all.map(({ method, path: at, scope }) => [nameOf(method, at), scope]));
  const rows = globSync('**/*.md', { cwd: docs }).flatMap(rowsOf);
  expect(rows.length).toBeGreaterThan(80);
  for (const { page, names, scope } of rows) {
    for (const name of names) {
      expect([page, name, scopes.has(name)]).toEqual([page, name, true]);
      if (scope !== undefined) expect([page, name, scope]).toEqual([page, name, scopes.get(name)]);
    }
  }
});

describe('no endpoint is missing', () => {
  test.each([
    ['chat.md', /^\/v1\/chat(?!\/completions)/],
    ['runs-api.md', /^\/v1\/runs/],
    ['server.md', /^(?!\/mcp|\/assets)/],
  ])('in docs/%s', (page, own) => {
    const rows = rowsOf(page);
    const named = new Set(rows.flatMap(({ names }) => names));
    const above = rows.filter(({ includesBelow }) => includesBelow).flatMap(({ names }) => names);
    const missing = all
      .filter(({ path: at }) => own.test(at))
      .map((one) => nameOf(one.method, one.path))
      .filter((name) => !named.has(name) && !above.some((one) => pathOf(name).startsWith(pathOf(one))));
    expect(missing).toEqual([]);
  });
});

function pathOf(name: string): string {
  return name.split(' ')[1]!;
}
