import { requestTokens, type AssistantMessage, type Message, type ToolMessage } from '@treadle/core';
import type { AnthropicAppliedEdit } from '@treadle/models/anthropic-wire';
import { z } from 'zod';
import { MAX_LENGTH } from '../../parse/fields.ts';
import { chosenSchema, isObject, list, PARAM, refuse, textOr, UNSUPPORTED, wrongType } from '../../parse/validate.ts';

/*
 * `context_management`: what is left out of a conversation before the model gets it. Tokens are estimated, as `count_tokens` does.
 */

export type ContextEdit = ClearThinking | ClearToolUses;

interface ClearThinking {
  readonly type: 'clear_thinking_20251015';
  /** How many of the last turns with thoughts keep them. */
  readonly keep: number;
}

interface ClearToolUses {
  readonly type: 'clear_tool_uses_20250919';
  readonly trigger: Measured;
  /** How many of the last calls keep their results. */
  readonly keep: number;
  /** Nothing is cleared if it is less than this number of tokens. */
  readonly clearAtLeast: number;
  readonly excludeTools: readonly string[];
  /** Whether the arguments of the calls are cleared too: of all, or of tools with these names. */
  readonly clearInputs: boolean | readonly string[];
}

interface Measured {
  readonly type: 'input_tokens' | 'tool_uses';
  readonly value: number;
}

const count = z.int().min(0);
const tokens = z.object({ type: z.literal('input_tokens'), value: count });
const uses = z.object({ type: z.literal('tool_uses'), value: count });
const names = list(z.string().max(MAX_LENGTH.id), { expected: 'a list of names', max: Infinity });

/** The defaults are those of the API. */
const KEPT_THINKING = 1;
const KEPT_USES = 3;
const TRIGGER: Measured = { type: 'input_tokens', value: 100_000 };

const clearThinking = z
  .object({
    keep: textOr(
      z.literal('all').transform(() => Infinity),
      chosenSchema<number>(
        (keep) => (isObject(keep) && keep['type'] === 'all' ? allTurns : someTurns),
        () => [allTurns, someTurns],
      ),
    ).nullish(),
  })
  .transform(({ keep }): ContextEdit => ({ type: 'clear_thinking_20251015', keep: keep ?? KEPT_THINKING }));

const allTurns = z.object({ type: z.literal('all') }).transform(() => Infinity);
const someTurns = z
  .object({ type: z.literal('thinking_turns'), value: z.int().min(1) })
  .transform(({ value }) => value);

const clearToolUses = z
  .object({
    trigger: z.discriminatedUnion('type', [tokens, uses]).nullish(),
    keep: uses.nullish(),
    clear_at_least: tokens.nullish(),
    exclude_tools: names.nullish(),
    clear_tool_inputs: z.union([z.boolean(), names]).nullish(),
  })
  .transform((edit): ContextEdit => ({
    type: 'clear_tool_uses_20250919',
    trigger: edit.trigger ?? TRIGGER,
    keep: edit.keep?.value ?? KEPT_USES,
    clearAtLeast: edit.clear_at_least?.value ?? 0,
    excludeTools: edit.exclude_tools ?? [],
    clearInputs: edit.clear_tool_inputs ?? false,
  }));

const edit = chosenSchema<ContextEdit>(
  (value, ctx) => {
    if (!isObject(value)) return wrongType(ctx, value, 'object');
    if (value['type'] === 'clear_thinking_20251015') return clearThinking;
    if (value['type'] === 'clear_tool_uses_20250919') return clearToolUses;
    const message = `${PARAM} is ${JSON.stringify(value['type'])}. This server supports 'clear_thinking_20251015' and 'clear_tool_uses_20250919'.`;
    return refuse(ctx, message, { path: ['type'], ...UNSUPPORTED });
  },
  () => [
    z.intersection(z.looseObject({ type: z.literal('clear_thinking_20251015') }), clearThinking),
    z.intersection(z.looseObject({ type: z.literal('clear_tool_uses_20250919') }), clearToolUses),
  ],
);

interface ContextManagement {
  readonly edits?: readonly ContextEdit[] | null | undefined;
}

