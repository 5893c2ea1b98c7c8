import { messageOf } from '../errors.ts';
import type { UserBlock } from '../messages.ts';
import { arePartsOf } from '../messages.ts';
import type { AgentPrompts } from './define.ts';
import { agentError, type AgentError } from './result.ts';

export interface Prompts {
  readonly type: 'prompts';
  readonly system: string | undefined;
  readonly user: readonly UserBlock[];
}

type Built = Prompts | { readonly type: 'failure'; readonly error: AgentError };

/** What the model is told at the start. Whoever writes it may take time, or fail, or be cancelled. */
export async function buildPrompts(
  prompts: AgentPrompts<unknown>,
  input: unknown,
  signal: AbortSignal | undefined,
): Promise<Built> {
  const { promise: aborted, resolve: abort } = Promise.withResolvers<Built>();
  const cancel = (): void => abort({ type: 'failure', error: CANCELLED });
  signal?.addEventListener('abort', cancel, { once: true });
  if (signal?.aborted) cancel();
  try {
    return await Promise.race([aborted, signal?.aborted ? aborted : build(prompts, input)]);
  } finally {
    signal?.removeEventListener('abort', cancel);
  }
}

const CANCELLED = agentError('EXECUTION_CANCELLED', 'The execution was cancelled.', {
  attempt: 1,
  iteration: 0,
  phase: 'prompt',
});

/** No provider takes it. */
function isBlank(block: UserBlock): boolean {
  return block.type === 'text' && block.text.trim() === '';
}

async function build({ system, user }: AgentPrompts<unknown>, input: unknown): Promise<Built> {
  let writing: 'system' | 'user' = 'system';
  const failed = (why: string): Built => ({
    type: 'failure',
    error: agentError('PROMPT_FAILED', `prompts.${writing} ${why}`, { prompt: writing }),
  });
  try {
    const told = typeof system === 'function' ? await system(input) : system;
    if (told !== undefined && typeof told !== 'string') return failed('gave no text.');
    writing = 'user';
    const asked = typeof user === 'function' ? await user(input) : user;
    const blocks = typeof asked === 'string' ? ([{ type: 'text', text: asked }] as const) : asked;
    if (!arePartsOf('user', blocks) || blocks.length === 0 || blocks.some(isBlank)) {
      return failed('gave neither a text nor content blocks.');
    }
    return { type: 'prompts', system: told, user: blocks };
  } catch (thrown) {
    return failed(`failed: ${messageOf(thrown)}`);
  }
}
