import { isPlain } from './plain.ts';

/** A message of a conversation, the same for every provider. Instructions are not a message. */
export type Message = UserMessage | AssistantMessage | ToolMessage;

/** A message as a program may write it: its content may be a plain text. */
export type InputMessage = Message | { readonly role: 'user' | 'assistant'; readonly content: string };

export interface UserMessage {
  readonly role: 'user';
  readonly content: readonly UserBlock[];
}

/** One reply of the model, with its parts in their original order. */
export interface AssistantMessage {
  readonly role: 'assistant';
  readonly content: readonly AssistantPart[];
}

/** All results of one turn, in the order of the calls that they answer. */
export interface ToolMessage {
  readonly role: 'tool';
  readonly content: readonly ToolResult[];
}

export interface TextBlock {
  readonly type: 'text';
  readonly text: string;
}

/** A text of a model. Some providers mark commentary and final answer, and need the mark back in later requests. */
export interface SaidText extends TextBlock {
  readonly phase?: 'commentary' | 'final_answer';
  /** The provider marked the text as the model's refusal to answer. */
  readonly refusal?: true;
  /** The tokens of the text, if `settings.topLogprobs` requested them and the provider sent them. */
  readonly logprobs?: readonly TokenLogprob[];
}

/** A token, and how likely it was. */
export interface TokenLogprob {
  readonly token: string;
  readonly logprob: number;
  /** In UTF-8. Several tokens may be one character. */
  readonly bytes?: readonly number[];
  /** The most likely tokens at this place. */
  readonly top?: readonly Omit<TokenLogprob, 'top'>[];
}

/** The bytes of an image or a file. `data` is base64. */
export type Source = { readonly type: 'data'; readonly data: string } | { readonly type: 'url'; readonly url: string };

export interface ImageBlock {
  readonly type: 'image';
  readonly mediaType: string;
  readonly name?: string;
  readonly source: Source;
  /** How closely the model looks at it. Absent: the provider decides. */
  readonly detail?: 'low' | 'high' | 'original';
}

export interface FileBlock {
  readonly type: 'file';
  readonly mediaType: string;
  readonly name?: string;
  readonly source: Source;
}

/** A description of an error; only in results. */
export interface ErrorBlock {
  readonly type: 'error';
  readonly text: string;
}

/**
 * `signature` is the provider's opaque proof; it is sent back unchanged or not at all. `protocol` names the wire protocol
 * and host that issued it; it is sent to no other.
 */
export interface ReasoningPart {
  readonly type: 'reasoning';
  readonly text: string;
  /** The text is a summary that the provider made of the reasoning. */
  readonly summary?: true;
  readonly signature?: string;
  readonly protocol?: string;
}

/** `arguments` is the model's own JSON text, unchanged even if it is invalid. */
export interface ToolCall {
  readonly type: 'tool-call';
  readonly id: string;
  readonly name: string;
  readonly arguments: string;
  /**
   * The names of arguments that are references to long results of the run, as `{ "$blob": id }`. The tool gets the value of
   * the result. Only in runs whose model has `references`.
   */
  readonly references?: readonly string[];
  /** The step of a program that makes the call. */
  readonly label?: string;
  /** The model called a tool that takes a text (`ToolSpec.custom`) with that text. `arguments` is `{ "input": text }`. */
  readonly custom?: true;
  readonly provider?: ProviderData;
}

/**
 * The text that a tool with `custom` was called with, or the text so far of a call that was cut off; the arguments themselves
 * if they have another form.
 */
export function customInput(json: string): string {
  let input = inputIn(json);
  // The call may be cut off within an escape sequence.
  for (let cut = 0; cut < 6; cut++) input ??= inputIn(`${json.slice(0, json.length - cut)}"}`);
  return input ?? json;
}

function inputIn(json: string): string | undefined {
  try {
    const { input } = JSON.parse(json) as { readonly input?: unknown };
    return typeof input === 'string' ? input : undefined;
  } catch {
    return undefined;
  }
}

/**
 * Opaque data that a provider sent with a call and needs back with it, as plain JSON. `protocol` names the wire protocol
 * and host that issued it; it is sent to no other.
 */
export interface ProviderData {
  readonly protocol: string;
  readonly data: unknown;
}

export type UserBlock = TextBlock | ImageBlock | FileBlock;
export type AssistantPart = SaidText | ReasoningPart | ToolCall;
export type ResultBlock = TextBlock | ImageBlock | FileBlock | ErrorBlock;

/** `errorType` and what `ErrorFacts` contains are for programs; providers do not receive them. */
export interface ToolResult extends ErrorFacts {
  readonly type: 'tool-result';
  readonly callId: string;
  readonly name: string;
  readonly content: readonly ResultBlock[];
  readonly isError: boolean;
  /** The blob that has the whole text, which `content` only refers to. Only in runs whose model has `references`. */
  readonly blob?: string;
}

