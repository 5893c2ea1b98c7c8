import { registry, streamLoop, tool, type CallAnswered } from '@treadle/core';
import { scriptedModel } from '@treadle/core/testing';
import { expect, test } from 'vitest';
import { toLegacyResult } from './legacy-result.ts';

const png = { type: 'image', mediaType: 'image/png', source: { type: 'data', data: 'AAAAAA==' } } as const;

test('blocks become one text', () => {
  const pdf = { type: 'file', mediaType: 'application/pdf', source: { type: 'url', url: 'https://x.test/a' } } as const;
  const content = [{ type: 'text', text: 'two things' }, png, { ...pdf, name: 'a.pdf' }, pdf] as const;
  expect(toLegacyResult({ content }, { tool: 'look', elapsedMs: 12 })).toEqual({
    status: 'success',
    tool: 'look',
    result:
      'two things\n[image: image/png, 4 bytes]\n[file: a.pdf, application/pdf, https://x.test/a]\n[file: application/pdf, https://x.test/a]',
    stderr: '',
    exit_code: 0,
    elapsed_ms: 12,
  });
});

test('a data URL is shortened', () => {
  const url = `data:image/png;base64,${'A'.repeat(1_000_000)}`;
  const { result } = toLegacyResult({ content: [{ ...png, source: { type: 'url', url } }] }) as { result: string };
  expect(result).toMatch(/^\[image: image\/png, data:image\/png;base64,A+…\]$/);
  expect(result.length).toBeLessThan(300);
});

test.each([
  ['timeout', 'timeout'],
  ['not_found', 'not_found'],
  ['permission_denied', 'permission_denied'],
  ['invalid_params', 'invalid_params'],
  ['execution_failed', 'execution_failed'],
  ['denied', 'permission_denied'],
  ['interrupted', 'execution_failed'],
  [undefined, 'execution_failed'],
] as const)('an error of the type %s is %s', (errorType, type) => {
  const output = { content: 'no', isError: true, exitCode: 2, stderr: 'e', ...(errorType && { errorType }) };
  expect(toLegacyResult(output, { tool: 'x' })).toEqual({ status: 'error', tool: 'x', error: 'no', error_type: type });
});

test('takes the items and messages of a run, and what a registry returns', async () => {
  const echo = tool({ name: 'echo', description: 'Echoes', execute: () => 'hello' });
  const model = scriptedModel([{ calls: [{ name: 'echo' }, { name: 'none' }] }, 'Done.']);
  const live = streamLoop({ model, tools: [echo], input: 'go' });
  const answered: CallAnswered[] = [];
  for await (const item of live) if (item.type === 'call-answered') answered.push(item);
  const success = { status: 'success', tool: 'echo', result: 'hello', stderr: '', exit_code: 0 };
  const byIndex = answered.toSorted((a, b) => a.index - b.index);
  expect(byIndex.map((item) => toLegacyResult(item))).toMatchObject([
    success,
    { status: 'error', tool: 'none', error_type: 'not_found', error: expect.stringContaining('Available tools: echo') },
  ]);
  expect(toLegacyResult(byIndex[0]!.result)).toEqual(success);
  const known = registry();
  known.register(echo, 'test');
  const settled = await known.execute('echo', {});
  if (settled.type !== 'result') throw new Error('no result');
  expect(toLegacyResult(settled, { tool: 'echo' })).toEqual(success);
});
