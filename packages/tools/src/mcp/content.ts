import type { CallToolResult } from '@modelcontextprotocol/client';
import { stableJson, type ResultBlock, type ToolOutput } from '@treadle/core';
import { cleanResult, cleanText } from './describe.ts';

/** The loop limits the texts of a result, but not how many there are. */
const MAX_BLOCKS = 1_000;

type Content = CallToolResult['content'][number];

/** The result of a call as the loop has it. */
export function outputOf({ content, structuredContent, isError }: CallToolResult): ToolOutput {
  const blocks = content.slice(0, MAX_BLOCKS).flatMap(blocksOf);
  if (content.length > MAX_BLOCKS) {
    blocks.push({ type: 'text', text: `(${content.length - MAX_BLOCKS} more blocks of this result were left out)` });
  }
  if (structuredContent !== undefined && !hasJson(blocks, structuredContent)) {
    blocks.push({ type: 'text', text: cleanResult(JSON.stringify(structuredContent)) });
  }
  if (blocks.length === 0) blocks.push({ type: 'text', text: '(no output)' });
  if (isError !== true) return { content: blocks };
  return {
    content: blocks.map((block) => (block.type === 'text' ? { type: 'error', text: block.text } : block)),
    isError: true,
  };
}

/** Servers should repeat structured content as text. Not all do. */
function hasJson(blocks: readonly ResultBlock[], value: unknown): boolean {
  const json = stableJson(value);
  return blocks.some((block) => {
    if (block.type !== 'text') return false;
    try {
      return stableJson(JSON.parse(block.text)) === json;
    } catch {
      return false;
    }
  });
}

function blocksOf(content: Content): ResultBlock[] {
  switch (content.type) {
    case 'text':
      return [{ type: 'text', text: cleanResult(content.text) }];
    case 'image':
    case 'audio':
      return [mediaBlock(content.data, content.mimeType)];
    case 'resource': {
      const { resource } = content;
      const head = `Resource ${cleanText(resource.uri)}${resource.mimeType ? ` (${cleanText(resource.mimeType)})` : ''}`;
      if ('text' in resource) return [{ type: 'text', text: `${head}:\n${cleanResult(resource.text)}` }];
      return [mediaBlock(resource.blob, resource.mimeType, nameIn(resource.uri))];
    }
    case 'resource_link': {
      const { uri, name, title, description, mimeType, size } = content;
      const facts = [mimeType, size === undefined ? undefined : `${size} bytes`, description]
        .filter(Boolean)
        .join('; ');
      const shown = `${cleanText(title ?? name)}: ${cleanText(uri)}${facts === '' ? '' : ` (${cleanText(facts)})`}`;
      return [{ type: 'text', text: `Link to a resource. ${shown}` }];
    }
    default:
      return [
        { type: 'text', text: `(content of the unknown type ${JSON.stringify((content as { type: unknown }).type)})` },
      ];
  }
}

/** Providers reject a request with a type that is none, and so every later turn of a run. */
function mediaBlock(data: string, mimeType = '', name?: string): ResultBlock {
  const [type = ''] = mimeType.toLowerCase().split(';');
  const mediaType = /^[\w.+-]{1,64}\/[\w.+-]{1,64}$/.test(type.trim()) ? type.trim() : 'application/octet-stream';
  const source = { type: 'data', data } as const;
  if (mediaType.startsWith('image/')) return { type: 'image', mediaType, source };
  return { type: 'file', mediaType, ...(name !== undefined && { name }), source };
}

/** The last part of an address. */
function nameIn(uri: string): string {
  const [path = ''] = uri.split(/[?#]/);
  return cleanText(path.split('/').findLast((part) => part !== '') ?? path, 256);
}
