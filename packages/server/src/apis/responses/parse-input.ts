import { hash } from 'node:crypto';
import { z } from 'zod';
import { MAX_LENGTH, type RequestLimits } from '../../parse/fields.ts';
import { checkFile, checkImage, imageDetail } from '../../parse/media.ts';
import { declaredToolsSchema } from '../../parse/tools.ts';
import {
  checkCharacters,
  chosenSchema,
  isObject,
  jsonObject,
  list,
  PARAM,
  refuse,
  textOr,
  typed,
  UNSUPPORTED,
  variants,
  wrongType,
  type JsonObject,
} from '../../parse/validate.ts';
import type * as wire from './wire.ts';
import { mcpErrorText, PASSED_OVER, sentMcpError } from './wire.ts';

export const longText: z.ZodType<string> = z.string().max(MAX_LENGTH.text);

const status = z.string().nullish().transform(itemStatus);
const callId = z.string().min(1).max(MAX_LENGTH.id);
const toolName = z.string().min(1).max(MAX_LENGTH.id);
const serverLabel = z.string().max(MAX_LENGTH.id);
const phase = z.enum(['commentary', 'final_answer']).nullish();

function itemStatus(value: string | null | undefined): wire.ItemStatus {
  return value === 'in_progress' || value === 'incomplete' ? value : 'completed';
}

const inputText = z
  .object({ type: z.enum(['input_text', 'text']), text: longText })
  .transform(({ text }): wire.InputText => ({ type: 'input_text', text }));

const inputImage = z
  .object({
    type: z.literal('input_image'),
    image_url: z.string().max(MAX_LENGTH.image).nullish(),
    file_id: z.string().nullish(),
    detail: imageDetail,
  })
  .transform(({ image_url: url, file_id: id, detail }, ctx): wire.InputImage => {
    if (url == null && id != null) return refuseUpload(ctx, "'image_url', an http(s) URL or a data URL");
    if (url == null) {
      const message = `Missing required parameter: ${PARAM}.`;
      return refuse(ctx, message, { path: ['image_url'], code: 'missing_required_parameter' });
    }
    checkImage(url, ctx, ['image_url']);
    return { type: 'input_image', image_url: url, detail: detail ?? 'auto' };
  });

const inputFile = z
  .object({
    type: z.literal('input_file'),
    filename: z.string().max(MAX_LENGTH.id).nullish(),
    file_data: z.string().max(MAX_LENGTH.file).nullish(),
    file_url: z.string().max(MAX_LENGTH.image).nullish(),
    file_id: z.string().nullish(),
  })
  .transform(({ filename, file_data: data, file_url: url, file_id: id }, ctx): wire.InputFile => {
    if (id != null && data == null && url == null) return refuseUpload(ctx, "'file_data' or 'file_url'");
    checkFile({ data, url }, ctx);
    return {
      type: 'input_file',
      ...(filename && { filename }),
      ...(data != null && { file_data: data }),
      ...(url != null && { file_url: url }),
    };
  });

function refuseUpload(ctx: Parameters<typeof refuse>[0], instead: string): never {
  const message = `${PARAM} names an uploaded file, and this server does not store files. Send ${instead}.`;
  return refuse(ctx, message, { path: ['file_id'], ...UNSUPPORTED });
}

const outputText = z
  .object({ type: z.enum(['output_text', 'text', 'input_text']), text: longText })
  .transform(({ text }) => wireOutputText(text));

function wireOutputText(text: string): wire.OutputText {
  return { type: 'output_text', text, annotations: [], logprobs: [] };
}

const refusal = z.object({ type: z.literal('refusal'), refusal: longText });

