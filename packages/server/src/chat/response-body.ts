import { ApiError } from '../api-error.ts';
import { isObject, type Body } from '../responses/fields.ts';

/** What both APIs have, by the names that it has in a request for a response; without the conversation. */
export function asResponseBody(fields: Body): Body {
  const { tools, response_format: format, reasoning_effort: effort, verbosity } = fields;
  const shared = Object.fromEntries(SHARED.map((name) => [name, fields[name]]));
  return {
    ...shared,
    // Stands for the conversation, which is checked apart: a request must have some.
    previous_response_id: 'messages',
    tools: Array.isArray(tools) ? tools.map(flatTool) : tools,
    text: { format: flatFormat(format), verbosity },
    ...(effort !== undefined && { reasoning: { effort } }),
  };
}

const SHARED = [
  'model',
  'stream',
  'store',
  'tool_choice',
  'parallel_tool_calls',
  'max_tool_calls',
  'temperature',
  'top_p',
  'presence_penalty',
  'frequency_penalty',
  'truncation',
  'service_tier',
  'metadata',
  'user',
  'safety_identifier',
  'prompt_cache_key',
];

function flatTool(tool: unknown): unknown {
  if (!isObject(tool) || tool['type'] !== 'function' || tool['function'] == null) return tool;
  return isObject(tool['function']) ? { ...tool['function'], type: 'function' } : tool;
}

function flatFormat(format: unknown): unknown {
  if (!isObject(format) || format['type'] !== 'json_schema') return format;
  const form = format['json_schema'];
  // Unlike there, it may do without a schema.
  return isObject(form) ? { schema: { type: 'object' }, ...form, type: 'json_schema' } : { type: 'json_schema' };
}

/** Does what checks a request for a response, but speaks of its fields by the names that they have here. */
export function inChatWords<T>(check: () => T): T {
  try {
    return check();
  } catch (error) {
    if (!(error instanceof ApiError)) throw error;
    const { status, type, code, headers, param } = error;
    throw new ApiError(status, type, renamed(error.message), {
      headers,
      ...(code !== null && { code }),
      ...(param !== null && { param: renamed(param) }),
    });
  }
}

const NAMES: readonly (readonly [RegExp, string])[] = [
  [/\btools\[(\d+)\]\.(name|description|parameters|strict)\b/g, 'tools[$1].function.$2'],
  [/\btext\.format\.type\b/g, 'response_format.type'],
  [/\btext\.format\.(name|description|schema|strict)\b/g, 'response_format.json_schema.$1'],
  [/\btext\.format\b/g, 'response_format'],
  [/\btext\.verbosity\b/g, 'verbosity'],
  [/\breasoning\.effort\b/g, 'reasoning_effort'],
];

function renamed(text: string): string {
  return NAMES.reduce((so, [from, to]) => so.replace(from, to), text);
}
