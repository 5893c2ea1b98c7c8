import { createHash } from 'node:crypto';
import { stableJson } from '@treadle/core';
import type { Tool as ListedTool } from '@modelcontextprotocol/client';
import type { LeftOutTool, McpTool } from './options.ts';

/*
 * What a server says about its tools goes to the model, so it is treated as hostile.
 *
 * 1. Texts lose control and invisible characters. In names of arguments and in values they would change the meaning: such
 *    tools are left out.
 * 2. Texts and schemas have a limit. A tool with a larger schema is left out.
 * 3. The fingerprint is of what the server sent, before anything was removed.
 */

/** Longer descriptions are cut. */
const MAX_DESCRIPTION = 8_192;
const MAX_NAME = 256;
/** Of one schema, as JSON. */
const MAX_SCHEMA_CHARS = 65_536;
const MAX_SCHEMA_DEPTH = 40;

/**
 * Control characters besides line feed and tab, and characters without a glyph: marks of direction, zero-width characters,
 * the tags block and others. The selector that makes a character an emoji stays.
 */
const INVISIBLE = /(?!\t|\n|\ufe0f)[\p{Cc}\p{Default_Ignorable_Code_Point}\u2028\u2029\ufff9-\ufffb]/gu;
const LINE_ENDS = /\r\n?|[\u0085\u2028\u2029]/g;

/** A text of a server as the model and people may see it. */
export function cleanText(text: string, maxLength: number = MAX_DESCRIPTION): string {
  const cleaned = text.replace(LINE_ENDS, '\n').replace(INVISIBLE, '').toWellFormed();
  return cleaned.length <= maxLength ? cleaned : `${cleaned.slice(0, maxLength - 1).toWellFormed()}…`;
}

/** In the results of tools only this is removed: their text is data, and nobody can see these characters. */
export function cleanResult(text: string): string {
  return text.replace(/[\u{e0000}-\u{e007f}]/gu, '').toWellFormed();
}

/** Keys of a schema whose values are only read by people and models. */
const PROSE = new Set(['description', 'title', '$comment']);

export function describeTools(listed: readonly ListedTool[]): {
  readonly tools: readonly McpTool[];
  readonly leftOut: readonly LeftOutTool[];
} {
  const byName = new Map<string, McpTool>();
  const leftOut: LeftOutTool[] = [];
  for (const one of listed) {
    try {
      const described = describeTool(one);
      if (byName.has(one.name)) throw new Error('the server lists it twice');
      byName.set(one.name, described);
    } catch (error) {
      leftOut.push({ name: cleanText(one.name, MAX_NAME), reason: (error as Error).message });
    }
  }
  const tools = [...byName.values()].sort((a, b) => (a.name < b.name ? -1 : 1));
  return { tools, leftOut };
}

function describeTool(listed: ListedTool): McpTool {
  const { name, title, description = '', inputSchema, outputSchema, annotations, execution } = listed;
  if (name === '' || name.length > MAX_NAME) throw new Error(`its name has ${name.length} characters`);
  const shownTitle = title ?? annotations?.title;
  return {
    name,
    ...(shownTitle !== undefined && { title: cleanText(shownTitle, MAX_NAME) }),
    description: cleanText(description),
    inputSchema: cleanSchema(inputSchema, 'input'),
    ...(outputSchema && { outputSchema: cleanSchema(outputSchema, 'output') }),
    ...(annotations && { annotations: annotationsOf(annotations) }),
    ...taskSupportIn(execution),
    fingerprint: createHash('sha256')
      .update(stableJson({ name, title, description, inputSchema, outputSchema, annotations }))
      .digest('hex'),
  };
}

function taskSupportIn(execution: ListedTool['execution']): Pick<McpTool, 'taskSupport'> {
  const { taskSupport } = execution ?? {};
  return taskSupport === 'optional' || taskSupport === 'required' ? { taskSupport } : {};
}

function annotationsOf(annotations: object): Record<string, boolean> {
  return Object.fromEntries(Object.entries(annotations).filter(([, value]) => typeof value === 'boolean'));
}

export function cleanSchema(schema: object, what: string): Record<string, unknown> {
  const cleaned = cleanValue(schema, false, 0);
  const { length } = JSON.stringify(cleaned);
  if (length > MAX_SCHEMA_CHARS) throw new Error(`its ${what} schema has ${length} characters`);
  return cleaned as Record<string, unknown>;
}

function cleanValue(value: unknown, isProse: boolean, depth: number): unknown {
  if (depth > MAX_SCHEMA_DEPTH) throw new Error(`a schema is nested more than ${MAX_SCHEMA_DEPTH} levels deep`);
  if (typeof value === 'string') return isProse ? cleanText(value) : checked(value);
  if (Array.isArray(value)) return value.map((item) => cleanValue(item, isProse, depth + 1));
  if (typeof value !== 'object' || value === null) return value;
  return Object.fromEntries(
    // A property may itself be named "description": its schema is an object, so its texts are not taken for prose.
    Object.entries(value).map(([key, item]) => [checked(key), cleanValue(item, PROSE.has(key), depth + 1)]),
  );
}

function checked(text: string): string {
  if (text.search(INVISIBLE) >= 0 || !text.isWellFormed()) throw new Error('a schema has invisible characters');
  return text;
}
