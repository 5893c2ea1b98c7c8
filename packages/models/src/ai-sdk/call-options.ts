import type { ModelRequest } from '@treadle/core';
import type { AiSdkVersion, CallOptions, ProviderOptions } from './language-model.ts';

export interface CallDefaults {
  readonly version: AiSdkVersion;
  /** As the model has it: `openai.responses`. */
  readonly provider: string;
  readonly providerOptions: ProviderOptions | undefined;
  readonly headers: Readonly<Record<string, string>> | undefined;
}

/** Everything of a request but its messages. */
export function callOptions(
  request: ModelRequest,
  defaults: CallDefaults,
): Omit<CallOptions, 'prompt' | 'abortSignal'> {
  const { temperature, maxOutputTokens, topP, stop, seed, reasoning } = request.settings;
  const { version, headers } = defaults;
  const providerOptions = optionsOf(request, defaults);
  return {
    ...(temperature !== undefined && { temperature }),
    ...(maxOutputTokens !== undefined && { maxOutputTokens }),
    ...(topP !== undefined && { topP }),
    ...(stop !== undefined && { stopSequences: stop }),
    ...(seed !== undefined && { seed }),
    ...(version === 'v4' && reasoning !== undefined && { reasoning }),
    ...(request.output && { responseFormat: { type: 'json', schema: request.output, name: 'answer' } as const }),
    ...toolsOf(request),
    ...(Object.keys(providerOptions).length > 0 && { providerOptions }),
    ...(headers && { headers }),
  };
}

/** The AI SDK knows no subset of tools that may be called, so the others are not told of at all. */
function toolsOf({ tools, toolChoice, allowedTools }: ModelRequest): Pick<CallOptions, 'tools' | 'toolChoice'> {
  const named = typeof toolChoice === 'object' ? toolChoice.tool : undefined;
  const allowed =
    allowedTools === undefined ? tools : tools.filter(({ name }) => name === named || allowedTools.includes(name));
  if (allowed.length === 0) return {};
  return {
    tools: allowed.map(({ name, description, parameters }) => ({
      type: 'function',
      name,
      description,
      inputSchema: parameters,
    })),
    toolChoice: typeof toolChoice === 'object' ? { type: 'tool', toolName: toolChoice.tool } : { type: toolChoice },
  };
}

/** How a provider is asked for one call at a time. The AI SDK has no common setting for it. */
const ONE_CALL: Readonly<Record<string, Readonly<Record<string, unknown>>>> = {
  openai: { parallelToolCalls: false },
  groq: { parallelToolCalls: false },
  anthropic: { disableParallelToolUse: true },
};
/** Where V3, which has no common setting for it either, has a place for the effort. */
const HAS_EFFORT = new Set(['openai', 'groq', 'xai']);

function optionsOf(
  { parallel, settings, tools }: ModelRequest,
  { version, provider, providerOptions = {} }: CallDefaults,
): ProviderOptions {
  const name = provider.split('.', 1)[0]!;
  const own = {
    ...(version === 'v3' && settings.reasoning && HAS_EFFORT.has(name) && { reasoningEffort: settings.reasoning }),
    ...(!parallel && tools.length > 0 && ONE_CALL[name]),
    ...providerOptions[name],
  };
  return Object.keys(own).length === 0 ? providerOptions : { ...providerOptions, [name]: own };
}
