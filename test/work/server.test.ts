import { tool, type AssistantPart, type Model, type ModelDelta, type ModelReply } from '@treadle/core';
import { afterAll, describe, expect, test } from 'vitest';
import { startInProcess, type InProcessServer } from '../server/support/in-process.ts';
import { expectLinear, TEXT, times, workOfPackages } from './growth.ts';

/** What a step does for all calls of a turn. At most 128 calls of a reply are executed; more are refused in one step. */
const STEPS = /packages\/core\/src\/(machine\/|journal\/items\.ts)/;

const counter = workOfPackages();
afterAll(() => counter[Symbol.dispose]());

const USAGE = { inputTokens: 1, outputTokens: 1 };

function replyWith(content: readonly AssistantPart[]): ModelReply {
  const finish = content.some(({ type }) => type === 'tool-call') ? 'tool-calls' : 'stop';
  return { type: 'reply', content, finish, usage: USAGE, model: 'm' };
}

const DONE = replyWith([{ type: 'text', text: 'ok' }]);

// ── Requests ─────────────────────────────────────────────────────────────────────────────────────────────────────────

const user = (n: number) => ({ role: 'user', content: `${TEXT}${n}` });
const assistant = (n: number) => ({ role: 'assistant', content: `${TEXT}${n}` });
const system = (n: number) => ({ role: 'system', content: `${TEXT}${n}` });
const call = (n: number) => ({ type: 'function_call', call_id: `c${n}`, name: 'f', arguments: '{"a":1}' });
const output = (n: number) => ({ type: 'function_call_output', call_id: `c${n}`, output: TEXT });
const customCall = (n: number) => ({ type: 'custom_tool_call', call_id: `c${n}`, name: 'f', input: TEXT });
const customOutput = (n: number) => ({ ...output(n), type: 'custom_tool_call_output' });
/** Each approval is decided once, so those of every request have other ids. */
let requests = 0;
const approvalId = (n: number): string => `mcpr_${requests}_${n}`;
const ask = (n: number) => {
  return { type: 'mcp_approval_request', id: approvalId(n), server_label: 's', name: 'f', arguments: '{}' };
};
const deny = (n: number) => ({ type: 'mcp_approval_response', approval_request_id: approvalId(n), approve: false });
const mcpCall = (n: number) => {
  return { type: 'mcp_call', id: `mcp_x${n}`, server_label: 's', name: 'f', arguments: '{}', output: TEXT };
};
const approvedCall = (n: number) => ({ ...mcpCall(n), approval_request_id: approvalId(n) });
const thought = (n: number) => ({ type: 'reasoning', id: `rs_${n}`, summary: [{ type: 'summary_text', text: TEXT }] });
const textPart = () => ({ type: 'input_text', text: TEXT });
const imagePart = () => ({ type: 'input_image', image_url: 'https://a.example/b.png' });
const tools = (n: number) => times(n, (index) => ({ type: 'function', name: `f${index}`, parameters: SCHEMA }));
const SCHEMA = { type: 'object', properties: { a: { type: 'string' } } };
const wideSchema = (n: number) => ({
  type: 'object',
  properties: Object.fromEntries(times(n, (index) => [`p${index}`, { anyOf: [{ $ref: '#/$defs/a' }, {}] }])),
  $defs: { a: { type: 'string' } },
});