/** `input`, or any list of items: a text, or items. An item without an id gets the beginning of one, for `withIds`. */
export function inputSchema(limits: RequestLimits): z.ZodType<readonly wire.InputItem[]> {
  const idOr = (prefix: string) =>
    z
      .string()
      .max(MAX_LENGTH.id)
      .nullish()
      .transform((id) => id || `${prefix}_`);
  const parts = <T>(part: z.ZodType<T>) => list(part, { expected: 'a string or a list of parts', max: limits.parts });
  const asInputText = longText.transform((text): readonly wire.InputPart[] => [{ type: 'input_text', text }]);
  const asOutputText = longText.transform((text): readonly (wire.OutputText | wire.Refusal)[] => [
    wireOutputText(text),
  ]);
  const userParts = parts<wire.InputPart>(
    variants('type', ['input_text', 'input_image', 'input_file'], [inputText, inputImage, inputFile]),
  );
  const systemParts = parts<wire.InputPart>(variants('type', ['input_text'], [inputText]));
  const assistantParts = parts<wire.OutputText | wire.Refusal>(
    variants('type', ['output_text', 'refusal'], [outputText, refusal]),
  );

  const common = { id: idOr('msg'), status, phase };
  const message = variants('role', ROLES, [
    z.object({ ...common, role: z.literal('user'), content: textOr(asInputText, userParts) }),
    z.object({ ...common, role: z.enum(['system', 'developer']), content: textOr(asInputText, systemParts) }),
    z.object({ ...common, role: z.literal('assistant'), content: textOr(asOutputText, assistantParts) }),
  ]).transform(({ phase, ...item }): wire.InstructionOrUserMessage | wire.MessageItem =>
    item.role === 'assistant' ? { type: 'message', ...item, ...(phase && { phase }) } : { type: 'message', ...item },
  );

  /** What an agent of the client says to another one. A part that the model has written may be marked as encrypted. */
  const agentPart = variants(
    'type',
    ['input_text', 'encrypted_content'],
    [
      inputText,
      z
        .object({ type: z.literal('encrypted_content'), encrypted_content: longText })
        .transform(({ encrypted_content: text }): wire.InputText => ({ type: 'input_text', text })),
    ],
  );
  const agentMessage = z
    .object({ type: z.literal('agent_message'), id: idOr('msg'), content: parts<wire.InputPart>(agentPart) })
    .transform(({ id, content }): wire.InstructionOrUserMessage => ({
      type: 'message',
      id,
      status: 'completed',
      role: 'user',
      content,
    }));

  const texts = list(z.object({ text: longText }), { expected: 'a list of texts', max: Infinity }).nullish();
  const reasoning = z
    .object({ id: idOr('rs'), status, summary: texts, content: texts, encrypted_content: longText.nullish() })
    .transform(({ id, status, summary, content, encrypted_content }): wire.ReasoningItem => {
      const shown = (summary ?? []).map(({ text }) => ({ type: 'summary_text' as const, text }));
      const full = (content ?? []).map(({ text }) => ({ type: 'reasoning_text' as const, text }));
      return {
        type: 'reasoning',
        id,
        status,
        summary: shown,
        ...(full.length > 0 && { content: full }),
        ...(encrypted_content && { encrypted_content }),
      };
    });

  const functionCall = z
    .object({
      type: z.literal('function_call'),
      id: idOr('fc'),
      status,
      call_id: callId,
      name: toolName,
      namespace: toolName.nullish(),
      arguments: longText,
    })
    .transform(({ namespace, ...item }): wire.FunctionCallItem => ({
      ...item,
      ...(namespace != null && { namespace }),
    }));

  const functionCallOutput = z
    .object({
      type: z.literal('function_call_output'),
      id: idOr('fco'),
      status,
      call_id: callId,
      output: textOr(longText, userParts),
      is_error: z.boolean().nullish(),
    })
    .transform(({ is_error, ...item }): wire.FunctionCallOutputItem => ({
      ...item,
      ...(is_error != null && { is_error }),
    }));

  const customCall = z
    .object({
      type: z.literal('custom_tool_call'),
      id: idOr('ctc'),
      status,
      call_id: callId,
      name: toolName,
      namespace: toolName.nullish(),
      input: longText,
    })
    .transform(({ namespace, ...item }): wire.CustomCallItem => ({ ...item, ...(namespace != null && { namespace }) }));

  const customCallOutput = z
    .object({ ...functionCallOutput.in.shape, type: z.literal('custom_tool_call_output'), id: idOr('ctco') })
    .transform(({ is_error, ...item }): wire.CustomCallOutputItem => ({
      ...item,
      ...(is_error != null && { is_error }),
    }));

  const amount = z
    .number()
    .nullish()
    .transform((value) => value ?? null);
  const word = z
    .string()
    .nullish()
    .transform((value) => value ?? null);
  const words = list(longText, { expected: 'a list of strings', max: limits.parts });
  const shellCall = z
    .object({
      type: z.literal('shell_call'),
      id: idOr('sh'),
      status,
      call_id: callId,
      action: z.object({ commands: words, timeout_ms: amount, max_output_length: amount }),
      environment: variants(
        'type',
        ['local', 'container_reference'],
        [
          z.object({ type: z.literal('local') }),
          z.object({ type: z.literal('container_reference'), container_id: z.string() }),
        ],
      ).nullish(),
    })
    .transform(({ environment, ...item }): wire.ShellCallItem => ({ ...item, environment: environment ?? null }));
  const outcome = variants(
    'type',
    ['exit', 'timeout'],
    [z.object({ type: z.literal('exit'), exit_code: z.int() }), z.object({ type: z.literal('timeout') })],
  );
  const shellCallOutput = z.object({
    type: z.literal('shell_call_output'),
    id: idOr('sho'),
    status,
    call_id: callId,
    output: list(z.object({ stdout: longText, stderr: longText, outcome }), {
      expected: 'a list of outputs',
      max: limits.parts,
    }),
    max_output_length: amount,
  }) satisfies z.ZodType<wire.ShellCallOutputItem>;
  const localShellCall = z
    .object({
      type: z.literal('local_shell_call'),
      id: idOr('lsh'),
      status,
      call_id: callId,
      action: z.object({
        type: z.literal('exec'),
        command: words,
        env: z.record(z.string(), z.string()).nullish(),
        timeout_ms: amount,
        user: word,
        working_directory: word,
      }),
    })
    .transform(({ action: { env, ...action }, ...item }): wire.LocalShellCallItem => ({
      ...item,
      action: { ...action, env: env ?? {} },
    }));
  /** In the types of the official clients, its `id` is the `call_id` of the call. */
  const localShellCallOutput = z
    .object({
      type: z.literal('local_shell_call_output'),
      id: z.string().max(MAX_LENGTH.id).nullish(),
      status,
      call_id: callId.nullish(),
      output: longText,
    })
    .transform(({ id, call_id, ...item }, ctx): wire.LocalShellCallOutputItem => {
      if (call_id != null) return { ...item, id: id || 'lsho_', call_id };
      if (id) return { ...item, id: 'lsho_', call_id: id };
      const message = `Missing required parameter: ${PARAM}.`;
      return refuse(ctx, message, { path: ['call_id'], code: 'missing_required_parameter' });
    });
  const filePath = z.string().min(1).max(MAX_LENGTH.text);
  const applyPatchCall = z.object({
    type: z.literal('apply_patch_call'),
    id: idOr('apc'),
    status,
    call_id: callId,
    operation: variants(
      'type',
      ['create_file', 'update_file', 'delete_file'],
      [
        z.object({ type: z.enum(['create_file', 'update_file']), path: filePath, diff: longText }),
        z.object({ type: z.literal('delete_file'), path: filePath }),
      ],
    ),
  }) satisfies z.ZodType<wire.ApplyPatchCallItem>;
  const applyPatchCallOutput = z.object({
    type: z.literal('apply_patch_call_output'),
    id: idOr('apco'),
    call_id: callId,
    status: z.enum(['completed', 'failed']),
    output: longText.nullish().transform((value) => value ?? null),
  }) satisfies z.ZodType<wire.ApplyPatchCallOutputItem>;

  const declared = declaredToolsSchema(limits);
  const additionalTools = z
    .object({ type: z.literal('additional_tools'), id: idOr('at'), tools: declared })
    .transform((item): wire.AdditionalToolsItem => ({ ...item, role: 'developer' }));
  const clientSearch = { id: idOr('item'), status, call_id: callId, execution: z.literal('client') };
  const searchCall = z.object({
    type: z.literal('tool_search_call'),
    ...clientSearch,
    arguments: jsonObject,
  }) satisfies z.ZodType<wire.ToolSearchCallItem>;
  const searchOutput = z.object({
    type: z.literal('tool_search_output'),
    ...clientSearch,
    tools: declared,
  }) satisfies z.ZodType<wire.ToolSearchOutputItem>;

  const passedOver = z.object({
    type: z.enum(PASSED_OVER),
    id: idOr('item'),
  }) satisfies z.ZodType<wire.PassedOverItem>;

  const mcpCall = z
    .object({
      id: idOr('mcp'),
      status: z.string().nullish(),
      server_label: serverLabel,
      name: toolName,
      arguments: longText,
      output: longText.nullish(),
      error: z.unknown().optional(),
      approval_request_id: callId.nullish(),
    })
    .transform(({ status, output, error, approval_request_id, ...item }): wire.McpCallItem => {
      const sent = sentMcpError(error);
      return {
        type: 'mcp_call',
        ...item,
        status: sent === null && status !== 'failed' ? itemStatus(status) : 'failed',
        output: output ?? null,
        error: sent,
        approval_request_id: approval_request_id ?? null,
      };
    });

  const approvalRequest = z.object({
    type: z.literal('mcp_approval_request'),
    id: callId,
    server_label: serverLabel,
    name: toolName,
    arguments: longText,
  }) satisfies z.ZodType<wire.McpApprovalRequestItem>;

  const approvalResponse = z
    .object({
      type: z.literal('mcp_approval_response'),
      id: idOr('mcpa'),
      approval_request_id: callId,
      approve: z.boolean(),
      reason: longText.nullish(),
    })
    .transform(({ reason, ...item }): wire.McpApprovalResponseItem => ({ ...item, ...(reason && { reason }) }));

  const listedTool = z
    .object({
      name: z.string(),
      description: z.string().nullish(),
      input_schema: z.unknown().optional(),
      annotations: z.record(z.string(), z.unknown()).nullish(),
    })
    .transform(({ name, description, input_schema, annotations }): wire.McpListedTool => ({
      name,
      ...(description != null && { description }),
      input_schema,
      ...(annotations && { annotations }),
    }));
  const toolList = z
    .object({
      type: z.literal('mcp_list_tools'),
      id: idOr('mcpl'),
      server_label: serverLabel,
      tools: list(listedTool, { expected: 'a list of tools', max: Infinity }).nullish(),
      error: z.unknown().optional(),
    })
    .transform(({ tools, error, ...item }): wire.McpListToolsItem => {
      const text = mcpErrorText(error);
      return { ...item, tools: tools ?? [], ...(text !== null && { error: text }) };
    });

  const reference = z
    .object({ id: z.string().min(1).max(MAX_LENGTH.id) })
    .transform(({ id }): wire.ItemReference => ({ type: 'item_reference', id }));

  const compaction = z.object({
    type: z.literal('compaction'),
    id: idOr('cmp'),
    encrypted_content: longText,
  }) satisfies z.ZodType<wire.CompactionItem>;

  const byType: ReadonlyMap<unknown, z.ZodType<wire.InputItem>> = new Map<unknown, z.ZodType<wire.InputItem>>([
    ['message', message],
    ['reasoning', reasoning],
    ['function_call', functionCall],
    ['function_call_output', functionCallOutput],
    ['custom_tool_call', customCall],
    ['custom_tool_call_output', customCallOutput],
    ['shell_call', shellCall],
    ['shell_call_output', shellCallOutput],
    ['local_shell_call', localShellCall],
    ['local_shell_call_output', localShellCallOutput],
    ['apply_patch_call', applyPatchCall],
    ['apply_patch_call_output', applyPatchCallOutput],
    ['mcp_call', mcpCall],
    ['mcp_list_tools', toolList],
    ['mcp_approval_request', approvalRequest],
    ['mcp_approval_response', approvalResponse],
    ['item_reference', reference],
    ['compaction', compaction],
    ['additional_tools', additionalTools],
    ['agent_message', agentMessage],
    ...PASSED_OVER.map((type) => [type, passedOver] as const),
  ]);
  const searches: ReadonlyMap<unknown, z.ZodType<wire.InputItem>> = new Map<unknown, z.ZodType<wire.InputItem>>([
    ['tool_search_call', searchCall],
    ['tool_search_output', searchOutput],
  ]);
  const item = chosenSchema(
    (value, ctx) => {
      if (!isObject(value)) return wrongType(ctx, value, 'object');
      const type = typeOf(value);
      // A search that another server has executed is passed over.
      return (value['execution'] === 'client' && searches.get(type)) || (byType.get(type) ?? unknownItem);
    },
    () => [
      typed('message', message, { isOptional: true }),
      typed('reasoning', reasoning),
      functionCall,
      functionCallOutput,
      customCall,
      customCallOutput,
      shellCall,
      shellCallOutput,
      localShellCall,
      localShellCallOutput,
      applyPatchCall,
      applyPatchCallOutput,
      additionalTools,
      agentMessage,
      searchCall,
      searchOutput,
      typed('mcp_call', mcpCall),
      toolList,
      approvalRequest,
      approvalResponse,
      passedOver,
      typed('item_reference', reference, { isOptional: true }),
      compaction,
    ],
  );
  const text = longText.transform((value): readonly wire.InputItem[] =>
    value === ''
      ? []
      : [
          {
            type: 'message',
            id: 'msg_',
            status: 'completed',
            role: 'user',
            content: [{ type: 'input_text', text: value }],
          },
        ],
  );
  const items = list(item, { expected: 'a string or a list of items', max: limits.inputItems });
  return textOr(text, items).superRefine((input, ctx) => checkCharacters(input, limits.inputChars, ctx));
}

