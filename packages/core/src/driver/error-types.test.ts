import { describe, expect, test } from 'vitest';
import { resultsOf } from '../../test/results.ts';
import { memoryJournal } from '../journal/memory.ts';
import { replay } from '../journal/replay.ts';
import type { Event } from '../machine/events.ts';
import { messagesOf } from '../machine/history.ts';
import type { Waiting } from '../machine/state.ts';
import type { ErrorFacts, ToolResult } from '../messages.ts';
import type { Policy } from '../policy/port.ts';
import { manualClock } from '../testing/manual-clock.ts';
import { scriptedModel, type ScriptedCall } from '../testing/scripted-model.ts';
import { tool, type Tool } from '../tools/tool.ts';
import { answer } from './make-answer.ts';
import type { Answer, LoopOptions } from './options.ts';
import { runLoop, streamLoop } from './run.ts';

const named = (execute: () => unknown): readonly Tool[] => [
  tool({ name: 'x', description: 'x', effect: 'pure', execute }),
];

/** The result of one call. */
async function resultOf(
  options: Omit<LoopOptions, 'model' | 'input'>,
  call: ScriptedCall = { name: 'x' },
): Promise<ToolResult> {
  const model = scriptedModel([{ calls: [call] }, 'Continued.', 'Continued.']);
  return resultsOf(await runLoop({ model, input: 'Go.', ...options }))[0]!;
}

const judging = (verdict: ReturnType<Policy['judge']>): Policy => ({ judge: () => verdict });
const INPUT = { type: 'object', properties: { n: { type: 'number' } }, required: ['n'] } as const;

describe('a result from outside', () => {
  const tools = [tool({ name: 'x', description: 'x' })];

  async function answered(given: object): Promise<{ readonly result: ToolResult; readonly events: readonly Event[] }> {
    const options = { journal: memoryJournal(), runId: 'r', tools, maxResultChars: 100 };
    const paused = await runLoop({ ...options, model: scriptedModel([{ calls: [{ name: 'x' }] }]), input: 'Go.' });
    const { effect } = paused.waiting[0]!;
    const answers = [{ type: 'result', effect, content: 'failed', isError: true, ...given } as Answer];
    const done = await runLoop({ ...options, model: scriptedModel(['Continued.']), answers });
    const events = (await options.journal.read('r')).map(({ event }) => event);
    return { result: resultsOf(done)[0]!, events };
  }

  const FACTS = { errorType: 'timeout', exitCode: 124, stderr: 'late', httpStatus: 504, protocolCode: -1 } as const;

  test('has the error facts that it is given with', async () => {
    const { result, events } = await answered(FACTS);
    expect(result).toMatchObject({ isError: true, ...FACTS });
    expect(events.find(({ type }) => type === 'client-result-given')).toMatchObject(FACTS);
    expect((await answered({})).result).toMatchObject({ errorType: 'execution_failed' });
  });

  test('has the images and files that it is given with, and only their own fields', async () => {
    const image = { type: 'image', mediaType: 'image/png', source: { type: 'data', data: 'aGk=' } } as const;
    const file = { type: 'file', mediaType: 'text/plain', name: 'b', source: { type: 'url', url: 'x:b' } } as const;
    const { result } = await answered({ content: [{ ...image, other: 1 }, file], isError: false });
    expect(result.content).toEqual([image, file]);
  });

  test('is cut like that of a tool', async () => {
    const { result } = await answered({ content: 'c'.repeat(500), stderr: 'e'.repeat(500) });
    expect(result.stderr!.length).toBeLessThan(200);
    expect(JSON.stringify(result.content).length).toBeLessThan(300);
  });

  test('answer() makes it of what a tool may return', () => {
    const wait = { type: 'client', effect: 't1.client.0', call: { name: 'x' } } as Waiting;
    expect(answer(wait, { content: 'no', isError: true, exitCode: 2, errorType: 'not_found' })).toMatchObject({
      isError: true,
      exitCode: 2,
      errorType: 'not_found',
    });
    const failed = Object.assign(new Error('gone'), { code: 'ENOENT' });
    expect(answer(wait, failed)).toMatchObject({ isError: true, errorType: 'not_found' });
  });

  test.each([
    ['an error type that there is not', { errorType: 'odd' }, 'no valid "errorType"'],
    ['an exit code that is not a number', { exitCode: '1' }, 'no valid "exitCode"'],
    ['an exit code that is not whole', { exitCode: 0.5 }, 'no valid "exitCode"'],
    ['a stderr that is not a text', { stderr: ['x'] }, 'no valid "stderr"'],
    ['facts of an error without one', { isError: false, exitCode: 1 }, '"isError"'],
    ['a block that is not complete', { content: [{ type: 'image', mediaType: 'image/png' }] }, 'content blocks'],
  ])('with %s is refused', async (_, given, problem) => {
    await expect(answered(given)).rejects.toMatchObject({
      code: 'answer-unfit',
      message: expect.stringContaining(problem),
    });
  });
});

