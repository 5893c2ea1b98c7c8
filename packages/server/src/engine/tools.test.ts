import { tool } from '@treadle/core';
import { describe, expect, test } from 'vitest';
import type { ApiError } from '../api-error.ts';
import { registeredTools } from './executors.ts';
import type { ToolExecutor } from './executors.ts';
import type { FunctionTool } from './tools.ts';
import { toolsetOf, type Toolset } from './tools.ts';

const read = tool({ name: 'read', description: 'Reads', execute: async () => 'text' });
const grep = tool({ name: 'grep', description: 'Searches', execute: async () => 'lines' });
const offer = { executors: [registeredTools([read, grep])], defaultTools: [] as string[] };
const caller = { tenant: 't', key: 'k', scopes: ['agents:invoke', 'tools:execute'] };
const ask: FunctionTool = { type: 'function', name: 'ask', description: null, parameters: null, strict: null };
const OWN = { type: 'mcp', server_label: 'treadle' };
const plain = { functions: [ask], otherTools: [], toolChoice: 'auto' } as const;

type Asked = Parameters<typeof toolsetOf>[0];

const names = ({ tools }: Toolset): string[] => tools.map(({ name }) => name);
const problem = async (asked: Asked, who = caller, offered: typeof offer = offer): Promise<ApiError> =>
  toolsetOf(asked, { serverTools: offered }, who).then(
    () => expect.unreachable('it was served'),
    (error: ApiError) => error,
  );

test('an executor that does not return its functions in time gets its signal aborted, and the request a 503', async () => {
  const signals: AbortSignal[] = [];
  const slow: ToolExecutor = {
    kind: 'slow',
    canExecute: () => true,
    functions: (_, __, signal) => (signals.push(signal), new Promise(() => {})),
    execute: () => '',
  };
  const served = { executors: [slow], defaultTools: [], listTimeoutMs: 5 };
  const asked = { ...plain, otherTools: [{ type: 'slow' }] };
  expect(await problem(asked, caller, served)).toMatchObject({ status: 503, code: 'tools_unavailable' });
  expect(signals[0]!.aborted).toBe(true);
});

describe('the tools of a request', () => {
  test('are its functions, and the server tools that it requests by their label', async () => {
    expect(names(await toolsetOf(plain, { serverTools: offer }, caller))).toEqual(['ask']);
    const both = await toolsetOf({ ...plain, otherTools: [OWN] }, { serverTools: offer }, caller);
    expect(names(both)).toEqual(['ask', 'read', 'grep']);
    expect(both.tools.map(({ execute }) => execute !== undefined)).toEqual([false, true, true]);
    const one = { ...OWN, allowed_tools: ['grep'] };
    expect(names(await toolsetOf({ ...plain, otherTools: [one] }, { serverTools: offer }, caller))).toEqual([
      'ask',
      'grep',
    ]);
    const spelled = { ...OWN, allowed_tools: { tool_names: ['read'] } };
    expect(names(await toolsetOf({ ...plain, otherTools: [spelled, OWN] }, { serverTools: offer }, caller))).toEqual([
      'ask',
      'read',
      'grep',
    ]);
  });

  test('include the default tools if the key has the scope and no function has that name', async () => {
    const withDefaults = { ...offer, defaultTools: ['read'] };
    expect(names(await toolsetOf(plain, { serverTools: withDefaults }, caller))).toEqual(['ask', 'read']);
    expect(
      names(await toolsetOf(plain, { serverTools: withDefaults }, { ...caller, scopes: ['agents:invoke'] })),
    ).toEqual(['ask']);
    const mine = { ...plain, functions: [{ ...ask, name: 'read' }] };
    const { tools } = await toolsetOf(mine, { serverTools: withDefaults }, caller);
    expect(tools.map(({ name, execute }) => [name, execute])).toEqual([['read', undefined]]);
  });

  test('are not validated if the client executes them', async () => {
    const strange = { ...ask, parameters: { properties: { a: { type: 'no such type' } } } };
    const { tools } = await toolsetOf({ ...plain, functions: [strange] }, { serverTools: offer }, caller);
    expect(tools[0]).toMatchObject({ asWritten: true, parameters: { type: 'object' } });
  });

  test('can be run by other executors', async () => {
    const boxed: ToolExecutor = {
      kind: 'sandbox',
      canExecute: ({ image }) => image === 'small',
      functions: async () => [{ name: 'sh', description: 'Runs', effect: 'pure' }],
      execute: async ({ name, tool: asked }) => `${name} in ${String(asked['image'])}`,
    };
    const offered = { ...offer, executors: [...offer.executors, boxed] };
    const asked = { ...plain, otherTools: [{ type: 'sandbox', image: 'small' }] };
    const { tools, kinds } = await toolsetOf(asked, { serverTools: offered }, caller);
    expect(await tools[1]!.execute!({}, {} as never)).toBe('sh in small');
    expect([kinds.kindOf('sh', 0), kinds.labelOf('sh')]).toEqual(['server', 'treadle']);
    const large = { ...plain, otherTools: [{ type: 'sandbox', image: 'large' }] };
    expect(await problem(large, caller, offered)).toMatchObject({ status: 400, code: 'unsupported_tool' });
  });
});

