import type { ModelError } from '@treadle/core';

const TOOLS = String.raw`(?:tools|tool[ _-]?(?:use|usage|calls?|calling)|function[ _-]?call(?:s|ing)?)`;
/** A model as messages name it: "this model", "the endpoint", or by an id such as `gemma-2` or `models/gemma`. */
const A_MODEL = String.raw`(?:(?:this|the|that|your)\s+)?(?:\S+\s+)?(?:models?|deployment|endpoint|provider)\b|\S*[-/:\d]`;
/** Tools are refused as such, not only together with something else: that is another failure, with another remedy. */
const AT_ALL =
  String.raw`(?!['"\x60]?\s+(?:when|while|if|unless|together|alongside|combined)\b)` +
  String.raw`(?!['"\x60]?\s+(?:and|or)\b.*\b(?:together|combin\w+|same time|simultaneously)\b)` +
  String.raw`(?!['"\x60]?\s+(?:with|in|for|on|by)\s+(?!${A_MODEL}))`;

/** How providers say that a model takes no tools. There is no code for it, and the status is anything from 400 to 500. */
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
  // vLLM, and llama.cpp: servers that were started without it
  /tool choice requires --enable-auto-tool-choice/i,
  /tools param requires --jinja/i,
  // Hosts of the Chat Completions API from before there were tools
  /unrecognized request argument supplied: tools?\b/i,
];

/** The error in clear words if it is a refusal of tools. It is final: to ask again would not help. */
export function toolsRefused(model: string, error: ModelError): ModelError | undefined {
  if (error.code === 'cancelled' || !REFUSALS.some((refusal) => refusal.test(error.message))) return undefined;
  const opening = `The model "${model}" does not support tools here.`;
  if (error.message.startsWith(opening)) return error;
  const remedy = 'Use another model, or set toolSupport to "degrade" or "text"';
  return {
    ...error,
    code: 'invalid-request',
    message: `${opening} ${remedy}. ${error.message}`,
    retryable: false,
  };
}