describe('the loop decides the type of an error', () => {
  test.each([
    ['an unknown tool', 'not_found', { tools: [] }],
    ['bad arguments', 'invalid_params', { tools: [tool({ name: 'x', description: 'x', input: INPUT })] }],
    [
      'a tool outside of the allowed set',
      'permission_denied',
      { tools: [...named(() => ''), tool({ name: 'y', description: 'y' })], allowedTools: ['y'] },
    ],
    ['a policy that denies', 'denied', { tools: named(() => ''), policy: judging([{ type: 'deny', reason: 'no' }]) }],
    ['toolChoice none', 'denied', { tools: named(() => ''), toolChoice: 'none' }],
    ['the calls limit', 'denied', { tools: named(() => ''), limits: { calls: 0 } }],
    [
      'a tool that throws',
      'execution_failed',
      {
        tools: named(() => {
          throw new Error('ouch');
        }),
      },
    ],
    ['a tool that returns an error', 'execution_failed', { tools: named(() => ({ content: 'no', isError: true })) }],
  ] as const)('%s: %s', async (_, errorType, options) => {
    expect(await resultOf(options as never)).toMatchObject({ isError: true, errorType });
  });

  test('a timeout, also of a call that may have taken effect: timeout', async () => {
    for (const effect of ['pure', 'once'] as const) {
      const clock = manualClock();
      const slow = tool({ name: 'x', description: 'x', effect, execute: () => new Promise(() => {}) });
      const result = resultOf({ tools: [slow], clock, toolTimeoutMs: 1_000 });
      await clock.advance(1_000);
      expect(await result).toMatchObject({ isError: true, errorType: 'timeout' });
    }
  });

  test('a call without a result when the run is cancelled: interrupted', async () => {
    const never = tool({ name: 'x', description: 'x', execute: () => new Promise(() => {}) });
    const live = streamLoop({ model: scriptedModel([{ calls: [{ name: 'x' }] }]), tools: [never], input: 'Go.' });
    for await (const item of live) if (item.type === 'call-started') live.cancel();
    expect(resultsOf(await live.result)).toMatchObject([{ isError: true, errorType: 'interrupted' }]);
  });

  test('a success has none', async () => {
    expect(await resultOf({ tools: named(() => 'fine') })).not.toHaveProperty('errorType');
  });
});

describe('a tool decides the type of its error', () => {
  const facts: ErrorFacts = {
    errorType: 'permission_denied',
    exitCode: 126,
    stderr: 'not executable',
    httpStatus: 403,
    protocolCode: -32_602,
  };

  test('by what it returns', async () => {
    expect(await resultOf({ tools: named(() => ({ content: 'no', isError: true, ...facts })) })).toMatchObject({
      content: [{ type: 'text', text: 'no' }],
      ...facts,
    });
  });

  test('by properties of what it throws', async () => {
    const tools = named(() => {
      throw Object.assign(new Error('no'), facts);
    });
    expect(await resultOf({ tools })).toMatchObject({
      content: [{ type: 'error', text: 'The tool "x" failed: no' }],
      ...facts,
    });
  });

  test.each([
    ['ENOENT', 'not_found'],
    ['EACCES', 'permission_denied'],
    ['EPERM', 'permission_denied'],
    ['ETIMEDOUT', 'timeout'],
    ['EPIPE', 'execution_failed'],
  ])('by the code of a system error: %s', async (code, errorType) => {
    const tools = named(async () => {
      throw Object.assign(new Error('no'), { code });
    });
    expect(await resultOf({ tools })).toMatchObject({ errorType });
  });

  test('values that are not valid are ignored', async () => {
    const odd = { errorType: 'odd', exitCode: '1', stderr: 7, httpStatus: 4.5, protocolCode: NaN };
    const tools = named(() => {
      throw Object.assign(new Error('no'), odd);
    });
    const result = await resultOf({ tools });
    expect(result).toMatchObject({ errorType: 'execution_failed' });
    expect(result).not.toHaveProperty('exitCode');
    expect(result).not.toHaveProperty('stderr');
    expect(result).not.toHaveProperty('httpStatus');
    expect(result).not.toHaveProperty('protocolCode');
  });

  test('a value that is not an error keeps its other fields as JSON', async () => {
    expect(await resultOf({ tools: named(() => ({ content: 'fine', exitCode: 0 })) })).toMatchObject({
      isError: false,
      content: [{ type: 'text', text: '{"content":"fine","exitCode":0}' }],
    });
  });

  test('a long stderr is cut like a result', async () => {
    const tools = named(() => ({ content: 'no', isError: true, stderr: 'x'.repeat(10_000) }));
    const { stderr } = await resultOf({ tools, maxResultChars: 100 });
    expect(stderr).toMatch(/^x{75}\n\[… 9,900 of 10,000 characters left out …\]\nx{25}$/);
  });
});

test('an exit code other than 0 does not count towards errorLimit', async () => {
  const failing = { calls: [{ name: 'x' }] };
  const run = (exitCode: number) =>
    runLoop({
      model: scriptedModel([failing, failing, failing, 'I give up.']),
      tools: named(() => ({ content: 'no', isError: true, exitCode })),
      errorLimit: 2,
      repeatLimit: 0,
      input: 'Go.',
    });
  expect(await run(1)).toMatchObject({ outcome: { type: 'completed' }, text: 'I give up.' });
  expect(await run(0)).toMatchObject({ outcome: { type: 'exhausted', limit: 'errors' }, turns: 2 });
});

test('a run that was started by an earlier version has no error types in its history', async () => {
  const journal = memoryJournal();
  const model = scriptedModel([{ calls: [{ name: 'none' }] }, 'Continued.']);
  await runLoop({ model, journal, runId: 'run', input: 'Go.' });
  const [first, ...rest] = await journal.read('run');
  if (first?.event.type !== 'run-started') throw new Error('expected the start');
  const { errorTypes: _, ...rules } = first.event.rules;
  const { pinned: __, ...entry } = first;
  const { type, state } = replay([{ ...entry, event: { ...first.event, rules } }, ...rest]);
  expect(type).toBe('replayed');
  expect(JSON.stringify(messagesOf(state.history))).not.toContain('errorType');
});