describe.each(['web_search', 'web_search_preview', 'web_search_preview_2025_03_11', 'web_search_2025_08_26'])(
  'the tool %s',
  (type) => {
    test('is left out without an executor', async () => {
      expect(names(await toolsetOf({ ...plain, otherTools: [{ type }] }, { serverTools: offer }, caller))).toEqual([
        'ask',
      ]);
    });

    test('is run by an executor for web_search, and can be chosen by another of its names', async () => {
      const search: ToolExecutor = {
        kind: 'web_search',
        canExecute: () => true,
        functions: () => [{ name: 'search', description: 'Searches' }],
        execute: ({ tool: asked }) => asked.type,
      };
      const toolChoice = {
        type: 'allowed_tools',
        mode: 'required',
        tools: [{ type: 'web_search_preview' }],
      } as const;
      const { tools, allowedTools } = await toolsetOf(
        { ...plain, otherTools: [{ type }], toolChoice },
        { serverTools: { ...offer, executors: [search] } },
        caller,
      );
      expect(allowedTools).toEqual(['search']);
      expect(await tools[1]!.execute!({}, {} as never)).toBe(type);
    });
  },
);

test.each(['web_search_x', 'web_search_preview_25', 'x_web_search', 'web_search_preview_2025_03_11x'])(
  'the tool %s is unknown',
  async (type) => {
    expect(await problem({ ...plain, otherTools: [{ type }] })).toMatchObject({ code: 'unsupported_tool' });
  },
);

describe('rejects', () => {
  test.each([
    [{ ...plain, otherTools: [{ ...OWN, server_label: 'else' }] }, 400, 'MCP server "else"'],
    [{ ...plain, otherTools: [{ type: 'local_shell' }] }, 400, 'type "local_shell"'],
    [{ ...plain, otherTools: [{ ...OWN, allowed_tools: ['write'] }] }, 400, 'no tool "write". Its tools: read, grep'],
    [{ ...plain, otherTools: [{ ...OWN, allowed_tools: 'read' }] }, 400, 'list of tool names'],
    [{ ...plain, otherTools: [{ ...OWN, require_approval: 'always' }] }, 400, 'Approvals'],
    [
      { ...plain, functions: [{ ...ask, name: 'read' }], otherTools: [OWN] },
      400,
      '"read" has the name of a server tool',
    ],
    [{ ...plain, toolChoice: { type: 'function', name: 'nope' } }, 400, '"nope"'],
    [{ ...plain, functions: [], toolChoice: 'required' }, 400, 'no tool to call'],
    [{ ...plain, toolChoice: { type: 'mcp', server_label: 'treadle' } }, 400, 'but the request has no such tools'],
    [
      { ...plain, otherTools: [OWN], toolChoice: { type: 'mcp', server_label: 'treadle', name: 'ask' } },
      400,
      'treadle ask',
    ],
  ] as const)('%j', async (asked, status, message) => {
    const error = await problem(asked as Asked);
    expect(error.status).toBe(status);
    expect(error.message).toContain(message);
  });

  test('server tools for a key without the scope', async () => {
    const error = await problem({ ...plain, otherTools: [OWN] }, { ...caller, scopes: ['agents:invoke'] });
    expect(error).toMatchObject({ status: 403, code: 'insufficient_scope' });
  });
});

