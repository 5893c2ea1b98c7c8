import OpenAI, {
  APIError,
  APIUserAbortError,
  BadRequestError,
  ConflictError,
  InternalServerError,
  NotFoundError,
  RateLimitError,
} from 'openai';
import { zodResponsesFunction, zodTextFormat } from 'openai/helpers/zod';
import type { Response, ResponseInput, ResponseStreamEvent } from 'openai/resources/responses/responses';
import { describe, expect, test } from 'vitest';
import { z } from 'zod';
import { call, SERVER_TOOLS, useServerFixture } from '../support/fixture.ts';
import { responsesClient } from '../support/responses-client.ts';

const fixture = useServerFixture();
const client = (): OpenAI => new OpenAI({ baseURL: fixture.baseURL, apiKey: 'any', maxRetries: 0 });

describe('a response', () => {
  test('has a text and usage, and echoes the request', async () => {
    const script = await fixture.script({ text: 'Hello there.', usage: { input: 7, output: 3, cached: 2 } });
    const response = await client().responses.create({
      model: script.model,
      instructions: 'Be brief.',
      input: 'Hi',
      metadata: { who: 'me' },
      temperature: 0.5,
    });
    expect(response).toMatchObject({
      status: 'completed',
      output_text: 'Hello there.',
      model: script.model,
      metadata: { who: 'me' },
      instructions: 'Be brief.',
      usage: { input_tokens: 7, output_tokens: 3, total_tokens: 10, input_tokens_details: { cached_tokens: 2 } },
    });
    expect(response._request_id).toEqual(expect.any(String));
    expect(await script.conversations()).toEqual([['system: Be brief.', 'user: Hi']]);
    expect((await script.bodies())[0]).toMatchObject({ temperature: 0.5 });
  });

  test('has a refusal and the reasoning itself as the provider sends them', async () => {
    const script = await fixture.script({ reasoning: 'Not this.', refusal: 'I cannot help.' }, { text: 'Bye.' });
    const stream = client().responses.stream({ model: script.model, input: 'Hi' });
    const pieces = { refusal: '', reasoning: '' };
    stream.on('response.refusal.delta', ({ delta }) => (pieces.refusal += delta));
    stream.on('response.reasoning_text.delta', ({ delta }) => (pieces.reasoning += delta));
    const { id, output, output_text } = await stream.finalResponse();
    expect(pieces).toEqual({ refusal: 'I cannot help.', reasoning: 'Not this.' });
    expect(output_text).toBe('');
    expect(output).toMatchObject([
      { type: 'reasoning', summary: [], content: [{ type: 'reasoning_text', text: 'Not this.' }] },
      { type: 'message', content: [{ type: 'refusal', refusal: 'I cannot help.' }] },
    ]);
    await client().responses.create({ model: script.model, previous_response_id: id, input: 'Bye' });
    expect((await script.conversations()).at(-1)).toEqual(['user: Hi', 'assistant: I cannot help.', 'user: Bye']);
  });

  test('with a call without arguments can be parsed', async () => {
    const script = await fixture.script({ calls: [{ name: 'now', arguments: '' }] });
    const now = zodResponsesFunction({ name: 'now', parameters: z.object({}) });
    const response = await client().responses.parse({ model: script.model, input: 'Hi', tools: [now] });
    expect(response.output).toMatchObject([{ type: 'function_call', arguments: '{}', parsed_arguments: {} }]);
  });

  test('is the same streamed, fetched and not streamed', async () => {
    const steps = [
      { reasoning: 'Hm.', text: 'I add.', calls: [call('add', { a: 2, b: 3 })] },
      { text: 'It is five, I think.' },
    ];
    const [one, other] = [await fixture.script(...steps), await fixture.script(...steps)];
    const request = { input: 'Add 2 and 3', tools: [SERVER_TOOLS] };
    const whole = await client().responses.create({ ...request, model: one.model });
    const stream = client().responses.stream({ ...request, model: other.model });
    const deltas: string[] = [];
    stream.on('response.output_text.delta', ({ delta }) => deltas.push(delta));
    const streamed = await stream.finalResponse();
    expect(deltas.join('')).toBe('I add.It is five, I think.');
    expect(deltas.length).toBeGreaterThan(3);
    const fetched = await client().responses.retrieve(streamed.id);
    expect(withoutRequest(fetched)).toEqual(withoutRequest(streamed));
    expect(comparable(whole)).toEqual(comparable(streamed));
    expect(await one.conversations()).toEqual(await other.conversations());
  });

  test('accepts images, files and messages of all roles as input', async () => {
    const script = await fixture.script({ text: 'A cat.' });
    const input: ResponseInput = [
      { role: 'developer', content: 'Look closely.' },
      { role: 'user', content: 'Hello' },
      { role: 'assistant', content: 'Hello to you.' },
      {
        role: 'user',
        content: [
          { type: 'input_text', text: 'What is this?' },
          { type: 'input_image', image_url: 'data:image/png;base64,AAAA', detail: 'auto' },
          { type: 'input_file', filename: 'a.pdf', file_data: 'data:application/pdf;base64,AAAA' },
        ],
      },
    ];
    const response = await client().responses.create({ model: script.model, input });
    expect(response.output_text).toBe('A cat.');
    const [{ messages } = { messages: [] }] = await script.bodies();
    expect(messages.map(({ role }) => role)).toEqual(['system', 'user', 'assistant', 'user']);
    expect(messages[3]!.content).toMatchObject([
      { type: 'text', text: 'What is this?' },
      { type: 'image_url', image_url: { url: 'data:image/png;base64,AAAA' } },
      { type: 'file', file: { filename: 'a.pdf', file_data: 'data:application/pdf;base64,AAAA' } },
    ]);
  });

  test('is incomplete when the reply is truncated', async () => {
    const script = await fixture.script({ text: 'And so on and', finish: 'length' });
    const response = await client().responses.create({ model: script.model, input: 'Tell', max_output_tokens: 16 });
    expect(response).toMatchObject({
      status: 'incomplete',
      incomplete_details: { reason: 'max_output_tokens' },
      output_text: 'And so on and',
    });
  });

  test('uses a model that can be retrieved and listed', async () => {
    const script = await fixture.script();
    expect(await client().models.retrieve(script.model)).toMatchObject({ id: script.model, object: 'model' });
    const models = await client().models.list();
    expect(models.object).toBe('list');
  });
});

