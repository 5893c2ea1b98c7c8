import { randomUUID } from 'node:crypto';

/** 32 digits, 122 bits of them random. Node makes UUIDs in advance, many at once: a call of `randomBytes` costs more. */
export function randomHex(): string {
  return randomUUID().replaceAll('-', '');
}
