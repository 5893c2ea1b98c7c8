import { TreadleError } from '@treadle/core';

/**
 * How a host of the Chat Completions API differs from OpenAI. What is absent is as at OpenAI, but for `maxTokensField`.
 * Each switch names a host that needs it; there is none without.
 */
export interface Quirks {
  /** OpenAI has renamed it, others have not; default `max_tokens`. */
  readonly maxTokensField?: 'max_tokens' | 'max_completion_tokens';
  /** False: `stream_options` is not sent, usage comes without being asked for (Mistral), or not at all. */
  readonly streamUsage?: boolean;
  /** False: `parallel_tool_calls` is not sent (the o-series of OpenAI and Azure). */
  readonly parallelSwitch?: boolean;
  /**
   * The most that `tool_choice` may ask for; each includes those before it. Default `subset`, which is OpenAI's and
   * Azure's alone; others mostly take `named`; llama.cpp and LM Studio take words only, so `required`; DeepSeek, while it
   * thinks, only `auto`. Where a tool cannot be named, the others are left out of the request; of a subset the host is not told,
   * and the loop refuses the rest.
   */
  readonly toolChoice?: 'auto' | 'required' | 'named' | 'subset';
  /**
   * How the form of the answer is asked for. `schema`: a JSON Schema, the default. `schema-without-tools`: the same, but
   * only where there is no tool to call, since the schema would rule the call out (vLLM, llama.cpp, LM Studio).
   * `object`: as some JSON (DeepSeek). `none`: not at all (Groq, while it streams). All but `schema` also tell the model
   * in words.
   */
  readonly output?: 'schema' | 'schema-without-tools' | 'object' | 'none';
  /**
   * How reasoning goes back with the calls that it led to. `none`: not at all, the default. `reasoning_content`: by the
   * field of that name, which DeepSeek demands, also when empty, and vLLM and llama.cpp put into the prompt.
   * `openrouter`: by `reasoning_details` as they came, or by `reasoning`; effort is asked for by `reasoning` too.
   */
  readonly reasoning?: 'none' | 'reasoning_content' | 'openrouter';
  /** `nine`: call ids are nine letters and digits (Mistral, and vLLM with Mistral's tokenizer); others are replaced. */
  readonly callIds?: 'any' | 'nine';
  /** False: no message of the user may follow a result, so a word of the assistant stands between (Mistral). */
  readonly userAfterResults?: boolean;
  /** False: content is always text, words stand for images and files (DeepSeek). */
  readonly media?: boolean;
}

/** What holds for a host of which nothing is known. */
export const ELSEWHERE: Quirks = { toolChoice: 'named' };

const VALUES: { readonly [Name in keyof Required<Quirks>]: readonly Quirks[Name][] } = {
  maxTokensField: ['max_tokens', 'max_completion_tokens'],
  streamUsage: [true, false],
  parallelSwitch: [true, false],
  toolChoice: ['auto', 'required', 'named', 'subset'],
  output: ['schema', 'schema-without-tools', 'object', 'none'],
  reasoning: ['none', 'reasoning_content', 'openrouter'],
  callIds: ['any', 'nine'],
  userAfterResults: [true, false],
  media: [true, false],
};

/** Throws if there is no such quirk; `factory` is the function that was called with them. */
export function checkQuirks(factory: string, quirks: Quirks): void {
  for (const [name, value] of Object.entries(quirks)) {
    const values: readonly unknown[] | undefined = Object.hasOwn(VALUES, name)
      ? VALUES[name as keyof Quirks]
      : undefined;
    if (values === undefined) {
      const names = Object.keys(VALUES).join(', ');
      throw new TreadleError('invalid-options', `${factory}: there is no quirk "${name}", only ${names}.`);
    }
    if (value !== undefined && !values.includes(value)) {
      const choice = values.map((one) => JSON.stringify(one)).join(', ');
      throw new TreadleError('invalid-options', `${factory}: the quirk "${name}" must be one of ${choice}.`);
    }
  }
}
