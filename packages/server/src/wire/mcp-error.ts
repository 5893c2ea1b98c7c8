/** Why a call of the server failed, in the official clients' form; `message` is for those who show errors by it. */
export interface McpError {
  readonly type: 'mcp_tool_execution_error';
  readonly message: string;
  readonly content: readonly { readonly type: 'text'; readonly text: string }[];
}

export function mcpError(text: string): McpError {
  return { type: 'mcp_tool_execution_error', message: text, content: [{ type: 'text', text }] };
}

/** Of an error in any form that clients send back: ours, that of MCP itself, or a text. */
export function mcpErrorText(error: unknown): string | null {
  if (error === undefined || error === null) return null;
  if (typeof error === 'string') return error;
  const { message, content } = error as { readonly message?: unknown; readonly content?: unknown };
  if (typeof message === 'string') return message;
  const texts = Array.isArray(content)
    ? content.flatMap((part: { readonly text?: unknown } | null) => part?.text ?? [])
    : [];
  return texts.length > 0 ? texts.join('\n') : JSON.stringify(error);
}
