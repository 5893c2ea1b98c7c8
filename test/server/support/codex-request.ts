/**
 * A request as the Codex CLI sends it with its default settings: the fields and their forms are those of the client, the texts
 * are shortened. Codex stores the conversation itself, so it sends all of it each time, and it removes the ids of items.
 */
export function codexRequest(model: string, input: readonly object[]): Readonly<Record<string, unknown>> {
  return {
    model,
    instructions: 'You are a coding agent running in a terminal.',
    input: [
      {
        type: 'message',
        role: 'developer',
        content: [
          { type: 'input_text', text: '<permissions instructions>Ask before you write.</permissions instructions>' },
        ],
      },
      {
        type: 'message',
        role: 'user',
        content: [
          { type: 'input_text', text: '# AGENTS.md instructions' },
          { type: 'input_text', text: '<environment_context><cwd>/repo</cwd></environment_context>' },
        ],
      },
      { type: 'message', role: 'user', content: [{ type: 'input_text', text: 'Fix the typo in a.txt.' }] },
      ...input,
    ],
    tools: [
      {
        type: 'function',
        name: 'exec_command',
        description: 'Runs a command in a PTY, returning output or a session ID for ongoing interaction.',
        strict: false,
        parameters: {
          type: 'object',
          properties: { cmd: { type: 'string', description: 'Shell command to execute.' }, tty: { type: 'boolean' } },
          required: ['cmd'],
          additionalProperties: false,
        },
      },
      {
        type: 'custom',
        name: 'apply_patch',
        description:
          'Use the `apply_patch` tool to edit files. This is a FREEFORM tool, so do not wrap the patch in JSON.',
        format: { type: 'grammar', syntax: 'lark', definition: PATCH_GRAMMAR },
      },
      { type: 'web_search', external_web_access: false, search_content_types: ['text', 'image'] },
    ],
    tool_choice: 'auto',
    parallel_tool_calls: false,
    reasoning: { effort: 'medium', summary: 'auto' },
    store: false,
    stream: true,
    include: ['reasoning.encrypted_content'],
    prompt_cache_key: '019d2b6e-7f0a-7c31-9a34-3f2f1f4d5e6a',
    text: { verbosity: 'low' },
    client_metadata: { 'x-codex-installation-id': 'b0e2' },
  };
}

const PATCH_GRAMMAR = `start: begin_patch hunk+ end_patch
begin_patch: "*** Begin Patch" LF
end_patch: "*** End Patch" LF?
hunk: "*** Update File: " /(.+)/ LF change+
change: ("+" | "-" | " ") /(.*)/ LF
%import common.LF
`;

/** The items of a response as Codex sends them back. */
export function codexItems(output: readonly object[]): readonly object[] {
  return output.map((item) => ({ ...item, id: undefined, status: undefined }));
}
