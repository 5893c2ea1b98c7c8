import { MockLanguageModelV4 } from 'ai/test';
import type { InProcessTask } from '../contenders/contender.ts';
import { ANSWER, CALL_ARGUMENTS, callId, DELTA } from '../contenders/in-process.ts';
import { TOOL_NAME } from '../contenders/contender.ts';

type Generate = MockLanguageModelV4['doGenerate'];
type Stream = MockLanguageModelV4['doStream'];
type Generated = Awaited<ReturnType<Generate>>;
type Part = Awaited<ReturnType<Stream>>['stream'] extends ReadableStream<infer P> ? P : never;

const usage: Generated['usage'] = {
  inputTokens: { total: 100, noCache: 100, cacheRead: undefined, cacheWrite: undefined },
  outputTokens: { total: 20, text: 20, reasoning: undefined },
};

/** An in-process model for contenders that accept models of the AI SDK: its mock, without the list of recorded calls. */
export function chainModel({ turns, deltas }: InProcessTask): MockLanguageModelV4 {
  const reply = (turn: number): Pick<Generated, 'content' | 'finishReason'> => {
    if (turn >= turns) {
      return { content: [{ type: 'text', text: ANSWER }], finishReason: { unified: 'stop', raw: 'stop' } };
    }
    const input = CALL_ARGUMENTS[turn]!;
    const content = [{ type: 'tool-call' as const, toolCallId: callId(turn), toolName: TOOL_NAME, input }];
    return { content, finishReason: { unified: 'tool-calls', raw: 'tool_calls' } };
  };
  const model = new MockLanguageModelV4({ modelId: 'chain' });
  model.doGenerate = async ({ prompt }) => ({ ...reply(turnOf(prompt)), usage, warnings: [] });
  model.doStream = async ({ prompt }) => {
    const { content, finishReason } = reply(turnOf(prompt));
    const parts: Part[] = [
      { type: 'stream-start', warnings: [] },
      { type: 'text-start', id: '0' },
    ];
    for (let n = 0; n < deltas; n++) parts.push({ type: 'text-delta', id: '0', delta: DELTA });
    for (const part of content) {
      if (part.type === 'text') parts.push({ type: 'text-delta', id: '0', delta: part.text });
    }
    parts.push({ type: 'text-end', id: '0' });
    for (const part of content) if (part.type === 'tool-call') parts.push(part);
    parts.push({ type: 'finish', finishReason, usage });
    return { stream: ReadableStream.from(parts) as ReadableStream<Part> };
  };
  return model;
}

function turnOf(prompt: readonly { role: string }[]): number {
  return (prompt.length - (prompt[0]!.role === 'system' ? 2 : 1)) / 2;
}