/** Bodies for the Responses API. All are accepted. */
const RESPONSES: ((n: number) => object)[] = [
  (n) => ({ input: times(n, user) }),
  (n) => ({ input: [...times(n, assistant), user(0)] }),
  (n) => ({ input: times(n, (index) => [user(index), assistant(index)]).flat() }),
  (n) => ({ input: [...times(n, system), user(0)] }),
  (n) => ({ input: [{ role: 'user', content: times(n, textPart) }] }),
  (n) => ({ input: [{ role: 'user', content: times(n, imagePart) }] }),
  (n) => ({
    input: [{ role: 'assistant', content: times(n, () => ({ ...textPart(), type: 'output_text' })) }, user(0)],
  }),
  (n) => ({ input: [...times(n, call), ...times(n, output)] }),
  (n) => ({ input: [...times(n, call), ...times(n, user), ...times(n, output).reverse()] }),
  (n) => ({ input: times(n, (index) => [call(index), user(index), output(index)]).flat() }),
  (n) => ({ input: [...times(n, customCall), ...times(n, customOutput)] }),
  (n) => ({ input: [call(0), { ...output(0), output: times(n, textPart) }] }),
  (n) => ({ input: [...times(n, thought), call(0), output(0)] }),
  (n) => ({
    input: [{ ...thought(0), summary: times(n, () => ({ type: 'summary_text', text: TEXT })) }, call(0), output(0)],
  }),
  (n) => ({ input: [...times(n, mcpCall), user(1)] }),
  (n) => ({ input: [...times(n, ask), ...times(n, deny), ...times(n, user)] }),
  (n) => ({ input: [ask(0), approvedCall(0), ...times(n, user)] }),
  (n) => ({ input: times(n, (index) => [ask(index), approvedCall(index), user(index)]).flat() }),
  (n) => ({ input: [{ type: 'mcp_list_tools', server_label: 's', tools: times(n, () => ({ name: 't' })) }, user(0)] }),
  (n) => ({ input: 'x', tools: tools(n), tool_choice: { type: 'allowed_tools', mode: 'auto', tools: tools(n) } }),
  (n) => ({ input: 'x', tools: [{ type: 'function', name: 'f', parameters: wideSchema(n) }] }),
  (n) => ({ input: 'x', text: { format: { type: 'json_schema', name: 'a', schema: wideSchema(n) } } }),
];

const chatCall = (n: number) => ({ id: `c${n}`, type: 'function', function: { name: 'f', arguments: '{}' } });
const chatResult = (n: number) => ({ role: 'tool', tool_call_id: `c${n}`, content: TEXT });
const chatTurn = (n: number) => [{ role: 'assistant', tool_calls: [chatCall(n)] }, chatResult(n)];

/** Bodies for Chat Completions. */
const COMPLETIONS: ((n: number) => object)[] = [
  (n) => ({ messages: times(n, user) }),
  (n) => ({ messages: [...times(n, assistant), user(0)] }),
  (n) => ({ messages: [...times(n, system), user(0)] }),
  (n) => ({ messages: [{ role: 'user', content: times(n, () => ({ type: 'text', text: TEXT })) }] }),
  (n) => ({ messages: [{ role: 'assistant', tool_calls: times(n, chatCall) }, ...times(n, chatResult).reverse()] }),
  (n) => ({ messages: times(n, chatTurn).flat() }),
];

const use = (n: number) => ({ type: 'tool_use', id: `c${n}`, name: 'f', input: { a: 1 } });
const serverUse = (n: number) => ({ ...use(n), type: 'mcp_tool_use', server_name: 's' });
const used = (n: number) => ({ type: 'tool_result', tool_use_id: `c${n}`, content: TEXT });
const serverUsed = (n: number) => ({ ...used(n), type: 'mcp_tool_result' });
const usingTurn = (n: number) => [
  { role: 'assistant', content: [use(n)] },
  { role: 'user', content: [used(n)] },
];
const ofTurn = (n: number) => ({ id: `toolu_${'0'.repeat(32)}_${n}_0` });
const ownTurn = (n: number) => [
  { role: 'assistant', content: [{ ...use(n), ...ofTurn(n) }] },
  { role: 'user', content: [{ ...used(n), tool_use_id: ofTurn(n).id }] },
];
const passing = (n: number) => ({ ...system(n), clear_at: 'next_user_message' });
const change = (n: number) => {
  const tool = { type: 'tool_definition', definition: { name: `f${n}`, input_schema: {} } };
  return { role: 'system', content: [{ type: 'tool_addition', tool }] };
};
const edits = ['clear_thinking_20251015', 'clear_tool_uses_20250919'].map((type) => ({
  type,
  ...(type.includes('uses') && { trigger: { type: 'tool_uses', value: 1 }, clear_tool_inputs: true }),
}));

