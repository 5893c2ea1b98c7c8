import { z } from 'zod';
import { badRequest } from '../api-error.ts';
import { isBuiltIn, type BuiltInTool } from '../engine/built-in-tools.ts';
import { containerOf, toolKind, type RequestTool } from '../engine/executors.ts';
import { modelName } from '../engine/namespaces.ts';
import { SEARCH, type FunctionTool, type RequestToolChoice } from '../engine/tools.ts';
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
    defer_loading: z.boolean().nullish(),
  })
  .transform(({ name, description, parameters, strict, defer_loading: isDeferred }): FunctionTool => ({
    type: 'function',
    name,
    description: description ?? null,
    parameters: parameters ?? null,
    strict: strict ?? null,
    ...(isDeferred && { deferred: true }),
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
  .object({
    name: toolName,
    description: z.string().nullish(),
    format: customFormat.nullish(),
    defer_loading: z.boolean().nullish(),
  })
  .transform(({ name, description, format, defer_loading: isDeferred }): FunctionTool => ({
    type: 'function',
    name,
    description: description ?? null,
    parameters: null,
    strict: null,
    custom: format ? { format } : {},
    ...(isDeferred && { deferred: true }),
  }));

const nestedCustom = z.object({ custom: customFields }).transform(({ custom }) => custom);

/** A search for tools that the client executes. */
const clientSearch = z
  .object({
    type: z.literal('tool_search'),
    execution: z.literal('client'),
    description: z.string().nullish(),
    parameters: jsonObject.nullish(),
  })
  .transform(({ description, parameters }): FunctionTool => ({
    type: 'function',
    name: SEARCH,
    description: description ?? null,
    parameters: parameters ?? null,
    strict: null,
    search: true,
  }));

const localSkill = z.object({ name, description: z.string(), path: z.string() });

/** Tools of OpenAI's types that the client executes. */
const shellTool = z
  .object({
    type: z.literal('shell'),
    environment: z
      .object({
        type: z.literal('local'),
        skills: list(localSkill, { expected: 'a list of skills', max: Infinity }).nullish(),
      })
      .nullish(),
  })
  .transform(({ type, environment }): FunctionTool => {
    if (!environment) return builtInFunction({ type });
    const { skills, ...local } = environment;
    return builtInFunction({ type, environment: { ...local, ...(skills && { skills }) } });
  });
const otherBuiltIn = z
  .object({ type: z.enum(['local_shell', 'apply_patch']) })
  .transform((tool): FunctionTool => builtInFunction(tool));

function builtInFunction(builtIn: BuiltInTool): FunctionTool {
  return { type: 'function', name: builtIn.type, description: null, parameters: null, strict: null, builtIn };
}

/** Functions and custom tools with a common prefix. Their names need to be unique only within it. */
interface Namespace {
  readonly type: 'namespace';
  readonly name: string;
  readonly description: string | null;
  readonly tools: readonly FunctionTool[];
}

function namespaceSchema({ limits }: ToolForms): z.ZodType<Namespace> {
  const tool = chosenSchema<FunctionTool>(
    (value, ctx) => {
      if (!isObject(value)) return wrongType(ctx, value, 'object');
      const problem = toolSizeProblem(value, limits);
      if (problem !== undefined) return refuse(ctx, problem, { code: 'tool_too_large' });
      return value['type'] === 'custom' ? customFields : memberFunction;
    },
    () => [memberFunction, typed('custom', customFields)],
  );
  return z
    .object({
      type: z.literal('namespace'),
      name: name.max(MAX_LENGTH.id),
      description: z.string().nullish(),
      tools: list(tool, { expected: 'a list of tools', max: limits.tools }),
    })
    .transform(({ type, name, description, tools }) => ({ type, name, description: description ?? null, tools }));
}

const memberFunction = z
  .looseObject({ type: z.literal('function') })
  .pipe(functionTool as z.ZodType<FunctionTool, { type: 'function' }>);

/** The tools of a namespace under the names that the model gets. The first one says what the namespace is. */
function inNamespace(
  { name: namespace, description: about }: Pick<Namespace, 'name' | 'description'>,
  tools: readonly FunctionTool[],
): readonly FunctionTool[] {
  return tools.map((tool, index) => {
    const { name } = tool;
    const named = { ...tool, name: modelName(name, namespace), own: { name, namespace } };
    if (index > 0 || !about) return named;
    const told = `About all tools of ${JSON.stringify(namespace)}: ${about}`;
    return { ...named, description: tool.description ? `${tool.description}\n\n${told}` : told };
  });
}

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
  /** The API has namespaces, and searches, shells and patches that the client executes; default false. */
  readonly hasNamespaces?: boolean;
}

export function toolsSchema(forms: ToolForms): z.ZodType<ParsedTools> {
  const { limits, functionForm, functionForms, namePath, hasNamespaces = false } = forms;
  const namespace = namespaceSchema(forms);
  const tool = chosenSchema<FunctionTool | RequestTool | Namespace>(
    (value, ctx) => {
      if (!isObject(value)) return wrongType(ctx, value, 'object');
      if (hasNamespaces && value['type'] === 'namespace') return namespace;
      const problem = toolSizeProblem(value, limits);
      if (problem !== undefined) return refuse(ctx, problem, { code: 'tool_too_large' });
      if (value['type'] === 'function') return functionForm(value, ctx);
      if (hasNamespaces && value['type'] === SEARCH && value['execution'] === 'client') return clientSearch;
      if (hasNamespaces && isBuiltIn(value['type']) && containerOf(value) === undefined) {
        return value['type'] === 'shell' ? shellTool : otherBuiltIn;
      }
      if (value['type'] === 'custom') return isObject(value['custom']) ? nestedCustom : customFields;
      return value['type'] === 'mcp' ? mcpTool : otherTool;
    },
    () => [
      ...functionForms.map((form) => typed('function', form)),
      typed('custom', customFields),
      typed('custom', nestedCustom),
      ...(hasNamespaces ? [namespace, clientSearch, shellTool, otherBuiltIn] : []),
      mcpTool,
      otherType,
    ],
  );
  return list(tool, { expected: 'a list of tools', max: limits.tools })
    .superRefine((tools, ctx) => refuseDuplicates(tools, namePath, ctx))
    .nullish()
    .transform((value) => value ?? [])
    .transform((tools) => ({
      functions: tools.flatMap(functionsOf),
      others: tools.filter((one): one is RequestTool => !isFunction(one) && !isNamespace(one)),
      echo: tools.map((one) => (isClientTool(one) ? shownTool(one) : withoutSecrets(one))),
    }));
}

/**
 * Tools that an item of a conversation declares: the client executes all of them. Others are refused, except searches of the
 * web, which clients add to every list.
 */
export function declaredToolsSchema(limits: RequestLimits): z.ZodType<readonly ShownTool[]> {
  const forms = { limits, functionForm: () => functionTool, functionForms: [functionTool], namePath: ['name'] };
  return toolsSchema({ ...forms, hasNamespaces: true })
    .superRefine(({ others }, ctx) => {
      const other = others.find(({ type }) => toolKind(type) !== 'web_search');
      if (!other) return;
      const message = `Invalid ${PARAM}: an item declares tools that the client executes, not one of type '${other.type.slice(0, 60)}'. Send it in 'tools' of the request.`;
      refuse(ctx, message, { code: 'unsupported_tool' });
    })
    .transform(({ echo }) =>
      echo.filter((tool): tool is ShownTool => toolKind((tool as ShownTool).type) !== 'web_search'),
    );
}

/** A tool of the client as the response repeats it, and as items of a conversation are stored. */
export type ShownTool =
  | (Pick<FunctionTool, 'type' | 'name' | 'description' | 'parameters' | 'strict'> & MayBeDeferred)
  | ({
      readonly type: 'custom';
      readonly name: string;
      readonly description: string | null;
      readonly format: unknown;
    } & MayBeDeferred)
  | BuiltInTool
  | ({ readonly type: 'tool_search'; readonly execution: 'client' } & Pick<FunctionTool, 'description' | 'parameters'>)
  | (Omit<Namespace, 'tools'> & { readonly tools: readonly ShownTool[] });

interface MayBeDeferred {
  readonly defer_loading?: true;
}

function shownTool(tool: FunctionTool | Namespace): ShownTool {
  if (isNamespace(tool)) return { ...tool, tools: tool.tools.map(shownTool) };
  const { type, name, description, parameters, strict, custom, search, deferred, builtIn } = tool;
  if (builtIn) return builtIn;
  if (search) return { type: SEARCH, execution: 'client', description, parameters };
  const more: MayBeDeferred = deferred ? { defer_loading: true } : {};
  if (custom) return { type: 'custom', name, description, format: custom.format ?? { type: 'text' }, ...more };
  return { type, name, description, parameters, strict, ...more };
}

/** The tools that a list in its repeated form declares, under the names that the model gets. */
export function functionsIn(tools: readonly ShownTool[]): readonly FunctionTool[] {
  return tools.flatMap((tool) => {
    if (isBuiltInTool(tool)) return builtInFunction(tool);
    if (tool.type !== 'namespace') return functionOf(tool);
    return inNamespace(tool, functionsIn(tool.tools));
  });
}

function isBuiltInTool(tool: ShownTool): tool is BuiltInTool {
  return isBuiltIn(tool.type);
}

function functionOf(tool: Exclude<ShownTool, BuiltInTool | { type: 'namespace' }>): FunctionTool {
  const { type, description } = tool;
  if (type === SEARCH) {
    return { type: 'function', name: SEARCH, description, parameters: tool.parameters, strict: null, search: true };
  }
  const more = tool.defer_loading ? { deferred: true as const } : {};
  if (type === 'function') {
    const { name, parameters, strict } = tool;
    return { type, name, description, parameters, strict, ...more };
  }
  const { name, format } = tool;
  const custom = (format as { readonly type?: unknown }).type === 'text' ? {} : { format: format as never };
  return { type: 'function', name, description, parameters: null, strict: null, custom, ...more };
}

/** Why a tool is too large; undefined if it is not. */
export function toolSizeProblem(tool: JsonObject, { toolChars }: RequestLimits): string | undefined {
  const { length } = JSON.stringify(tool);
  if (length <= toolChars) return undefined;
  return `${PARAM} has ${length} characters as JSON, and this server accepts at most ${toolChars} for a tool. Shorten its schema or its description.`;
}

type SentTool = FunctionTool | RequestTool | Namespace;

function isFunction(tool: SentTool): tool is FunctionTool {
  return tool.type === 'function';
}

/** Tools of other types are checked less: only a namespace that was parsed has a list of functions. */
function isNamespace(tool: SentTool): tool is Namespace {
  return tool.type === 'namespace' && Array.isArray(tool['tools' as keyof SentTool]);
}

function isClientTool(tool: SentTool): tool is FunctionTool | Namespace {
  return isFunction(tool) || isNamespace(tool);
}

function functionsOf(tool: SentTool): readonly FunctionTool[] {
  if (isNamespace(tool)) return inNamespace(tool, tool.tools);
  return isFunction(tool) ? [tool] : [];
}

function refuseDuplicates(tools: readonly SentTool[], namePath: readonly string[], ctx: IssueContext): void {
  const seen = new Set<string>();
  for (const [index, tool] of tools.entries()) {
    for (const { key, shown, path } of declaredBy(tool, namePath)) {
      if (seen.has(key)) {
        const message = `Invalid ${PARAM}: '${shown}' is declared twice. Each tool needs a name of its own.`;
        return refuse(ctx, message, { path: [index, ...path], code: 'duplicate_tool' });
      }
      seen.add(key);
    }
  }
}

interface Declared {
  readonly key: string;
  readonly shown: string;
  readonly path: readonly PropertyKey[];
}

function declaredBy(tool: SentTool, namePath: readonly string[]): readonly Declared[] {
  if (tool.type === 'mcp') {
    const label = String((tool as RequestTool)['server_label']);
    return [{ key: `mcp ${label}`, shown: label, path: ['server_label'] }];
  }
  return functionsOf(tool).map(({ name, own, builtIn }, index) => ({
    key: `function ${name}`,
    shown: name,
    path: own ? ['tools', index, 'name'] : builtIn ? ['type'] : namePath,
  }));
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
    ...functions.flatMap(({ builtIn }) => (builtIn ? selectionText(builtIn as RequestTool) : [])),
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
