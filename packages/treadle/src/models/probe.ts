import { userText, type Model, type ModelError, type ModelReply, type ToolSpec } from '@treadle/core';
import { printable } from '../terminal/printable.ts';
import { durationText } from '../terminal/quantities.ts';

/** What a test found out about a model. */
export interface Probe {
  /** The model replied. */
  readonly reachable: boolean;
  /** The model called the tool; absent if it was not reachable. */
  readonly tools?: boolean;
  /** The reply was streamed. */
  readonly streams?: boolean;
  readonly ms: number;
  readonly error?: ModelError;
}

const PING: ToolSpec = {
  name: 'ping',
  description: 'Tests the connection. Call it with the word that you were told.',
  parameters: {
    type: 'object',
    properties: { word: { type: 'string', description: 'The word' } },
    required: ['word'],
    additionalProperties: false,
  },
};

/** Leaves room for reasoning. */
const MAX_OUTPUT_TOKENS = 2_000;

type ProbeRequest = 'call' | 'forced-call' | 'text';

/**
 * Asks for one tool call. If the model replies with text, asks again with a required tool call. If the model rejects the
 * request, asks again without tools, to distinguish a model without tools from one that is not available.
 */
export async function probe(model: Model, signal: AbortSignal): Promise<Probe> {
  const startedAt = performance.now();
  let streams = false;
  const ask = (what: ProbeRequest): Promise<ModelReply> =>
    model.reply(
      {
        instructions: 'You are being tested. Do as you are told and nothing else.',
        messages: [userText(what === 'text' ? 'Say "ok".' : 'Call the tool ping with the word "treadle".')],
        tools: what === 'text' ? [] : [PING],
        toolChoice: what === 'forced-call' ? 'required' : 'auto',
        parallel: true,
        settings: { maxOutputTokens: MAX_OUTPUT_TOKENS },
        key: `models/${what}`,
      },
      () => {
        streams = true;
      },
      signal,
    );
  const ms = (): number => Math.round(performance.now() - startedAt);

  const first = await ask('call');
  if (callsPing(first)) return { reachable: true, tools: true, streams, ms: ms() };
  if (first.type === 'reply') {
    const second = await ask('forced-call');
    return { reachable: true, tools: callsPing(second), streams, ms: ms() };
  }
  if (first.error.code !== 'invalid-request') return { reachable: false, ms: ms(), error: first.error };
  const plain = await ask('text');
  if (plain.type === 'failure') return { reachable: false, ms: ms(), error: first.error };
  return { reachable: true, tools: false, streams, ms: ms(), error: first.error };
}

function callsPing(reply: ModelReply): boolean {
  return reply.type === 'reply' && reply.content.some((part) => part.type === 'tool-call' && part.name === PING.name);
}

/** Whether Treadle can use the model: it replies and calls tools. Streaming is optional. */
export function passes({ reachable, tools }: Probe): boolean {
  return reachable && tools === true;
}

/** Such as `reachable, supports tools, streams (0.3 s)`. */
export function probeText({ reachable, tools, streams, ms, error }: Probe): string {
  if (!reachable) return `failed: ${error?.code ?? 'unknown'}`;
  const found = ['reachable', tools ? 'supports tools' : 'no tools', streams ? 'streams' : 'does not stream'];
  return `${found.join(', ')} (${durationText(ms)})`;
}

/** Why the model does not pass; undefined if it passes. */
export function probeProblem({ reachable, tools, error }: Probe): string | undefined {
  if (!reachable) return printable(error?.message ?? 'The model did not reply.');
  if (tools) return undefined;
  const rejected = error === undefined ? '' : ` It rejected them: ${printable(error.message)}`;
  return `The model replies, but does not call tools.${rejected}`;
}
