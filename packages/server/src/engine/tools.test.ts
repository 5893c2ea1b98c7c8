import { tool, type Tool } from '@treadle/core';
import { describe, expect, test } from 'vitest';
import type { ApiError } from '../api-error.ts';
import { registeredTools } from './executors.ts';
import type { OfferedFunction, ToolExecutor } from './executors.ts';
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

describe('changed functions of other servers', () => {
  type Change = (functions: readonly OfferedFunction[]) => Promise<void>;

  /** Servers that list these functions at first. */
  function remotes(first: Readonly<Record<string, readonly string[]>>) {
    const changes = new Map<unknown, Change>();
    const executor: ToolExecutor = {
      kind: 'mcp',
      lists: true,
      canExecute: () => true,
      functions: (asked) => first[String(asked['server_label'])]!.map((name) => offeredAs(name)),
      execute: ({ offered }) => offered.fingerprint,
      follow(asked, change) {
        changes.set(asked['server_label'], change);
        return () => void changes.delete(asked['server_label']);
      },
    };
    const change = (label: string, ...functions: readonly (string | OfferedFunction)[]): Promise<void> =>
      changes.get(label)!(functions.map((one) => (typeof one === 'string' ? offeredAs(one) : one)));
    return { served: { executors: [executor], defaultTools: [] }, changes, change };
  }

  const offeredAs = (name: string, version = 1): OfferedFunction => ({
    name,
    description: name,
    fingerprint: `${name} ${version}`,
  });

  const request = (...labels: readonly string[]): Asked => ({
    ...plain,
    otherTools: labels.map((label) => ({ type: 'mcp', server_label: label })),
  });

  /** A run that remembers the names of its tools. */
  function follower() {
    const changed: (readonly Tool[])[] = [];
    const changeTools = async (tools: readonly Tool[]): Promise<boolean> => changed.push(tools) > 0;
    return { changeTools, changed, names: () => changed.map((tools) => tools.map(({ name }) => name)) };
  }

  test('reach the run, which starts with those that were listed', async () => {
    const { served, change } = remotes({ a: ['one', 'two'] });
    const toolset = await toolsetOf(request('a'), { serverTools: served }, caller);
    await change('a', 'two', 'three');
    const run = follower();
    toolset.changes!.give(run);
    await change('a', 'two', 'three');
    await change('a', 'one');
    expect(names(toolset)).toEqual(['ask', 'one', 'two']);
    expect(run.names()).toEqual([
      ['ask', 'two', 'three'],
      ['ask', 'one'],
    ]);
    expect(['two', 'three', 'four'].map((name) => toolset.kinds.kindOf(name, 0))).toEqual([
      'server',
      'server',
      'refused',
    ]);
  });

  test('are executed as they were offered', async () => {
    const { served, change } = remotes({ a: ['one'] });
    const toolset = await toolsetOf(request('a'), { serverTools: served }, caller);
    const run = follower();
    toolset.changes!.give(run);
    await change('a', offeredAs('one', 2));
    expect(await toolset.tools[1]!.execute!({}, {} as never)).toBe('one 1');
    expect(await run.changed[0]![1]!.execute!({}, {} as never)).toBe('one 2');
  });

  test('do not take the names of functions, of other servers, and of tools that these had', async () => {
    const { served, change } = remotes({ a: ['one'], b: ['two', 'three'] });
    const toolset = await toolsetOf(request('a', 'b'), { serverTools: served }, caller);
    const run = follower();
    toolset.changes!.give(run);
    await change('b', 'two');
    await change('a', 'one', 'two', 'three', 'ask');
    await change('b', 'two', 'three', 'one');
    expect(run.names()).toEqual([
      ['ask', 'one', 'two'],
      ['ask', 'one', 'two', 'a__two', 'a__three', 'a__ask'],
      ['ask', 'one', 'two', 'three', 'a__two', 'a__three', 'a__ask', 'b__one'],
    ]);
    expect(['two', 'three', 'a__three', 'b__one'].map((name) => toolset.kinds.labelOf(name))).toEqual([
      'b',
      'b',
      'a',
      'b',
    ]);
  });

  test('are not followed after the toolset was closed', async () => {
    const { served, changes } = remotes({ a: ['one'], b: ['two'] });
    const toolset = await toolsetOf(request('a', 'b'), { serverTools: served }, caller);
    expect(changes.size).toBe(2);
    await toolset.close();
    expect(changes.size).toBe(0);
  });

  test('are rejected if the client would have to approve them and cannot, or if they are too many', async () => {
    const { served, change } = remotes({ a: ['one'], b: ['two'] });
    const asked = request('a', 'b');
    const approved = { ...asked.otherTools[0]!, require_approval: { never: { tool_names: ['one'] } } };
    const toolset = await toolsetOf(
      { ...asked, otherTools: [approved, asked.otherTools[1]!] },
      { serverTools: served },
      caller,
    );
    const run = follower();
    toolset.changes!.give(run);
    await expect(change('a', 'one', 'more')).rejects.toThrow('Approvals');
    await expect(change('b', ...Array.from({ length: 40 }, (_, n) => `two_${n}`))).rejects.toThrow('too many');
    expect(run.names()).toEqual([]);
    await change('b', 'two', 'more');
    expect(run.names()).toEqual([['ask', 'one', 'two', 'more']]);
  });

  test('can need the approval of the client, and calls that needed one before still have it', async () => {
    const { served, change } = remotes({ a: ['one'] });
    const [origin] = request('a').otherTools;
    const annotated = (name: string, readOnlyHint: boolean): OfferedFunction => ({
      ...offeredAs(name, readOnlyHint ? 1 : 2),
      annotations: { readOnlyHint },
    });
    const toolset = await toolsetOf(
      { ...plain, otherTools: [{ ...origin!, require_approval: { never: { read_only: true } } }] },
      { serverTools: served },
      caller,
      { approvals: true },
    );
    const kinds = (): string[] => ['one', 'two', 'three'].map((name) => toolset.kinds.kindOf(name, 0));
    expect(kinds()).toEqual(['approved-later', 'refused', 'refused']);
    await change('a', annotated('one', true), annotated('two', true), annotated('three', false));
    expect(kinds()).toEqual(['approved-later', 'server', 'approved-later']);
    await change('a', annotated('two', false));
    expect(kinds()).toEqual(['approved-later', 'approved-later', 'approved-later']);
  });

  test('are found by a search', async () => {
    const many = Array.from({ length: 41 }, (_, n) => `tool_${n}`);
    const { served, change } = remotes({ a: many });
    const toolset = await toolsetOf(request('a'), { serverTools: served }, caller);
    const run = follower();
    toolset.changes!.give(run);
    await change('a', ...many.slice(1), 'archive');
    expect(run.names()).toEqual([]);
    const offered: string[] = [];
    const context = { offer: async (found: readonly Tool[]) => void offered.push(...found.map(({ name }) => name)) };
    const search = toolset.tools.find(({ name }) => name === 'tool_search')!;
    await search.execute!({ query: 'archive' }, context as never);
    expect(offered).toEqual(['archive']);
  });
});

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