describe('structured output', () => {
  const Person = z.object({ name: z.string(), age: z.number() });

  test('is parsed by zod', async () => {
    const script = await fixture.script({ text: '{"name":"Ada","age":36}' });
    const response = await client().responses.parse({
      model: script.model,
      input: 'Who?',
      text: { format: zodTextFormat(Person, 'person') },
    });
    expect(response.output_parsed).toEqual({ name: 'Ada', age: 36 });
    expect(response.text?.format).toMatchObject({ type: 'json_schema', name: 'person', strict: true });
    expect((await script.bodies())[0]!['response_format']).toMatchObject({
      type: 'json_schema',
      json_schema: { schema: { type: 'object', required: ['name', 'age'] } },
    });
  });

  describe('that is strict', () => {
    const Person = z.object({ name: z.string().regex(/^A/), age: z.number() });
    const format = zodTextFormat(Person, 'person');
    const request = { input: 'Who?', text: { format } };

    test('is repaired once, and only the valid answer is shown', async () => {
      const script = await fixture.script(
        { text: '{"name":"Bob"}' },
        { text: '{"name":"Ada","age":36}' },
        { text: 'So.' },
      );
      const response = await client().responses.parse({ ...request, model: script.model });
      expect(response).toMatchObject({ status: 'completed', output_parsed: { name: 'Ada', age: 36 } });
      expect(response.output_text).toBe('{"name":"Ada","age":36}');
      const [, repaired] = await script.conversations();
      expect(repaired!.slice(-2)).toEqual([
        'assistant: {"name":"Bob"}',
        expect.stringMatching(/^user: .*missing "age".*does not match pattern/),
      ]);
      const stored = await client().responses.retrieve(response.id);
      expect(stored.output).toHaveLength(1);
    });

    test('fails with output_invalid if the second answer is not valid either', async () => {
      const script = await fixture.script({ text: 'Ada, 36' }, { text: '```json\n{"name":"Ada","age":36}\n```' });
      const response = await client().responses.create({ ...request, model: script.model });
      expect(response).toMatchObject({
        status: 'failed',
        error: { code: 'output_invalid', message: expect.stringContaining('it is not JSON') },
      });
      expect(response.output_text).toContain('```json');
      expect(await script.bodies()).toHaveLength(2);
    });

    test('fails with output_invalid in a stream, without a second attempt', async () => {
      const script = await fixture.script({ text: '{"name":"Bob","age":1}' });
      const stream = await client().responses.create({ ...request, model: script.model, stream: true });
      const read = (async () => {
        for await (const _ of stream);
      })();
      await expect(read).rejects.toThrow(/does not match its schema: name: String does not match pattern/);
      expect(await script.bodies()).toHaveLength(1);

      const again = await fixture.script({ text: '{"name":"Bob","age":1}' });
      const { events, response } = await responsesClient(() => fixture.server.url).stream({
        ...request,
        model: again.model,
      });
      expect(events.map(({ type }) => type)).toContain('response.output_text.delta');
      expect(events.at(-1)!.type).toBe('response.failed');
      expect(response).toMatchObject({
        status: 'failed',
        error: { code: 'output_invalid' },
        output: [{ status: 'completed', content: [{ text: '{"name":"Bob","age":1}' }] }],
      });
    });

    test('may be a refusal or cut off', async () => {
      const refused = await fixture.script({ refusal: 'No.' }, { refusal: 'No.' });
      const response = await client().responses.parse({ ...request, model: refused.model });
      expect(response).toMatchObject({ status: 'completed', output: [{ content: [{ refusal: 'No.' }] }] });
      const streamed = client().responses.stream({ ...request, model: refused.model });
      expect(await streamed.finalResponse()).toMatchObject({ status: 'completed' });
      const cut = await fixture.script({ text: '{"name":"A', finish: 'length' });
      expect(await client().responses.create({ ...request, model: cut.model })).toMatchObject({
        status: 'incomplete',
        incomplete_details: { reason: 'max_output_tokens' },
        output_text: '{"name":"A',
      });
    });
  });

  test('is parsed in a stream after a turn with server tools', async () => {
    const script = await fixture.script(
      { text: 'I have to add.', calls: [call('add', { a: 30, b: 6 })] },
      { text: '{"name":"Ada","age":36}' },
    );
    const stream = client().responses.stream({
      model: script.model,
      input: 'Who?',
      tools: [SERVER_TOOLS],
      text: { format: zodTextFormat(z.object({ name: z.string(), age: z.number() }), 'person') },
    });
    const response = await stream.finalResponse();
    expect(response.output.at(-1)).toMatchObject({ content: [{ parsed: { name: 'Ada', age: 36 } }] });
    expect(await script.bodies()).toMatchObject([
      { response_format: { type: 'json_schema' } },
      { response_format: { type: 'json_schema' } },
    ]);
  });
});

