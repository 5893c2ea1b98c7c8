import { tool, TreadleError, type Policy, type Tool, type ToolContext, type ToolEffect } from '@treadle/core';
import { outputOf, plainOutput } from './tool-output.ts';
import { inputOf } from './tool-schema.ts';

/** A tool of the AI SDK, by its form alone; what `tool()` and `dynamicTool()` make fits it. */
export interface AiSdkTool {
  readonly type?: 'function' | 'dynamic' | 'provider' | undefined;
  readonly description?: unknown;
  readonly inputSchema?: unknown;
  readonly execute?: unknown;
  readonly toModelOutput?: unknown;
  readonly needsApproval?: unknown;
}

/** A `ToolSet` of the AI SDK. */
export type AiSdkTools = { readonly [name: string]: AiSdkTool };

export interface FromAiSdkToolsOptions {
  /** What the AI SDK does not say of a tool; default `once` for all. */
  readonly effects?: { readonly [name: string]: ToolEffect };
  /** `policy`: the run has a policy that asks where a tool needs approval, such as `aiSdkApprovals(tools)`. */
  readonly approvals?: 'policy';
}

/** What they are called with. `messages` is empty: a tool of ours does not see the conversation. */
interface CallInfo {
  readonly toolCallId: string;
  readonly messages: readonly never[];
  readonly abortSignal: AbortSignal;
  /** The run's `context`; V3 has it under the second name. */
  readonly context: unknown;
  readonly experimental_context: unknown;
}

type Execute = (input: unknown, info: CallInfo) => unknown;
type ToModelOutput = (made: { toolCallId: string; input: unknown; output: unknown }) => unknown;
type NeedsApproval =
  | boolean
  | ((input: unknown, info: Omit<CallInfo, 'abortSignal'>) => boolean | PromiseLike<boolean>);

/**
 * The tools of the AI SDK as tools of ours. One without `execute` is executed by the client. Throws if one cannot be
 * taken over: a tool that the provider runs, or one that needs approval when nobody is there to ask.
 */
export function fromAiSdkTools(tools: AiSdkTools, options: FromAiSdkToolsOptions = {}): Tool[] {
  return Object.entries(tools).map(([name, given]) => {
    checkTool(name, given, options);
    const { execute, toModelOutput } = given as { execute?: Execute; toModelOutput?: ToModelOutput };
    const effect = options.effects?.[name];
    return tool({
      name,
      description: typeof given.description === 'string' ? given.description : '',
      ...inputOf(name, given.inputSchema),
      ...(effect !== undefined && { effect }),
      ...(execute && {
        execute: async (input: unknown, context: ToolContext) => {
          const info = callInfo(context.key, context.context);
          const output = await lastOf(execute(input, { ...info, abortSignal: context.signal }), context);
          if (!toModelOutput) return plainOutput(output);
          return outputOf(await toModelOutput({ toolCallId: context.key, input, output }));
        },
      }),
    });
  });
}

/** Asks a person where a tool of the AI SDK says that it needs approval, and allows everything else. */
export function aiSdkApprovals(tools: AiSdkTools): Policy {
  return {
    judge: (calls, { context }) =>
      Promise.all(
        calls.map(async ({ id, name, input }) => {
          const needs = Object.hasOwn(tools, name) ? (tools[name]!.needsApproval as NeedsApproval | undefined) : false;
          const asks = typeof needs === 'function' ? await needs(input, callInfo(id, context)) : needs;
          return asks ? { type: 'ask' } : { type: 'allow' };
        }),
      ),
  };
}

function callInfo(toolCallId: string, context: unknown): Omit<CallInfo, 'abortSignal'> {
  return { toolCallId, messages: [], context, experimental_context: context };
}

/** Of several results each replaces the one before; they are told as progress. */
async function lastOf(given: unknown, { report, signal }: ToolContext): Promise<unknown> {
  const value = await given;
  if (typeof value !== 'object' || value === null || !(Symbol.asyncIterator in value)) return value;
  let last: unknown;
  for await (const item of value as AsyncIterable<unknown>) {
    if (signal.aborted) break;
    report(item);
    last = item;
  }
  return last;
}

function checkTool(name: string, given: AiSdkTool, { approvals }: FromAiSdkToolsOptions): void {
  const wrong = (what: string): never => {
    throw new TreadleError('invalid-tool', `fromAiSdkTools: ${what}`);
  };
  if (typeof given !== 'object' || given === null) wrong(`"${name}" is no tool.`);
  if (given.type === 'provider') wrong(`"${name}" is a tool of the provider, which the loop cannot run. Leave it out.`);
  if (typeof given.description === 'function') {
    wrong(`the description of "${name}" is a function. Pass { ...tool, description: '…' } instead.`);
  }
  if (given.needsApproval && approvals !== 'policy') {
    wrong(
      `"${name}" needs approval. Give the run policy: aiSdkApprovals(tools), or one of your own, and say so here with ` +
        `{ approvals: 'policy' }.`,
    );
  }
}
