import { z } from 'zod';
import { badRequest } from '../api-error.ts';
import { toolKind, type RequestTool } from '../engine/executors.ts';
import type { FunctionTool, RequestToolChoice } from '../engine/tools.ts';
import { MAX_LENGTH, type RequestLimits } from './fields.ts';
import {
  chosenSchema,
  isObject,
  jsonObject,
  list,
  PARAM,
  paramOf,
  refuse,
  typed,
  wrongType,
  type IssueContext,
  type JsonObject,
} from './validate.ts';

export interface ParsedTools {
  readonly functions: readonly FunctionTool[];
  /** The tools that are not functions. */
  readonly others: readonly RequestTool[];
  /** All tools as the response repeats them, without secrets. */
  readonly echo: readonly unknown[];
}

const name = z.string().min(1);
const toolName = name
  .max(MAX_LENGTH.name)
  .regex(/^[a-zA-Z0-9_-]+$/, "the name of a function may contain only letters, digits, '_' and '-'");

/** The fields of a function that the client executes. */
export const functionTool: z.ZodType<FunctionTool> = z
  .object({
    name: toolName,
    description: z.string().nullish(),
    parameters: jsonObject
      .superRefine((parameters, ctx) => {
        const { type = 'object' } = parameters;
        if (type === 'object') return;
        const message = `Invalid ${PARAM}: a function takes an object, so its schema must have the type 'object', not ${JSON.stringify(type)}.`;
        refuse(ctx, message, { path: ['type'], code: 'invalid_function_parameters' });
      })
      .nullish(),
    strict: z.boolean().nullish(),
  })
  .transform(({ name, description, parameters, strict }): FunctionTool => ({
    type: 'function',
    name,
    description: description ?? null,
    parameters: parameters ?? null,
    strict: strict ?? null,
  }));

const grammar = z.object({ syntax: z.enum(['lark', 'regex']), definition: z.string().min(1) });

/** The format of a text. A grammar is flat, as in the Responses API, or nested, as in the chat API. */
const customFormat = chosenSchema<FormatOfText>(
  (format, ctx) => {
    if (!isObject(format)) return wrongType(ctx, format, 'object');
    if (format['type'] === 'text') return ANY_TEXT;
    return isObject(format['grammar']) ? nestedGrammar : flatGrammar;
  },
  () => [typed('text', ANY_TEXT), flatGrammar, nestedGrammar],
);

type FormatOfText = NonNullable<FunctionTool['custom']>['format'];

const ANY_TEXT = z.unknown().transform((): FormatOfText => undefined);
const flatGrammar = z
  .object({ type: z.literal('grammar'), ...grammar.shape })
  .transform((format): FormatOfText => format);
const nestedGrammar = z
  .object({ type: z.literal('grammar'), grammar })
  .transform(({ type, grammar }): FormatOfText => ({ type, ...grammar }));

/** The fields of a tool that the client executes and that takes a text. */
const customFields = z
  .object({ name: toolName, description: z.string().nullish(), format: customFormat.nullish() })
  .transform(({ name, description, format }): FunctionTool => ({
    type: 'function',
    name,
    description: description ?? null,
    parameters: null,
    strict: null,
    custom: format ? { format } : {},
  }));

const nestedCustom = z.object({ custom: customFields }).transform(({ custom }) => custom);

const names = list(z.string(), { expected: 'a list of names', max: Infinity });

const toolFilter = z.looseObject({ tool_names: names.nullish(), read_only: z.boolean().nullish() });
const approvalFilter = z.looseObject({ always: toolFilter.nullish(), never: toolFilter.nullish() });
const approvalWord = z.enum(['always', 'never']);

