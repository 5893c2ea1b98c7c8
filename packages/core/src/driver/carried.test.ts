import fc from 'fast-check';
import { describe, expect, test } from 'vitest';
import { resultTexts } from '../../test/results.ts';
import { forkRun } from '../journal/fork.ts';
import type { RunStore } from '../journal/port.ts';
import { replay } from '../journal/replay.ts';
import { carriedFrom } from '../machine/effects.ts';
import type { Carried, State } from '../machine/state.ts';
import type { Policy, Principal } from '../policy/port.ts';
import { memoryJournal, scriptedModel, type ScriptStep } from '../testing/index.ts';
import { tool, type Tool } from '../tools/tool.ts';
import type { LoopOptions } from './options.ts';
import { runLoop } from './run.ts';

const ANN: Principal = { subject: 'ann', tenant: 'acme', scopes: ['tools:execute'] };

const note = tool({
  name: 'note',
  description: 'Remembers a text, or forgets it',
  input: { type: 'object', properties: { text: { type: 'string' } } },
  remembers: ['note'],
  execute({ text }, { memory }) {
    const before = memory!['note'];
    if (text === undefined) delete memory!['note'];
    else memory!['note'] = text;
    return `before: ${String(before)}`;
  },
});
const plan = tool({
  name: 'plan',
  description: 'Narrows the run',
  input: { type: 'object' },
  execute: () => ({ content: 'narrowed', narrow: { tools: ['note', 'plan'], autonomy: 2 as const } }),
});
const write = tool({
  name: 'write',
  description: 'Writes a file',
  input: { type: 'object', properties: { path: { type: 'string' } } },
  touches: ({ path }) => [{ type: 'write', path: String(path) }],
  execute: () => 'written',
});
const TOOLS: readonly Tool[] = [note, plan, write];

/** Asks about each write. */
const policy: Policy = { judge: (calls) => calls.map(({ name }) => ({ type: name === 'write' ? 'ask' : 'allow' })) };

const call = (name: string, args: object = {}): ScriptStep => ({ calls: [{ name, arguments: args }] });

/** Runs a message to its end. Approves what it waits for, for the rest of the run. */
async function say(journal: RunStore, runId: string, script: readonly ScriptStep[], more: Partial<LoopOptions> = {}) {
  const asked: string[] = [];
  const shared = { model: scriptedModel([...script, 'Done.']), tools: TOOLS, policy, journal, runId };
  let result = await runLoop({ ...shared, input: 'Go.', principal: ANN, ...more });
  while (!result.outcome) {
    asked.push(...result.waiting.map(({ call: { arguments: args } }) => args));
    const answers = result.waiting.flatMap((one) =>
      one.type === 'approval'
        ? { type: one.type, effect: one.effect, digest: one.digest, approved: true, forRun: true as const }
        : [],
    );
    result = await runLoop({ ...shared, answers });
  }
  return { result, asked };
}

const stateOf = async (journal: RunStore, runId: string): Promise<State> => replay(await journal.read(runId)).state;
const grantsOf = async (journal: RunStore, runId: string): Promise<number> =>
  (await stateOf(journal, runId)).grants?.length ?? 0;

describe('a run that continues a conversation', () => {
  test('has the memory that the last run left, and what it was given itself', async () => {
    const journal = memoryJournal();
    const first = await say(journal, 'a', [call('note', { text: 'one' })]);
    expect(first.result.carried).toEqual({ memory: { note: 'one' }, principal: ANN });
    const { carried } = first.result;
    const second = await say(journal, 'b', [call('note')], { carried: carried!, memory: { mine: 1 } });
    expect(resultTexts(second.result)).toEqual(['before: one']);
    expect(second.result.memory).toEqual({ mine: 1 });
    const third = await say(journal, 'c', [call('note')], { carried: second.result.carried! });
    expect(resultTexts(third.result)).toEqual(['before: undefined']);
  });

  test('is not asked about what people have allowed in the conversation, also after a resume and in a fork', async () => {
    const journal = memoryJournal();
    const first = await say(journal, 'a', [call('write', { path: 'x' })]);
    expect(first.asked).toHaveLength(1);
    const { carried } = first.result;
    const next = await say(journal, 'b', [call('write', { path: 'x' }), call('write', { path: 'y' })], {
      carried: carried!,
    });
    expect(next.asked).toEqual(['{"path":"y"}']);
    expect(await grantsOf(journal, 'b')).toBe(2);
    await forkRun({ journal, runId: 'b', at: 0, newRunId: 'f' });
    expect(await grantsOf(journal, 'f')).toBe(1);
  });

  test.each([
    ['another subject', { ...ANN, subject: 'abe' }],
    ['another tenant', { ...ANN, tenant: 'bolt' }],
    ['nobody', undefined],
  ])('is asked again if it is driven for %s, and has the memory', async (_, principal) => {
    const journal = memoryJournal();
    const steps = [call('note', { text: 'one' }), call('write', { path: 'x' })];
    const { carried } = (await say(journal, 'a', steps)).result;
    const next = await say(journal, 'b', [call('write', { path: 'x' })], { carried: carried!, principal: principal! });
    expect(next.asked).toHaveLength(1);
    expect(next.result.memory).toEqual({ note: 'one' });
    // What the other one has allowed is not for the first one either.
    const third = await say(journal, 'c', [call('write', { path: 'x' })], { carried: next.result.carried! });
    expect(third.asked).toHaveLength(1);
  });

  test('is asked again if the tool has changed since', async () => {
    const journal = memoryJournal();
    const { carried } = (await say(journal, 'a', [call('write', { path: 'x' })])).result;
    const tools = [note, { ...write, description: 'Writes any file' }];
    const result = await runLoop({
      model: scriptedModel([call('write', { path: 'x' })]),
      tools,
      policy,
      journal,
      input: 'Go.',
      principal: ANN,
      carried: carried!,
    });
    expect(result.waiting).toHaveLength(1);
  });

  test('other scopes of the same subject do not matter', async () => {
    const journal = memoryJournal();
    const { carried } = (await say(journal, 'a', [call('write', { path: 'x' })])).result;
    const principal = { ...ANN, scopes: [] };
    expect((await say(journal, 'b', [call('write', { path: 'x' })], { carried: carried!, principal })).asked).toEqual(
      [],
    );
  });

  test('may do no more than the last run, whatever it is given', async () => {
    const journal = memoryJournal();
    const { carried } = (await say(journal, 'a', [call('plan')])).result;
    const autonomies: unknown[] = [];
    const asking: Policy = { ...policy, limits: (autonomy) => (autonomies.push(autonomy), {}) };
    const narrow = { tools: ['note', 'write'], autonomy: 3 as const };
    const next = await say(journal, 'b', [call('write', { path: 'x' }), call('note')], {
      carried: carried!,
      narrow,
      policy: asking,
    });
    expect(resultTexts(next.result)[0]).toContain('write');
    expect(resultTexts(next.result)[1]).toBe('before: undefined');
    expect(autonomies).toContain(2);
    expect(next.result.carried?.narrow).toEqual([{ tools: ['note', 'plan'], autonomy: 2 }, narrow]);
  });

  test('a narrowing that was lifted is not carried', () => {
    const state = { narrowing: undefined, memory: undefined, grants: undefined, principal: ANN } as State;
    expect(carriedFrom(state)).toBeUndefined();
  });

  test.each([
    [{ grants: [null] }, 'carried'],
    [{ grants: 'all' }, 'carried'],
    [{ narrow: { tools: 'all' } }, 'narrow'],
    [{ memory: { now: new Date() } }, 'memory'],
  ])('rejects %j', async (given, named) => {
    const carried = { ...given, principal: ANN } as unknown as Carried;
    const run = async () => runLoop({ model: scriptedModel([]), input: 'Go.', principal: ANN, carried });
    await expect(run()).rejects.toMatchObject({ code: 'invalid-options', message: expect.stringContaining(named) });
  });
});