/** Bodies for Messages. */
const MESSAGES: ((n: number) => object)[] = [
  (n) => ({ messages: times(n, user) }),
  (n) => ({ messages: [...times(n, assistant), user(0)] }),
  (n) => ({ messages: [user(0), ...times(n, system)] }),
  (n) => ({ messages: times(n, (index) => [user(index), passing(index)]).flat() }),
  (n) => ({ messages: [user(0), ...times(Math.min(n, 200), change)] }),
  (n) => ({ messages: [{ role: 'user', content: times(n, () => ({ type: 'text', text: TEXT })) }] }),
  (n) => ({
    messages: [
      { role: 'assistant', content: times(n, use) },
      { role: 'user', content: times(n, used).reverse() },
    ],
  }),
  (n) => ({ messages: [{ role: 'assistant', content: [...times(n, serverUse), ...times(n, serverUsed)] }, user(0)] }),
  (n) => ({ messages: times(n, usingTurn).flat(), context_management: { edits } }),
  (n) => ({ messages: times(n, ownTurn).flat() }),
];
const asMessage = (body: (n: number) => object) => (n: number) => ({ model: 'm', max_tokens: 9, ...body(n) });

const uiMessage = () => ({ role: 'user', parts: [{ type: 'text', text: TEXT }] });

async function expectAccepted(server: InProcessServer, path: string, body: object): Promise<string> {
  const headers = { 'content-type': 'application/json' };
  requests++;
  const answer = await fetch(server.url + path, { method: 'POST', headers, body: JSON.stringify(body) });
  const text = await answer.text();
  expect(answer.status, text.slice(0, 1_000)).toBe(200);
  return text;
}

describe('a request with twice the input takes at most 2.5 times the work', () => {
  const model: Model = { id: 'm', reply: async () => DONE };

  test.each([
    ['/v1/responses', RESPONSES],
    ['/v1/chat/completions', COMPLETIONS],
    ['/v1/messages', MESSAGES.map(asMessage)],
    ['/v1/messages/count_tokens', MESSAGES.map(asMessage)],
    ['/v1/chat', [(n) => ({ message: TEXT.repeat(n) })]],
    ['/v1/chat/ui', [(n) => ({ id: `chat ${n}`, messages: times(n, uiMessage) })]],
    ['/v1/chat/ag-ui', [(n) => ({ threadId: `chat ${n}`, runId: 'r', messages: times(n, user) })]],
  ] as [string, ((n: number) => object)[]][])('%s', async (path, bodies) => {
    await using server = await startInProcess(model);
    await expectLinear(counter, async (size) => {
      for (const body of bodies) await expectAccepted(server, path, body(size));
    });
  });

  test('/v1/responses with many approvals of one response', async () => {
    const pay = tool({ name: 'pay', description: '', needsApproval: true, execute: () => 'paid' });
    let asked = 0;
    const asking: Model = {
      id: 'm',
      reply: async ({ messages }) =>
        messages.at(-1)!.role === 'tool' ? DONE : replyWith(times(asked, (n) => callPart('pay', n))),
    };
    await using server = await startInProcess(asking, { tools: [pay] });
    const own = [{ type: 'mcp', server_label: 'treadle', require_approval: 'always' }];
    await expectLinear(
      counter,
      async (size) => {
        asked = size;
        const { output: items, id } = JSON.parse(
          await expectAccepted(server, '/v1/responses', { input: 'x', tools: own }),
        ) as { readonly id: string; readonly output: readonly { readonly type: string; readonly id: string }[] };
        const requests = items.filter(({ type }) => type === 'mcp_approval_request');
        expect(requests).toHaveLength(size);
        const input = requests.map((item) => {
          return { type: 'mcp_approval_response', approval_request_id: item.id, approve: false };
        });
        await expectAccepted(server, '/v1/responses', { input, previous_response_id: id, tools: own });
      },
      { except: STEPS },
    );
  });
});

// ── Replies ──────────────────────────────────────────────────────────────────────────────────────────────────────────

function callPart(name: string, n: number): AssistantPart {
  return { type: 'tool-call', id: `c${n}`, name, arguments: `{"a":${n}}` };
}

