import { describe, expect, test } from 'vitest';
import { agentTool } from '../agents/agent-tool.ts';
import { forkRun } from '../journal/fork.ts';
import { replay } from '../journal/replay.ts';
import { carriedFrom } from '../machine/effects.ts';
import type { Exposure } from '../machine/exposure.ts';
import type { State } from '../machine/state.ts';
import type { InputMessage } from '../messages.ts';
import type { Policy, Touch } from '../policy/port.ts';
import { memoryJournal, scriptedModel, type ScriptStep } from '../testing/index.ts';
import { tool, type Tool, type ToolDefinition } from '../tools/tool.ts';
import type { LoopOptions } from './options.ts';
import { runLoop, startLoop } from './run.ts';

const call = (...names: readonly string[]): ScriptStep => ({
  calls: names.map((name) => ({ name, arguments: {} })),
});

const made = (name: string, more: Partial<ToolDefinition> = {}): Tool =>
  tool({ name, description: name, input: { type: 'object' }, execute: () => name, ...more });

const touching = (name: string, ...touches: readonly Touch[]): Tool => made(name, { touches: () => touches });

const fetch = touching('fetch', { type: 'url', url: 'https://example.org/page' });
const read = touching('read', { type: 'read', path: '.env' });
const pick = tool({ name: 'pick', description: 'pick', input: { type: 'object' }, exposes: 'outside' });

const isPrivate = ({ type, ...touched }: Touch): 'private' | undefined =>
  type === 'read' && (touched as { path: string }).path.endsWith('.env') ? 'private' : undefined;

const OUTSIDE = { effect: 't1.tool.0', tool: 'fetch', what: 'url https://example.org/page' };
const PRIVATE = { effect: 't1.tool.0', tool: 'read', what: 'read .env' };

type Store = ReturnType<typeof memoryJournal>;

async function stateOf(journal: Store, runId = 'run'): Promise<State> {
  return replay(await journal.read(runId)).state;
}

/** What a run has seen that calls these tools, all of them in one reply. */
async function seen(tools: readonly Tool[], more: Partial<LoopOptions> = {}): Promise<Exposure | undefined> {
  const journal = memoryJournal();
  const model = scriptedModel([call(...tools.map(({ name }) => name)), 'Done.']);
  await runLoop({ model, tools, input: 'Go.', journal, runId: 'run', exposes: isPrivate, ...more } as LoopOptions);
  return (await stateOf(journal)).exposure;
}

