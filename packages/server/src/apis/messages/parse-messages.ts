import type { Effort, FileBlock, ResultBlock, TextBlock, UserBlock } from '@treadle/core';
import { z } from 'zod';
import { MAX_LENGTH, type RequestLimits } from '../../parse/fields.ts';
import { checkWebUrl, fileBlock, imageBlock, paddedBase64 } from '../../parse/media.ts';
import {
  checkCharacters,
  chosenSchema,
  isObject,
  list,
  PARAM,
  refuse,
  textOr,
  UNSUPPORTED,
  variants,
  wrongType,
  type IssueContext,
  type JsonObject,
} from '../../parse/validate.ts';
import { toolReference, toolSchema, type DeclaredTool } from './parse-tools.ts';

/** A message of a request. What its blocks mean together is found out by `conversationOf`. Plain JSON. */
export type ParsedMessage =
  | { readonly role: 'user'; readonly content: readonly UserPart[] }
  | { readonly role: 'assistant'; readonly content: readonly SaidPart[] }
  | ParsedInstruction;

/** A message of the role `system`. */
export interface ParsedInstruction {
  readonly role: 'system';
  readonly text: string;
  /** It is for the user message before it only. */
  readonly isPassing: boolean;
  readonly effort?: Effort;
  readonly changes: readonly ToolChange[];
}

/** From its place in the conversation on, the model has a tool, or does not have it any more. */
export type ToolChange =
  | { readonly type: 'added'; readonly tool: DeclaredTool }
  /** By the name of a tool that is declared. */
  | { readonly type: 'added-again' | 'removed'; readonly name: string };

export type UserPart = { readonly type: 'said'; readonly blocks: readonly UserBlock[] } | CallResult;

export type SaidPart = TextBlock | Thought | SaidCall | CallResult;

/** `isServers`: a server executes it, so that its result is in the same message. */
export interface SaidCall {
  readonly type: 'call';
  readonly id: string;
  readonly name: string;
  readonly arguments: string;
  readonly isServers: boolean;
}

export interface Thought {
  readonly type: 'thought';
  /** The text that the client was shown. Absent: none. */
  readonly text?: string;
  readonly signature: string;
}

export interface CallResult {
  readonly type: 'result';
  readonly callId: string;
  readonly content: readonly ResultBlock[];
  readonly isError: boolean;
}

const longText = z.string().max(MAX_LENGTH.text);

const textBlock = z
  .object({ type: z.literal('text'), text: longText })
  .transform(({ text }): TextBlock => ({ type: 'text', text }));

const source = z.object({
  type: z.enum(['base64', 'text', 'content', 'url', 'file']),
  media_type: z.string().max(MAX_LENGTH.id).nullish(),
  data: z.string().max(MAX_LENGTH.file).nullish(),
  url: z.string().max(MAX_LENGTH.image).nullish(),
  content: z.unknown().optional(),
});

type ParsedSource = z.infer<typeof source>;

const imageBlocks = z
  .object({ type: z.literal('image'), source })
  .transform(({ source: { type, media_type: mediaType, data, url } }, ctx): readonly UserBlock[] => {
    if (type === 'base64') {
      const bytes = base64In(data, ctx);
      if (mediaType != null && !mediaType.startsWith('image/')) {
        const message = `Invalid ${PARAM}: '${mediaType}' is not the type of an image. Send an image, or a document.`;
        refuse(ctx, message, { path: ['source', 'media_type'] });
      }
      return [{ type: 'image', mediaType: mediaType ?? 'image/*', source: { type: 'data', data: bytes } }];
    }
    if (type === 'url') return [imageBlock(urlIn(url, ctx))];
    return refuseSource(ctx, type);
  });

const documentBlocks = z
  .object({
    type: z.literal('document'),
    source,
    title: z.string().max(MAX_LENGTH.text).nullish(),
    context: longText.nullish(),
  })
  .transform(({ source: given, title, context }, ctx): readonly UserBlock[] => [
    ...(context ? [{ type: 'text', text: context } as const] : []),
    ...documentIn(given, title ?? undefined, ctx),
  ]);

