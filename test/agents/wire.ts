import type { ModelRequest } from '@treadle/core';
import { makeModel, PROTOCOLS } from '../models/protocols.ts';
import { anthropicProblem } from '../provider/rules/anthropic.ts';
import { googleProblem } from '../provider/rules/google.ts';
import { ollamaProblem } from '../provider/rules/ollama.ts';
import { chatProblem } from '../provider/rules/openai-chat.ts';
import { responsesProblem } from '../provider/rules/openai-responses.ts';
import type { FormName } from '../provider/script.ts';

const RULES: Readonly<Record<FormName, (body: unknown) => string | undefined>> = {
  'openai-chat': chatProblem,
  'openai-responses': responsesProblem,
  anthropic: anthropicProblem,
  google: googleProblem,
  ollama: ollamaProblem,
};

/** The reason why a provider would reject the request in its own format; undefined if every provider accepts it. */
export async function wireProblem(request: ModelRequest): Promise<string | undefined> {
  for (const form of PROTOCOLS) {
    let body: unknown;
    const fetch = async (_url: unknown, init?: { readonly body?: unknown }): Promise<Response> => {
      body = JSON.parse(Buffer.from(init!.body as Uint8Array).toString('utf8'));
      return new Response('{}', { status: 400 });
    };
    const model = makeModel(form, {
      model: 'm',
      baseURL: 'http://127.0.0.1:9/v1',
      fetch: fetch as typeof globalThis.fetch,
    });
    await model.reply(request, () => {}, new AbortController().signal);
    const problem = RULES[form](body);
    if (problem !== undefined) return `${form}: ${problem}`;
  }
  return undefined;
}
