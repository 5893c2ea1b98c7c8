import { isRecord } from './rules.ts';

/** What a model of Anthropic accepts. */
interface ClaudeModel {
  /** Types of `thinking`. */
  readonly thinking: readonly string[];
  /** It thinks also if `thinking` is absent. */
  readonly thinks?: true;
  /** `temperature` and `top_p`: none, one of them, both. */
  readonly sampling: 0 | 1 | 2;
  readonly forced: boolean;
  readonly effort: boolean;
}

const OLD: ClaudeModel = { thinking: ['enabled', 'disabled'], sampling: 1, forced: true, effort: false };
const NEW: ClaudeModel = { thinking: ['adaptive', 'disabled'], sampling: 0, forced: true, effort: true };
const ALWAYS: ClaudeModel = { thinking: ['adaptive'], thinks: true, sampling: 0, forced: false, effort: true };

/** According to the documentation of each. Other names are unknown. */
export const CLAUDE: Readonly<Record<string, ClaudeModel>> = {
  'claude-3-7-sonnet-20250219': { ...OLD, sampling: 2 },
  'claude-sonnet-4-20250514': { ...OLD, sampling: 2 },
  'claude-opus-4-1': OLD,
  'claude-sonnet-4-5': OLD,
  'claude-haiku-4-5': OLD,
  'claude-opus-4-5': { ...OLD, effort: true },
  'claude-opus-4-6': { ...NEW, thinking: ['adaptive', 'enabled', 'disabled'], sampling: 1 },
  'claude-sonnet-4-6': { ...NEW, thinking: ['adaptive', 'enabled', 'disabled'], sampling: 1 },
  'claude-opus-4-7': NEW,
  'claude-opus-4-8': NEW,
  'claude-opus-5': { ...NEW, thinks: true },
  'claude-sonnet-5': { ...NEW, thinks: true },
  'claude-haiku-5-5': { ...NEW, thinks: true },
  'claude-sonnet-5-5': { ...ALWAYS, thinking: ['adaptive', 'between_tools'] },
  'claude-opus-5-5': ALWAYS,
  'claude-fable-5': ALWAYS,
  'claude-fable-5-1': ALWAYS,
  'claude-fable-5-2': ALWAYS,
  'claude-mythos-5': ALWAYS,
};

/** What one model rejects though others accept it. */
export function modelProblem(body: Readonly<Record<string, unknown>>): string | undefined {
  const model = CLAUDE[String(body['model'])];
  if (model === undefined) return undefined;
  return thinkingProblem(body, model) ?? samplingProblem(body, model) ?? effortProblem(body, model);
}

function thinkingProblem(body: Readonly<Record<string, unknown>>, model: ClaudeModel): string | undefined {
  const { thinking, tool_choice: choice } = body;
  const type = isRecord(thinking) ? String(thinking['type']) : undefined;
  if (type !== undefined && !model.thinking.includes(type))
    return `"thinking.type.${type}" is not supported for this model. Use "thinking.type.${model.thinking[0]}" and "output_config.effort" to control thinking behavior.`;
  if (!isRecord(choice) || (choice['type'] !== 'any' && choice['type'] !== 'tool')) return undefined;
  if (!model.forced) return 'tool_choice: type "tool" and "any" are not supported for this model.';
  return type === undefined && model.thinks
    ? 'Thinking may not be enabled when tool_choice forces tool use.'
    : undefined;
}

function samplingProblem(body: Readonly<Record<string, unknown>>, { sampling }: ClaudeModel): string | undefined {
  const fields = ['temperature', 'top_p'].filter((field) => body[field] !== undefined);
  if (fields.length <= sampling) return undefined;
  return sampling === 0
    ? `\`${fields[0]}\` is deprecated for this model.`
    : '`temperature` and `top_p` cannot both be specified for this model. Please use only one.';
}

function effortProblem(body: Readonly<Record<string, unknown>>, { effort }: ClaudeModel): string | undefined {
  const config = body['output_config'];
  return !effort && isRecord(config) && config['effort'] !== undefined
    ? 'This model does not support the effort parameter.'
    : undefined;
}