function documentIn(given: ParsedSource, title: string | undefined, ctx: IssueContext): readonly UserBlock[] {
  const { type, media_type: mediaType, data, url } = given;
  const name = title && { name: title };
  const file = (type: string, bytes: string): FileBlock => ({
    type: 'file',
    mediaType: type,
    ...name,
    source: { type: 'data', data: bytes },
  });
  switch (type) {
    case 'base64':
      return [file(mediaType ?? 'application/pdf', base64In(data, ctx))];
    case 'text':
      return [file(mediaType ?? 'text/plain', Buffer.from(data ?? '').toString('base64'))];
    case 'url':
      return [{ ...fileBlock({ name: title, url: urlIn(url, ctx) }), mediaType: 'application/pdf' }];
    case 'content': {
      const content = documentContent.safeParse(given.content);
      if (!content.success) refuse(ctx, NO_CONTENT, { path: ['source', 'content'] });
      if (!content.success) return [];
      return title ? [{ type: 'text', text: title }, ...content.data] : content.data;
    }
    case 'file':
      return refuseSource(ctx, type);
    default:
      return type satisfies never;
  }
}

const NO_CONTENT = `Invalid ${PARAM}: expected a text, or a list of blocks of type 'text' and 'image'.`;

function base64In(data: string | null | undefined, ctx: IssueContext): string {
  const bytes = data == null ? undefined : paddedBase64(data);
  if (bytes === undefined) {
    const message = `Invalid ${PARAM}: it is not base64 data. Send the data alone in base64, without 'data:' before it.`;
    refuse(ctx, message, { path: ['source', 'data'], code: 'invalid_base64' });
  }
  return bytes ?? '';
}

function urlIn(url: string | null | undefined, ctx: IssueContext): string {
  checkWebUrl(url ?? '', ctx, ['source', 'url']);
  return url ?? '';
}

function refuseSource(ctx: IssueContext, type: string): readonly never[] {
  const why = type === 'file' ? 'this server does not store files' : 'such a block has no source of this type';
  const message = `${PARAM} is '${type}', and ${why}. Send the data itself, with the type 'base64'.`;
  refuse(ctx, message, { path: ['source', 'type'], ...UNSUPPORTED });
  return [];
}

const asText = longText.transform((text): readonly TextBlock[] => [{ type: 'text', text }]);

const searchResult = z
  .object({
    type: z.literal('search_result'),
    title: longText,
    source: longText,
    content: list(textBlock, { expected: 'a list of texts', max: Infinity }),
  })
  .transform(({ title, source: from, content }): readonly UserBlock[] => [
    { type: 'text', text: [title, from, ...content.map(({ text }) => text)].join('\n') },
  ]);

const textBlocks = textBlock.transform((block): readonly UserBlock[] => [block]);

const documentContent = textOr<readonly UserBlock[], readonly UserBlock[]>(
  asText,
  list(variants('type', ['text', 'image'], [textBlocks, imageBlocks]), { expected: 'a list', max: Infinity }).transform(
    (blocks) => blocks.flat(),
  ),
);

/** What a deferred tool, or a browser, is reported with. The text says what it is. */
const reference = z
  .object({ type: z.literal('tool_reference'), tool_name: z.string().max(MAX_LENGTH.id) })
  .transform(({ tool_name: name }): readonly UserBlock[] => [{ type: 'text', text: `The tool ${name} is available.` }]);

const callId = z.string().min(1).max(MAX_LENGTH.id);

const callBlock = z
  .object({ type: z.string(), id: callId, name: z.string().min(1).max(MAX_LENGTH.id), input: z.unknown().optional() })
  .transform(({ type, id, name, input }): SaidPart => ({
    type: 'call',
    id,
    name,
    arguments: argumentsText(input),
    isServers: type !== 'tool_use',
  }));

