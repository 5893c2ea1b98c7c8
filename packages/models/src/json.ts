import type { ModelError } from '@treadle/core';
import { misunderstood } from './http/failures.ts';

/** How `JSON.stringify` begins what it escapes of surrogates, which it does only where they are halves. */
const HALF = String.raw`\ud`;

/** JSON that a provider's parser takes: half a surrogate pair, which is no text to it, is replaced. */
export function jsonOf(value: unknown): string {
  const json = JSON.stringify(value);
  if (!json.includes(HALF)) return json;
  // A backslash of the text is two here.
  return json.replace(/\\\\|\\ud[89a-f][0-9a-f]{2}/g, (found) => (found === '\\\\' ? found : String.raw`\ufffd`));
}

/** What a JSON text says; undefined, which no such text can say, if it is none. */
export function parsed(text: string): unknown {
  try {
    return JSON.parse(text);
  } catch {
    return undefined;
  }
}

/** The whole of what came, since only who knows the secrets in it can tell where it may be cut. */
export function notJson(text: string): { readonly type: 'failure'; readonly error: ModelError } {
  return { type: 'failure', error: misunderstood(`The answer holds something that is not JSON: ${text}`) };
}

/** Also an array: what is read of it is not there. */
export function isRecord<T extends object>(value: T | null | undefined): value is T;
export function isRecord(value: unknown): value is Record<string, unknown>;
export function isRecord(value: unknown): boolean {
  return typeof value === 'object' && value !== null;
}

/** The fields of an object; none where something else is. */
export function fieldsOf<Shape extends object>(value: unknown): Partial<Shape> {
  return isRecord(value) ? (value as Partial<Shape>) : {};
}

export function listOf(value: unknown): readonly unknown[] {
  return Array.isArray(value) ? value : [];
}

export function textIn(value: unknown): string {
  return typeof value === 'string' ? value : '';
}
