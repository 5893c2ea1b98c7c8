import type { CreateMessageRequestParams, CreateMessageResult } from '@modelcontextprotocol/client';
import {
  agentTool,
  Broken,
  childRuns,
  Finished,
  runLoop,
  type Limits,
  type Message,
  type Model,
  type RunStore,
  type ToolContext,
  type ToolOutput,
  type Usage,
  type UserBlock,
} from '@treadle/core';
import { cleanText } from './describe.ts';
import { McpError } from './options.ts';

/*
 * A call in progress, and replies of a model that its server asks for meanwhile.
 *
 * 1. The call has one time limit. The time in which it waits for people does not count.
 * 2. Replies of a model are child runs of the run. All of them together stay within the limits of the call.
 */

export interface ActiveCall {
  readonly context: ToolContext;
  /** Calls of one run ask the same people. */
  readonly runId: string;
  /** Aborts when the call is cancelled or its time is over. */
  readonly signal: AbortSignal;
  /** It waits for people. */
  readonly isWaiting: () => boolean;
  /** How long it has taken, without the time in which it waits for people. */
  readonly spentMs: () => number;
  /** The task that the server has made of it. */
  task: string | undefined;
  /** Runs something that people take their time for. */
  readonly waitForPeople: <T>(work: () => Promise<T>) => Promise<T>;
  /** Questions of a server that does not name them. */
  questions: number;
  /** All questions. */
  asked: number;
  /** What child runs have used. */
  readonly used: { usage: Usage; calls: number }[];
  /** Samples that are in progress or were made. */
  samples: number;
  sampling: Promise<unknown>;
  /** The journal or the lease of a child run has failed, so the run cannot go on. */
  broken: Broken | undefined;
  readonly end: () => void;
}

export function startCall(name: string, timeoutMs: number, context: ToolContext): ActiveCall {
  const controller = new AbortController();
  const { signal } = context;
  const abort = (): void => controller.abort(signal.reason);
  let timer: ReturnType<typeof setTimeout> | undefined;
  // The loop has the same limit, and ends the call first.
  let left = timeoutMs + 250;
  let since = 0;
  let waiting = 0;
  const resume = (): void => {
    since = Date.now();
    timer = setTimeout(() => {
      const message = `MCP server "${name}" took longer than ${timeoutMs} ms. Ask for less, or raise its time limit.`;
      controller.abort(new McpError('timeout', message));
    }, left);
  };
  const pause = (): void => {
    clearTimeout(timer);
    left = Math.max(1, left - (Date.now() - since));
  };
  signal.addEventListener('abort', abort);
  if (signal.aborted) abort();
  resume();
  return {
    context,
    runId: context.key.slice(0, context.key.lastIndexOf('/')),
    signal: controller.signal,
    isWaiting: () => waiting > 0,
    spentMs: () => timeoutMs + 250 - left + (waiting > 0 ? 0 : Date.now() - since),
    task: undefined,
    async waitForPeople(work) {
      if (waiting++ === 0) pause();
      try {
        return await work();
      } finally {
        if (--waiting === 0 && !controller.signal.aborted) resume();
      }
    },
    questions: 0,
    asked: 0,
    used: [],
    samples: 0,
    sampling: Promise.resolve(),
    broken: undefined,
    end() {
      clearTimeout(timer);
      signal.removeEventListener('abort', abort);
    },
  };
}

/** The output of a call with what its child runs have used. */
export function withUsage(output: ToolOutput, { used }: ActiveCall): ToolOutput | Finished {
  if (used.length === 0) return output;
  const { content, isError = false } = output;
  const sum = (part: (usage: Usage) => number | undefined): number =>
    used.reduce((all, { usage }) => all + (part(usage) ?? 0), 0);
  const hasCost = used.every(({ usage }) => usage.cost !== undefined);
  return new Finished({
    type: 'result',
    content: typeof content === 'string' ? [{ type: 'text', text: content }] : content,
    isError,
    usage: {
      inputTokens: sum(({ inputTokens }) => inputTokens),
      outputTokens: sum(({ outputTokens }) => outputTokens),
      ...(hasCost && { cost: sum(({ cost }) => cost) }),
    },
    calls: used.reduce((all, { calls }) => all + calls, 0),
  });
}

// ── Samples ──────────────────────────────────────────────────────────────────────────────────────────────────────────

/** A server that asks for more of them in one call gets errors. */
const MAX_SAMPLES = 20;

