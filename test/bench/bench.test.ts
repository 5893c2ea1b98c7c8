import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import type { Contender } from '../../bench/contenders/contender.ts';
import { contender as fastFloor } from '../../bench/contenders/fast-floor.ts';
import { contender as fetchFloor } from '../../bench/contenders/fetch-floor.ts';
import { contender as minimal } from '../../bench/contenders/minimal.ts';
import { contender as treadle } from '../../bench/contenders/treadle.ts';
import { wrong, type Check } from '../../bench/measure/check.ts';
import { startServer, type Server } from '../../bench/measure/server.ts';
import { callArguments, words } from '../../bench/server/script.ts';

let server: Server;
beforeAll(async () => {
  server = await startServer();
});
afterAll(() => server.stop());

describe('the check', () => {
  const over = (contender: Contender, check: Check, stream = true): Promise<string | undefined> =>
    wrong(contender, check, { baseURL: server.baseURL, stream });

  describe.for([
    ['treadle', treadle],
    ['the fast floor', fastFloor],
    ['the fetch floor', fetchFloor],
  ] as const)('%s', ([, contender]) => {
    test.for(['chain', 'parallel', 'deltas'] as const)('passes %s over a stream', async (check) => {
      expect(await over(contender, check)).toBeUndefined();
    });

    test.for(['chain', 'parallel'] as const)('passes %s without', async (check) => {
      expect(await over(contender, check, false)).toBeUndefined();
    });
  });

  test.for([
    ['treadle', treadle],
    ['the minimal loop', minimal],
  ] as const)('%s passes with a model in the process', async ([, contender]) => {
    expect(await over(contender, 'in-process')).toBeUndefined();
    expect(await over(contender, 'in-process', false)).toBeUndefined();
  });

  test('finds a contender that drops a call', async () => {
    const drops: Contender = {
      prepare: (task) =>
        fastFloor.prepare({ ...task, step: ({ index }) => (index === 3 ? '' : task.step({ index, note: '' })) }),
    };
    expect(await over(drops, 'parallel')).toBe('3 of 4 calls executed (0, 1, 2)');
  });

  test('finds a contender that keeps only the last of several calls', async () => {
    const keepsLast: Contender = {
      prepare: (task) => fastFloor.prepare({ ...task, step: (input) => (input.index < 3 ? '' : task.step(input)) }),
    };
    expect(await over(keepsLast, 'parallel')).toBe('1 of 4 calls executed (3)');
  });

  test('finds a contender that gives a call other arguments', async () => {
    const changes: Contender = {
      prepare: (task) => fastFloor.prepare({ ...task, step: ({ index }) => task.step({ index, note: 'other' }) }),
    };
    expect(await over(changes, 'chain')).toBe('a call was executed with other arguments');
  });

  test('finds a contender that drops a delta, or turns two around', async () => {
    const hearing = (heard: (text: string, nth: number, hear: (text: string) => void) => void): Contender => ({
      prepare(task) {
        let nth = 0;
        return fastFloor.prepare({ ...task, onDelta: (text) => heard(text, nth++, task.onDelta) });
      },
    });
    const drops = hearing((text, nth, hear) => nth !== 7 && hear(text));
    expect(await over(drops, 'deltas')).toBe('59 of 60 deltas delivered (burst)');
    let kept = '';
    const turns = hearing((text, nth, hear) => {
      if (nth === 3) kept = text;
      else for (const one of nth === 4 ? [text, kept] : [text]) hear(one);
    });
    expect(await over(turns, 'deltas')).toMatch(/^text "wörd0 wörd1 wörd2 wörd4 wörd3/);
  });

  test('says what a contender throws', async () => {
    const throws: Contender = { prepare: () => () => Promise.reject(new Error('no such host\nat a place')) };
    expect(await over(throws, 'chain')).toBe('no such host');
  });
});

describe('the server', () => {
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

  test('speaks the Responses API', async () => {
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

  test('speaks the Messages API', async () => {
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

  test('knows no other place', async () => {
    expect((await fetch(`${server.baseURL}/elsewhere`, { method: 'POST', body: '{}' })).status).toBe(404);
  });
});
