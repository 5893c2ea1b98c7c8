/** Properties of streams over random runs, checked on the real server. */
import fc from 'fast-check';
import { expect } from 'vitest';
import type { Script } from '../../provider/provider.ts';
import type { ScriptedReply, Step } from '../../provider/script.ts';
import type { ServerFixture } from './fixture.ts';
import { hangs, interruptedRun, randomConversation, type RandomConversation } from './random-conversations.ts';
import { responsesClient, textIn, type Item, type WireResponse } from './responses-client.ts';
import { modelOf } from './server-process.ts';
import { streamClient, type StreamClient } from './stream-client.ts';
import { validateStream } from './stream-rules.ts';

/** A response, or the HTTP error that replaces it when the model fails before its first output. */
type Result = WireResponse | { readonly errorStatus: number };

/** The client answers calls in at most this many requests. */
const MAX_ROUNDS = 6;

/** The responses are the same streamed, not streamed, fetched, and with a provider that does not stream. */
export function checkSameResponses(fixture: ServerFixture, numRuns: number): Promise<void> {
  return fc.assert(
    fc.asyncProperty(randomConversation, async (conversation) => {
      const streamed = runConversation(fixture, conversation, (body) => respondStreamed(fixture, body));
      const notStreamed = runConversation(fixture, conversation, (body) => respondWhole(fixture, body));
      // Without streaming a fault interrupts the reply at another position.
      const hasFault = conversation.steps.some((step) => 'fault' in step);
      const fromWholeReplies = hasFault
        ? streamed
        : runConversation(fixture, conversation, (body) => respondStreamed(fixture, body), 'whole');
      const [expected, ...others] = await Promise.all([streamed, notStreamed, fromWholeReplies]);
      for (const other of others) expect(other.map(comparable)).toEqual(expected.map(comparable));
    }),
    { numRuns },
  );
}

/** An interrupted run keeps the stream rules, and its stored response is the one that was streamed. */
export function checkInterruptedRuns(fixture: ServerFixture, numRuns: number): Promise<void> {
  return fc.assert(
    fc.asyncProperty(interruptedRun, async (run) => {
      const script = await fixture.provider.script(run.steps);
      const client = streamClient(fixture.server.url, {
        input: 'go',
        ...run.fields,
        model: modelOf(script, run.form),
      });
      await client.started;
      await client.received(1);
      const { id } = client.events[0]!.response!;
      const ready = [client.received(run.after)];
      if (run.tag !== undefined) ready.push(fixture.server.held(run.tag));
      await Promise.race(ready);
      const response =
        run.by === 'cancel' ? await cancelRun(fixture, client, id) : await disconnectFrom(fixture, client, id);
      if (hangs(run)) expect(response.status).toBe('cancelled');
      else expect(['cancelled', 'completed', 'incomplete']).toContain(response.status);
      expect(await fetchResponse(fixture, id)).toEqual(response);
      checkPartialOutput(response, run);
    }),
    { numRuns },
  );
}

async function cancelRun(fixture: ServerFixture, client: StreamClient, id: string): Promise<WireResponse> {
  const answer = await fetch(`${fixture.baseURL}/responses/${id}/cancel`, { method: 'POST' });
  expect(answer.status).toBe(200);
  const response = (await answer.json()) as WireResponse;
  expect(await client.ended).toBe(true);
  expect(validateStream(client.events)).toEqual(response);
  return response;
}

async function disconnectFrom(fixture: ServerFixture, client: StreamClient, id: string): Promise<WireResponse> {
  client.disconnect();
  await client.ended;
  for (const [at, event] of client.events.entries()) expect(event.sequence_number).toBe(at);
  await fixture.provider.quiet();
  return responsesClient(() => fixture.server.url).retrieveEnded(id);
}

/** The output of an interrupted run is a prefix of what the model would have said. */
function checkPartialOutput({ output }: WireResponse, { steps }: RandomConversation): void {
  const scripted = steps.map((step) => ('fault' in step ? step.reply?.text : step.text) ?? '').join('');
  const texts = output.flatMap(({ type, content = [] }) => (type === 'message' ? content : []));
  const received = texts.map(({ text }) => text).join('');
  expect(scripted.startsWith(received)).toBe(true);
  for (const { status } of output) expect(status).not.toBe('in_progress');
}

/** Sends the first request, then answers pending calls until there are none. */
async function runConversation(
  fixture: ServerFixture,
  { form, steps, fields }: RandomConversation,
  respond: (body: object) => Promise<Result>,
  mode: 'stream' | 'whole' = 'stream',
): Promise<readonly Result[]> {
  const script = await fixture.provider.script(steps);
  const common = { ...fields, model: modelOf(script, form, mode) };
  const results: Result[] = [await respond({ ...common, input: 'go' })];
  for (let round = 1; round < MAX_ROUNDS; round++) {
    const last = results.at(-1)!;
    if ('errorStatus' in last || !last.pending_call_ids) break;
    const input = last.pending_call_ids.map((call_id, n) => ({
      type: 'function_call_output',
      call_id,
      output: `#${n}`,
    }));
    results.push(await respond({ ...common, input, previous_response_id: last.id }));
  }
  await checkModelRequests(script, steps, results);
  return results;
}

