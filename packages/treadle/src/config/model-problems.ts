import { nearest } from '../nearest.ts';
import { modelEntries, type Config, type ModelEntry } from './config.ts';
import { factsOf } from './providers.ts';

/** What is wrong with [models] beyond the form of its values. Never shows an address, which may hold a secret. */
export function modelProblems(config: Config): string[] {
  const entries = modelEntries(config);
  const names = [...entries.keys()];
  const unknown = config.models?.default !== undefined && !names.includes(config.models.default);
  return [
    ...(unknown ? [`models.default names no entry of [models]. There are: ${names.join(', ') || 'none'}`] : []),
    ...[...entries].flatMap(([name, entry]) => entryProblems(`models.${name}`, entry, { name, names })),
  ];
}

function entryProblems(
  path: string,
  { provider = 'openai', model, base_url, context_tokens, fallback = [] }: ModelEntry,
  { name, names }: { readonly name: string; readonly names: readonly string[] },
): string[] {
  const problems: string[] = [];
  if (model === undefined && provider !== 'demo') {
    problems.push(`${path}.model is missing: the name that the provider has for the model`);
  }
  if (base_url === undefined && provider !== 'demo' && factsOf(provider).baseURL === undefined) {
    problems.push(`${path}.base_url is missing: the address of the server, as ${provider} has none of its own`);
  }
  if (base_url !== undefined && holdsSecret(new URL(base_url))) {
    problems.push(
      `${path}.base_url holds a password or a key, and those do not belong in a file. Put it in an environment variable ` +
        `and name that with api_key_env`,
    );
  }
  if (context_tokens !== undefined && provider !== 'ollama') {
    problems.push(`${path}.context_tokens is for the provider ollama; ${provider} has its own. Leave it out`);
  }
  for (const other of fallback) {
    if (other === name) problems.push(`${path}.fallback names the entry itself. Name others, or leave it out`);
    else if (!names.includes(other)) {
      const meant = nearest(other, names);
      const hint = meant === undefined ? '' : `, did you mean ${meant}?`;
      problems.push(`${path}.fallback names no entry of [models]${hint || '.'} There are: ${names.join(', ')}`);
    }
  }
  return problems;
}

function holdsSecret({ username, password, searchParams }: URL): boolean {
  return (
    username !== '' || password !== '' || [...searchParams.keys()].some((key) => /key|token|secret|sig/i.test(key))
  );
}
