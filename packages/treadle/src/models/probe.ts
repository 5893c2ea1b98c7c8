import { userText, type Model, type ModelError, type ModelReply, type ToolSpec } from '@treadle/core';
import { printable } from '../terminal/printable.ts';
import { durationText } from '../terminal/quantities.ts';

/** What a model turned out to be able to do, by asking it. */
export interface Probe {
  /** It gave a reply. */
  readonly reachable: boolean;
  /** It called the tool that it was given; absent: it did not get that far. */
  readonly tools?: boolean;
  /** Its reply came in pieces. */
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

/** Enough for a model that thinks first. */
const MAX_OUTPUT_TOKENS = 2_000;

type Asked = 'call' | 'forced-call' | 'text';

/**
 * Asks for one call of a tool. A model that answers in words is asked again in a way that leaves no choice, and one that
 * refuses is asked once more without tools, to tell a model without tools from one that is not there.
 */
export async function probe(model: Model, signal: AbortSignal): Promise<Probe> {
  const began = performance.now();
  let streams = false;
  const ask = (what: Asked): Promise<ModelReply> =>
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
  const ms = (): number => Math.round(performance.now() - began);

  const first = await ask('call');
  if (calls(first)) return { reachable: true, tools: true, streams, ms: ms() };
  if (first.type === 'reply') {
    const second = await ask('forced-call');
    return { reachable: true, tools: calls(second), streams, ms: ms() };
  }
  if (first.error.code !== 'invalid-request') return { reachable: false, ms: ms(), error: first.error };
  const plain = await ask('text');
  if (plain.type === 'failure') return { reachable: false, ms: ms(), error: first.error };
  return { reachable: true, tools: false, streams, ms: ms(), error: first.error };
}

function calls(reply: ModelReply): boolean {
  return reply.type === 'reply' && reply.content.some((part) => part.type === 'tool-call' && part.name === PING.name);
}

/** Works as a model of Treadle: it answers and calls tools. Whether it streams is a matter of comfort. */
export function passes({ reachable, tools }: Probe): boolean {
  return reachable && tools === true;
}

/** `reachable, supports tools, streams`, with what it lacks. */
export function probeText({ reachable, tools, streams, ms, error }: Probe): string {
  if (!reachable) return `failed: ${error?.code ?? 'unknown'}`;
  const found = ['reachable', tools ? 'supports tools' : 'no tools', streams ? 'streams' : 'does not stream'];
  return `${found.join(', ')} (${durationText(ms)})`;
}

/** Why it does not pass. */
export function probeProblem({ reachable, tools, error }: Probe): string | undefined {
  if (!reachable) return printable(error?.message ?? 'It gave no reply.');
  if (tools) return undefined;
  const refused = error === undefined ? '' : ` It refused them: ${printable(error.message)}`;
  return `It answers, but does not call tools.${refused}`;
}