const mcpTool = z.looseObject({
  type: z.literal('mcp'),
  server_label: name.max(MAX_LENGTH.id),
  server_url: z.string().max(2_048).nullish(),
  allowed_tools: chosenSchema<unknown>(
    (allowed) => (isObject(allowed) ? toolFilter : names),
    () => [names, toolFilter],
  ).nullish(),
  require_approval: chosenSchema<unknown>(
    (required) => (isObject(required) ? approvalFilter : approvalWord),
    () => [approvalWord, approvalFilter],
  ).nullish(),
  headers: z.record(z.string(), z.string()).nullish(),
  authorization: z.string().nullish(),
});

const otherTool = z.looseObject({ type: z.string() });

/** For descriptions: the types that have no form of their own. */
const otherType = z.looseObject({ type: z.string().regex(/^(?!(?:function|custom|mcp|allowed_tools)$)/) });

interface ToolForms {
  readonly limits: RequestLimits;
  /** The schema of a function in the API. May report an issue instead. */
  readonly functionForm: (tool: JsonObject, ctx: IssueContext) => z.ZodType<FunctionTool> | undefined;
  /** All schemas that `functionForm` returns. */
  readonly functionForms: readonly z.ZodType<FunctionTool>[];
  /** Where the name of a function is. */
  readonly namePath: readonly string[];
}

export function toolsSchema({ limits, functionForm, functionForms, namePath }: ToolForms): z.ZodType<ParsedTools> {
  const tool = chosenSchema<FunctionTool | RequestTool>(
    (value, ctx) => {
      if (!isObject(value)) return wrongType(ctx, value, 'object');
      const { length } = JSON.stringify(value);
      if (length > limits.toolChars) {
        const message = `${PARAM} has ${length} characters as JSON, and this server accepts at most ${limits.toolChars} for a tool. Shorten its schema or its description.`;
        return refuse(ctx, message, { code: 'tool_too_large' });
      }
      if (value['type'] === 'function') return functionForm(value, ctx);
      if (value['type'] === 'custom') return isObject(value['custom']) ? nestedCustom : customFields;
      return value['type'] === 'mcp' ? mcpTool : otherTool;
    },
    () => [
      ...functionForms.map((form) => typed('function', form)),
      typed('custom', customFields),
      typed('custom', nestedCustom),
      mcpTool,
      otherType,
    ],
  );
  return list(tool, { expected: 'a list of tools', max: limits.tools })
    .superRefine((tools, ctx) => refuseDuplicates(tools, namePath, ctx))
    .nullish()
    .transform((value) => value ?? [])
    .transform((tools) => ({
      functions: tools.filter(isFunction),
      others: tools.filter((one): one is RequestTool => !isFunction(one)),
      echo: tools.map((one) => (isFunction(one) ? echoOf(one) : withoutSecrets(one))),
    }));
}

function echoOf(tool: FunctionTool): unknown {
  const { name, description, custom } = tool;
  return custom ? { type: 'custom', name, description, format: custom.format ?? { type: 'text' } } : tool;
}

function isFunction(tool: FunctionTool | RequestTool): tool is FunctionTool {
  return tool.type === 'function';
}

function refuseDuplicates(
  tools: readonly (FunctionTool | RequestTool)[],
  namePath: readonly string[],
  ctx: IssueContext,
): void {
  const seen = new Set<string>();
  for (const [index, tool] of tools.entries()) {
    if (tool.type !== 'function' && tool.type !== 'mcp') continue;
    const [declared, path] = isFunction(tool) ? [tool.name, namePath] : [tool['server_label'], ['server_label']];
    const key = `${tool.type} ${String(declared)}`;
    if (seen.has(key)) {
      const message = `Invalid ${PARAM}: '${String(declared)}' is declared twice. Each tool needs a name of its own.`;
      return refuse(ctx, message, { path: [index, ...path], code: 'duplicate_tool' });
    }
    seen.add(key);
  }
}

const SECRET =
  /auth|bearer|headers?$|cookie|secret|passw|(?<!max[-_])token|(^|[-_])(key|pat)$|api[-_]?key|credential|^env/i;

