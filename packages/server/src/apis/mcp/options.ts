import type { McpServer } from '@modelcontextprotocol/server';
import {
  TreadleError,
  type Agent,
  type JsonSchema,
  type Policy,
  type Schema,
  type StandardSchema,
  type Tool,
} from '@treadle/core';

/** The MCP server: what it offers besides the tools of the server. */
export interface McpOptions {
  /** How the server names itself; default `treadle`. */
  readonly name?: string;
  readonly version?: string;
  /** How to use the server, for the models of its clients. */
  readonly instructions?: string;
  /** Typed agents as tools. A key needs the scope `agents:invoke` for them. */
  readonly agents?: readonly McpAgent[];
  /** Judges the calls of MCP clients, which can be asked. Default: the policy of the server. */
  readonly policy?: Policy;
  /** Registers prompts and resources, for keys with the scope `agents:invoke`. Called for each client, or each request. */
  readonly register?: (server: McpRegistry) => void;
}

/** The part of the SDK's server that programs use. Tools are those of the server, so that the policy applies to them. */
export type McpRegistry = Pick<McpServer, 'registerPrompt' | 'registerResource'>;

/** A typed agent as a tool; created by `mcpAgent`. */
export interface McpAgent extends Omit<McpAgentDefinition<unknown, unknown>, 'input'> {
  readonly agent: Agent<unknown, unknown>;
  readonly input: Schema;
}

export interface McpAgentDefinition<Input, Output, Run = unknown, Attempt = unknown, Final = unknown> {
  readonly agent: Agent<Input, Output, Run, Attempt, Final>;
  /** The input of the agent. Arguments that it rejects get an error. */
  readonly input: StandardSchema<Input> | JsonSchema;
  /** The JSON Schema that clients get, if `input` cannot be converted. */
  readonly parameters?: JsonSchema;
  /** Default: the name and the description of the agent. */
  readonly name?: string;
  readonly description?: string;
}

/** Offers a typed agent to MCP clients. A call is a run of the agent, with the arguments of the call as its input. */
export function mcpAgent<Input, Output, Run, Attempt, Final>(
  definition: McpAgentDefinition<Input, Output, Run, Attempt, Final>,
): McpAgent {
  // The schema guarantees the type of the input.
  return definition as unknown as McpAgent;
}

/** Throws if two tools or agents have the same name. */
export function checkMcpNames(tools: readonly Tool[], agents: readonly McpAgent[]): void {
  const names = [...tools.map(({ name }) => name), ...agents.map(({ agent, name = agent.name }) => name)];
  const twice = names.find((name, index) => names.indexOf(name) < index);
  if (twice === undefined) return;
  const message = `Two tools or agents of the MCP server are named "${twice}". Give one of them another name.`;
  throw new TreadleError('duplicate-tool', message);
}
