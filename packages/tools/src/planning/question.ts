import { tool, type Tool } from '@treadle/core';
import { TIMEOUTS } from '../call-limits.ts';
import { ToolError } from '../tool-error.ts';

export interface QuestionToolOptions {
  /**
   * False if nobody can answer, such as in a job without a terminal. The model is then told so at once. `canAnswer` of a run
   * has the same effect.
   */
  readonly canAnswer?: boolean;
  /** How long to wait for an answer; default: without end. */
  readonly ttlMs?: number;
}

const DECIDE = 'Decide yourself: choose what is easy to undo, and say in your answer what you assumed.';
const NOBODY_ANSWERS = `Nobody can answer questions in this run. ${DECIDE}`;

/** A tool that asks the user. The run pauses until there is an answer. */
export function questionTool({ canAnswer = true, ttlMs }: QuestionToolOptions = {}): Tool {
  return tool({
    name: 'question',
    description:
      'Ask the user a question and wait for the answer. Use it only for what you cannot find out with other tools and ' +
      'should not decide yourself. Give choices if there are few possible answers. Returns the answer as text.',
    input: {
      type: 'object',
      properties: {
        prompt: {
          type: 'string',
          minLength: 1,
          maxLength: 4_000,
          description: 'One question, with what the user has to know for it',
        },
        choices: {
          type: 'array',
          items: { type: 'string', minLength: 1, maxLength: 200 },
          minItems: 2,
          maxItems: 20,
          description: 'The possible answers; leave it out for a free text',
        },
      },
      required: ['prompt'],
      additionalProperties: false,
    },
    effect: 'idempotent',
    touches: () => [],
    unnarrowed: true,
    timeoutMs: TIMEOUTS.other.defaultMs,
    async execute({ prompt, choices }, { ask }) {
      if (!canAnswer) return NOBODY_ANSWERS;
      const question = {
        prompt: String(prompt),
        ...(choices !== undefined && { choices: [...new Set(choices as readonly string[])] }),
        ...(ttlMs !== undefined && { ttlMs }),
      };
      try {
        return (await ask(question)) || '(an empty answer)';
      } catch (error) {
        const { code, errorType } = error as { readonly code?: unknown; readonly errorType?: unknown };
        if (code === 'nobody-answers') return NOBODY_ANSWERS;
        if (errorType !== 'timeout') throw error;
        throw new ToolError(`Nobody answered in time. ${DECIDE}`, 'timeout', { cause: error });
      }
    },
  });
}
