import type { RunFacts } from '@treadle/core';
import { badRequest } from '../api-error.ts';
import type { Engine } from '../engine/engine.ts';
import { LARGE, nextTurn } from '../http/large-work.ts';

/*
 * A simple detector of texts that try to replace the instructions of an agent. It knows a few common forms and is advice, not a
 * wall: what an agent may do is decided by its policy.
 */

const PATTERNS: readonly RegExp[] = [
  /\b(ignore|disregard|forget|override)\b[^.\n]{0,40}\b(previous|prior|above|earlier|preceding|your|all|the)\b[^.\n]{0,20}\b(instructions?|prompts?|rules|guidelines|directions)\b/i,
  /\b(reveal|show|print|repeat|output)\b[^.\n]{0,30}\b(system|hidden|initial|developer)\b[^.\n]{0,10}\b(prompt|instructions?|message)\b/i,
  /\byou are (now|no longer)\b[^.\n]{0,60}\b(unrestricted|jailbroken|dan|developer mode|without (any )?(restrictions|rules))\b/i,
  /\b(enable|enter|activate)\b[^.\n]{0,20}\b(developer|debug|god|jailbreak) mode\b/i,
  /<\|?(im_start|im_end|system|endoftext)\|?>|\[\/?INST\]|^\s*#{2,}\s*(system|instruction)\s*:?\s*$/im,
];

/** Characters that people do not see: tags, which can spell out a text, and changes of the direction of text. */
const HIDDEN = /[\u{E0000}-\u{E007F}\u202A-\u202E\u2066-\u2069]/u;

/** How much of a text is searched. Each pattern takes linear time, because its gaps are bounded. */
const MAX_CHARS = 200_000;

/** What in a value looks like an attempt to replace instructions; undefined if nothing does. */
function injectionIn(value: unknown): string | undefined {
  if (typeof value === 'string') return injectionInText(value.slice(0, MAX_CHARS));
  if (typeof value !== 'object' || value === null) return undefined;
  for (const [key, part] of Object.entries(value)) {
    const found = injectionInText(key.slice(0, MAX_CHARS)) ?? injectionIn(part);
    if (found !== undefined) return found;
  }
  return undefined;
}

function injectionInText(text: string): string | undefined {
  if (HIDDEN.test(text)) return 'hidden characters';
  for (const pattern of PATTERNS) {
    const [found] = pattern.exec(text) ?? [];
    if (found !== undefined) return JSON.stringify(found.slice(0, 80));
  }
  return undefined;
}

/** What a client gives to an agent, whichever API it uses. */
export interface GivenToAgent {
  readonly agent: string;
  /** Inputs, messages and instructions. */
  readonly values: readonly unknown[];
  /** The field of the request that has them, if it is one. */
  readonly param?: string;
}

/**
 * Looks for injections as the server is configured. Returns the facts of the run: if it is only marked, they have the label `injection`.
 * Throws a 400 if it is refused.
 */
export async function checkInjection(
  { namedAgents, log }: Pick<Engine, 'namedAgents' | 'log'>,
  { agent, values, param }: GivenToAgent,
  { facts, size }: { readonly facts?: RunFacts | undefined; readonly size: number },
): Promise<RunFacts | undefined> {
  const { injection = 'off' } = namedAgents ?? {};
  if (injection === 'off') return facts;
  let found: string | undefined;
  for (const value of values) {
    if (size > LARGE) await nextTurn();
    found ??= injectionIn(value);
  }
  if (found === undefined) return facts;
  if (injection === 'refuse') {
    const message = `The input looks like an attempt to replace the instructions of the agent "${agent}": ${found}. Rephrase it.`;
    throw badRequest(message, param, 'injection_suspected');
  }
  log.warn({ agent, found }, 'an input looks like an attempt to replace the instructions of an agent');
  return { ...facts, labels: { ...facts?.labels, injection: 'suspected' } };
}
