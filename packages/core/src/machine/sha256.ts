/**
 * SHA-256 of a text as UTF-8, in hex. It binds an approval to a call, so it must resist forgery. The implementation of the
 * platform is asynchronous, and `step` is not.
 */
export function sha256(text: string): string {
  const message = padded(new TextEncoder().encode(text));
  const h = Uint32Array.from(INITIAL);
  const w = new Uint32Array(64);
  for (let offset = 0; offset < message.byteLength; offset += 64) {
    for (let i = 0; i < 16; i++) w[i] = message.getUint32(offset + i * 4);
    for (let i = 16; i < 64; i++) {
      const [p, q] = [w[i - 15]!, w[i - 2]!];
      const s0 = rotate(p, 7) ^ rotate(p, 18) ^ (p >>> 3);
      const s1 = rotate(q, 17) ^ rotate(q, 19) ^ (q >>> 10);
      w[i] = w[i - 16]! + s0 + w[i - 7]! + s1;
    }
    compress(h, w);
  }
  return Array.from(h, (word) => word.toString(16).padStart(8, '0')).join('');
}

function compress(h: Uint32Array, w: Uint32Array): void {
  let [a, b, c, d, e, f, g, last] = h as unknown as [number, number, number, number, number, number, number, number];
  for (let i = 0; i < 64; i++) {
    const s1 = rotate(e, 6) ^ rotate(e, 11) ^ rotate(e, 25);
    const t1 = (last + s1 + ((e & f) ^ (~e & g)) + ROUND[i]! + w[i]!) | 0;
    const s0 = rotate(a, 2) ^ rotate(a, 13) ^ rotate(a, 22);
    const t2 = (s0 + ((a & b) ^ (a & c) ^ (b & c))) | 0;
    [last, g, f, e, d, c, b, a] = [g, f, e, (d + t1) | 0, c, b, a, (t1 + t2) | 0];
  }
  for (const [i, word] of [a, b, c, d, e, f, g, last].entries()) h[i] = h[i]! + word;
}

function padded(bytes: Uint8Array): DataView {
  const message = new Uint8Array((((bytes.length + 8) >> 6) + 1) * 64);
  message.set(bytes);
  message[bytes.length] = 0x80;
  const view = new DataView(message.buffer);
  view.setBigUint64(message.length - 8, BigInt(bytes.length) * 8n);
  return view;
}

function rotate(word: number, by: number): number {
  return (word >>> by) | (word << (32 - by));
}

/** The first 32 bits of the fractional parts of the square and cube roots of the first primes, as FIPS 180-4 defines. */
const PRIMES = firstPrimes(64);
const INITIAL = PRIMES.slice(0, 8).map((prime) => fraction(Math.sqrt(prime)));
const ROUND = PRIMES.map((prime) => fraction(Math.cbrt(prime)));

function fraction(root: number): number {
  return ((root - Math.floor(root)) * 2 ** 32) | 0;
}

function firstPrimes(count: number): number[] {
  const primes: number[] = [];
  for (let n = 2; primes.length < count; n++) if (primes.every((prime) => n % prime !== 0)) primes.push(n);
  return primes;
}