export const contextManagement: z.ZodType<ContextManagement | null | undefined> = z
  .object({ edits: list(edit, { expected: 'a list of edits', max: 16 }).nullish() })
  .nullish();

export interface EditedConversation {
  readonly messages: readonly Message[];
  /** Those that have changed something. */
  readonly applied: readonly AnthropicAppliedEdit[];
}

/** `others`: the tokens of instructions and tools. */
export function editedConversation(
  messages: readonly Message[],
  edits: readonly ContextEdit[],
  others: number,
): EditedConversation {
  const applied: AnthropicAppliedEdit[] = [];
  let current = messages;
  for (const one of edits) {
    const { messages: next, cleared } =
      one.type === 'clear_thinking_20251015' ? withoutThinking(current, one) : withoutToolUses(current, one, others);
    if (cleared === 0) continue;
    const cleared_input_tokens = tokensIn(current) - tokensIn(next);
    applied.push(
      one.type === 'clear_thinking_20251015'
        ? { type: one.type, cleared_thinking_turns: cleared, cleared_input_tokens }
        : { type: one.type, cleared_tool_uses: cleared, cleared_input_tokens },
    );
    current = next;
  }
  return { messages: current, applied };
}

function tokensIn(messages: readonly Message[]): number {
  return requestTokens(messages, messages.length, undefined, []);
}

interface Cleared {
  readonly messages: readonly Message[];
  /** The number of turns or calls that have changed. */
  readonly cleared: number;
}

function withoutThinking(messages: readonly Message[], { keep }: ClearThinking): Cleared {
  const thinks = messages.flatMap((message, index) => (hasThoughts(message) ? index : []));
  const older = new Set(thinks.slice(0, Math.max(0, thinks.length - keep)));
  if (older.size === 0) return { messages, cleared: 0 };
  return {
    messages: messages.flatMap((one, index) => (older.has(index) ? withoutThoughts(one) : one)),
    cleared: older.size,
  };
}

function hasThoughts({ role, content }: Message): boolean {
  return role === 'assistant' && content.some(({ type }) => type === 'reasoning');
}

function withoutThoughts(message: Message): readonly Message[] {
  const content = (message as AssistantMessage).content.filter(({ type }) => type !== 'reasoning');
  return content.length === 0 ? [] : [{ role: 'assistant', content }];
}

const CLEARED = '[The result of this call was cleared to save context.]';

function withoutToolUses(messages: readonly Message[], one: ClearToolUses, others: number): Cleared {
  const { trigger, keep, clearAtLeast, excludeTools, clearInputs } = one;
  const results = messages.flatMap((message) => (message.role === 'tool' ? message.content : []));
  const size = trigger.type === 'tool_uses' ? results.length : tokensIn(messages) + others;
  if (size <= trigger.value) return { messages, cleared: 0 };
  let left = Math.max(0, results.length - keep);
  let cleared = 0;
  let calls = new Set<string>();
  const clearsInput = (name: string): boolean =>
    Array.isArray(clearInputs) ? clearInputs.includes(name) : clearInputs === true;
  const clearedMessage = (message: ToolMessage): ToolMessage => ({
    role: 'tool',
    content: message.content.map((result) => {
      if (left === 0) return result;
      left -= 1;
      if (excludeTools.includes(result.name)) return result;
      cleared += 1;
      calls.add(result.callId);
      return { ...result, content: [{ type: 'text', text: CLEARED }] };
    }),
  });
  const next: Message[] = [];
  for (const message of messages) {
    if (message.role !== 'tool' || left === 0) {
      next.push(message);
      continue;
    }
    calls = new Set();
    const changed = clearedMessage(message);
    const said = next.at(-1);
    if (clearInputs !== false && said?.role === 'assistant') {
      const content = said.content.map((part) =>
        part.type === 'tool-call' && calls.has(part.id) && clearsInput(part.name) ? { ...part, arguments: '{}' } : part,
      );
      next[next.length - 1] = { role: 'assistant', content };
    }
    next.push(changed);
  }
  const isEnough = tokensIn(messages) - tokensIn(next) >= clearAtLeast;
  return isEnough && cleared > 0 ? { messages: next, cleared } : { messages, cleared: 0 };
}
