import { callArguments, pieces, replyId, TOOL, word, words, type Script } from './script.ts';
import type { Wire } from './wire.ts';

const USAGE = {
  input_tokens: 82,
  input_tokens_details: { cached_tokens: 0 },
  output_tokens: 17,
  output_tokens_details: { reasoning_tokens: 0 },
  total_tokens: 99,
};

export const openaiResponses: Wire = {
  resultMark: '"type":"function_call_output"',
  whole: (script) => JSON.stringify(response(script, 'completed', itemsOf(script))),
  events(script) {
    let sequence = 0;
    const frames: string[] = [];
    const addEvent = (type: string, rest: object): void => {
      frames.push(`event: ${type}\ndata: ${JSON.stringify({ type, ...rest, sequence_number: sequence++ })}\n\n`);
    };
    addEvent('response.created', { response: response(script, 'in_progress', []) });
    addEvent('response.in_progress', { response: response(script, 'in_progress', []) });
    const items = itemsOf(script);
    for (const [output_index, item] of items.entries()) {
      const at = { item_id: item.id, output_index };
      if (item.type === 'message') {
        const part = { type: 'output_text', annotations: [], logprobs: [], text: '' };
        addEvent('response.output_item.added', { output_index, item: { ...item, status: 'in_progress', content: [] } });
        addEvent('response.content_part.added', { ...at, content_index: 0, part });
        const count = script.type === 'text' ? script.deltas : 0;
        for (let n = 0; n < count; n++) {
          addEvent('response.output_text.delta', {
            ...at,
            content_index: 0,
            delta: word(n),
            logprobs: [],
            obfuscation: 'mZ3qv8',
          });
        }
        const { text } = item.content[0]!;
        addEvent('response.output_text.done', { ...at, content_index: 0, text, logprobs: [] });
        addEvent('response.content_part.done', { ...at, content_index: 0, part: { ...part, text } });
      } else {
        addEvent('response.output_item.added', {
          output_index,
          item: { ...item, status: 'in_progress', arguments: '' },
        });
        for (const delta of pieces(item.arguments)) {
          addEvent('response.function_call_arguments.delta', { ...at, delta, obfuscation: 'mZ3qv8' });
        }
        addEvent('response.function_call_arguments.done', { ...at, arguments: item.arguments });
      }
      addEvent('response.output_item.done', { output_index, item });
    }
    addEvent('response.completed', { response: response(script, 'completed', items) });
    return frames;
  },
};

type Item =
  | {
      id: string;
      type: 'message';
      status: string;
      role: string;
      content: { type: string; text: string; annotations: []; logprobs: [] }[];
    }
  | { id: string; type: 'function_call'; status: string; arguments: string; call_id: string; name: string };

function itemsOf(script: Script): readonly Item[] {
  if (script.type === 'text') {
    const content = [{ type: 'output_text', annotations: [] as [], logprobs: [] as [], text: words(script.deltas) }];
    return [{ id: `msg_${replyId(script)}`, type: 'message', status: 'completed', role: 'assistant', content }];
  }
  return Array.from({ length: script.count }, (_, n): Item => {
    const index = script.first + n;
    const id = String(index).padStart(24, '0');
    return {
      id: `fc_${id}`,
      type: 'function_call',
      status: 'completed',
      arguments: callArguments(index),
      call_id: `call_${id}`,
      name: TOOL,
    };
  });
}

function response(script: Script, status: string, output: readonly Item[]): object {
  return {
    id: `resp_${replyId(script)}`,
    object: 'response',
    created_at: 1741476777,
    status,
    error: null,
    incomplete_details: null,
    instructions: null,
    max_output_tokens: null,
    model: 'bench',
    output,
    parallel_tool_calls: true,
    previous_response_id: null,
    reasoning: { effort: null, summary: null },
    store: false,
    temperature: 1,
    text: { format: { type: 'text' } },
    tool_choice: 'auto',
    tools: [],
    top_p: 1,
    truncation: 'disabled',
    usage: status === 'completed' ? USAGE : null,
    user: null,
    metadata: {},
  };
}