describe('a stored response', () => {
  test('lists its input items in pages', async () => {
    const script = await fixture.script({ text: 'Well.' });
    const texts = Array.from({ length: 7 }, (_, index) => `part ${index}`);
    const { id } = await client().responses.create({
      model: script.model,
      input: texts.map((content) => ({ role: 'user' as const, content })),
    });
    const seen: string[] = [];
    for await (const item of client().responses.inputItems.list(id, { limit: 3, order: 'asc' })) {
      if (item.type === 'message' && item.content[0]?.type === 'input_text') seen.push(item.content[0].text);
    }
    expect(seen).toEqual(texts);
    const page = await client().responses.inputItems.list(id, { limit: 3 });
    expect(page.data).toHaveLength(3);
    expect(page.hasNextPage()).toBe(true);
    const last = await (await page.getNextPage()).getNextPage();
    expect(last.data).toMatchObject([{ content: [{ text: 'part 0' }] }]);
    expect(last.hasNextPage()).toBe(false);
    // Consecutive messages of one role are merged, because models require alternating roles.
    expect(await script.conversations()).toEqual([[`user: ${texts.join('\n\n')}`]]);
  });

  test('can be streamed again, but only a background response after a number', async () => {
    const script = await fixture.script({ text: 'Well.' });
    const { id, output } = await client().responses.create({ model: script.model, input: 'Hi' });
    const repeated = await client().responses.stream({ response_id: id }).finalResponse();
    expect(repeated).toMatchObject({ id, status: 'completed', output });
    const continued = client().responses.retrieve(id, { stream: true, starting_after: 1 });
    await expect(continued).rejects.toMatchObject({ status: 400, param: 'starting_after', code: 'stream_not_stored' });
  });

  test('can be deleted', async () => {
    const script = await fixture.script({ text: 'Well.' });
    const { id } = await client().responses.create({ model: script.model, input: 'Hi' });
    await client().responses.delete(id);
    await expect(client().responses.retrieve(id)).rejects.toThrow(NotFoundError);
    await expect(client().responses.delete(id)).rejects.toThrow(NotFoundError);
  });

  test('can be retrieved but not continued while it runs', async () => {
    const script = await fixture.script({ text: 'Wait.', calls: [call('hold', { tag: 'seen' })] }, { text: 'Done.' });
    const stream = client().responses.stream({ model: script.model, input: 'Go', tools: [SERVER_TOOLS] });
    const { id } = (await stream.emitted('response.created')).response;
    await fixture.server.held('seen');
    expect(await client().responses.retrieve(id)).toMatchObject({
      id,
      status: 'in_progress',
      output: [
        { type: 'message', content: [{ text: 'Wait.' }] },
        { type: 'mcp_call', name: 'hold', status: 'in_progress' },
      ],
    });
    const early = client().responses.create({ model: script.model, input: 'And?', previous_response_id: id });
    await expect(early).rejects.toThrow(ConflictError);
    fixture.server.release('seen');
    expect((await stream.finalResponse()).output_text).toBe('Wait.Done.');
    expect((await client().responses.retrieve(id)).status).toBe('completed');
  });

  test('that reached the turn limit can be continued', async () => {
    const turns = Array.from({ length: 10 }, (_, a) => ({ calls: [call('add', { a, b: 1 })] }));
    const script = await fixture.script(...turns, { text: 'At last.' });
    const first = await client().responses.create({ model: script.model, input: 'Go', tools: [SERVER_TOOLS] });
    expect(first).toMatchObject({ status: 'incomplete', incomplete_details: { reason: 'max_turns' } });
    expect(first.output).toHaveLength(10);
    const second = await client().responses.create({
      model: script.model,
      input: 'Go on',
      tools: [SERVER_TOOLS],
      previous_response_id: first.id,
    });
    expect(second.output_text).toBe('At last.');
    const conversation = (await script.conversations())[10]!;
    expect(conversation.slice(-3)).toEqual(['assistant: [10] add {"a":9,"b":1}', 'tool: [10] 10', 'user: Go on']);
    expect(conversation).toHaveLength(22);
  });

  test('can be cancelled while it runs', async () => {
    const script = await fixture.script({ calls: [call('hold', { tag: 'cancel' })] });
    const stream = client().responses.stream({ model: script.model, input: 'Go', tools: [SERVER_TOOLS] });
    const created = await stream.emitted('response.created').then(({ response }) => response);
    await fixture.server.held('cancel');
    const cancelled = await client().responses.cancel(created.id);
    expect(cancelled.status).toBe('cancelled');
    const final = await stream.finalResponse();
    expect([final.status, final.output[0]]).toMatchObject(['cancelled', { type: 'mcp_call', status: 'failed' }]);
    expect((await client().responses.retrieve(created.id)).status).toBe('cancelled');
  });

  test('is cancelled when the client aborts its stream', async () => {
    const script = await fixture.script({ fault: 'stall', reply: { text: 'Once upon a time there was a queen.' } });
    const stream = client().responses.stream({ model: script.model, input: 'Tell' });
    const [{ response: created }] = await Promise.all([
      stream.emitted('response.created'),
      stream.emitted('response.output_text.delta'),
    ]);
    stream.abort();
    await expect(stream.done()).rejects.toThrow(APIUserAbortError);
    await fixture.provider.quiet();
    expect((await client().responses.cancel(created.id)).status).toBe('cancelled');
  });
});

