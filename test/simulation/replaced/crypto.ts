import { Buffer } from 'node:buffer';
import { activeScheduler } from '../platform.ts';

/** `node:crypto` with the randomness of the schedule, so that a seed gives the same ids. */
export { createHash, createHmac, createSecretKey, hash, timingSafeEqual } from 'node:crypto';

export function randomFillSync<T extends NodeJS.ArrayBufferView>(filled: T): T {
  const { random } = activeScheduler();
  const bytes = Buffer.from(filled.buffer, filled.byteOffset, filled.byteLength);
  for (let index = 0; index < bytes.length; index += 4) bytes.writeUInt32LE(Math.floor(random.next() * 2 ** 32), index);
  return filled;
}

export function randomBytes(length: number): Buffer {
  return randomFillSync(Buffer.alloc(Math.ceil(length / 4) * 4)).subarray(0, length);
}

export function randomUUID(): string {
  const hex = randomBytes(16).toString('hex');
  return [hex.slice(0, 8), hex.slice(8, 12), hex.slice(12, 16), hex.slice(16, 20), hex.slice(20)].join('-');
}