/** A text is what the model wrote if that was not JSON. */
function argumentsText(input: unknown): string {
  return typeof input === 'string' ? input : JSON.stringify(input ?? {});
}

const CALLS = new Set(['tool_use', 'server_tool_use', 'mcp_tool_use']);

/** A result in an assistant message: of a tool that this server has executed, or another one. Other forms than texts are JSON. */
const serverResult = z
  .object({ tool_use_id: callId, content: z.unknown().optional(), is_error: z.boolean().nullish() })
  .transform(({ tool_use_id, content, is_error: isError }): SaidPart => {
    const texts = content == null ? [] : resultTexts.safeParse(content).data;
    const type = isError ? 'error' : 'text';
    return {
      type: 'result',
      callId: tool_use_id,
      content: (texts ?? [{ text: JSON.stringify(content) }]).map(({ text }) => ({ type, text })),
      isError: isError ?? false,
    };
  });

const resultTexts = textOr(asText, list(textBlock, { expected: 'a list', max: Infinity }));

const thinking = z
  .object({ type: z.literal('thinking'), thinking: longText, signature: z.string().max(MAX_LENGTH.file) })
  .transform(({ thinking: text, signature }): SaidPart => ({ type: 'thought', text, signature }));

const redacted = z
  .object({ type: z.literal('redacted_thinking'), data: z.string().max(MAX_LENGTH.file) })
  .transform(({ data }): SaidPart => ({ type: 'thought', signature: data }));

/** Blocks that say nothing to the model. */
const PASSED_OVER = new Set(['fallback', 'mcp_tool_listing', 'container_upload']);

const passedOver = z.unknown().transform((): SaidPart => ({ type: 'text', text: '' }));

const SAID_FORMS = new Map<string, z.ZodType<SaidPart>>([
  ['text', textBlock],
  ['thinking', thinking],
  ['redacted_thinking', redacted],
]);

const SAID = [
  'text',
  'thinking',
  'redacted_thinking',
  'tool_use',
  'server_tool_use',
  'mcp_tool_use',
  'mcp_tool_result',
];
const unknownSaid = z.object({ type: z.enum(SAID) }).transform((): never => z.NEVER);

const saidPart = chosenSchema<SaidPart>(
  (block, ctx) => {
    if (!isObject(block)) return wrongType(ctx, block, 'object');
    const type = String(block['type']);
    if (CALLS.has(type)) return callBlock;
    if (type !== 'tool_result' && type.endsWith('_tool_result')) return serverResult;
    if (PASSED_OVER.has(type)) return passedOver;
    return SAID_FORMS.get(type) ?? unknownSaid;
  },
  () => [
    textBlock,
    thinking,
    redacted,
    z.looseObject({ type: z.enum([...CALLS]), id: callId, name: z.string(), input: z.unknown() }),
    z.looseObject({ type: z.string().endsWith('_tool_result'), tool_use_id: callId }),
  ],
);

const EFFORTS = ['low', 'medium', 'high', 'xhigh', 'max'] as const satisfies Effort[];

/** How much a model should think. Null is the default. */
export const effort: z.ZodType<Effort | null | undefined> = z.enum(EFFORTS).nullish();

const INSTRUCTED = ['text', 'tool_addition', 'tool_removal'];

