import { memoryJournal, runLoop, textOf, tool, type Message, type Tool } from '@treadle/core';
import { scriptedModel } from '@treadle/core/testing';
import { expect, test } from 'vitest';
import { MAX_OFFERED_TOOLS, searchableTools, toolSearchTool } from './tool-search.ts';

const NOUNS = [
  'issue',
  'invoice',
  'calendar',
  'customer',
  'repository',
  'shipment',
  'ticket',
  'backup',
  'meeting',
  'order',
];
const VERBS = ['create', 'delete', 'list', 'update', 'archive', 'export', 'assign', 'rename', 'share', 'count'];

/** A thousand tools with schemas of a usual size. `called`: the names of those that were executed. */
function manyTools(called: string[] = []): readonly Tool[] {
  return Array.from({ length: 1000 }, (_, index) => {
    const [verb, noun] = [VERBS[index % 10]!, NOUNS[Math.floor(index / 10) % 10]!];
    const name = `${verb}_${noun}_${Math.floor(index / 100)}`;
    return tool({
      name,
      description: `${verb}s an ${noun} in region ${Math.floor(index / 100)}.\n${'More about it. '.repeat(30)}`,
      input: {
        type: 'object',
        properties: { id: { type: 'string', description: 'Which one. '.repeat(20) } },
        required: ['id'],
      },
      execute: ({ id }) => {
        called.push(name);
        return `${name} ${String(id)}`;
      },
    });
  });
}

const results = (messages: readonly Message[]): readonly string[] =>
  messages.flatMap((message) => (message.role === 'tool' ? message.content.map(({ content }) => textOf(content)) : []));
const searchFor = (query: string, limit?: number) => ({
  calls: [{ name: 'tool_search', arguments: { query, ...(limit && { limit }) } }],
});
const callOf = (name: string) => ({ calls: [{ name, arguments: { id: '7' } }] });

test('a model gets one tool in place of a thousand, and what it finds can be called', async () => {
  const called: string[] = [];
  const model = scriptedModel([searchFor('archive shipments', 2), callOf('archive_shipment_0'), 'Done.']);
  const { outcome, messages } = await runLoop({
    model,
    tools: searchableTools({ tools: manyTools(called) }),
    input: 'Go.',
  });
  expect(outcome).toEqual({ type: 'completed' });
  expect(called).toEqual(['archive_shipment_0']);
  expect(model.requests.map(({ tools }) => tools.map(({ name }) => name))).toEqual([
    ['tool_search'],
    ['tool_search', 'archive_shipment_0', 'archive_shipment_1'],
    ['tool_search', 'archive_shipment_0', 'archive_shipment_1'],
  ]);
  expect(JSON.stringify(model.requests[0]).length).toBeLessThan(1_500);
  expect(JSON.stringify(model.requests[2]).length).toBeLessThan(5_000);
  const [found] = results(messages);
  expect(found!.split('\n')).toEqual([
    expect.stringMatching(/^archive_shipment_0: archives an shipment in region 0\. More about it\. .*…$/),
    expect.stringMatching(/^archive_shipment_1: /),
    expect.stringMatching(/^You can call these tools from your next turn on\. \d+ more match/),
  ]);
  expect(found!.length).toBeLessThan(500);
});

test('a run that is resumed elsewhere can call what it has found, and search on', async () => {
  const journal = memoryJournal();
  const wait = tool({ name: 'wait', description: 'Waits' });
  const start = scriptedModel([searchFor('export invoice', 1), { calls: [{ name: 'wait' }] }]);
  const tools = [wait, ...searchableTools({ tools: manyTools() })];
  const { waiting } = await runLoop({ model: start, tools, input: 'Go.', journal, runId: 'r' });

  const called: string[] = [];
  const all = manyTools(called);
  const model = scriptedModel([
    callOf('export_invoice_0'),
    searchFor('count_order_9', 1),
    callOf('count_order_9'),
    'Done.',
  ]);
  const resumed = await runLoop({
    model,
    tools: [wait, toolSearchTool({ tools: all }), ...all],
    journal,
    runId: 'r',
    answers: [{ type: 'result', effect: waiting[0]!.effect, content: 'waited' }],
  });
  expect(resumed.outcome).toEqual({ type: 'completed' });
  expect(called).toEqual(['export_invoice_0', 'count_order_9']);
  expect(model.requests.map(({ tools: offered }) => offered.length)).toEqual([3, 3, 4, 4]);
});

test('few tools are offered as they are', () => {
  const all = manyTools();
  expect(searchableTools({ tools: all.slice(0, MAX_OFFERED_TOOLS) })).toHaveLength(MAX_OFFERED_TOOLS);
  expect(searchableTools({ tools: all.slice(0, MAX_OFFERED_TOOLS + 1) })).toMatchObject([{ name: 'tool_search' }]);
});

test.each([
  ['I want to assign tickets to a person', 'assign_ticket_0'],
  ['assignTicket', 'assign_ticket_0'],
  ['COUNT_ORDER_9', 'count_order_9'],
  ['deleting the backups of region 3', 'delete_backup_3'],
])('%s finds %s first', async (query, name) => {
  const model = scriptedModel([searchFor(query), 'Done.']);
  const { messages } = await runLoop({ model, tools: searchableTools({ tools: manyTools() }), input: 'Go.' });
  expect(results(messages)[0]!.split(':')[0]).toBe(name);
});

test('says what to do if nothing matches', async () => {
  const model = scriptedModel([searchFor('zzz'), 'Done.']);
  const { messages } = await runLoop({ model, tools: searchableTools({ tools: manyTools() }), input: 'Go.' });
  expect(results(messages)).toEqual([expect.stringMatching(/^None of 1000 tools matches\. Search with other words/)]);
  expect(model.requests[1]!.tools).toHaveLength(1);
});
