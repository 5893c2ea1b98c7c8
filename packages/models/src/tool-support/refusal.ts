import type { ModelError } from '@treadle/core';

const TOOLS = String.raw`(?:tools|tool[ _-]?(?:use|usage|calls?|calling)|function[ _-]?call(?:s|ing)?)`;
/** How messages name a model: "this model", "the endpoint", or an id such as `gemma-2` or `models/gemma`. */
const A_MODEL = String.raw`(?:(?:this|the|that|your)\s+)?(?:\S+\s+)?(?:models?|deployment|endpoint|provider)\b|\S*[-/:\d]`;
/** The refusal is of tools in general. Tools refused together with something else are another failure. */
const AT_ALL =
  String.raw`(?!['"\x60]?\s+(?:when|while|if|unless|together|alongside|combined)\b)` +
  String.raw`(?!['"\x60]?\s+(?:and|or)\b.*\b(?:together|combin\w+|same time|simultaneously)\b)` +
  String.raw`(?!['"\x60]?\s+(?:with|in|for|on|by)\s+(?!${A_MODEL}))`;

/** The messages with which providers refuse tools. There is no error code for it, and the status is 400 to 500. */
const REFUSALS: readonly RegExp[] = [
  // Ollama: "… does not support tools"; DeepSeek: "deepseek-reasoner does not support Function Calling"
  new RegExp(String.raw`\b(?:does not|doesn't|do not) support ${TOOLS}\b${AT_ALL}`, 'i'),
  // Groq: "`tool calling` is not supported with this model"; OpenAI: "'tools' is not supported with this model"; Mistral, Google: "Function calling is not enabled for …"
  new RegExp(
    String.raw`(?<![\w-]|parallel )${TOOLS}['"\x60]? (?:is|are) not (?:supported|enabled|available)\b${AT_ALL}`,
    'i',
  ),
  // OpenRouter
  /no endpoints found that support tool use/i,
  // vLLM and llama.cpp, if the server was started without support for tools
  /tool choice requires --enable-auto-tool-choice/i,
  /tools param requires --jinja/i,
  // Hosts with an early version of the Chat Completions API
  /unrecognized request argument supplied: tools?\b/i,
];

/** If the error is a refusal of tools: an error that says so and is not retryable. */
export function toolsRefused(model: string, error: ModelError): ModelError | undefined {
  if (error.code === 'cancelled' || !REFUSALS.some((refusal) => refusal.test(error.message))) return undefined;
  const opening = `The model "${model}" does not support tools here.`;
  if (error.message.startsWith(opening)) return error;
  const remedy = 'Use another model, or set toolSupport (tool_support in treadle.toml) to "degrade" or "text"';
  return {
    ...error,
    code: 'invalid-request',
    message: `${opening} ${remedy}. ${error.message}`,
    retryable: false,
  };
}