/** The tool as it may be repeated and stored: without the fields that grant access to something. */
export function withoutSecrets(tool: RequestTool): RequestTool {
  const stripped = strippedValue(tool) as RequestTool;
  const url = tool['server_url'];
  return typeof url === 'string' ? { ...stripped, server_url: redactedUrl(url) } : stripped;
}

function strippedValue(value: unknown): unknown {
  if (Array.isArray(value)) return value.map(strippedValue);
  if (!isObject(value)) return value;
  const stripped: Record<string, unknown> = {};
  for (const [key, field] of Object.entries(value)) if (!SECRET.test(key)) stripped[key] = strippedValue(field);
  return stripped;
}

/** Only scheme and host: paths and queries of such URLs often contain keys. */
function redactedUrl(url: string): string {
  if (!URL.canParse(url)) return '<redacted>';
  const { protocol, host, pathname, search } = new URL(url);
  return `${protocol}//${host}/${pathname === '/' && search === '' ? '' : '<redacted>'}`;
}

export interface ParsedChoice {
  readonly choice: RequestToolChoice;
  /** As the response repeats it. */
  readonly echo: unknown;
  /** The tools that it names. */
  readonly selected: readonly SelectedTool[];
}

interface SelectedTool {
  readonly tool: RequestTool;
  /** The path of the field that names the tool. */
  readonly path: readonly PropertyKey[];
}

const MODES = ['auto', 'required', 'none'] as const;
/** The limit of the specification. */
const MAX_ALLOWED = 128;

const selectedByFunctionName = z
  .object({ name })
  .transform(({ name }): SelectedTool => ({ tool: { type: 'function', name }, path: ['name'] }));
const selectedByCustomName = z
  .object({ name })
  .transform(({ name }): SelectedTool => ({ tool: { type: 'custom', name }, path: ['name'] }));
const selectedByNestedCustom = z
  .object({ custom: z.object({ name }) })
  .transform(({ custom: { name } }): SelectedTool => ({ tool: { type: 'custom', name }, path: ['custom', 'name'] }));
const selectedByNestedName = z.object({ function: z.object({ name }) }).transform((value): SelectedTool => ({
  tool: { type: 'function', name: value.function.name },
  path: ['function', 'name'],
}));
const selectedByLabel = z
  .object({ server_label: name, name: name.nullish() })
  .transform(({ server_label, name }): SelectedTool => ({
    tool: { type: 'mcp', server_label, ...(name != null && { name }) },
    path: ['server_label'],
  }));
const selectedByType = z
  .object({ type: z.string() })
  .transform(({ type }): SelectedTool => ({ tool: { type }, path: ['type'] }));

function selections(): readonly z.ZodType[] {
  return [
    ...[selectedByFunctionName, selectedByNestedName].map((form) => typed('function', form)),
    ...[selectedByCustomName, selectedByNestedCustom].map((form) => typed('custom', form)),
    typed('mcp', selectedByLabel),
    otherType,
  ];
}

/** One tool of the request. A function may be named flat, as in the Responses API, or nested, as in the chat API. */
const selectedTool = chosenSchema<SelectedTool>((tool) => {
  if (!isObject(tool)) return selectedByType;
  if (tool['type'] === 'mcp') return selectedByLabel;
  if (tool['type'] === 'custom') return isObject(tool['custom']) ? selectedByNestedCustom : selectedByCustomName;
  if (tool['type'] !== 'function') return selectedByType;
  return tool['name'] === undefined && isObject(tool['function']) ? selectedByNestedName : selectedByFunctionName;
}, selections);

const modeChoice = z.enum(MODES).transform((mode): ParsedChoice => ({ choice: mode, echo: mode, selected: [] }));

const noChoice = z.unknown().transform((): ParsedChoice => ({ choice: 'auto', echo: 'auto', selected: [] }));

