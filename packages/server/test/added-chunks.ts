import type { ChatChunk } from '../src/apis/completions/wire.ts';

interface AddedCall {
  readonly id: string;
  readonly type: string;
  readonly function: { readonly name: string; arguments: string };
}

/** The completion that a client accumulates from all chunks. */
export function addedChunks(frames: readonly object[]): object {
  const calls: AddedCall[] = [];
  let [content, reasoning] = ['', ''];
  let last: ChatChunk | undefined;
  let usage: ChatChunk['usage'];
  for (const frame of frames as readonly ChatChunk[]) {
    const [choice] = frame.choices;
    if (frame.usage) ({ usage } = frame);
    if (!choice) continue;
    last = frame;
    content += choice.delta.content ?? '';
    reasoning += choice.delta.reasoning_content ?? '';
    for (const { index, ...call } of choice.delta.tool_calls ?? []) {
      if (!('id' in call)) calls[index]!.function.arguments += call.function.arguments;
      else if (call.type === 'function') calls[index] = { ...call, function: { ...call.function } };
    }
  }
  const { id, created, model, service_tier, system_fingerprint, choices, incomplete_details } = last!;
  const message = {
    role: 'assistant',
    content: content === '' ? null : content,
    refusal: null,
    annotations: [],
    ...(reasoning !== '' && { reasoning_content: reasoning }),
    ...(calls.length > 0 && { tool_calls: calls }),
  };
  return {
    id,
    created,
    model,
    service_tier,
    system_fingerprint,
    object: 'chat.completion',
    choices: [{ index: 0, message, logprobs: null, finish_reason: choices[0]!.finish_reason }],
    usage,
    ...(incomplete_details && { incomplete_details }),
  };
}
