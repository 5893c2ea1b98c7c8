import { globSync, readFileSync } from 'node:fs';
import path from 'node:path';
import { parseSync, type ESTree } from 'vite';
import { EXIT } from 'treadle';
import { describe, expect, test } from 'vitest';
import { AGENT, API, errorPage, EXITS, LIMITS, MCP, MODEL, RESULT, RUN, THROWN } from '../scripts/error-docs.ts';

const root = path.resolve(import.meta.dirname, '..');
const read = (file: string): string => readFileSync(path.join(root, file), 'utf8');
const sorted = (names: Iterable<string>): string[] => [...new Set(names)].toSorted();

test('docs/errors.md is current; if not, run npm run docs:errors', () => {
  expect(read('docs/errors.md')).toBe(`${errorPage()}\n`);
});

describe('docs/errors.md has exactly the codes of the sources', () => {
  test.each([
    ['TreadleErrorCode', 'packages/core/src/errors.ts', THROWN],
    ['ModelErrorCode', 'packages/core/src/model.ts', MODEL],
    ['Limit', 'packages/core/src/machine/state.ts', LIMITS],
    ['McpErrorCode', 'packages/tools/src/mcp/options.ts', MCP],
    ['ApiErrorCode', 'packages/server/src/api-error.ts', API],
  ])('%s', (name, file, entries) => {
    const union = new RegExp(`export type ${name} =([^;]*);`).exec(withoutComments(read(file)))?.[1] ?? '';
    expect(sorted(Object.keys(entries))).toEqual(sorted(quoted(union)));
  });

  test('AgentErrorCode', () => {
    const contexts = /interface ErrorContexts \{(.*?)^\}/ms.exec(read('packages/core/src/agents/result.ts'))?.[1] ?? '';
    expect(sorted(Object.keys(AGENT))).toEqual(
      sorted([...contexts.matchAll(/^ {2}(\w+):/gm)].map(([, code]) => code!)),
    );
  });

  test('failures of the state machine', () => {
    const machine = sources('packages/core/src/machine/**/*.ts').map(({ text }) => text);
    const codes = machine.flatMap((text) =>
      [...text.matchAll(/\bcode: '([a-z-]+)'|\bfailRun\(\w+, '([a-z-]+)'/g)].map(([, code, ending]) => code ?? ending!),
    );
    expect(sorted(Object.keys(RUN))).toEqual(sorted(codes.filter((code) => !Object.hasOwn(MODEL, code))));
  });

  test('ErrorType and exit codes', () => {
    const types = /ERROR_TYPES = \[(.*?)\]/s.exec(read('packages/core/src/messages.ts'))?.[1] ?? '';
    expect(sorted(Object.keys(RESULT))).toEqual(sorted(quoted(types)));
    expect(sorted(Object.keys(EXITS))).toEqual(sorted(Object.keys(EXIT)));
  });
});

describe('the codes in the sources of the server', () => {
  const found = sources('packages/server/src/**/*.ts').flatMap(({ file, text }) => apiCodes(file, text));

  test('are found', () => {
    expect(found.length).toBeGreaterThan(100);
  });

  test('are in ApiErrorCode', () => {
    expect(found.filter(({ code }) => !Object.hasOwn(API, code)).map(({ file, code }) => `${file}: ${code}`)).toEqual(
      [],
    );
  });

  test('have the status of the page', () => {
    const wrong = Object.entries(API).flatMap(([code, [status]]) => {
      const statuses = found.filter((one) => one.code === code).flatMap((one) => one.status ?? []);
      return statuses.length === 0 || statuses.includes(status) ? [] : [{ code, status, statuses }];
    });
    expect(wrong).toEqual([]);
  });
});

function sources(pattern: string): { readonly file: string; readonly text: string }[] {
  const files = globSync(pattern, { cwd: root }).filter((file) => !file.endsWith('.test.ts'));
  return files.map((file) => ({ file, text: read(file) }));
}

function withoutComments(text: string): string {
  return text.replaceAll(/\/\*.*?\*\//gs, '');
}

function quoted(text: string): string[] {
  return [...text.matchAll(/'([^']+)'/g)].map(([, name]) => name!);
}

/** Values of `code` that are not codes of API errors: issues of zod, failures of models, warnings. */
const OTHERS = new Set(['custom', 'too_big', 'invalid_type', 'protocol', 'attachment_as_text', 'attachment_not_shown']);

interface ApiCode {
  readonly file: string;
  readonly code: string;
  /** Of an error that is created there. */
  readonly status?: number;
}

/** The third argument of `badRequest`, and each property `code` of an object, with the status if that is for an `ApiError`. */
function apiCodes(file: string, text: string): ApiCode[] {
  const codes: ApiCode[] = [];
  visit(parseSync(file, text, { sourceType: 'module' }).program, undefined);
  return codes;

  function visit(node: ESTree.Node, status: number | undefined): void {
    let inner = status;
    if (node.type === 'NewExpression') {
      const [first] = node.arguments;
      const isError = node.callee.type === 'Identifier' && node.callee.name === 'ApiError';
      inner = isError && first?.type === 'Literal' && typeof first.value === 'number' ? first.value : undefined;
    }
    if (node.type === 'CallExpression' && node.callee.type === 'Identifier' && node.callee.name === 'badRequest') {
      const code = node.arguments[2];
      if (code?.type === 'Literal' && typeof code.value === 'string')
        codes.push({ file, code: code.value, status: 400 });
    }
    if (node.type === 'Property' && node.key.type === 'Identifier' && node.key.name === 'code') {
      const { value } = node;
      if (value.type === 'Literal' && typeof value.value === 'string' && !OTHERS.has(value.value)) {
        codes.push({ file, code: value.value, ...(inner !== undefined && { status: inner }) });
      }
    }
    for (const value of Object.values(node)) {
      for (const child of Array.isArray(value) ? value : [value]) {
        if (typeof child === 'object' && child !== null && 'type' in child) visit(child as ESTree.Node, inner);
      }
    }
  }
}
