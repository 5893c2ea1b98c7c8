import { hash } from 'node:crypto';

/** A tool of a namespace as its client knows it. */
export interface OwnName {
  readonly name: string;
  readonly namespace: string;
}

const MAX_NAME = 64;
const DIGEST_CHARS = 12;

/**
 * The name under which the model gets a tool of a client: one that every provider accepts. Tools of different namespaces have
 * different names, which depend on nothing else, so that the calls of a history have the names of the tools.
 */
export function modelName(name: string, namespace: string | undefined): string {
  if (namespace === undefined) return name;
  const whole = `${namespace}__${name}`;
  // The last "__" separates the two then.
  const isClear = !name.includes('__') && !name.startsWith('_') && /^[a-zA-Z0-9_-]+$/.test(whole);
  if (isClear && whole.length <= MAX_NAME) return whole;
  const digest = hash('sha256', JSON.stringify([namespace, name])).slice(0, DIGEST_CHARS);
  return `${whole.replace(/[^a-zA-Z0-9_-]/g, '_').slice(0, MAX_NAME - DIGEST_CHARS - 1)}-${digest}`;
}
