import { stableJson } from '../machine/history.ts';
import type { Narrowings } from '../machine/narrowing.ts';
import { parseArguments } from './execute.ts';

/* Arguments that narrowings add to calls. This is loaded with the first such call. */

/**
 * The arguments of a call with those that it lacks; undefined if that changes nothing. Arguments that cannot be read stay as
 * they are: their check says what is wrong with them.
 */
export function withDefaults(narrowed: Narrowings, name: string, text: string, cut: boolean): string | undefined {
  const parsed = parseArguments(text, cut);
  if (parsed.type === 'problem') return undefined;
  const given = parsed.value as Readonly<Record<string, unknown>>;
  const added = [...agreedDefaults(narrowed, name)].filter(([key]) => !Object.hasOwn(given, key));
  return added.length === 0 ? undefined : JSON.stringify({ ...given, ...Object.fromEntries(added) });
}

/** The order of narrowings does not matter, so two values for one argument do not apply. */
function agreedDefaults(narrowed: Narrowings, name: string): ReadonlyMap<string, unknown> {
  const agreed = new Map<string, unknown>();
  const disputed = new Set<string>();
  for (const { defaults } of narrowed ?? []) {
    for (const [key, value] of Object.entries((defaults && Object.hasOwn(defaults, name) && defaults[name]) || {})) {
      if (agreed.has(key) && stableJson(agreed.get(key)) !== stableJson(value)) disputed.add(key);
      agreed.set(key, value);
    }
  }
  for (const key of disputed) agreed.delete(key);
  return agreed;
}