const toolChoice = selectedTool.transform((selected): ParsedChoice => {
  const { tool } = selected;
  const choice: RequestToolChoice =
    tool.type === 'function' || tool.type === 'custom' || tool.type === 'mcp'
      ? (tool as RequestToolChoice)
      : // Any other type of tool is forced by allowing no other tools.
        { type: 'allowed_tools', mode: 'required', tools: [tool] };
  return { choice, echo: tool, selected: [selected] };
});

const allowedTools = z.object({
  mode: z.enum(MODES).nullish(),
  tools: list(selectedTool, { expected: 'a list of tools', max: MAX_ALLOWED }).superRefine((tools, ctx) => {
    if (tools.length > 0) return;
    const message = `Invalid ${PARAM}: it is empty. Name the tools that may be called, or set 'tool_choice' to 'none'.`;
    refuse(ctx, message, { code: 'array_below_min_length' });
  }),
});

/** Flat, as in the Responses API, or nested, as in the chat API. */
const flatAllowed = allowedTools.transform((value) => allowedChoice(value, ['tools']));
const nestedAllowed = z
  .object({ allowed_tools: allowedTools })
  .transform((value) => allowedChoice(value.allowed_tools, ['allowed_tools', 'tools']));

function allowedChoice({ mode, tools }: z.infer<typeof allowedTools>, at: readonly string[]): ParsedChoice {
  const echo = { type: 'allowed_tools', mode: mode ?? 'auto', tools: tools.map(({ tool }) => tool) } as const;
  return {
    choice: echo.mode === 'none' ? 'none' : { ...echo, mode: echo.mode },
    echo,
    selected: tools.map(({ tool, path }, index) => ({ tool, path: [...at, index, ...path] })),
  };
}

export const toolChoiceSchema: z.ZodType<ParsedChoice> = chosenSchema<ParsedChoice>(
  (value, ctx) => {
    if (value == null) return noChoice;
    if (typeof value === 'string') return modeChoice;
    if (!isObject(value)) return wrongType(ctx, value, 'a string or an object');
    if (value['type'] !== 'allowed_tools' && !(value['type'] === undefined && 'allowed_tools' in value))
      return toolChoice;
    return value['allowed_tools'] == null ? flatAllowed : nestedAllowed;
  },
  () => [
    modeChoice,
    ...selections(),
    typed('allowed_tools', flatAllowed),
    typed('allowed_tools', nestedAllowed, { isOptional: true }),
  ],
);

/** Throws a 400 if the choice names a tool that the request does not declare. `labels`: available to every request. */
export function checkDeclared({ selected }: ParsedChoice, tools: ParsedTools, labels: readonly string[]): void {
  const declared = declaredTools(tools, labels);
  for (const { tool, path } of selected) {
    if (declared.has(selectionText(tool, toolKind(tool.type)))) continue;
    const param = paramOf(['tool_choice', ...path]);
    throw badRequest(
      `Invalid '${param}': there is no ${selectionText(tool)} in 'tools'. Declare it there, or choose another.`,
      param,
      'unknown_tool',
    );
  }
}

/** What a choice may name, as errors name it. */
function declaredTools({ functions, others }: ParsedTools, labels: readonly string[]): ReadonlySet<string> {
  return new Set([
    ...functions.map(({ name }) => selectionText({ type: 'function', name })),
    ...functions.flatMap(({ custom, name }) => (custom ? selectionText({ type: 'custom', name }) : [])),
    ...labels.map((label) => selectionText({ type: 'mcp', server_label: label })),
    ...others.map((tool) => selectionText(tool, toolKind(tool.type))),
  ]);
}

function selectionText({ name, server_label: label, ...tool }: RequestTool, type = tool.type): string {
  if (type === 'function') return `function '${String(name)}'`;
  if (type === 'custom') return `custom tool '${String(name)}'`;
  return type === 'mcp' ? `MCP server '${String(label)}'` : `tool of type '${type.slice(0, 60)}'`;
}