const ROLES = ['user', 'assistant', 'system', 'developer'];

/** The types that the error for an unknown type lists. */
const TYPES = [
  'message',
  'reasoning',
  'function_call',
  'function_call_output',
  'custom_tool_call',
  'custom_tool_call_output',
  'tool_search_call',
  'tool_search_output',
  'shell_call',
  'shell_call_output',
  'local_shell_call',
  'local_shell_call_output',
  'apply_patch_call',
  'apply_patch_call_output',
  'additional_tools',
  'agent_message',
  'mcp_call',
  'mcp_approval_response',
  'item_reference',
  'compaction',
] as const;

const unknownItem = z.object({ type: z.enum(TYPES) }).transform((): never => z.NEVER);

/** The type may be left out: an object with `role` or `content` is a message, and one with only an `id` a reference. */
function typeOf(item: JsonObject): unknown {
  const { type, role, id } = item;
  if (type != null) return type;
  if (role !== undefined || 'content' in item) return 'message';
  return id === undefined ? undefined : 'item_reference';
}

const BEGINNING = /^(?:msg|rs|fc|fco|ctc|ctco|sh|sho|lsh|lsho|apc|apco|at|mcp|mcpl|mcpa|cmp|item)_$/;

/**
 * Completes the ids of items that came without one, from a digest of the items so far. So an item has the same id when a
 * client sends it again, in the same conversation, and a store can recognise it. With a seed of its own, an item is different
 * from all others.
 */
export function withIds(items: readonly wire.InputItem[], seed = ''): readonly wire.InputItem[] {
  if (!items.some(({ id }) => BEGINNING.test(id))) return items;
  let digest = seed;
  return items.map((item) => {
    digest = hash('sha256', digest + JSON.stringify(item));
    return BEGINNING.test(item.id) ? { ...item, id: item.id + digest.slice(0, 32) } : item;
  });
}

/** The ids that the client has chosen, before the others are completed. */
export function givenIds(items: readonly wire.InputItem[]): ReadonlySet<string> {
  return new Set(items.flatMap(({ id }) => (BEGINNING.test(id) ? [] : id)));
}
