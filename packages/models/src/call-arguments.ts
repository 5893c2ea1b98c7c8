import { isRecord, jsonOf, parsed } from './json.ts';

/**
 * Arguments for an API that takes an object and nothing else, as JSON: the model's own text where it is one. What is
 * none is shown inside one; what was wrong with it, the result tells.
 */
export function argumentsObject(json: string): string {
  if (json.trim() === '') return '{}';
  const value = parsed(json);
  if (!isRecord(value) || Array.isArray(value)) return jsonOf({ invalid_json: json });
  return /\\ud|[\ud800-\udfff]/i.test(json) ? jsonOf(value) : json;
}
