import type { WireMessage } from './anthropic.ts';
import { firstProblem, isRecord, type Issued } from './rules.ts';

const DOCUMENTATION = 'https://docs.claude.com/en/docs/build-with-claude/extended-thinking';

/** Thinking must be sent back unchanged, and must be present if a turn continues after tool use. */
export function thinkingProblem(
  thinking: unknown,
  messages: readonly WireMessage[],
  issued: Issued | undefined,
): string | undefined {
  const isEnabled = isRecord(thinking) && thinking['type'] === 'enabled';
  return (
    firstProblem(messages, ({ role, content }, at) => {
      if (role === 'assistant' && isThinking(content.at(-1)!.type))
        return `messages.${at}.content.${content.length - 1}: The final block in an assistant message cannot be \`thinking\`.`;
      return firstProblem(content, (block, index) => {
        if (!isThinking(block.type)) return undefined;
        const place = `messages.${at}.content.${index}`;
        return role === 'user'
          ? `${place}: \`${String(block.type)}\` blocks can only be in \`assistant\` messages`
          : signatureProblem(block, place, issued);
      });
    }) ?? (isEnabled ? missingProblem(messages) : undefined)
  );
}

function signatureProblem(
  block: Readonly<Record<string, unknown>>,
  place: string,
  issued: Issued | undefined,
): string | undefined {
  const isRedacted = block['type'] === 'redacted_thinking';
  const signature = String(block[isRedacted ? 'data' : 'signature']);
  const signed = issued?.signatures?.[signature];
  if (signature === '' || (issued?.signatures !== undefined && signed === undefined))
    return isRedacted
      ? `${place}: Invalid \`data\` in \`redacted_thinking\` block`
      : `${place}: Invalid \`signature\` in \`thinking\` block`;
  if (signed === undefined || isRedacted || signed === block['thinking']) return undefined;
  return `${place}: \`thinking\` or \`redacted_thinking\` blocks in the latest assistant message cannot be modified. These blocks must remain as they were in the original response.`;
}

function missingProblem(messages: readonly WireMessage[]): string | undefined {
  const at = messages.findLastIndex(({ role }) => role === 'assistant');
  const content = messages[at]?.content ?? [];
  const leading = content[0]?.type;
  if (isThinking(leading) || !content.some(({ type }) => type === 'tool_use')) return undefined;
  return `messages.${at}.content.0.type: Expected \`thinking\` or \`redacted_thinking\`, but found \`${String(leading)}\`. When \`thinking\` is enabled, a final \`assistant\` message must start with a thinking block (preceeding the lastmost set of \`tool_use\` and \`tool_result\` blocks). We recommend you include thinking blocks from previous turns. To avoid this requirement, disable \`thinking\`. Please consult our documentation at ${DOCUMENTATION}`;
}

function isThinking(type: unknown): boolean {
  return type === 'thinking' || type === 'redacted_thinking';
}
