/** Quantities and texts as people read them. */
export { exactText } from '@treadle/core/describe';

const plain = new Intl.NumberFormat('en');

/** Such as `30,000`. */
export const numberText = (count: number): string => plain.format(count);

/** Such as `512`, `12.3k`, `1.2M`. */
export function countText(count: number): string {
  if (count < 10_000) return numberText(count);
  return count < 1_000_000 ? `${(count / 1_000).toFixed(1)}k` : `${(count / 1_000_000).toFixed(1)}M`;
}

/** Such as `820 bytes`, `12 kB`, `3.4 MB`. */
export function sizeText(bytes: number): string {
  if (bytes < 1_000) return `${bytes} bytes`;
  return bytes < 1_000_000 ? `${Math.round(bytes / 1_000)} kB` : `${(bytes / 1_000_000).toFixed(1)} MB`;
}

/** JSON with indentation; the text itself if it is not JSON. */
export function prettyJson(text: string): string {
  try {
    return JSON.stringify(JSON.parse(text), undefined, 2);
  } catch {
    return text;
  }
}

/** The fields of an object in JSON. Undefined for another text. */
export function objectIn(text: string): Readonly<Record<string, unknown>> | undefined {
  try {
    const value: unknown = JSON.parse(text);
    return typeof value === 'object' && value !== null && !Array.isArray(value) ? { ...value } : undefined;
  } catch {
    return undefined;
  }
}