test('a fork takes what the run had at its point', async () => {
  const journal = memoryJournal();
  await say(journal, 'a', [call('note', { text: 'one' }), call('plan'), call('note', { text: 'two' })]);
  const entries = await journal.read('a');
  const at = entries.findIndex(({ event }) => event.type === 'tool-settled');
  await forkRun({ journal, runId: 'a', at, newRunId: 'f', changes: { model: 'other' } });
  expect(carriedFrom(await stateOf(journal, 'f'))).toEqual({ memory: { note: 'one' }, principal: ANN });
});

test('a run that does nothing passes on exactly what it took over', async () => {
  const names = fc.uniqueArray(fc.constantFrom('note', 'plan', 'write'), { minLength: 1 });
  const carried: fc.Arbitrary<Carried> = fc.record(
    {
      memory: fc.dictionary(
        fc.string(),
        fc.jsonValue().filter((value) => value !== null),
        { maxKeys: 3 },
      ),
      narrow: fc.uniqueArray(fc.record({ tools: names, autonomy: fc.constantFrom(0, 1, 2, 3) }), {
        minLength: 1,
        maxLength: 2,
        selector: (one) => JSON.stringify(one),
      }),
      grants: fc.array(
        fc.record({
          tool: names.map(([one]) => one!),
          touches: fc.constant([]),
          definition: fc.string({ minLength: 1 }),
          by: fc.constant([]),
        }),
        { minLength: 1 },
      ),
    },
    { requiredKeys: [] },
  ) as never;
  await fc.assert(
    fc.asyncProperty(carried, fc.boolean(), async (given, isSame) => {
      const journal = memoryJournal();
      const principal = isSame ? ANN : { ...ANN, subject: 'abe' };
      await runLoop({
        model: scriptedModel(['Hi.']),
        tools: TOOLS,
        journal,
        runId: 'r',
        input: 'Go.',
        principal,
        carried: { ...given, principal: ANN },
      });
      const { grants: left, ...next } = carriedFrom(await stateOf(journal, 'r')) ?? {};
      const { grants, ...expected } = given;
      expect(left).toEqual(isSame ? grants : undefined);
      expect(JSON.parse(JSON.stringify({ ...next, principal: undefined }))).toEqual(
        JSON.parse(JSON.stringify(expected)),
      );
    }),
    { numRuns: 50 },
  );
});

test('of keys that calls name, those that were changed last are taken over', async () => {
  const read = tool({
    name: 'read',
    description: 'Reads a file',
    input: { type: 'object', properties: { path: { type: 'string' } } },
    remembers: ({ path }) => [`files_read:${String(path)}`],
    execute({ path }, { memory }) {
      memory![`files_read:${String(path)}`] = 'again';
      return 'read';
    },
  });
  const paths = Array.from({ length: 1_000 }, (_, index) => `files_read:${index}`);
  const memory = Object.fromEntries([['note', 'kept'], ...paths.map((path) => [path, 'once']), ['other:0', 'kept']]);
  const model = scriptedModel([call('read', { path: '0' }), call('read', { path: 'new' }), 'Done.']);
  const { carried } = await runLoop({ model, tools: [read], memory, input: 'Go.' });
  expect(Object.keys(carried!.memory!)).toEqual([
    'note',
    ...paths.slice(2),
    'other:0',
    'files_read:0',
    'files_read:new',
  ]);
});
