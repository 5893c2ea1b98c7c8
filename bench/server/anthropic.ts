import { callArguments, pieces, replyId, TOOL, word, words, type Script } from './script.ts';
import type { Wire } from './wire.ts';

const USAGE = {
  input_tokens: 82,
  cache_creation_input_tokens: 0,
  cache_read_input_tokens: 0,
  output_tokens: 17,
  service_tier: 'standard',
};

export const anthropic: Wire = {
  resultMark: '"type":"tool_result"',
  whole: (script) =>
    JSON.stringify({
      ...message(script),
      content: blocksOf(script),
      stop_reason: stopOf(script),
      stop_sequence: null,
      usage: USAGE,
    }),
  events(script) {
    const frames: string[] = [];
    const addEvent = (type: string, rest: object): void => {
      frames.push(`event: ${type}\ndata: ${JSON.stringify({ type, ...rest })}\n\n`);
    };
    addEvent('message_start', {
      message: {
        ...message(script),
        content: [],
        stop_reason: null,
        stop_sequence: null,
        usage: { ...USAGE, output_tokens: 1 },
      },
    });
    addEvent('ping', {});
    for (const [index, block] of blocksOf(script).entries()) {
      if (block.type === 'text') {
        addEvent('content_block_start', { index, content_block: { type: 'text', text: '' } });
        const count = script.type === 'text' ? script.deltas : 0;
        for (let n = 0; n < count; n++)
          addEvent('content_block_delta', { index, delta: { type: 'text_delta', text: word(n) } });
      } else {
        const { input, ...rest } = block;
        addEvent('content_block_start', { index, content_block: { ...rest, input: {} } });
        for (const piece of pieces(JSON.stringify(input))) {
          addEvent('content_block_delta', { index, delta: { type: 'input_json_delta', partial_json: piece } });
        }
      }
      addEvent('content_block_stop', { index });
    }
    addEvent('message_delta', {
      delta: { stop_reason: stopOf(script), stop_sequence: null },
      usage: { output_tokens: 17 },
    });
    addEvent('message_stop', {});
    return frames;
  },
};

type Block = { type: 'text'; text: string } | { type: 'tool_use'; id: string; name: string; input: unknown };

function blocksOf(script: Script): readonly Block[] {
  if (script.type === 'text') return [{ type: 'text', text: words(script.deltas) }];
  return Array.from({ length: script.count }, (_, n): Block => {
    const index = script.first + n;
    const input: unknown = JSON.parse(callArguments(index));
    return { type: 'tool_use', id: `toolu_${String(index).padStart(24, '0')}`, name: TOOL, input };
  });
}

function stopOf({ type }: Script): string {
  return type === 'calls' ? 'tool_use' : 'end_turn';
}

function message(script: Script): object {
  return { id: `msg_${replyId(script)}`, type: 'message', role: 'assistant', model: 'bench' };
}