interface Turn {
  readonly deltas: readonly ModelDelta[];
  readonly reply: ModelReply;
}

const FINAL: Turn = { deltas: [{ type: 'text-delta', text: 'ok' }], reply: DONE };

/** The turns of a run. */
const SCRIPTS: ((n: number) => Turn[])[] = [
  (n) => [
    {
      deltas: times(n, () => ({ type: 'text-delta', text: TEXT })),
      reply: replyWith([{ type: 'text', text: TEXT.repeat(n) }]),
    },
  ],
  (n) => [{ deltas: [], reply: replyWith(times(n, () => ({ type: 'text', text: TEXT }))) }],
  (n) => [
    {
      deltas: times(n, () => ({ type: 'reasoning-delta', text: TEXT })),
      reply: replyWith([
        { type: 'reasoning', text: TEXT.repeat(n) },
        { type: 'text', text: 'ok' },
      ]),
    },
  ],
  (n) => [
    {
      deltas: times(n, (index) => ({ type: 'call-delta', call: index, name: 'unknown', arguments: '{}' })),
      reply: replyWith(times(n, (index) => callPart('unknown', index))),
    },
    FINAL,
  ],
  (n) => [
    {
      deltas: times(n, () => ({ type: 'call-delta', call: 0, name: 'now', arguments: TEXT })),
      reply: replyWith([{ type: 'tool-call', id: 'c', name: 'now', arguments: JSON.stringify({ a: TEXT.repeat(n) }) }]),
    },
    FINAL,
  ],
  (n) => [
    ...times(n, (index): Turn => {
      const arrived = { type: 'call-delta', call: 0, name: 'now', arguments: `{"a":${index}}` } as const;
      return {
        deltas: [{ type: 'text-delta', text: TEXT }, arrived],
        reply: replyWith([{ type: 'text', text: TEXT }, callPart('now', index)]),
      };
    }),
    FINAL,
  ],
];

describe('a reply of twice the length takes at most 2.5 times the work', () => {
  const now = tool({ name: 'now', description: '', effect: 'pure', touches: () => [], execute: () => 'noon' });
  const own = [{ type: 'mcp', server_label: 'treadle' }];
  let requests = 0;

  test.each<[string, () => object, ((answer: string) => string[])?]>([
    ['/v1/responses', () => ({ input: 'x', stream: true, tools: own }), responseReads],
    ['/v1/chat/completions', () => ({ messages: [user(0)], stream: true })],
    ['/v1/messages', () => ({ model: 'm', max_tokens: 99_999, messages: [user(0)], stream: true })],
    ['/v1/chat', () => ({ message: 'x' }), conversationReads],
    ['/v1/chat/ui', () => ({ id: `chat ${requests++}`, messages: [uiMessage()] })],
    ['/v1/chat/ag-ui', () => ({ threadId: `chat ${requests++}`, runId: 'r', messages: [user(0)] })],
  ])('%s', async (path, body, readsAfter = () => []) => {
    let turns: Turn[] = [];
    const model: Model = {
      id: 'm',
      async reply(_, emit) {
        const { deltas, reply } = turns.shift()!;
        for (const delta of deltas) emit(delta);
        return reply;
      },
    };
    const options = { tools: [now], defaultTools: ['now'], maxTurns: 1_000 };
    await using server = await startInProcess(model, options);
    await expectLinear(counter, async (size) => {
      for (const script of SCRIPTS) {
        turns = script(size);
        const answer = await expectAccepted(server, path, body());
        expect(turns).toEqual([]);
        for (const read of readsAfter(answer)) expect((await fetch(server.url + read)).status).toBe(200);
      }
    });
  });
});

function responseReads(answer: string): string[] {
  const [id] = /resp_\w+/.exec(answer)!;
  const response = `/v1/responses/${id}`;
  return [response, `${response}/input_items`, `${response}?stream=true`, `/v1/runs/${id}`, `/v1/runs/${id}/events`];
}

function conversationReads(answer: string): string[] {
  const [id] = /conv_\w+/.exec(answer)!;
  return [`/v1/chat/${id}`, `/v1/conversations/${id}/items?limit=100`];
}
