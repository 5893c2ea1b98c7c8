/** The defaults of a provider. */
interface ProviderFacts {
  /** The address of its API; absent: the configuration must contain it. */
  readonly baseURL?: string;
  /** The environment variable of the key, unless the configuration names another; absent: no key is needed. */
  readonly key?: string;
  /** Another variable that is read if that one is not set. */
  readonly otherKey?: string;
  /** A model to start with. */
  readonly model?: string;
}

const OPENAI: ProviderFacts = { baseURL: 'https://api.openai.com/v1', key: 'OPENAI_API_KEY', model: 'gpt-5-mini' };

export type Provider = HttpProvider | 'demo';
/** A provider that is called over HTTP. */
export type HttpProvider =
  | 'openai'
  | 'openai-responses'
  | 'anthropic'
  | 'google'
  | 'ollama'
  | 'openai-compatible'
  | 'openrouter'
  | 'groq'
  | 'together'
  | 'deepseek'
  | 'mistral'
  | 'azure'
  | 'vllm'
  | 'llama-cpp'
  | 'lm-studio';

/** By the value of `provider` in treadle.toml. */
const FACTS: Readonly<Record<Provider, ProviderFacts>> = {
  openai: OPENAI,
  'openai-responses': OPENAI,
  anthropic: { baseURL: 'https://api.anthropic.com/v1', key: 'ANTHROPIC_API_KEY', model: 'claude-sonnet-5' },
  google: {
    baseURL: 'https://generativelanguage.googleapis.com/v1beta',
    key: 'GEMINI_API_KEY',
    otherKey: 'GOOGLE_API_KEY',
    model: 'gemini-3.5-flash',
  },
  ollama: { baseURL: 'http://127.0.0.1:11434', model: 'qwen3' },
  'openai-compatible': {},
  openrouter: { baseURL: 'https://openrouter.ai/api/v1', key: 'OPENROUTER_API_KEY' },
  groq: { baseURL: 'https://api.groq.com/openai/v1', key: 'GROQ_API_KEY' },
  together: { baseURL: 'https://api.together.xyz/v1', key: 'TOGETHER_API_KEY' },
  deepseek: { baseURL: 'https://api.deepseek.com', key: 'DEEPSEEK_API_KEY', model: 'deepseek-chat' },
  mistral: { baseURL: 'https://api.mistral.ai/v1', key: 'MISTRAL_API_KEY', model: 'mistral-large-latest' },
  azure: { key: 'AZURE_OPENAI_API_KEY' },
  vllm: { baseURL: 'http://127.0.0.1:8000/v1' },
  'llama-cpp': { baseURL: 'http://127.0.0.1:8080/v1' },
  'lm-studio': { baseURL: 'http://127.0.0.1:1234/v1' },
  demo: {},
};

export const PROVIDERS: readonly Provider[] = Object.keys(FACTS) as Provider[];

export function factsOf(provider: Provider): ProviderFacts {
  return FACTS[provider];
}

export function isProvider(name: string): name is Provider {
  return Object.hasOwn(FACTS, name);
}
