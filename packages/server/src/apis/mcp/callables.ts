import { fromJsonSchema, ProtocolError, ProtocolErrorCode } from '@modelcontextprotocol/server';
import { tool as toolOf, type Agent, type StandardSchema, type Tool } from '@treadle/core';
import { ApiError } from '../../api-error.ts';
import { mayInvoke } from '../../engine/engine.ts';
import { openedTools, type OpenedTool } from '../../engine/executors.ts';
import type { RunCaller } from '../../engine/tools.ts';
import { outputSchemaOf } from './content.ts';
import type { McpAgent } from './options.ts';

/** Something that a client can call. */
export type Callable = { readonly name: string; readonly outputSchema: object | undefined } &
  /** `own`: it is an agent that is invoked by name, so that executors do not know it. */
  (
    | { readonly type: 'tool'; readonly tool: Tool; readonly own?: readonly OpenedTool[] }
    | {
        readonly type: 'agent';
        readonly agent: Agent<unknown, unknown>;
        readonly input: StandardSchema;
        readonly tool: Tool;
      }
  );

export function callablesOf(tools: readonly Tool[], agents: readonly Callable[]): ReadonlyMap<string, Callable> {
  return new Map([...tools.map(toolCallable), ...agents].map((one) => [one.name, one]));
}

function toolCallable(tool: Tool): Callable {
  return { type: 'tool', name: tool.name, tool, outputSchema: outputSchemaOf(tool.output) };
}

/** An agent that is invoked by name. */
export function agentToolCallable(tool: Tool): Callable {
  return { ...toolCallable(tool), type: 'tool', tool, own: openedTools([tool]) };
}

export function agentCallable({ agent, input, parameters, name, description }: McpAgent): Callable {
  // Its name and its schema are checked, and converted, as those of a tool are.
  const described: Tool = toolOf({
    name: name ?? agent.name,
    description: description ?? agent.description,
    input,
    ...(parameters && { parameters }),
    effect: 'once',
  });
  return {
    type: 'agent',
    name: described.name,
    agent,
    input: '~standard' in input ? (input as StandardSchema) : (fromJsonSchema(input as never) as StandardSchema),
    tool: described,
    outputSchema: outputSchemaOf(agent.validation.outputSchema),
  };
}

export function mayCall({ scopes }: RunCaller, callable: Callable): boolean {
  const { name } = callable;
  if (callable.type === 'agent') return scopes.includes('agents:invoke');
  if (usesModels(callable) && !mayInvoke(scopes)) return false;
  return scopes.includes('tools:execute') || scopes.includes(`tools:execute:${name}`);
}

/** A tool that asks models, such as `task`. It would answer a key for single agents without any of them. */
function usesModels(callable: Callable): boolean {
  const { type, tool } = callable;
  return type === 'tool' && callable.own === undefined && (tool.asks?.length ?? 0) > 0;
}

export async function checkedInput(
  { name, input }: Callable & { readonly type: 'agent' },
  given: unknown,
): Promise<unknown> {
  const verdict = await input['~standard'].validate(given);
  if (!verdict.issues) return verdict.value;
  const problems = verdict.issues.map(({ path, message }) =>
    [path?.map(String).join('.'), message].filter(Boolean).join(': '),
  );
  throw new ProtocolError(ProtocolErrorCode.InvalidParams, `Invalid arguments for ${name}: ${problems.join('; ')}`);
}

export function unknownTool(name: string): ProtocolError {
  return new ProtocolError(ProtocolErrorCode.InvalidParams, `There is no tool ${JSON.stringify(name)}.`);
}

export function lacksScope(callable: Callable, { scopes }: RunCaller): ApiError {
  const { type, name } = callable;
  const isInvoked = type === 'agent' || (usesModels(callable) && !mayInvoke(scopes));
  const scope = isInvoked ? 'agents:invoke' : `tools:execute:${name}`;
  const message = `This key may not use ${JSON.stringify(name)}: it lacks the scope "${scope}".`;
  return new ApiError(403, 'permission_error', message, { code: 'insufficient_scope' });
}
