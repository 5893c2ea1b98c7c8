import * as known from '@treadle/models/providers';
import { CommandError } from '../command-line/command.ts';

/** The defaults of a provider. `baseURL` is absent if the configuration must contain it. */
interface ProviderFacts extends Partial<known.ProviderFacts> {
  /** A model to start with. */
  readonly model?: string;
}

const OPENAI: ProviderFacts = { ...known.OPENAI, model: 'gpt-5-mini' };

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
  anthropic: { ...known.ANTHROPIC, model: 'claude-sonnet-5' },
  google: { ...known.GOOGLE, model: 'gemini-3.5-flash' },
  ollama: { ...known.OLLAMA, model: 'qwen3' },
  'openai-compatible': {},
  openrouter: known.OPENROUTER,
  groq: known.GROQ,
  together: known.TOGETHER,
  deepseek: { ...known.DEEPSEEK, model: 'deepseek-chat' },
  mistral: { ...known.MISTRAL, model: 'mistral-large-latest' },
  azure: known.AZURE,
  vllm: known.VLLM,
  'llama-cpp': known.LLAMA_CPP,
  'lm-studio': known.LM_STUDIO,
  demo: {},
};

export const PROVIDERS: readonly Provider[] = Object.keys(FACTS) as Provider[];

export function factsOf(provider: Provider): ProviderFacts {
  return FACTS[provider];
}

/** Where the requests of an entry go. */
export interface EntryAddress {
  readonly baseURL?: string;
  /** The environment variable that has it. */
  readonly variable?: string;
}

/** The address of an entry: its own, else that of the environment, else the default of its provider. */
export function addressOfEntry(
  { base_url: baseURL, provider = 'openai' }: { readonly base_url?: string; readonly provider?: Provider },
  env: Readonly<Record<string, string | undefined>>,
): EntryAddress {
  if (baseURL !== undefined) return { baseURL };
  const facts = factsOf(provider);
  const address = known.baseURLFromEnvironment(facts, (name) => env[name]);
  return address ?? (facts.baseURL === undefined ? {} : { baseURL: facts.baseURL });
}

/** The same. Throws if the environment has something else than an address. */
export function checkedAddress(...entry: Parameters<typeof addressOfEntry>): EntryAddress {
  const address = addressOfEntry(...entry);
  const { baseURL, variable } = address;
  if (variable === undefined || /^https?:$/.test(URL.parse(baseURL ?? '')?.protocol ?? '')) return address;
  const example = factsOf(entry[0].provider ?? 'openai').baseURL;
  throw new CommandError(`${variable} is not the address of a server. Set it to one such as ${example}.`);
}

export function isProvider(name: string): name is Provider {
  return Object.hasOwn(FACTS, name);
}
