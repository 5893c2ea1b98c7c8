import { createHash } from 'node:crypto';
import { z } from 'zod';
import type { RequestTool } from '../../engine/executors.ts';
import type { FunctionTool, RequestToolChoice } from '../../engine/tools.ts';
import { MAX_LENGTH, type RequestLimits } from '../../parse/fields.ts';
import { toolSizeProblem } from '../../parse/tools.ts';
import {
  chosenSchema,
  isObject,
  jsonObject,
  list,
  PARAM,
  refuse,
  UNSUPPORTED,
  variants,
  wrongType,
} from '../../parse/validate.ts';

/** A tool of a request. Plain JSON, without secrets. */
export type DeclaredTool = DeclaredFunction | Toolset | OtherTool;

/** The client executes it. */
export interface DeclaredFunction extends FunctionTool {
  /** The name that the client has for it, if models do not take that. */
  readonly wireName?: string;
}

/** The tools of an MCP server. */
interface Toolset {
  readonly type: 'toolset';
  readonly server: string;
  /** Absent: all but `excluded`. */
  readonly allowed?: readonly string[];
  readonly excluded?: readonly string[];
}

/** A tool of another type. */
interface OtherTool {
  readonly type: 'other';
  readonly tool: RequestTool;
}

/** An MCP server of a request. It may have a secret. */
export interface DeclaredServer {
  readonly name: string;
  readonly url: string;
  readonly token?: string;
  /** What an earlier version of the API has in place of a toolset. */
  readonly toolset?: Toolset;
}

/** Names of the API have up to 128 characters, and those that models take 64. */
const MAX_WIRE_NAME = 128;

const toolName = z
  .string()
  .min(1)
  .max(MAX_WIRE_NAME)
  .regex(/^[a-zA-Z0-9_-]+$/, "the name of a tool may contain only letters, digits, '_' and '-'");

/** The name under which models know a tool. */
export function modelToolName(name: string): string {
  if (name.length <= MAX_LENGTH.name) return name;
  const digest = createHash('sha256').update(name).digest('hex').slice(0, 8);
  return `${name.slice(0, MAX_LENGTH.name - digest.length - 1)}_${digest}`;
}

const functionForm = z
  .object({
    name: toolName,
    description: z.string().nullish(),
    input_schema: jsonObject.superRefine(({ type = 'object' }, ctx) => {
      if (type === 'object') return;
      const message = `Invalid ${PARAM}: a tool takes an object, so its schema must have the type 'object', not ${JSON.stringify(type)}.`;
      refuse(ctx, message, { path: ['type'], code: 'invalid_function_parameters' });
    }),
    strict: z.boolean().nullish(),
  })
  .transform(({ name, description, input_schema: parameters, strict }): DeclaredFunction => {
    const modelName = modelToolName(name);
    return {
      type: 'function',
      name: modelName,
      description: description ?? null,
      parameters,
      strict: strict ?? null,
      ...(modelName !== name && { wireName: name }),
    };
  });

const names = list(z.string().max(MAX_LENGTH.id), { expected: 'a list of names', max: Infinity });
const switchable = z.object({ enabled: z.boolean().nullish() });
const serverName = z.string().min(1).max(MAX_LENGTH.id);

const toolsetForm = z
  .object({
    type: z.literal('mcp_toolset'),
    mcp_server_name: serverName,
    default_config: switchable.nullish(),
    configs: z.record(z.string(), switchable).nullish(),
    tools: list(z.object({ name: z.string().max(MAX_LENGTH.id) }), {
      expected: 'a list of tools',
      max: Infinity,
    }).nullish(),
  })
  .transform(({ mcp_server_name: server, default_config: standard, configs, tools }): Toolset => {
    const isStandard = standard?.enabled ?? true;
    const isEnabled = (name: string): boolean => configs?.[name]?.enabled ?? isStandard;
    const known = tools ? tools.map(({ name }) => name) : Object.keys(configs ?? {});
    if (tools || !isStandard) return { type: 'toolset', server, allowed: known.filter(isEnabled) };
    const excluded = known.filter((name) => !isEnabled(name));
    return { type: 'toolset', server, ...(excluded.length > 0 && { excluded }) };
  });

/** Without the date of its version. */
const otherForm = z.looseObject({ type: z.string() }).transform((tool): OtherTool => ({
  type: 'other',
  tool: { ...tool, type: tool.type.replace(/_\d{8}$/, '') },
}));

/** One tool. */
export function toolSchema(limits: RequestLimits): z.ZodType<DeclaredTool> {
  return chosenSchema<DeclaredTool>(
    (tool, ctx) => {
      if (!isObject(tool)) return wrongType(ctx, tool, 'object');
      const problem = toolSizeProblem(tool, limits);
      if (problem !== undefined) return refuse(ctx, problem, { code: 'tool_too_large' });
      const { type } = tool;
      if (type == null || type === 'custom') return functionForm;
      return type === 'mcp_toolset' ? toolsetForm : otherForm;
    },
    () => [functionForm, toolsetForm, otherForm],
  );
}

