import type { ResultBlock, Source, ToolOutput } from '@treadle/core';

/** What `toModelOutput` of the AI SDK gives: all fields of all kinds, of V3 and V4. */
interface ModelOutput {
  readonly type?: unknown;
  readonly value?: unknown;
  readonly reason?: unknown;
}

interface OutputPart {
  readonly type?: unknown;
  readonly text?: unknown;
  readonly data?: unknown;
  readonly url?: unknown;
  readonly mediaType?: unknown;
  readonly filename?: unknown;
}

/** A result as the AI SDK would show it to the model where the tool does not say how: a text, or its JSON form. */
export function plainOutput(value: unknown): ToolOutput {
  return { content: typeof value === 'string' ? value : jsonOf(value) };
}

/** What `toModelOutput` gave. */
export function outputOf(output: unknown): ToolOutput {
  const { type, value, reason } = (output ?? {}) as ModelOutput;
  switch (type) {
    case 'text':
      return { content: String(value) };
    case 'json':
      return { content: jsonOf(value) };
    case 'error-text':
      return failed(String(value));
    case 'error-json':
      return failed(jsonOf(value));
    case 'execution-denied':
      return failed(typeof reason === 'string' ? `Denied: ${reason}` : 'The call was denied.');
    case 'content':
      return { content: (value as readonly OutputPart[]).map(blockOf) };
    default:
      throw new Error(`toModelOutput gave ${JSON.stringify(type)}, which is no output of the AI SDK.`);
  }
}

function failed(text: string): ToolOutput {
  return { content: [{ type: 'error', text }], isError: true };
}

function jsonOf(value: unknown): string {
  const json = JSON.stringify(value ?? null);
  if (json === undefined) throw new Error(`it gave a ${typeof value}, which has no JSON form`);
  return json;
}

function blockOf(part: OutputPart): ResultBlock {
  if (part.type === 'text') return { type: 'text', text: String(part.text) };
  const inline = inlineText(part.data);
  if (inline !== undefined) return { type: 'text', text: inline };
  const source = sourceOf(part);
  if (source === undefined) return { type: 'text', text: `(A part of type ${String(part.type)} is not kept.)` };
  const isImage = String(part.type).startsWith('image') || String(part.mediaType).startsWith('image');
  const mediaType =
    typeof part.mediaType === 'string' ? part.mediaType : isImage ? 'image/*' : 'application/octet-stream';
  if (isImage) return { type: 'image', mediaType, source };
  return { type: 'file', mediaType, ...(typeof part.filename === 'string' && { name: part.filename }), source };
}

function inlineText(data: unknown): string | undefined {
  if (typeof data !== 'object' || data === null || !('text' in data)) return undefined;
  return String(data.text);
}

/** `{ data: 'base64' }` or `{ url }` of V3, `{ data: { type, data } }` or `{ data: { type, url } }` of V4. */
function sourceOf({ data, url }: OutputPart): Source | undefined {
  if (typeof url === 'string' || url instanceof URL) return { type: 'url', url: String(url) };
  if (data instanceof URL) return { type: 'url', url: data.href };
  if (typeof data === 'string') return { type: 'data', data };
  if (data instanceof Uint8Array) return { type: 'data', data: Buffer.from(data).toString('base64') };
  if (typeof data !== 'object' || data === null) return undefined;
  return sourceOf(data as OutputPart);
}
