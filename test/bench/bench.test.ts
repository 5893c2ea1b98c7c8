import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import type { Contender } from '../../bench/contenders/contender.ts';
import { contender as fastFloor } from '../../bench/contenders/fast-floor.ts';
import { contender as fetchFloor } from '../../bench/contenders/fetch-floor.ts';
import { contender as minimal } from '../../bench/contenders/minimal.ts';
import { contender as treadle } from '../../bench/contenders/treadle.ts';
import { problemOf, type Check } from '../../bench/measure/check.ts';
import { startServer, type Server } from '../../bench/measure/server.ts';
import { callArguments, words } from '../../bench/server/script.ts';

let server: Server;
beforeAll(async () => {
  server = await startServer();
});
afterAll(() => server.stop());

describe('the check of contenders', () => {
  const problem = (contender: Contender, check: Check, stream = true): Promise<string | undefined> =>
    problemOf(contender, check, { baseURL: server.baseURL, stream });

  describe.for([
    ['treadle', treadle],
    ['the fast floor', fastFloor],
    ['the fetch floor', fetchFloor],
  ] as const)('%s', ([, contender]) => {
    test.for(['chain', 'parallel', 'deltas'] as const)('passes the check %s with streaming', async (check) => {
      expect(await problem(contender, check)).toBeUndefined();
    });

    test.for(['chain', 'parallel'] as const)('passes the check %s without streaming', async (check) => {
      expect(await problem(contender, check, false)).toBeUndefined();
    });
  });

  test.for([
    ['treadle', treadle],
    ['the minimal loop', minimal],
  ] as const)('%s passes the check with an in-process model', async ([, contender]) => {
    expect(await problem(contender, 'in-process')).toBeUndefined();
    expect(await problem(contender, 'in-process', false)).toBeUndefined();
  });

  test('detects a contender that drops a call', async () => {
    const drops: Contender = {
      prepare: (task) =>
        fastFloor.prepare({ ...task, step: ({ index }) => (index === 3 ? '' : task.step({ index, note: '' })) }),
    };
    expect(await problem(drops, 'parallel')).toBe('3 of 4 calls executed (0, 1, 2)');
  });

  test('detects a contender that executes only the last of several calls', async () => {
    const keepsLast: Contender = {
      prepare: (task) => fastFloor.prepare({ ...task, step: (input) => (input.index < 3 ? '' : task.step(input)) }),
    };
    expect(await problem(keepsLast, 'parallel')).toBe('1 of 4 calls executed (3)');
  });

  test('detects a contender that changes the arguments of a call', async () => {
    const changes: Contender = {
      prepare: (task) => fastFloor.prepare({ ...task, step: ({ index }) => task.step({ index, note: 'other' }) }),
    };
    expect(await problem(changes, 'chain')).toBe('a call was executed with wrong arguments');
  });

  test('detects a contender that drops a delta or swaps two deltas', async () => {
    const changing = (change: (text: string, nth: number, emit: (text: string) => void) => void): Contender => ({
      prepare(task) {
        let nth = 0;
        return fastFloor.prepare({ ...task, onDelta: (text) => change(text, nth++, task.onDelta) });
      },
    });
    const drops = changing((text, nth, emit) => nth !== 7 && emit(text));
    expect(await problem(drops, 'deltas')).toBe('59 of 60 deltas delivered (burst)');
    let third = '';
    const swaps = changing((text, nth, emit) => {
      if (nth === 3) third = text;
      else for (const one of nth === 4 ? [text, third] : [text]) emit(one);
    });
    expect(await problem(swaps, 'deltas')).toMatch(/^text "wörd0 wörd1 wörd2 wörd4 wörd3/);
  });

  test('reports the error that a contender throws', async () => {
    const throws: Contender = { prepare: () => () => Promise.reject(new Error('no such host\nat line 1')) };
    expect(await problem(throws, 'chain')).toBe('no such host');
  });
});

describe('the scripted model', () => {
  const post = async (path: string, body: object): Promise<string> => {
    const response = await fetch(server.baseURL + path, { method: 'POST', body: JSON.stringify(body) });
    expect(response.status).toBe(200);
    return response.text();
  };
  const events = async (path: string, model: string): Promise<Record<string, unknown>[]> =>
    (await post(path, { model, stream: true }))
      .split('\n\n')
      .filter((frame) => frame.includes('data: {'))
      .map((frame) => JSON.parse(frame.slice(frame.indexOf('data: ') + 6)) as Record<string, unknown>);

  test('implements the Responses API', async () => {
    const calls = await events('/responses', 'parallel:2');
    expect(calls.map(({ sequence_number: n }) => n)).toEqual(calls.keys().toArray());
    const done = calls.filter(({ type }) => type === 'response.function_call_arguments.done');
    expect(done.map((event) => event['arguments'])).toEqual([callArguments(0), callArguments(1)]);
    const text = await events('/responses', 'text:3');
    expect(text.map(({ type }) => type)).toEqual([
      'response.created',
      'response.in_progress',
      'response.output_item.added',
      'response.content_part.added',
      ...Array.from({ length: 3 }, () => 'response.output_text.delta'),
      'response.output_text.done',
      'response.content_part.done',
      'response.output_item.done',
      'response.completed',
    ]);
    expect(text.map(({ delta }) => delta ?? '').join('')).toBe(words(3));
    const whole = JSON.parse(await post('/responses', { model: 'chain:1' })) as { output: object[] };
    expect(whole.output).toMatchObject([{ type: 'function_call', name: 'step', arguments: callArguments(0) }]);
  });

  test('implements the Messages API', async () => {
    const calls = await events('/messages', 'parallel:2');
    const pieces = (index: number): string =>
      calls
        .map((event) =>
          event['index'] === index ? ((event['delta'] as { partial_json?: string })?.partial_json ?? '') : '',
        )
        .join('');
    expect([pieces(0), pieces(1)]).toEqual([callArguments(0), callArguments(1)]);
    const text = await events('/messages', 'text:2');
    expect(text.map(({ type }) => type)).toEqual([
      'message_start',
      'ping',
      'content_block_start',
      'content_block_delta',
      'content_block_delta',
      'content_block_stop',
      'message_delta',
      'message_stop',
    ]);
    const history = [{ role: 'user', content: [{ type: 'tool_result', tool_use_id: 'a', content: 'b' }] }];
    const whole = JSON.parse(await post('/messages', { model: 'chain:1', messages: history })) as object;
    expect(whole).toMatchObject({ stop_reason: 'end_turn', content: [{ type: 'text', text: words(1) }] });
  });

  test('answers other paths with 404', async () => {
    expect((await fetch(`${server.baseURL}/elsewhere`, { method: 'POST', body: '{}' })).status).toBe(404);
  });
});
