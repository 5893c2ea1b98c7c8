import { callArguments, pieces, replyId, TOOL, word, words, type Script } from './script.ts';
import type { Wire } from './wire.ts';

const HEAD = { created: 1741569952, system_fingerprint: 'fp_44709d6fcb', model: 'bench', service_tier: 'default' };
const USAGE = {
  prompt_tokens: 82,
  completion_tokens: 17,
  total_tokens: 99,
  prompt_tokens_details: { cached_tokens: 0, audio_tokens: 0 },
  completion_tokens_details: {
    reasoning_tokens: 0,
    audio_tokens: 0,
    accepted_prediction_tokens: 0,
    rejected_prediction_tokens: 0,
  },
};

export const openaiChat: Wire = {
  resultMark: '"role":"tool"',
  whole(script) {
    const calls =
      script.type === 'calls' ? numbers(script).map((index) => call(index, callArguments(index))) : undefined;
    return JSON.stringify({
      id: idOf(script),
      object: 'chat.completion',
      ...HEAD,
      choices: [
        {
          index: 0,
          message: {
            role: 'assistant',
            content: script.type === 'text' ? words(script.deltas) : null,
            refusal: null,
            annotations: [],
            ...(calls && { tool_calls: calls }),
          },
          logprobs: null,
          finish_reason: calls ? 'tool_calls' : 'stop',
        },
      ],
      usage: USAGE,
    });
  },
  events(script) {
    const frames: string[] = [];
    const chunk = { id: idOf(script), object: 'chat.completion.chunk', ...HEAD };
    const addChunk = (delta: object, finish: string | null = null): void => {
      const choices = [{ index: 0, delta, logprobs: null, finish_reason: finish }];
      frames.push(`data: ${JSON.stringify({ ...chunk, choices, usage: null, obfuscation: 'mZ3qv8' })}\n\n`);
    };
    addChunk({ role: 'assistant', content: script.type === 'text' ? '' : null, refusal: null });
    if (script.type === 'text') for (let n = 0; n < script.deltas; n++) addChunk({ content: word(n) });
    else {
      for (const index of numbers(script)) {
        const at = index - script.first;
        addChunk({ tool_calls: [{ index: at, ...call(index, '') }] });
        for (const piece of pieces(callArguments(index))) {
          addChunk({ tool_calls: [{ index: at, function: { arguments: piece } }] });
        }
      }
    }
    addChunk({}, script.type === 'text' ? 'stop' : 'tool_calls');
    frames.push(`data: ${JSON.stringify({ ...chunk, choices: [], usage: USAGE })}\n\n`, 'data: [DONE]\n\n');
    return frames;
  },
};

function idOf(script: Script): string {
  return `chatcmpl-${replyId(script)}`;
}

function call(index: number, args: string): object {
  return { id: `call_${String(index).padStart(24, '0')}`, type: 'function', function: { name: TOOL, arguments: args } };
}

function numbers({ first, count }: Extract<Script, { type: 'calls' }>): readonly number[] {
  return Array.from({ length: count }, (_, n) => first + n);
}