describe('errors are exceptions of the matching class', () => {
  test('a bad request', async () => {
    const failure = client().responses.create({ model: 'none', input: 5 as unknown as string });
    await expect(failure).rejects.toThrow(BadRequestError);
    await expect(failure).rejects.toMatchObject({ status: 400, param: 'input', type: 'invalid_request_error' });
  });

  test('an endpoint that the server does not have', async () => {
    const failure = client().embeddings.create({ model: 'any', input: 'Hi' });
    await expect(failure).rejects.toThrow(NotFoundError);
    await expect(failure).rejects.toThrow('/v1/embeddings');
  });

  test('an unknown model', async () => {
    const failure = client().responses.create({ model: 'none', input: 'Hi' });
    await expect(failure).rejects.toThrow(NotFoundError);
    await expect(failure).rejects.toMatchObject({ code: 'model_not_found', param: 'model' });
  });

  test.each([{ stream: true }, { stream: false }])('before the first event, with %j', async ({ stream }) => {
    const failure = client().responses.create({ model: 'none', input: 'Hi', stream });
    await expect(failure).rejects.toThrow(NotFoundError);
  });

  test('an unknown previous response', async () => {
    const script = await fixture.script({ text: 'Well.' });
    const failure = client().responses.create({ model: script.model, input: 'Hi', previous_response_id: 'resp_no' });
    await expect(failure).rejects.toMatchObject({ status: 400, code: 'previous_response_not_found' });
  });

  test('a rate limit of the provider, which the client retries', async () => {
    const script = await fixture.script({ fault: 'status', status: 429, retryAfter: 0 }, { text: 'Now.' });
    const retryingClient = new OpenAI({ baseURL: fixture.baseURL, apiKey: 'any', maxRetries: 1 });
    expect((await retryingClient.responses.create({ model: script.model, input: 'Hi' })).output_text).toBe('Now.');
    await script.add({ fault: 'status', status: 429, retryAfter: 3 });
    const failure = client().responses.create({ model: script.model, input: 'Hi' });
    await expect(failure).rejects.toThrow(RateLimitError);
    await expect(failure).rejects.toMatchObject({ status: 429, code: 'rate_limit_exceeded' });
    const { headers } = (await failure.catch((error: unknown) => error)) as RateLimitError;
    expect(headers.get('retry-after')).toBe('3');
  });

  test('a failing provider', async () => {
    const script = await fixture.script({ fault: 'status', status: 500 });
    const failure = client().responses.create({ model: script.model, input: 'Hi' });
    await expect(failure).rejects.toThrow(InternalServerError);
  });

  test('a failure in the middle of a stream, whose earlier output is kept', async () => {
    const script = await fixture.script(
      { calls: [call('add', { a: 1, b: 2 })] },
      { fault: 'error-in-stream', reply: { text: 'A long story that has no end.' } },
    );
    const events = await client().responses.create({
      model: script.model,
      input: 'Hi',
      tools: [SERVER_TOOLS],
      stream: true,
    });
    const received: ResponseStreamEvent[] = [];
    const reading = (async () => {
      for await (const event of events) received.push(event);
    })();
    await expect(reading).rejects.toThrow(APIError);
    await expect(reading).rejects.toMatchObject({ code: 'server_error', message: expect.stringContaining('error') });
    const created = received.find((event) => event.type === 'response.created')!.response;
    // The client throws at the error event, before the response has ended.
    await responsesClient(() => fixture.server.url).retrieveEnded(created.id);
    const failed = await client().responses.retrieve(created.id);
    expect(failed).toMatchObject({
      status: 'failed',
      error: { code: 'server_error' },
      output: [
        { type: 'mcp_call', output: '3' },
        { type: 'message', status: 'incomplete', content: [{ text: expect.stringMatching(/^A long/) }] },
      ],
    });
    await script.add({ text: 'The end.' });
    const next = await client().responses.create({
      model: script.model,
      previous_response_id: failed.id,
      input: 'And?',
    });
    expect(next.output_text).toBe('The end.');
    expect((await script.conversations())[2]).toEqual([
      'user: Hi',
      'assistant: [1] add {"a":1,"b":2}',
      'tool: [1] 3',
      'user: And?',
    ]);
  });
});

/** The response without the fields that the client library adds. */
function withoutRequest(response: object): unknown {
  const added = ['_request_id', 'parsed', 'output_parsed'];
  return JSON.parse(JSON.stringify(response, (key, field: unknown) => (added.includes(key) ? undefined : field)));
}

/** The response without the parts that differ between two equal runs. */
function comparable(response: Response): unknown {
  const own = response.id.slice('resp_'.length);
  const text = JSON.stringify(withoutRequest({ ...response, model: '', created_at: 0, completed_at: 0 }));
  return JSON.parse(text.replaceAll(own, 'id')) as unknown;
}
