import { textOf } from '@treadle/core';
import type { AssistantPart, FileBlock, ImageBlock, Message, ToolCall, ToolResult } from '@treadle/core';
import { argumentsObject, callNameFor } from '../calls.ts';
import { fieldsOf, jsonOf, sliceableJson, textIn } from '../json.ts';
import { notShown } from '../media.ts';
import { addToTurns, EMPTY_MESSAGE, type TurnForm, type Turns } from '../turns.ts';
import { signedParts, type CallData } from './signatures.ts';

/** The state of a history that is being written. */
export interface Contents extends Turns {
  /** Only what was signed under this name is sent back. */
  readonly signer: string;
  /** The first call of each message must have a signature. */
  readonly needsSignatures: boolean;
  /** The newest calls: by their ids, those that the provider gave them. Of two with the same id, the first one counts. */
  calls: Map<string, string>;
}

/** Replaces the signature of a call that this host did not make. Google documents it for such histories. */
const NO_SIGNATURE = 'skip_thought_signature_validator';

export const CONTENT_FORM: TurnForm = {
  open: (role) => `{"role":"${role === 'user' ? 'user' : 'model'}","parts":[`,
  text: (text) => sliceableJson({ text }),
};

/** Results belong to the user, and a user message after them becomes part of the same content. */
export function googleContent(message: Message, contents: Contents): string {
  const role = message.role === 'assistant' ? 'assistant' : 'user';
  return addToTurns(CONTENT_FORM, contents, role, partsOf(message, contents));
}

function partsOf(message: Message, contents: Contents): string[] {
  switch (message.role) {
    case 'user': {
      const blocks = message.content.filter((block) => block.type !== 'text' || block.text !== '');
      if (blocks.length === 0) return [jsonOf({ text: EMPTY_MESSAGE })];
      return blocks.map((block) => (block.type === 'text' ? sliceableJson({ text: block.text }) : mediaPart(block)));
    }
    case 'assistant':
      return modelParts(message.content, contents);
    case 'tool':
      return resultParts(message.content, contents);
    default:
      return message satisfies never;
  }
}

/** Thoughts without a signature are not sent back: the API ignores them. */
function modelParts(content: readonly AssistantPart[], contents: Contents): string[] {
  const written: string[] = [];
  contents.calls = new Map();
  for (const [at, part] of content.entries()) {
    if (part.type === 'tool-call') written.push(callPart(part, contents));
    else if (part.type === 'text' && part.text !== '') written.push(sliceableJson({ text: part.text }));
    else if (part.type === 'reasoning' && part.signature !== undefined && part.protocol === contents.signer) {
      const before = content[at - 1];
      const textBefore = before?.type === 'text' ? before.text : '';
      const [parts, replaces] = signedParts(part.text, part.signature, textBefore);
      if (replaces && textBefore !== '') written.pop();
      written.push(...parts.map((one) => sliceableJson(one)));
    }
  }
  return written;
}

function callPart(call: ToolCall, { signer, needsSignatures, calls }: Contents): string {
  const data = call.provider?.protocol === signer ? fieldsOf<CallData>(call.provider.data) : {};
  const wireId = textIn(data.id);
  const signature = textIn(data.thoughtSignature) || (needsSignatures && calls.size === 0 && NO_SIGNATURE);
  if (!calls.has(call.id)) calls.set(call.id, wireId);
  const json = `{${idField(wireId)}"name":"${callNameFor(call.name)}","args":${argumentsObject(call.arguments)}}`;
  return `{"functionCall":${json}${signature ? `,"thoughtSignature":${jsonOf(signature)}` : ''}}`;
}

/** The API needs as many responses as calls, in the same order. Images and files follow behind all of them. */
function resultParts(results: readonly ToolResult[], { calls }: Contents): string[] {
  const attached: string[] = [];
  const responses = results.map(({ callId, name, content, isError }) => {
    const media = content.filter((block) => block.type === 'image' || block.type === 'file').map(mediaPart);
    if (media.length > 0) attached.push(jsonOf({ text: `Attached to the result of ${name}:` }), ...media);
    const id = idField(calls.get(callId) ?? '');
    const response = sliceableJson({ [isError ? 'error' : 'output']: textOf(content) });
    return `{"functionResponse":{${id}"name":"${callNameFor(name)}","response":${response}}}`;
  });
  return [...responses, ...attached];
}

function idField(id: string): string {
  return id === '' ? '' : `"id":${jsonOf(id)},`;
}

/** The API has to be told the type of data. It finds out that of a URL. */
function mediaPart(block: ImageBlock | FileBlock): string {
  const { mediaType, source } = block;
  const isKnown = mediaType !== 'application/octet-stream' && !mediaType.endsWith('/*');
  const type = isKnown && { mimeType: mediaType === 'image/jpg' ? 'image/jpeg' : mediaType };
  if (source.type === 'url') return jsonOf({ fileData: { ...type, fileUri: source.url } });
  return sliceableJson(type ? { inlineData: { ...type, data: source.data } } : { text: notShown(block) });
}
