import { modelProblem } from './anthropic-models.ts';
import { firstProblem, isRecord } from './rules.ts';

const FIELDS = new Set(
  `model messages max_tokens system stream temperature top_p top_k stop_sequences tools tool_choice
   thinking output_config metadata service_tier cache_control container`.split(/\s+/),
);
const LEAST_BUDGET = 1024;
const MOST_MARKS = 4;

type Body = Readonly<Record<string, unknown>>;

/** Validates everything but the messages. */
export function anthropicSettingsProblem(body: Body): string | undefined {
  const unknown = Object.keys(body).find((field) => !FIELDS.has(field));
  if (unknown !== undefined) return `${unknown}: Extra inputs are not permitted`;
  if (typeof body['model'] !== 'string') return 'model: Field required';
  if (typeof body['max_tokens'] !== 'number') return 'max_tokens: Field required';
  if (body['max_tokens'] < 1) return 'max_tokens: Input should be greater than or equal to 1';
  const { temperature } = body;
  if (typeof temperature === 'number' && (temperature < 0 || temperature > 1)) return 'temperature: range: 0..1';
  return (
    systemProblem(body['system']) ??
    toolsProblem(body) ??
    modelProblem(body) ??
    thinkingProblem(body) ??
    marksProblem(body)
  );
}

function systemProblem(system: unknown): string | undefined {
  if (!Array.isArray(system)) return undefined;
  return system.some((block) => isRecord(block) && block['text'] === '')
    ? 'system: text content blocks must be non-empty'
    : undefined;
}

function toolsProblem({ tools, tool_choice: choice }: Body): string | undefined {
  if (tools === undefined || (Array.isArray(tools) && tools.length === 0)) {
    const needed = isRecord(choice) && choice['type'] !== 'none';
    return needed ? 'tool_choice: tool_choice may only be specified while providing tools' : undefined;
  }
  const names = new Set<unknown>();
  const problem = firstProblem(tools as Body[], ({ name, input_schema: schema }, index) => {
    const place = `tools.${index}.custom`;
    if (!/^[a-zA-Z0-9_-]{1,128}$/.test(String(name)))
      return `${place}.name: String should match pattern '^[a-zA-Z0-9_-]{1,128}$'`;
    if (!isRecord(schema)) return `${place}.input_schema: Field required`;
    if (schema['type'] !== 'object') return `${place}.input_schema.type: Input should be 'object'`;
    if (names.has(name)) return 'tools: Tool names must be unique.';
    names.add(name);
    return undefined;
  });
  if (problem !== undefined) return problem;
  const named = isRecord(choice) && choice['type'] === 'tool' ? choice['name'] : undefined;
  return named === undefined || names.has(named) ? undefined : `Tool '${String(named)}' not found in provided tools`;
}

function thinkingProblem(body: Body): string | undefined {
  const { thinking, temperature, tool_choice: choice } = body;
  if (!isRecord(thinking) || thinking['type'] === 'disabled') return undefined;
  if (thinking['type'] === 'enabled') {
    const budget = thinking['budget_tokens'];
    if (typeof budget !== 'number') return 'thinking.enabled.budget_tokens: Field required';
    if (budget < LEAST_BUDGET)
      return `thinking.enabled.budget_tokens: Input should be greater than or equal to ${LEAST_BUDGET}`;
    if (budget >= Number(body['max_tokens']))
      return '`max_tokens` must be greater than `thinking.budget_tokens`. Please consult our documentation at https://docs.claude.com/en/docs/build-with-claude/extended-thinking#max-tokens-and-context-window-size';
  }
  if (temperature !== undefined && temperature !== 1)
    return '`temperature` may only be set to 1 when thinking is enabled. Please consult our documentation at https://docs.claude.com/en/docs/build-with-claude/extended-thinking#important-considerations-when-using-extended-thinking';
  return isRecord(choice) && (choice['type'] === 'any' || choice['type'] === 'tool')
    ? 'Thinking may not be enabled when tool_choice forces tool use.'
    : undefined;
}

function marksProblem(body: Body): string | undefined {
  const marks = marksIn([body['cache_control'], body['system'], body['tools'], body['messages']]);
  return marks > MOST_MARKS
    ? `A maximum of ${MOST_MARKS} blocks with cache_control may be provided. Found ${marks}.`
    : undefined;
}

/** Counts marks on blocks only: the input or the schema of a tool may have a field of that name. */
function marksIn(value: unknown): number {
  if (Array.isArray(value)) return value.reduce<number>((sum, item) => sum + marksIn(item), 0);
  if (!isRecord(value)) return 0;
  const own = isRecord(value['cache_control']) ? 1 : value['type'] === 'ephemeral' ? 1 : 0;
  return own + marksIn(value['content']);
}
