import { createHash } from 'node:crypto';
import type { ModelRequest, ToolSpec } from '@treadle/core';
import { isJsonObject, jsonOf, parsed } from './json.ts';

/** The call ids that an API accepts. */
export interface CallIds {
  readonly accepted: RegExp;
  /** The length of replacement ids; at most 43. */
  readonly length: number;
}

/** Returns the id if the API accepts it, else a hash of it, which is always the same. */
export function callIdFor(id: string, { accepted, length }: CallIds): string {
  if (accepted.test(id)) return id;
  return createHash('sha256').update(id).digest('base64url').replace(/[-_]/g, 'a').slice(0, length);
}

/** Models call tools that do not exist, with names that no tool can have. APIs reject those names in a history. */
export function callNameFor(name: string): string {
  if (/^[\w-]{1,64}$/.test(name)) return name;
  return name.replace(/[^\w-]/g, '_').slice(0, 64) || 'unknown';
}

/**
 * Arguments as a provider accepts them in a history: the model's own text if it is an object, else an object that contains
 * the text, such as that of a call that was cut off. The result of the call reports what was wrong with it.
 */
export function argumentsObject(json: string): string {
  if (json.trim() === '') return '{}';
  const value = parsed(json);
  if (!isJsonObject(value)) return jsonOf({ invalid_json: json });
  return /\\ud|[\ud800-\udfff]/i.test(json) ? jsonOf(value) : json;
}

/** The tools that may be called. Returns `tools` itself if that is all of them. */
export function allowedOf({ tools, allowedTools }: Pick<ModelRequest, 'tools' | 'allowedTools'>): readonly ToolSpec[] {
  return allowedTools === undefined ? tools : tools.filter(({ name }) => allowedTools.includes(name));
}
