/**
 * The output of an answer that may be a text: its JSON, also in a code fence, or the text as the value of `field`. JSON that is not
 * an object is the value of that field.
 */
export function outputFrom(text: string, field: string): Readonly<Record<string, unknown>> {
  const [, fenced] = /```[a-z]*[ \t]*\n([\s\S]*?)\n?[ \t]*```/i.exec(text) ?? [];
  const value = jsonIn(text) ?? (fenced === undefined ? undefined : jsonIn(fenced));
  if (value === undefined) return { [field]: text };
  const isObject = typeof value === 'object' && value !== null && !Array.isArray(value);
  return isObject ? (value as Readonly<Record<string, unknown>>) : { [field]: value };
}

function jsonIn(text: string): unknown {
  try {
    return JSON.parse(text.replace(/^\uFEFF/, '')) as unknown;
  } catch {
    return undefined;
  }
}