describe('what a call exposes the run to', () => {
  test.each<[string, Tool, Exposure | undefined]>([
    ['a URL', fetch, { outside: OUTSIDE }],
    ['a private path', read, { private: PRIVATE }],
    ['another path', touching('read', { type: 'read', path: 'a.ts' }), undefined],
    ['nothing', touching('read'), undefined],
    ['what its tool does not declare', made('look'), undefined],
    [
      'something unknown',
      touching('look', { type: 'unknown' }),
      { outside: { effect: 't1.tool.0', tool: 'look', what: 'unknown' } },
    ],
    [
      'what its tool says about every call',
      made('look', { exposes: 'private' }),
      { private: { effect: 't1.tool.0', tool: 'look', what: 'its result' } },
    ],
    [
      'what its tool says about the call',
      made('look', { exposes: () => ['outside'], touches: () => [{ type: 'command', command: 'curl x' }] }),
      { outside: { effect: 't1.tool.0', tool: 'look', what: 'command curl x' } },
    ],
  ])('%s', async (_, used, exposure) => {
    expect(await seen([used])).toEqual(exposure);
  });

  test.each<[string, Tool, LoopOptions['exposes'] | undefined]>([
    [
      'a tool',
      made('look', {
        exposes: () => {
          throw new Error('no');
        },
      }),
      undefined,
    ],
    ['a promise of a tool', made('look', { exposes: (() => Promise.reject(new Error('no'))) as never }), undefined],
    ['a word', made('look', { exposes: 'secret' as never }), undefined],
    [
      'the option',
      touching('look', { type: 'read', path: 'a' }),
      () => {
        throw new Error('no');
      },
    ],
    ['a promise of the option', touching('look', { type: 'read', path: 'a' }), () => Promise.reject(new Error('no'))],
    ['a word of the option', touching('look', { type: 'read', path: 'a' }), () => 'secret' as never],
  ])('everything, if %s fails', async (_, used, exposes) => {
    expect(Object.keys((await seen([used], exposes ? { exposes } : {})) ?? {})).toEqual(['outside', 'private']);
  });

  test('outside, if the touches of a tool cannot be found out', async () => {
    const broken = made('look', {
      touches: () => {
        throw new Error('no');
      },
    });
    expect(await seen([broken])).toMatchObject({ outside: { what: 'unknown' } });
  });

  test('also if the call fails, and not if it was never made', async () => {
    const failing = made('look', {
      exposes: 'outside',
      execute: () => {
        throw new Error('no');
      },
    });
    expect(await seen([failing])).toMatchObject({ outside: { tool: 'look' } });
    const deny: Policy = { judge: (calls) => calls.map(() => ({ type: 'deny', reason: 'no' })) };
    expect(await seen([failing], { policy: deny })).toBeUndefined();
  });

  test('the option may answer later', async () => {
    expect(await seen([read], { exposes: async (touch) => isPrivate(touch) })).toEqual({ private: PRIVATE });
  });

  test('the policy says it too, with the promises of the sandbox', async () => {
    const policy: Policy = {
      judge: (calls) => calls.map(() => ({ type: 'allow' })),
      exposes: (touch, { sandbox }) =>
        touch.type === 'command' && !sandbox.includes('network') ? 'outside' : undefined,
    };
    const command = { touches: () => [{ type: 'command', command: 'fetch' } as const] };
    const outside = made('outside', command);
    const inside = made('inside', { ...command, sandbox: () => ['network'] });
    expect(await seen([inside, outside, read], { policy })).toEqual({
      outside: { effect: 't1.tool.1', tool: 'outside', what: 'command fetch' },
      private: { ...PRIVATE, effect: 't1.tool.2' },
    });
  });

  test('a result of the client', async () => {
    const journal = memoryJournal();
    const options = { tools: [pick], journal, runId: 'run' };
    await runLoop({ ...options, model: scriptedModel([call('pick')]), input: 'Go.' });
    const answers = [{ type: 'result', effect: 't1.client.0', content: 'picked' } as const];
    await runLoop({ ...options, model: scriptedModel(['Done.']), answers });
    expect((await stateOf(journal)).exposure).toEqual({
      outside: { effect: 't1.tool.0', tool: 'pick', what: 'its result' },
    });
  });
});

test('the first call of a turn is the cause, in whatever order the calls settle, and the first turn', async () => {
  const late = made('late', {
    touches: () => [{ type: 'url', url: 'https://late' }],
    execute: () => new Promise((resolve) => void setImmediate(resolve)),
  });
  expect(await seen([late, fetch])).toMatchObject({ outside: { tool: 'late', effect: 't1.tool.0' } });
  const journal = memoryJournal();
  const model = scriptedModel([call('fetch'), call('late', 'read'), 'Done.']);
  await runLoop({ model, tools: [fetch, late, read], input: 'Go.', journal, runId: 'run', exposes: isPrivate });
  expect((await stateOf(journal)).exposure).toEqual({ outside: OUTSIDE, private: { ...PRIVATE, effect: 't2.tool.1' } });
});

describe('attachments', () => {
  const attached = (...sources: readonly object[]): InputMessage => ({
    role: 'user',
    content: [
      { type: 'text', text: 'See.' },
      ...sources.map((source) => ({ type: 'image', mediaType: 'image/png', source }) as never),
    ],
  });
  const remote = { type: 'url', url: 'https://example.org/a.png' };
  const outside = { what: 'attached https://example.org/a.png' };

  test('from an address are from outside, and what people attach is not', async () => {
    expect(await seen([], { input: [attached(remote)] })).toEqual({ outside });
    const own = [
      { type: 'data', data: 'AAAA' },
      { type: 'url', url: 'data:image/png;base64,AAAA' },
    ];
    expect(await seen([], { input: [attached(...own)] })).toBeUndefined();
  });

  test('of later input count too', async () => {
    const journal = memoryJournal();
    const live = startLoop({ model: scriptedModel(['One.', 'Two.']), input: 'Go.', journal, runId: 'run' });
    await live.send(attached(remote) as InputMessage & { role: 'user' });
    await live.result;
    expect((await stateOf(journal)).exposure).toEqual({ outside });
  });
});

