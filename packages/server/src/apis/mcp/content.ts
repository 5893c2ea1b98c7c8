import type { CallToolResult, ContentBlock } from '@modelcontextprotocol/server';
import { textOf, type JsonSchema, type ResultBlock, type Schema, type ToolResult } from '@treadle/core';

/* Results of tools and agents, as MCP clients get them. */

/** The result of a call. `isStructured`: the tool has an output schema, so its text is JSON. */
export function toolResult({ content, isError }: ToolResult, isStructured: boolean): CallToolResult {
  const blocks = content.map(contentBlock);
  if (isError) return { content: blocks, isError: true };
  if (!isStructured) return { content: blocks };
  const value = jsonIn(textOf(content));
  return isObject(value) ? { content: blocks, structuredContent: value } : errorResult(CUT);
}

const CUT = 'The result of the tool is too long to be sent as structured content. Ask for less.';

export function errorResult(text: string): CallToolResult {
  return { content: [{ type: 'text', text }], isError: true };
}

/** The output of an agent. */
export function outputResult(output: unknown, isStructured: boolean): CallToolResult {
  const text = typeof output === 'string' ? output : (JSON.stringify(output) ?? 'null');
  return { content: [{ type: 'text', text }], ...(isStructured && isObject(output) && { structuredContent: output }) };
}

function contentBlock(block: ResultBlock): ContentBlock {
  if (block.type === 'text' || block.type === 'error') return { type: 'text', text: block.text };
  const { source, mediaType: mimeType, name } = block;
  if (source.type === 'url') return { type: 'resource_link', uri: source.url, name: name ?? source.url, mimeType };
  const { data } = source;
  if (block.type === 'image') return { type: 'image', data, mimeType };
  if (mimeType.startsWith('audio/')) return { type: 'audio', data, mimeType };
  const uri = name !== undefined && URL.canParse(name) ? name : `attachment:${encodeURIComponent(name ?? 'file')}`;
  const isText = /^text\/|[/+](json|xml|yaml)$/.test(mimeType);
  const resource = { uri, mimeType };
  if (!isText) return { type: 'resource', resource: { ...resource, blob: data } };
  return { type: 'resource', resource: { ...resource, text: Buffer.from(data, 'base64').toString('utf8') } };
}

/** The JSON Schema of what a tool or agent returns. Undefined if it does not describe an object: MCP knows no others. */
export function outputSchemaOf(schema: Schema | undefined): JsonSchema | undefined {
  const described = schema && describedOutput(schema);
  return described?.['type'] === 'object' ? described : undefined;
}

function describedOutput(schema: Schema): JsonSchema | undefined {
  if (!('~standard' in schema)) return schema;
  const { jsonSchema } = (schema as { readonly '~standard': { readonly jsonSchema?: OutputDescription } })['~standard'];
  try {
    return jsonSchema?.output?.({ target: 'draft-2020-12' });
  } catch {
    return undefined;
  }
}

interface OutputDescription {
  readonly output?: (options: { readonly target: 'draft-2020-12' }) => Record<string, unknown>;
}

function jsonIn(text: string): unknown {
  try {
    return JSON.parse(text);
  } catch {
    return undefined;
  }
}

export function isObject(value: unknown): value is Record<string, unknown> {
  return typeof value === 'object' && value !== null && !Array.isArray(value);
}
