import { expect, test } from 'vitest';
import { resultTexts } from '../../test/results.ts';
import { runLoop } from '../driver/run.ts';
import { forkRun } from '../journal/fork.ts';
import { memoryJournal, scriptedModel, type ScriptStep } from '../testing/index.ts';
import type { ToolFacts } from '../machine/rules.ts';
import { isReadResult } from '../machine/narrowing.ts';
import { tool, type Tool } from './tool.ts';

const WHOLE = 'x'.repeat(300);
const big = tool({ name: 'big', description: 'Returns a long text', effect: 'pure', execute: () => WHOLE });
const client = tool({ name: 'pick', description: 'The client picks' });
const callBig: ScriptStep = { calls: [{ name: 'big' }] };

function userTool(ran: unknown[] = [], name = 'read_result'): Tool {
  const execute = (input: unknown): string => (ran.push(input), 'mine');
  return tool({ name, description: 'Reads a result of the laboratory', input: { type: 'object' }, execute });
}

/** The call that the note after a long result asks for. */
const callNoted: ScriptStep = ({ messages }) => {
  const text = JSON.stringify(messages.at(-1)).replaceAll('\\', '');
  const [, name, args] = /Read on with (\w+): (\{.*?\})/.exec(text)!;
  return { calls: [{ name: name!, arguments: JSON.parse(args!) }] };
};

test('has another name if a tool of the user is named read_result, and both can be called', async () => {
  const ran: unknown[] = [];
  using model = scriptedModel([
    callBig,
    callNoted,
    { calls: [{ name: 'read_result', arguments: { of: 7 } }] },
    'Done.',
  ]);
  const tools = [big, userTool(ran), userTool([], 'read_result_2')];
  const result = await runLoop({ model, tools, input: 'go', journal: memoryJournal(), maxResultChars: 100 });
  const names = ['big', 'read_result', 'read_result_2'];
  expect(model.requests.map((request) => request.tools.map(({ name }) => name))).toEqual([
    names,
    ...Array.from({ length: 3 }, () => [...names, 'read_result_3']),
  ]);
  expect(resultTexts(result)[1]).toContain('of 300 characters');
  expect(resultTexts(result)[2]).toBe('mine');
  expect(ran).toEqual([{ of: 7 }]);
});

test('keeps its name when the run is resumed with a new tool of that name', async () => {
  const ran: unknown[] = [];
  const journal = memoryJournal();
  const options = { journal, runId: 'r' };
  using first = scriptedModel([{ calls: [{ name: 'big' }, { name: 'pick' }] }]);
  await runLoop({ ...options, model: first, tools: [big, client], input: 'go', maxResultChars: 100 });
  const answers = [{ type: 'result', effect: 't1.client.1', content: 'a' }] as const;
  using second = scriptedModel([callNoted, 'Done.']);
  const result = await runLoop({ ...options, model: second, tools: [big, client, userTool(ran)], answers });
  expect(resultTexts(result).at(-1)).toContain('of 300 characters');
  expect(ran).toEqual([]);
});

test('a missing tool of the user named read_result is reported when the run is resumed', async () => {
  const journal = memoryJournal();
  using model = scriptedModel([{ calls: [{ name: 'pick' }] }]);
  await runLoop({ model, tools: [client, userTool()], input: 'go', journal, runId: 'r' });
  const resumed = runLoop({ model, tools: [client], journal, runId: 'r' });
  await expect(resumed).rejects.toMatchObject({
    code: 'tools-changed',
    message: expect.stringContaining('"read_result"'),
  });
});

test('accepted tools replace a tool of the user named read_result instead of adding it again', async () => {
  const journal = memoryJournal();
  using first = scriptedModel([{ calls: [{ name: 'pick' }] }]);
  await runLoop({ model: first, tools: [client, userTool()], input: 'go', journal, runId: 'r' });
  using second = scriptedModel(['Done.']);
  const changed = tool({ name: 'read_result', description: 'Another', effect: 'pure', execute: () => '' });
  const answers = [{ type: 'result', effect: 't1.client.0', content: 'a' }] as const;
  const options = { journal, runId: 'r', answers, acceptChangedTools: true };
  await runLoop({ ...options, model: second, tools: [client, changed] });
  expect(second.requests[0]!.tools.map(({ description }) => description)).toEqual(['The client picks', 'Another']);
});

test('rejects a new tool with the name that the run uses for its own', async () => {
  const journal = memoryJournal();
  using model = scriptedModel([{ calls: [{ name: 'big' }, { name: 'pick' }] }]);
  await runLoop({ model, tools: [big, client], input: 'go', journal, runId: 'r', maxResultChars: 100 });
  const clash = { code: 'duplicate-tool', message: expect.stringContaining('"read_result"') };
  const other = tool({ name: 'big', description: 'Other', effect: 'once', execute: () => '' });
  const resumed = runLoop({ model, tools: [other, client, userTool()], journal, runId: 'r', acceptChangedTools: true });
  await expect(resumed).rejects.toMatchObject(clash);
  for (const at of [1, 3]) {
    const forked = forkRun({ journal, runId: 'r', at, changes: { tools: [big, client, userTool()] } });
    await expect(forked).rejects.toMatchObject(clash);
  }
});

test.each([
  'Reads the rest of a tool result that was too long to be shown whole',
  'Reads on in a tool result that was too long to be shown whole', // as the first version described it
])('recognises its own tool in a journal: %s', (description) => {
  const facts = { name: 'read_result', description } as ToolFacts;
  expect(isReadResult(facts)).toBe(true);
  expect(isReadResult({ ...facts, description: 'Mine' })).toBe(false);
});

test('does not read bytes as a text', async () => {
  const journal = memoryJournal();
  const readBytes: ScriptStep = async () => {
    const id = await journal.blobs.put('run', { bytes: new Uint8Array(4), mediaType: 'image/png' });
    return { calls: [{ name: 'read_result', arguments: { id } }] };
  };
  using model = scriptedModel([callBig, readBytes, 'Done.']);
  const result = await runLoop({ model, tools: [big], input: 'go', journal, runId: 'run', maxResultChars: 200 });
  expect(resultTexts(result)[1]).toMatch(/^"bytes-\w{64}" is not a text\. It has 4 bytes of type image\/png\.$/);
});