describe('a key with the scope of one tool', () => {
  const reader = { ...caller, scopes: ['agents:invoke', 'tools:execute:read'] };

  test('gets only that tool if it asks for all, and as a default tool', async () => {
    expect(names(await toolsetOf({ ...plain, otherTools: [OWN] }, { serverTools: offer }, reader))).toEqual([
      'ask',
      'read',
    ]);
    const withDefaults = { ...offer, defaultTools: ['read', 'grep'] };
    expect(names(await toolsetOf(plain, { serverTools: withDefaults }, reader))).toEqual(['ask', 'read']);
  });

  test('is rejected if it names another tool, or if the server does not have its tool', async () => {
    const named = { ...plain, otherTools: [{ ...OWN, allowed_tools: ['read', 'grep'] }] };
    const error = await problem(named, reader);
    expect(error).toMatchObject({ status: 403, code: 'insufficient_scope' });
    expect(error.message).toContain('it lacks the scope "tools:execute:grep"');
    const other = { ...caller, scopes: ['tools:execute:write'] };
    expect(await problem({ ...plain, otherTools: [OWN] }, other)).toMatchObject({ status: 403 });
  });
});

describe('tool_choice', () => {
  const all = { ...plain, otherTools: [OWN] };
  test.each([
    ['required', { toolChoice: 'required' }],
    ['none', { toolChoice: 'none' }],
    [{ type: 'function', name: 'ask' }, { toolChoice: { tool: 'ask' } }],
    [{ type: 'mcp', server_label: 'treadle', name: 'read' }, { toolChoice: { tool: 'read' } }],
    [
      { type: 'mcp', server_label: 'treadle' },
      { toolChoice: 'required', allowedTools: ['read', 'grep'] },
    ],
    [
      { type: 'allowed_tools', mode: 'auto', tools: [{ type: 'function', name: 'ask' }, OWN] },
      { toolChoice: 'auto', allowedTools: ['ask', 'read', 'grep'] },
    ],
  ] as const)('%j', async (toolChoice, expected) => {
    const { toolChoice: choice, allowedTools } = await toolsetOf(
      { ...all, toolChoice } as Asked,
      { serverTools: offer },
      caller,
    );
    expect({ toolChoice: choice, ...(allowedTools && { allowedTools }) }).toEqual(expected);
  });

  test('classifies calls by name', async () => {
    const kindOf = async (changes: Partial<Asked>, name: string, index = 0): Promise<string> =>
      (await toolsetOf({ ...all, ...changes }, { serverTools: offer }, caller)).kinds.kindOf(name, index);
    expect(await kindOf({}, 'ask')).toBe('client');
    expect(await kindOf({}, 'read')).toBe('server');
    expect(await kindOf({}, 'nope')).toBe('refused');
    expect(await kindOf({}, 'ask', 128)).toBe('refused');
    expect(await kindOf({ toolChoice: 'none' }, 'ask')).toBe('refused');
    expect(await kindOf({ maxToolCalls: 1 }, 'ask')).toBe('client');
    expect(await kindOf({ toolChoice: { type: 'mcp', server_label: 'treadle', name: 'read' } }, 'ask')).toBe(
      'client-later',
    );
    const others = { type: 'allowed_tools', mode: 'auto', tools: [OWN] } as const;
    expect(await kindOf({ toolChoice: others }, 'ask')).toBe('refused');
  });
});