export function toolsSchema(limits: RequestLimits): z.ZodType<readonly DeclaredTool[]> {
  return list(toolSchema(limits), { expected: 'a list of tools', max: limits.tools }).superRefine((tools, ctx) => {
    const seen = new Set<string>();
    for (const [index, tool] of tools.entries()) {
      if (tool.type === 'other') continue;
      const [declared, field] = tool.type === 'function' ? [tool.name, 'name'] : [tool.server, 'mcp_server_name'];
      if (seen.has(`${tool.type} ${declared}`)) {
        const message = `Invalid ${PARAM}: '${declared}' is declared twice. Tool names must be unique.`;
        return refuse(ctx, message, { path: [index, field], code: 'duplicate_tool' });
      }
      seen.add(`${tool.type} ${declared}`);
    }
  });
}

/** The name of a tool in a change of tools. */
export const toolReference: z.ZodType<string> = chosenSchema<string>(
  (tool, ctx) => {
    if (!isObject(tool)) return wrongType(ctx, tool, 'object');
    if (tool['type'] === 'tool_reference') return namedTool;
    const message = `${PARAM} is not supported: only tools with an 'input_schema' can be added or removed in a conversation. Change 'tools' instead.`;
    return refuse(ctx, message, { path: ['type'], ...UNSUPPORTED });
  },
  () => [namedTool],
);

const namedTool = z.object({ name: toolName }).transform(({ name }) => modelToolName(name));

export const serversSchema: z.ZodType<readonly DeclaredServer[]> = list(
  z
    .object({
      type: z.literal('url'),
      name: serverName,
      url: z
        .string()
        .max(2_048)
        .regex(/^https?:\/\//i, 'expected an http or https URL'),
      authorization_token: z.string().max(MAX_LENGTH.text).nullish(),
      tool_configuration: z.object({ enabled: z.boolean().nullish(), allowed_tools: names.nullish() }).nullish(),
    })
    .transform(({ name, url, authorization_token: token, tool_configuration: tools }): DeclaredServer => {
      const allowed = tools?.enabled === false ? [] : tools?.allowed_tools;
      return {
        name,
        url,
        ...(token && { token }),
        ...(allowed && { toolset: { type: 'toolset', server: name, allowed } }),
      };
    }),
  { expected: 'a list of MCP servers', max: 64 },
);

/** What a run gets of the tools of a request. */
export function runTools(
  tools: readonly DeclaredTool[],
  servers: readonly DeclaredServer[],
): { readonly functions: readonly DeclaredFunction[]; readonly otherTools: readonly RequestTool[] } {
  const byName = new Map(servers.map((server) => [server.name, server]));
  const toolsets = tools.filter((tool) => tool.type === 'toolset');
  const named = new Set(toolsets.map(({ server }) => server));
  const rest = servers.filter(({ name }) => !named.has(name));
  const all = [
    ...toolsets,
    ...rest.map(({ name, toolset }) => toolset ?? ({ type: 'toolset', server: name } as const)),
  ];
  return {
    functions: tools.filter((tool) => tool.type === 'function'),
    otherTools: [
      ...tools.flatMap((tool) => (tool.type === 'other' && !isSearch(tool) ? tool.tool : [])),
      ...all.map((toolset) => mcpTool(toolset, byName.get(toolset.server))),
    ],
  };
}

/** Tools that are loaded later are offered at once, so that the model need not search them. */
function isSearch({ tool }: OtherTool): boolean {
  return tool.type.startsWith('tool_search_tool_');
}

/** The API has no approvals: the policy of this server judges the calls. */
function mcpTool({ server, allowed, excluded }: Toolset, declared: DeclaredServer | undefined): RequestTool {
  return {
    type: 'mcp',
    server_label: server,
    ...(declared && { server_url: declared.url }),
    ...(declared?.token !== undefined && { authorization: declared.token }),
    ...(allowed && { allowed_tools: allowed }),
    ...(excluded && { excluded_tools: excluded }),
    require_approval: 'never',
  };
}

export interface ParsedToolChoice {
  readonly choice: RequestToolChoice;
  readonly parallel: boolean;
}

const single = { disable_parallel_tool_use: z.boolean().nullish() };

/** Absent: `auto`. */
export const toolChoiceSchema: z.ZodType<ParsedToolChoice | null | undefined> = variants(
  'type',
  ['auto', 'any', 'tool', 'none'],
  [
    z.object({ type: z.literal('auto'), ...single }),
    z.object({ type: z.literal('any'), ...single }),
    z.object({ type: z.literal('tool'), name: toolName, ...single }),
    z.object({ type: z.literal('none') }),
  ],
)
  .transform((given): ParsedToolChoice => ({
    choice: choiceOf(given),
    parallel: !('disable_parallel_tool_use' in given && given.disable_parallel_tool_use),
  }))
  .nullish();

function choiceOf(given: { readonly type: string; readonly name?: string }): RequestToolChoice {
  switch (given.type) {
    case 'any':
      return 'required';
    case 'tool':
      return { type: 'function', name: modelToolName(given.name!) };
    default:
      return given.type === 'none' ? 'none' : 'auto';
  }
}
