/* Where the APIs of providers are, and the environment variables that their own clients read. */

/** An address that is known, with the variables of its provider. */
export interface ProviderFacts {
  /** As the conventions of OpenTelemetry name it. Absent: not known. */
  readonly name?: string;
  /** The URL up to the path of the protocol. */
  readonly baseURL: string;
  /** The variable of the key. Absent: no key is needed. */
  readonly keyVariable?: string;
  /** Read if that one is not set. */
  readonly otherKeyVariable?: string;
  /** The variable of an address that is used instead of `baseURL`. */
  readonly baseVariable?: string;
  /** The base URL that a value of `baseVariable` means; default: the value. */
  readonly baseFrom?: (value: string) => string;
}

export const OPENAI: ProviderFacts = {
  name: 'openai',
  baseURL: 'https://api.openai.com/v1',
  keyVariable: 'OPENAI_API_KEY',
  baseVariable: 'OPENAI_BASE_URL',
};

/** Anthropic's client adds the version of the path itself. */
export const ANTHROPIC: ProviderFacts = {
  name: 'anthropic',
  baseURL: 'https://api.anthropic.com/v1',
  keyVariable: 'ANTHROPIC_API_KEY',
  baseVariable: 'ANTHROPIC_BASE_URL',
  baseFrom: (value) => withVersion(value, 'v1'),
};

/** Google's client adds the version of the path itself. */
export const GOOGLE: ProviderFacts = {
  name: 'gcp.gemini',
  baseURL: 'https://generativelanguage.googleapis.com/v1beta',
  keyVariable: 'GEMINI_API_KEY',
  otherKeyVariable: 'GOOGLE_API_KEY',
  baseVariable: 'GOOGLE_GEMINI_BASE_URL',
  baseFrom: (value) => withVersion(value, 'v1beta'),
};

export const OLLAMA: ProviderFacts = {
  name: 'ollama',
  baseURL: 'http://127.0.0.1:11434',
  baseVariable: 'OLLAMA_HOST',
  baseFrom: ollamaAddress,
};

export const OPENROUTER: ProviderFacts = {
  name: 'openrouter',
  baseURL: 'https://openrouter.ai/api/v1',
  keyVariable: 'OPENROUTER_API_KEY',
};
export const GROQ: ProviderFacts = {
  name: 'groq',
  baseURL: 'https://api.groq.com/openai/v1',
  keyVariable: 'GROQ_API_KEY',
};
export const TOGETHER: ProviderFacts = {
  name: 'together',
  baseURL: 'https://api.together.xyz/v1',
  keyVariable: 'TOGETHER_API_KEY',
};
export const DEEPSEEK: ProviderFacts = {
  name: 'deepseek',
  baseURL: 'https://api.deepseek.com',
  keyVariable: 'DEEPSEEK_API_KEY',
};
export const MISTRAL: ProviderFacts = {
  name: 'mistral_ai',
  baseURL: 'https://api.mistral.ai/v1',
  keyVariable: 'MISTRAL_API_KEY',
};
/** Each resource has an address of its own. */
export const AZURE: Omit<ProviderFacts, 'baseURL'> = { name: 'azure.ai.openai', keyVariable: 'AZURE_OPENAI_API_KEY' };
export const VLLM: ProviderFacts = { name: 'vllm', baseURL: 'http://127.0.0.1:8000/v1' };
export const LLAMA_CPP: ProviderFacts = { name: 'llama_cpp', baseURL: 'http://127.0.0.1:8080/v1' };
export const LM_STUDIO: ProviderFacts = { name: 'lm_studio', baseURL: 'http://127.0.0.1:1234/v1' };

/** Returns the value of an environment variable, if it is set. */
export type ReadVariable = (name: string) => string | undefined;

/** The base URL that the environment sets for a provider; undefined if it sets none. */
export function baseURLFromEnvironment(
  { baseVariable, baseFrom }: Partial<ProviderFacts>,
  read: ReadVariable,
): { readonly variable: string; readonly baseURL: string } | undefined {
  const value = baseVariable === undefined ? undefined : read(baseVariable)?.trim();
  if (baseVariable === undefined || !value) return undefined;
  return { variable: baseVariable, baseURL: baseFrom ? baseFrom(value) : value };
}

/** Whether an address is on this machine. Servers there usually need no key. */
export function isLoopbackURL(address: string): boolean {
  const host = URL.parse(address)?.hostname ?? '';
  return host === 'localhost' || host.endsWith('.localhost') || host === '[::1]' || /^127(\.\d+){3}$/.test(host);
}

/** Some tools expect the variable with the version, so it is not added twice. */
function withVersion(value: string, version: string): string {
  const url = value.replace(/\/+$/, '');
  return /\/v\d\w*$/.test(url) ? url : `${url}/${version}`;
}

/**
 * `host`, `host:port`, `:port` or a URL. Without a scheme the port is 11434 by default. The addresses that a server listens on
 * to be reached from everywhere mean this machine.
 */
function ollamaAddress(value: string): string {
  const hasScheme = value.includes('://');
  const host = /^[\da-f.]*:[\da-f.]*:[\da-f.:]*$/i.test(value) ? `[${value}]` : value;
  const url = URL.parse(hasScheme ? value : `http://${/^:\d/.test(host) ? '127.0.0.1' : ''}${host}`);
  if (url === null) return value;
  if (!hasScheme && !/:\d+(\/|$)/.test(host)) url.port = '11434';
  if (url.hostname === '0.0.0.0') url.hostname = '127.0.0.1';
  if (url.hostname === '[::]') url.hostname = '[::1]';
  return url.href;
}
