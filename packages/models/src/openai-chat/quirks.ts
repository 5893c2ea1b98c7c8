import { rejectOptions } from '../http/endpoint.ts';

/**
 * How a host of the Chat Completions API differs from OpenAI. Omitted fields mean the behaviour of OpenAI, except for
 * `maxTokensField` and `customTools`. Each switch names a host that needs it.
 */
export interface Quirks {
  /** OpenAI has renamed the field, other hosts have not; default `max_tokens`. */
  readonly maxTokensField?: 'max_tokens' | 'max_completion_tokens';
  /** False: `stream_options` is not sent. The host reports usage without it (Mistral), or not at all. */
  readonly streamUsage?: boolean;
  /** False: `parallel_tool_calls` is not sent (o-series models of OpenAI and Azure). */
  readonly parallelSwitch?: boolean;
  /**
   * The most specific `tool_choice` that the host accepts; each value includes those before it. Default `subset`, which only
   * OpenAI and Azure accept. Most others accept `named`; llama.cpp and LM Studio accept only strings, so `required`;
   * DeepSeek accepts only `auto` while it thinks. If a tool cannot be named, the request contains only that tool. If a
   * subset cannot be sent, the loop rejects calls outside it.
   */
  readonly toolChoice?: 'auto' | 'required' | 'named' | 'subset';
  /**
   * How the form of the answer is requested. `schema`: as a JSON Schema, the default. `schema-without-tools`: the same, but
   * only if there is no tool to call, because the schema would prevent calls (vLLM, llama.cpp, LM Studio). `object`: as
   * any JSON object (DeepSeek). `none`: not at all (Groq, while it streams). All but `schema` also describe the schema in
   * the instructions.
   */
  readonly output?: 'schema' | 'schema-without-tools' | 'object' | 'none';
  /** False: the host has no `json_object`, so that any JSON object is requested as a schema (LM Studio). */
  readonly jsonObject?: boolean;
  /**
   * How reasoning is sent back with the calls that it led to. `none`: not at all, the default. `reasoning_content`: in the
   * field of that name, which DeepSeek requires even if empty, and which vLLM and llama.cpp add to the prompt.
   * `openrouter`: as unchanged `reasoning_details`, or as `reasoning`; effort is requested by `reasoning` too.
   */
  readonly reasoning?: 'none' | 'reasoning_content' | 'openrouter';
  /** `nine`: call ids must be nine letters or digits (Mistral, and vLLM with its tokenizer); others are replaced. */
  readonly callIds?: 'any' | 'nine';
  /** False: a user message may not follow a result, so an assistant message is inserted (Mistral). */
  readonly userAfterResults?: boolean;
  /**
   * False: `prompt_cache_key`, `verbosity` and `service_tier` are not sent. Only OpenAI and Azure have them; other hosts may
   * reject a request with unknown fields.
   */
  readonly hints?: boolean;
  /** False: content is always text, and notes replace images and files (DeepSeek). */
  readonly media?: boolean;
  /** True: tools that take a text are sent as such (OpenAI, Azure). Default false: as functions. */
  readonly customTools?: boolean;
}

/** The quirks of an unknown host. */
export const UNKNOWN_HOST: Quirks = { toolChoice: 'named', hints: false };

const VALUES: { readonly [Name in keyof Required<Quirks>]: readonly Quirks[Name][] } = {
  maxTokensField: ['max_tokens', 'max_completion_tokens'],
  streamUsage: [true, false],
  parallelSwitch: [true, false],
  toolChoice: ['auto', 'required', 'named', 'subset'],
  output: ['schema', 'schema-without-tools', 'object', 'none'],
  jsonObject: [true, false],
  reasoning: ['none', 'reasoning_content', 'openrouter'],
  callIds: ['any', 'nine'],
  userAfterResults: [true, false],
  hints: [true, false],
  media: [true, false],
  customTools: [true, false],
};

/** Throws if a quirk is unknown or has an invalid value; `factory` is the function that was called with them. */
export function checkQuirks(factory: string, quirks: Quirks): void {
  for (const [name, value] of Object.entries(quirks)) {
    const values: readonly unknown[] | undefined = Object.hasOwn(VALUES, name)
      ? VALUES[name as keyof Quirks]
      : undefined;
    if (values === undefined) {
      const names = Object.keys(VALUES).join(', ');
      rejectOptions(factory, `there is no quirk "${name}", only ${names}.`);
    }
    if (value !== undefined && !values.includes(value)) {
      const choice = values.map((one) => JSON.stringify(one)).join(', ');
      rejectOptions(factory, `the quirk "${name}" must be one of ${choice}.`);
    }
  }
}
