import { crc32 } from 'node:zlib';

/** JSON text with a checksum that tells whether it is still what was written. */
export interface Sealed {
  readonly text: string;
  readonly sum: number;
}

export function sealed(value: unknown): Sealed {
  const text = JSON.stringify(value);
  return { text, sum: crc32(text) };
}

/** Undefined if it is damaged. */
export function opened(text: string, sum: number): unknown {
  if (crc32(text) !== sum) return undefined;
  try {
    return JSON.parse(text);
  } catch {
    return undefined;
  }
}