/** A reply of the model to a conversation of the server, as a child run. Rejects if there is none. */
export async function sample(
  name: string,
  call: ActiveCall,
  model: Model,
  request: CreateMessageRequestParams,
  signal: AbortSignal,
): Promise<CreateMessageResult> {
  if (call.samples >= MAX_SAMPLES) throw new Error(`At most ${MAX_SAMPLES} requests for a model within one call.`);
  const index = call.samples++;
  // One after the other: each one gets the limits that the others have left.
  const made = call.sampling.then(() => sampleNow(name, call, model, request, signal, index));
  call.sampling = made.catch(() => {});
  return made;
}

async function sampleNow(
  name: string,
  call: ActiveCall,
  model: Model,
  request: CreateMessageRequestParams,
  signal: AbortSignal,
  index: number,
): Promise<CreateMessageResult> {
  const { run, principal, context } = call.context;
  if (!run) throw new Error('A model can only be asked within a run.');
  const { systemPrompt, maxTokens, temperature, stopSequences } = request;
  const asked = agentTool({
    name: 'sampling',
    description: `A request of MCP server "${name}" for a model`,
    model,
    prompt: () => messagesOf(request),
    ...(systemPrompt !== undefined && { instructions: cleanText(systemPrompt, 65_536) }),
    settings: {
      maxOutputTokens: maxTokens,
      ...(temperature !== undefined && { temperature }),
      ...(stopSequences && { stop: stopSequences }),
    },
    maxTurns: 1,
  });
  const isFirst = index === 0;
  const finished = await asked.execute!({}, {
    principal,
    context,
    signal: AbortSignal.any([call.signal, signal]),
    run: {
      ...run,
      limits: limitsLeft(run.limits, call),
      ...(!isFirst && {
        effect: `${run.effect}.${index}`,
        child: 'unknown' as const,
        childStarted: async () => undefined,
      }),
    },
  } as ToolContext);
  if (finished instanceof Broken) {
    call.broken = finished;
    throw new Error('The run cannot go on.');
  }
  const { result } = finished as Finished;
  if (result.type !== 'result') throw new Error('There is no reply.');
  if (result.usage) call.used.push({ usage: result.usage, calls: result.calls ?? 0 });
  const text = result.content.map((block) => ('text' in block ? block.text : '')).join('');
  if (result.isError) throw new Error(text);
  return { role: 'assistant', content: { type: 'text', text }, model: model.id, stopReason: 'endTurn' };
}

/**
 * Cancels the child runs of a call whose process has died: the call itself is not made again. Those that another process
 * drives are left to it.
 */
export async function cancelSamples(model: Model, { run }: ToolContext): Promise<void> {
  if (!run || !('list' in run.journal)) return;
  const { journal, runId, effect, clock } = run;
  const { killProcess } = run.options;
  for (const child of await childRuns(journal as RunStore, runId)) {
    const isOfCall = child.runId === `${runId}.${effect}` || child.runId.startsWith(`${runId}.${effect}.`);
    if (!isOfCall || (child.status !== 'running' && child.status !== 'paused')) continue;
    const options = { journal, clock, model, runId: child.runId, signal: AbortSignal.abort() };
    await runLoop({ ...options, ...(killProcess && { killProcess }), acceptChangedTools: true }).catch(() => {});
  }
}

function limitsLeft(limits: Limits, { used }: ActiveCall): Limits {
  const tokens = used.reduce((sum, { usage }) => sum + usage.inputTokens + usage.outputTokens, 0);
  const cost = used.reduce((sum, { usage }) => sum + (usage.cost ?? 0), 0);
  return {
    ...limits,
    ...(limits.tokens !== undefined && { tokens: Math.max(0, limits.tokens - tokens) }),
    ...(limits.cost !== undefined && { cost: Math.max(0, limits.cost - cost) }),
  };
}

function messagesOf({ messages }: CreateMessageRequestParams): readonly Message[] {
  return messages.map(({ role, content }): Message => {
    const blocks = (Array.isArray(content) ? content : [content]).map((block): UserBlock => {
      if (block.type === 'text') return { type: 'text', text: block.text };
      if (block.type === 'image') {
        return { type: 'image', mediaType: block.mimeType, source: { type: 'data', data: block.data } };
      }
      if (block.type === 'audio') {
        return { type: 'file', mediaType: block.mimeType, source: { type: 'data', data: block.data } };
      }
      throw new Error(`Content of the type "${block.type}" is not supported.`);
    });
    if (role === 'user') return { role, content: blocks };
    const texts = blocks.flatMap((block) => (block.type === 'text' ? block : []));
    if (texts.length < blocks.length) throw new Error('A message of the assistant may only have texts.');
    return { role, content: texts };
  });
}