/** The messages of a request. */
export function messagesSchema(limits: RequestLimits): z.ZodType<readonly ParsedMessage[]> {
  const parts = <T>(part: z.ZodType<T>) =>
    list(part, { expected: 'a string or a list of content blocks', max: limits.parts });
  const resultBlocks = variants(
    'type',
    ['text', 'image', 'document', 'search_result', 'tool_reference'],
    [textBlocks, imageBlocks, documentBlocks, searchResult, reference],
  );
  const result = z
    .object({
      type: z.literal('tool_result'),
      tool_use_id: callId,
      content: textOr<readonly ResultBlock[], readonly (readonly ResultBlock[])[]>(
        asText,
        parts(resultBlocks),
      ).nullish(),
      is_error: z.boolean().nullish(),
    })
    .transform(({ tool_use_id, content, is_error: isError }): UserPart => ({
      type: 'result',
      callId: tool_use_id,
      content: (content ?? []).flat(),
      isError: isError ?? false,
    }));
  const said = <T extends z.ZodType<readonly UserBlock[]>>(blocks: T) =>
    blocks.transform((given): UserPart => ({ type: 'said', blocks: given }));
  const userPart = chosenSchema<UserPart>(
    (block, ctx) => {
      if (!isObject(block)) return wrongType(ctx, block, 'object');
      return userForms.get(String(block['type'])) ?? unknownUser;
    },
    () => [textBlocks, imageBlocks, documentBlocks, searchResult, result],
  );
  const userForms = new Map<string, z.ZodType<UserPart>>([
    ['text', said(textBlocks)],
    ['image', said(imageBlocks)],
    ['document', said(documentBlocks)],
    ['search_result', said(searchResult)],
    ['tool_result', result],
  ]);
  const unknownUser = z.object({ type: z.enum([...userForms.keys()]) }).transform((): never => z.NEVER);
  const instruction = instructionPart(limits);
  const message = variants(
    'role',
    ['user', 'assistant', 'system'],
    [
      z.object({
        role: z.literal('user'),
        content: textOr(
          said(asText).transform((part) => [part]),
          parts(userPart),
        ),
      }),
      z.object({
        role: z.literal('assistant'),
        content: textOr<readonly SaidPart[], readonly SaidPart[]>(asText, parts(saidPart)),
      }),
      z.object({
        role: z.literal('system'),
        content: textOr<readonly Instructed[], readonly Instructed[]>(asText, parts(instruction)).nullish(),
        clear_at: z.enum(['next_user_message', 'never']).nullish(),
        output_config: z.object({ effort }).nullish(),
      }),
    ],
  );
  return list(message, { expected: 'a list of messages', max: limits.inputItems })
    .superRefine((messages, ctx) => checkCharacters(messages, limits.inputChars, ctx))
    .transform((messages) => messages.map((one) => (one.role === 'system' ? instructionOf(one) : one)));
}

type Instructed = TextBlock | ToolChange;

interface WireInstruction {
  readonly content?: readonly Instructed[] | null | undefined;
  readonly clear_at?: string | null | undefined;
  readonly output_config?: { readonly effort?: Effort | null | undefined } | null | undefined;
}

function instructionOf({ content, clear_at: clearAt, output_config: config }: WireInstruction): ParsedInstruction {
  const given = content ?? [];
  return {
    role: 'system',
    text: given.map((part) => (part.type === 'text' ? part.text : '')).join(''),
    isPassing: clearAt === 'next_user_message',
    ...(config?.effort && { effort: config.effort }),
    changes: given.filter((part) => part.type !== 'text'),
  };
}

function instructionPart(limits: RequestLimits): z.ZodType<Instructed> {
  const definition = z.object({ tool: z.object({ definition: toolSchema(limits) }) });
  const added = definition.transform(({ tool }): Instructed => ({ type: 'added', tool: tool.definition }));
  const named = z.object({ tool: toolReference });
  const again = named.transform(({ tool }): Instructed => ({ type: 'added-again', name: tool }));
  const removed = named.transform(({ tool }): Instructed => ({ type: 'removed', name: tool }));
  const unknown = z.object({ type: z.enum(INSTRUCTED) }).transform((): never => z.NEVER);
  return chosenSchema<Instructed>(
    (block, ctx) => {
      if (!isObject(block)) return wrongType(ctx, block, 'object');
      if (block['type'] === 'text') return textBlock;
      if (block['type'] === 'tool_removal') return removed;
      if (block['type'] !== 'tool_addition') return unknown;
      return isObject(block['tool']) && (block['tool'] as JsonObject)['type'] === 'tool_definition' ? added : again;
    },
    () => [textBlock, definition, named],
  );
}