describe('other runs', () => {
  test('a child run starts with what its caller has seen, and its caller gets what it has seen', async () => {
    const contexts: (Exposure | undefined)[] = [];
    const watch: Policy = {
      judge(calls, { exposure }) {
        contexts.push(exposure);
        return calls.map(() => ({ type: 'allow' }));
      },
    };
    const child = agentTool({
      name: 'child',
      description: 'child',
      model: scriptedModel([call('read'), 'Read.']),
      tools: [read],
    });
    const journal = memoryJournal();
    const model = scriptedModel([
      call('fetch'),
      { calls: [{ name: 'child', arguments: { task: 'x' } }] },
      call('fetch'),
      'Done.',
    ]);
    const options = {
      model,
      tools: [fetch, child],
      input: 'Go.',
      journal,
      runId: 'run',
      exposes: isPrivate,
      policy: watch,
    };
    await runLoop(options);
    const { effect: _, ...outside } = OUTSIDE;
    const inherited = { outside: { ...outside, from: 'run/t1.tool.0' } };
    const both = {
      outside: OUTSIDE,
      private: { effect: 't2.tool.0', tool: 'read', what: 'read .env', from: 'run.t2.tool.0/t1.tool.0' },
    };
    expect(contexts).toEqual([undefined, { outside: OUTSIDE }, inherited, both]);
    expect((await stateOf(journal, 'run.t2.tool.0')).exposure).toEqual({ ...inherited, private: PRIVATE });
    expect((await stateOf(journal)).exposure).toEqual(both);
  });

  test('the next run of a conversation, a fork, and a fork before that', async () => {
    const journal = memoryJournal();
    const options = { tools: [fetch, read], journal, exposes: isPrivate };
    const model = scriptedModel([call('fetch'), call('read'), 'Done.']);
    const { carried } = await runLoop({ ...options, model, input: 'Go.', runId: 'run' });
    const state = await stateOf(journal);
    expect(carried).toEqual(carriedFrom(state));
    await runLoop({
      ...options,
      model: scriptedModel(['Done.']),
      input: 'Go on.',
      runId: 'next',
      ...(carried && { carried }),
    });
    expect((await stateOf(journal, 'next')).exposure).toEqual({
      outside: { tool: 'fetch', what: OUTSIDE.what, from: 'run/t1.tool.0' },
      private: { tool: 'read', what: PRIVATE.what, from: 'run/t2.tool.0' },
    });
    const entries = await journal.read('run');
    const at = entries.findIndex(({ event }) => event.type === 'tool-settled');
    await forkRun({ journal, runId: 'run', at, changes: { instructions: 'Other.' }, newRunId: 'early' });
    await forkRun({ journal, runId: 'run', at: entries.length - 1, newRunId: 'late' });
    expect((await stateOf(journal, 'early')).exposure).toEqual({ outside: OUTSIDE });
    expect((await stateOf(journal, 'late')).exposure).toEqual(state.exposure);
  });

  test('a changed result of a fork still exposes it', async () => {
    const journal = memoryJournal();
    await runLoop({
      model: scriptedModel([call('fetch'), 'Done.']),
      tools: [fetch],
      input: 'Go.',
      journal,
      runId: 'run',
    });
    const changes = { results: { 't1.tool.0': 'another page' } };
    await forkRun({ journal, runId: 'run', at: 3, changes, newRunId: 'fork' });
    expect((await stateOf(journal, 'fork')).exposure).toEqual({ outside: OUTSIDE });
  });
});

test('survives a compaction', async () => {
  const journal = memoryJournal();
  const turns = Array.from({ length: 4 }, () => call('look'));
  const model = scriptedModel([call('fetch'), ...turns, 'Done.']);
  const options = {
    model,
    summariser: scriptedModel(['Summary.', 'Summary.']),
    tools: [fetch, made('look')],
    repeatLimit: 0,
  };
  await runLoop({ ...options, input: 'Go.', journal, runId: 'run', compaction: { tokens: 1, keepTurns: 1 } });
  const entries = await journal.read('run');
  expect(entries.some(({ event }) => event.type === 'history-compacted')).toBe(true);
  expect((await stateOf(journal)).exposure).toEqual({ outside: OUTSIDE });
});
