/**
 * A request as Claude Code sends it with its default settings: the fields and their forms are those of the client, the texts and
 * schemas are shortened. Claude Code holds the conversation itself, so it sends all of it each time.
 */
export function claudeRequest(model: string, messages: readonly object[] = []): Readonly<Record<string, unknown>> {
  return {
    model,
    messages: [
      {
        role: 'user',
        content: [
          { type: 'text', text: "<system-reminder>\nToday's date is 2026-11-18.\n</system-reminder>\n" },
          { type: 'text', text: 'Fix the typo in a.txt.', ...(messages.length === 0 && CACHED) },
        ],
      },
      { role: 'system', content: 'Available agent types for the Agent tool:\n- Explore: read-only search agent' },
      ...messages,
    ],
    system: [
      { type: 'text', text: 'x-anthropic-billing-header: cc_version=2.1.197.123; cc_entrypoint=sdk-cli;' },
      { type: 'text', text: "You are a Claude agent, built on Anthropic's Claude Agent SDK.", ...CACHED },
      {
        type: 'text',
        text: '\nYou are an interactive agent that helps users with software engineering tasks.',
        ...CACHED,
      },
    ],
    tools: [
      {
        name: 'Bash',
        description: 'Executes a bash command and returns its output.',
        input_schema: {
          $schema: 'https://json-schema.org/draft/2020-12/schema',
          type: 'object',
          properties: { command: { type: 'string' }, timeout: { type: 'number' } },
          required: ['command'],
          additionalProperties: false,
        },
      },
      {
        name: 'Grep',
        description: 'A search tool built on ripgrep.',
        input_schema: {
          $schema: 'https://json-schema.org/draft/2020-12/schema',
          type: 'object',
          properties: { pattern: { type: 'string' }, '-A': { type: 'number' }, '-i': { type: 'boolean' } },
          required: ['pattern'],
          additionalProperties: false,
        },
      },
    ],
    metadata: {
      user_id: '{"device_id":"352aaa9e","account_uuid":"","session_id":"80231116-b8a4-4e8b-a6a5-19881ed4a456"}',
    },
    max_tokens: 64_000,
    thinking: { type: 'adaptive' },
    context_management: { edits: [{ type: 'clear_thinking_20251015', keep: 'all' }] },
    output_config: { effort: 'high' },
    stream: true,
  };
}

const CACHED = { cache_control: { type: 'ephemeral' } };

/** The headers of such a request, without those of HTTP. */
export const CLAUDE_HEADERS: Readonly<Record<string, string>> = {
  accept: 'application/json',
  'user-agent': 'claude-cli/2.1.197 (external, sdk-cli)',
  'x-claude-code-session-id': '80231116-b8a4-4e8b-a6a5-19881ed4a456',
  'x-stainless-retry-count': '0',
  'anthropic-beta':
    'claude-code-20250219,interleaved-thinking-2025-05-14,thinking-token-count-2026-05-13,context-management-2025-06-27,prompt-caching-scope-2026-01-05,mid-conversation-system-2026-04-07,effort-2025-11-24',
  'anthropic-dangerous-direct-browser-access': 'true',
  'anthropic-version': '2023-06-01',
  'x-api-key': 'any',
  'x-app': 'cli',
};
