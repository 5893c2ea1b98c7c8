import type { ModelError } from '@treadle/core';

const TOOLS = String.raw`(tools?|tool[ _-]?(use|calls?|calling)|function[ _-]?call(s|ing)?)`;

/** How providers say that a model takes no tools. There is no code for it, and the status is anything from 400 to 500. */
const REFUSALS: readonly RegExp[] = [
  // Ollama: "… does not support tools"; DeepSeek: "deepseek-reasoner does not support Function Calling"
  new RegExp(String.raw`\b(does not|doesn't|do not) support ${TOOLS}\b`, 'i'),
  // Groq: "`tool calling` is not supported with this model"; OpenAI: "'tools' is not supported with this model"; Mistral, Google: "Function calling is not enabled for …"
  new RegExp(String.raw`(?<![\w-]|parallel )${TOOLS}['"\x60]? (is|are) not (supported|enabled|available)`, 'i'),
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
