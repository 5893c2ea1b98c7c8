import { expect, test } from 'vitest';
import type { Item } from '../journal/items.ts';
import { runLoop } from '../driver/run.ts';
import { scriptedModel } from '../testing/scripted-model.ts';
import { tool } from '../tools/tool.ts';
import { executionLine, type ExecutionLine } from './execution-line.ts';
import { policy } from './policy.ts';

const read = tool({
  name: 'read',
  description: 'Reads',
  input: { type: 'object' },
  touches: ({ path }: { path?: string }) => [{ type: 'read', path: String(path) }],
  execute: () => 'text',
});
const fail = tool({
  name: 'fail',
  description: 'Fails',
  touches: () => [],
  execute: () => {
    throw new Error('no luck');
  },
});

async function linesOf(...calls: { name: string; arguments?: object }[]): Promise<ExecutionLine[]> {
  const lines: ExecutionLine[] = [];
  const principal = { subject: 'ann', tenant: 'acme', scopes: ['tools:execute'] };
  await runLoop({
    model: scriptedModel([{ calls }, 'Done.']),
    tools: [read, fail],
    policy: policy({}, { folder: '/project' }),
    principal,
    input: 'Go',
    onItem: (item: Item) => {
      if (item.type === 'call-answered') lines.push(executionLine(item, { runId: 'r', at: 0, principal, autonomy: 1 }));
    },
  });
  return lines;
}

test('says what ran, for whom, by which rule, and how it ended', async () => {
  const lines = await linesOf(
    { name: 'read', arguments: { path: 'a' } },
    { name: 'fail' },
    { name: 'read', arguments: { path: '.env' } },
    { name: 'gone' },
  );
  const about = { timestamp: '1970-01-01T00:00:00.000Z', runId: 'r', subject: 'ann', tenant: 'acme', supervised: true };
  expect(lines.toSorted((a, b) => JSON.stringify(a.parameters).localeCompare(JSON.stringify(b.parameters)))).toEqual([
    {
      ...about,
      tool: 'read',
      parameters: { path: '.env' },
      success: false,
      errorType: 'denied',
      rule: 'paths',
      error: expect.stringContaining('denied by'),
    },
    { ...about, tool: 'read', parameters: { path: 'a' }, success: true, rule: 'paths' },
    { ...about, tool: 'gone', parameters: {}, success: false, errorType: 'not_found', error: expect.any(String) },
    {
      ...about,
      tool: 'fail',
      parameters: {},
      success: false,
      errorType: 'execution_failed',
      rule: 'scopes',
      error: expect.stringContaining('no luck'),
    },
  ]);
});

test('a run whose calls are all denied has the rule in each line', async () => {
  const lines = await linesOf(
    { name: 'read', arguments: { path: 'b.pem' } },
    { name: 'read', arguments: { path: 'c.pem' } },
  );
  expect(lines.map(({ rule, success }) => [rule, success])).toEqual([
    ['paths', false],
    ['paths', false],
  ]);
});

test('says where a call ran, how long it took, and how its command ended', () => {
  const result = { type: 'tool-result', callId: 'c', name: 't', content: [], isError: true, exitCode: 3 } as const;
  const call = { type: 'tool-call', id: 'c', name: 't', arguments: '' } as const;
  const item = { type: 'call-answered', index: 0, call, result } as const;
  expect(executionLine(item, { runId: 'r', at: 123, startedAt: 100, server: 'device:pi' })).toMatchObject({
    server: 'device:pi',
    exitCode: 3,
    elapsedMs: 23,
  });
});

test('replaces secrets and cuts long values', () => {
  const text = JSON.stringify({
    password: 'p4ss',
    API_KEY: 'k',
    nested: { accessToken: 7, list: ['Bearer abcdefghijkl', 'https://me:pw@host/x', 'sk-abcdefghijklmnop'] },
    long: 'x'.repeat(5000),
    many: Array.from({ length: 60 }, () => 1),
    keep: 'plain',
  });
  const line = executionLine(
    {
      type: 'call-answered',
      index: 0,
      call: { type: 'tool-call', id: 'c', name: 't', arguments: text },
      result: { type: 'tool-result', callId: 'c', name: 't', content: [], isError: false },
    },
    { runId: 'r', at: 0 },
  );
  expect(line).not.toHaveProperty('supervised');
  expect(line.parameters).toEqual({
    password: '[redacted]',
    API_KEY: '[redacted]',
    nested: { accessToken: '[redacted]', list: ['Bearer [redacted]', 'https://[redacted]@host/x', '[redacted]'] },
    long: `${'x'.repeat(200)}… (5000 characters)`,
    many: [...Array(50).fill(1), '[10 more]'],
    keep: 'plain',
  });
});

test('replaces secrets in texts, also long ones and those of commands, URLs and lists of headers', () => {
  const secret = 'hunter22';
  const text = JSON.stringify({
    header: `Bearer ${'a'.repeat(2000)}`,
    curl: `curl -H 'X-Api-Key: ${secret}' --token ${secret} 'https://x.example/?api_key=${secret}&page=2'`,
    psql: `PGPASSWORD=${secret} psql`,
    body: `{"password":"${secret}"}`,
    url: `redis://:${secret}@host`,
    headers: [{ name: 'Authorization', value: secret }],
    env: { DB_PASS: secret },
  });
  const line = executionLine(
    {
      type: 'call-answered',
      index: 0,
      call: { type: 'tool-call', id: 'c', name: 't', arguments: text },
      result: { type: 'tool-result', callId: 'c', name: 't', content: [], isError: false },
    },
    { runId: 'r', at: 0 },
  );
  expect(line.parameters).toEqual({
    header: 'Bearer [redacted]… (2007 characters)',
    curl: `curl -H 'X-Api-Key: [redacted]' --token [redacted] 'https://x.example/?api_key=[redacted]&page=2'`,
    psql: 'PGPASSWORD=[redacted] psql',
    body: '{"password":"[redacted]"}',
    url: 'redis://[redacted]@host',
    headers: [{ name: 'Authorization', value: '[redacted]' }],
    env: { DB_PASS: '[redacted]' },
  });
});
