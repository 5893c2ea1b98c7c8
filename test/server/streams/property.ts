/** The stream rules over random runs, on the real server. */
import fc from 'fast-check';
import { expect } from 'vitest';
import type { Script } from '../../provider/provider.ts';
import type { Stage } from '../clients/stage.ts';
import type { WireResponse } from '../open-responses/asking.ts';
import { checkedStream } from '../open-responses/stream-rules.ts';
import { modelOf } from '../process/start.ts';
import { streamClient } from './client.ts';
import { ended } from './crowds.ts';
import { checkContent, plain } from './told.ts';
import { cutWorld, isStuck, world, type World } from './worlds.ts';

/** A response, or the error that stands for one: the model failed before it had said anything. */
type Answered = WireResponse | { readonly refused: number };

/** As many follow-ups as a client gives, if the run pauses so often. */
const MOST_ROUNDS = 6;

/** A conversation is the same streamed and not, fetched afterwards, and with a provider that does not stream. */
export function sameHoweverAsked(stage: Stage, numRuns: number): Promise<void> {
  return fc.assert(
    fc.asyncProperty(world, async (given) => {
      const streamed = await conversation(stage, given, (body) => streamedWhole(stage, body));
      const whole = await conversation(stage, given, (body) => notStreamed(stage, body));
      expect(whole.map(comparable)).toEqual(streamed.map(comparable));
      // A fault breaks an answer at another place when it does not come in pieces.
      if (given.steps.some((step) => 'fault' in step)) return;
      const inOnePiece = await conversation(stage, given, (body) => streamedWhole(stage, body), 'whole');
      expect(inOnePiece.map(comparable)).toEqual(streamed.map(comparable));
    }),
    { numRuns },
  );
}

/** Whoever cancels, and however, the stream keeps the rules, and what is kept of it is what was told. */
export function keptWhenCut(stage: Stage, numRuns: number): Promise<void> {
  return fc.assert(
    fc.asyncProperty(cutWorld, async (given) => {
      const script = await stage.provider.script(given.steps);
      const client = streamClient(stage.server.url, {
        input: 'go',
        ...given.asked,
        model: modelOf(script, given.form),
      });
      await client.begun;
      await client.reached(1);
      const { id } = client.events[0]!.response!;
      const enough = [client.reached(given.after)];
      if (given.tag !== undefined) enough.push(stage.server.held(given.tag));
      await Promise.race(enough);
      const kept = given.by === 'cancel' ? await cancelled(stage, client, id) : await leftAlone(stage, client, id);
      if (isStuck(given)) expect(kept.status).toBe('cancelled');
      else expect(['cancelled', 'completed', 'incomplete']).toContain(kept.status);
      expect(await fetched(stage, id)).toEqual(kept);
      checkPart(kept, given);
    }),
    { numRuns },
  );
}

async function cancelled(stage: Stage, client: ReturnType<typeof streamClient>, id: string): Promise<WireResponse> {
  const answer = await fetch(`${stage.baseURL}/responses/${id}/cancel`, { method: 'POST' });
  expect(answer.status).toBe(200);
  const kept = (await answer.json()) as WireResponse;
  expect(await client.over).toBe(true);
  expect(checkedStream(client.events)).toEqual(kept);
  return kept;
}

async function leftAlone(stage: Stage, client: ReturnType<typeof streamClient>, id: string): Promise<WireResponse> {
  client.vanish();
  await client.over;
  for (const [at, event] of client.events.entries()) expect(event.sequence_number).toBe(at);
  await stage.provider.quiet();
  return ended(stage, id);
}

/** What is there of a run that was cut off is a beginning of what it would have said. */
function checkPart({ output }: WireResponse, { steps }: World): void {
  const said = steps.map((step) => ('fault' in step ? step.reply?.text : step.text) ?? '').join('');
  const heard = output.flatMap(({ content = [] }) => content.map(({ text }) => text)).join('');
  expect(said.startsWith(heard)).toBe(true);
  for (const { status } of output) expect(status).not.toBe('in_progress');
}

/** Asks, answers the calls that come back, and so on until there are none. */
async function conversation(
  stage: Stage,
  { form, steps, asked }: World,
  ask: (body: object) => Promise<Answered>,
  how: 'stream' | 'whole' = 'stream',
): Promise<readonly Answered[]> {
  const script = await stage.provider.script(steps);
  const fixed = { ...asked, model: modelOf(script, form, how) };
  const answers: Answered[] = [await ask({ ...fixed, input: 'go' })];
  for (let round = 1; round < MOST_ROUNDS; round++) {
    const last = answers.at(-1)!;
    if ('refused' in last || !last.pending_call_ids) break;
    const input = last.pending_call_ids.map((call_id, n) => ({
      type: 'function_call_output',
      call_id,
      output: `#${n}`,
    }));
    answers.push(await ask({ ...fixed, input, previous_response_id: last.id }));
  }
  await checkAsked(script, steps, answers);
  return answers;
}

/** The provider has refused nothing, and what it said is what the responses say. */
async function checkAsked(script: Script, steps: World['steps'], answers: readonly Answered[]): Promise<void> {
  const requests = await script.requests();
  for (const { refused } of requests) expect(refused).toBeUndefined();
  const responses = answers.filter((answer) => !('refused' in answer));
  checkContent(responses as readonly WireResponse[], steps.slice(0, requests.length));
}

async function streamedWhole(stage: Stage, body: object): Promise<Answered> {
  const client = streamClient(stage.server.url, body);
  await client.begun;
  expect(await client.over).toBe(true);
  const response = checkedStream(client.events);
  expect(await fetched(stage, response.id)).toEqual(response);
  return response;
}

async function notStreamed(stage: Stage, body: object): Promise<Answered> {
  const answer = await fetch(`${stage.baseURL}/responses`, {
    method: 'POST',
    headers: { 'content-type': 'application/json' },
    body: JSON.stringify(body),
  });
  const response = (await answer.json()) as WireResponse;
  if (answer.status !== 200) return { refused: answer.status };
  expect(await fetched(stage, response.id)).toEqual(response);
  return response;
}

async function fetched(stage: Stage, id: string): Promise<WireResponse> {
  const answer = await fetch(`${stage.baseURL}/responses/${id}`);
  expect(answer.status).toBe(200);
  return (await answer.json()) as WireResponse;
}

/** What a stream tells as a failed response without output, others are told as an error of HTTP. */
function comparable(answered: Answered): unknown {
  if ('refused' in answered) return 'refused';
  const { status, output } = answered;
  return status === 'failed' && output.length === 0 ? 'refused' : plain(answered);
}