/** What is known about an error beyond its text. */
export interface ErrorFacts {
  readonly errorType?: ErrorType;
  /** Of a command. One that is not 0 does not count towards `errorLimit`: the command ran. */
  readonly exitCode?: number;
  readonly stderr?: string;
  /** Of an answer over HTTP. */
  readonly httpStatus?: number;
  /** Of an error in a protocol, such as JSON-RPC in MCP. */
  readonly protocolCode?: number;
}

/**
 * Why a result is an error. `denied`: by the policy, a person, the tool choice or a limit. `permission_denied`: the tool
 * is not in the allowed set, or what it needs refused it. `interrupted`: the call was lost, or the run ended before it had
 * a result. `execution_failed`: any other error of the tool.
 */
export type ErrorType = (typeof ERROR_TYPES)[number];

export const ERROR_TYPES = [
  'timeout',
  'not_found',
  'permission_denied',
  'invalid_params',
  'execution_failed',
  'denied',
  'interrupted',
] as const;

export function userText(text: string): UserMessage {
  return { role: 'user', content: [{ type: 'text', text }] };
}

/** The text of a message or a result, without its other parts. */
export function textOf(content: readonly { readonly type: string; readonly text?: string }[]): string {
  if (content.length === 1 && content[0]!.type === 'text') return content[0]!.text!;
  let text = '';
  for (const block of content) if (block.type === 'text' || block.type === 'error') text += block.text;
  return text;
}

type PartOwner = Message['role'] | 'result';

/** Which types of parts the messages of a role, or a result, may contain. */
const PARTS: Readonly<Record<PartOwner, readonly string[]>> = {
  user: ['text', 'image', 'file'],
  assistant: ['text', 'reasoning', 'tool-call'],
  tool: ['tool-result'],
  result: ['text', 'image', 'file', 'error'],
};

/** What is wrong with a value from outside as a part of a message or a result; undefined: every field that the loop reads is right. */
function partProblem(owner: PartOwner, part: unknown): string | undefined {
  if (!isObjectValue(part)) return ` is ${described(part)}, not an object`;
  const type = part['type'];
  if (!PARTS[owner].includes(type as string)) return `.type is ${described(type)}. Use ${PARTS[owner].join(', ')}`;
  switch (type) {
    case 'tool-call': {
      const { provider, references, label } = part;
      const problem = textProblem(part, 'id') ?? textProblem(part, 'name') ?? textProblem(part, 'arguments');
      if (problem !== undefined) return problem;
      if (provider !== undefined && !isProviderData(provider)) {
        return '.provider is not { protocol, data } with plain JSON';
      }
      if (label !== undefined && typeof label !== 'string') return '.label is not a text';
      return references === undefined || areTexts(references) ? undefined : '.references is not an array of strings';
    }
    case 'tool-result':
      return textProblem(part, 'callId') ?? textProblem(part, 'name') ?? contentProblem('result', part['content']);
    case 'image':
    case 'file':
      return (
        textProblem(part, 'mediaType') ??
        (isSource(part['source']) ? undefined : ".source is not { type: 'data', data } or { type: 'url', url }")
      );
    default:
      return textProblem(part, 'text');
  }
}

function textProblem(part: Readonly<Record<string, unknown>>, field: string): string | undefined {
  return typeof part[field] === 'string' ? undefined : `.${field} is ${described(part[field])}, not a string`;
}

/** What is wrong with the parts of a message or a result, beginning with the path from there; undefined: nothing. */
export function contentProblem(owner: PartOwner, parts: unknown): string | undefined {
  if (!Array.isArray(parts)) return `.content is ${described(parts)}, not an array`;
  for (let index = 0; index < parts.length; index++) {
    const problem = partProblem(owner, parts[index]);
    if (problem !== undefined) return `.content[${index}]${problem}`;
  }
  return undefined;
}

/** A value from outside, as a short text for a message. */
export function described(value: unknown): string {
  if (typeof value === 'string') return JSON.stringify(value.length > 40 ? `${value.slice(0, 40)}…` : value);
  if (typeof value === 'object' && value !== null) return Array.isArray(value) ? 'an array' : 'an object';
  return typeof value === 'function' ? 'a function' : String(value);
}

function isProviderData(value: unknown): boolean {
  return isObjectValue(value) && isText(value['protocol']) && value['data'] !== undefined && isPlain(value['data']);
}

function areTexts(value: unknown): boolean {
  return Array.isArray(value) && value.every(isText);
}

function isText(value: unknown): boolean {
  return typeof value === 'string';
}

export function arePartsOf(owner: PartOwner, parts: unknown): boolean {
  return contentProblem(owner, parts) === undefined;
}

function isSource(source: unknown): boolean {
  if (!isObjectValue(source)) return false;
  return typeof source[source['type'] === 'data' ? 'data' : 'url'] === 'string';
}

function isObjectValue(value: unknown): value is Readonly<Record<string, unknown>> {
  return typeof value === 'object' && value !== null;
}
