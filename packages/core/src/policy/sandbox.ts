import type { Touch } from './port.ts';
import type { CallFacts } from './rule.ts';
import type { PolicyRules } from './rules.ts';

/** What a sandbox has to promise, if the rules do not say it. */
export const REQUIRED_PROMISES: readonly string[] = [
  'network',
  'root',
  'protected',
  'private',
  'home',
  'processes',
  'devices',
  'setuid',
  'namespaces',
  'sockets',
  'tree',
];

/**
 * Whether a call only runs commands, inside a sandbox that promises all that the rules require. What else a tool touches, it
 * touches itself, outside of the sandbox.
 */
export function isConfined(
  { sandbox: { require = REQUIRED_PROMISES } = {} }: PolicyRules,
  { call }: CallFacts,
): boolean {
  const { sandbox = [], touches = [] } = call;
  if (sandbox.length === 0 || touches.length === 0) return false;
  // Where the network is granted, it reaches the hosts of the policy only.
  const isKept = (name: string): boolean => sandbox.includes(name) || (name === 'network' && sandbox.includes('hosts'));
  return require.every(isKept) && touches.every(isHere);
}

/** A command of another place does not run in a sandbox of this machine. */
function isHere(touch: Touch): boolean {
  return touch.type === 'command' && touch.on === undefined;
}