/** The provider has rejected no request, and the responses contain what the model said. */
async function checkModelRequests(script: Script, steps: readonly Step[], results: readonly Result[]): Promise<void> {
  const requests = await script.requests();
  for (const { refused } of requests) expect(refused).toBeUndefined();
  const responses = results.filter((result) => !('errorStatus' in result));
  checkContent(responses as readonly WireResponse[], steps.slice(0, requests.length));
}

async function respondStreamed(fixture: ServerFixture, body: object): Promise<Result> {
  const client = streamClient(fixture.server.url, body);
  await client.started;
  expect(await client.ended).toBe(true);
  const response = validateStream(client.events);
  expect(await fetchResponse(fixture, response.id)).toEqual(response);
  return response;
}

async function respondWhole(fixture: ServerFixture, body: object): Promise<Result> {
  const answer = await fetch(`${fixture.baseURL}/responses`, {
    method: 'POST',
    headers: { 'content-type': 'application/json' },
    body: JSON.stringify(body),
  });
  const response = (await answer.json()) as WireResponse;
  if (answer.status !== 200) return { errorStatus: answer.status };
  expect(await fetchResponse(fixture, response.id)).toEqual(response);
  return response;
}

async function fetchResponse(fixture: ServerFixture, id: string): Promise<WireResponse> {
  const answer = await fetch(`${fixture.baseURL}/responses/${id}`);
  expect(answer.status).toBe(200);
  return (await answer.json()) as WireResponse;
}

/** A failed response without output in a stream corresponds to an HTTP error without streaming. */
function comparable(result: Result): unknown {
  if ('errorStatus' in result) return 'failed';
  const { status, output } = result;
  return status === 'failed' && output.length === 0 ? 'failed' : withoutVariableParts(result);
}

/** The response without ids, times and the name of the script. */
function withoutVariableParts(response: WireResponse): unknown {
  const json = JSON.stringify(response, (key, value: unknown) => {
    if (key === 'created_at' || key === 'completed_at') return value === null ? null : 'a time';
    if (key === 'encrypted_content') return 'a signature';
    // Some messages quote the provider, with its ids.
    if (key === 'message') return String(value).replace(/(?<=is not JSON: ).*$/s, '…');
    return key === 'model' ? 'a model' : value;
  });
  return JSON.parse(json.replaceAll(/[0-9a-f]{32}/g, 'id').replaceAll(/\/s\d+\//g, '/script/')) as unknown;
}

/** The responses contain each text, each call and the usage of the given steps exactly once. */
function checkContent(responses: readonly WireResponse[], steps: readonly Step[]): void {
  if (steps.some((step) => 'fault' in step || step.finish === 'length' || step.finish === 'content-filter')) return;
  const replies = steps as readonly ScriptedReply[];
  expect(responses.map(textIn).join('')).toBe(replies.map(({ text = '' }) => text).join(''));
  const items = responses.flatMap(({ output }) => output);
  const callItems = items.filter(({ type }) => type.endsWith('_call'));
  const scriptedCalls = replies.flatMap(({ calls = [] }) => calls);
  expect(callItems.map(callText).sort()).toEqual(scriptedCalls.map(callText).sort());
  for (const item of callItems) checkCall(item);
  const usages = replies.map(({ usage = { input: 20, output: 10 } }) => usage);
  const sum = (pick: (response: WireResponse) => number): number => responses.reduce((all, one) => all + pick(one), 0);
  expect(sum(({ usage }) => usage!.input_tokens)).toBe(usages.reduce((all, { input }) => all + input, 0));
  expect(sum(({ usage }) => usage!.output_tokens)).toBe(usages.reduce((all, { output }) => all + output, 0));
}

function checkCall({ type, name, arguments: json, status, output }: Item): void {
  const isClients = name === 'ask_user' || name === 'pay';
  if (type === 'function_call') expect(isClients).toBe(true);
  // A call of the client's functions is an mcp_call only if it was rejected.
  else if (isClients || name === 'fail' || name === 'ghost') expect(status).not.toBe('completed');
  else if (status === 'completed') {
    const { a, b } = JSON.parse(json!) as { readonly a: number; readonly b: number };
    expect(output).toBe(String(a + b));
  }
}

function callText({ name, arguments: json }: Pick<Item, 'name' | 'arguments'>): string {
  return `${name} ${json}`;
}
