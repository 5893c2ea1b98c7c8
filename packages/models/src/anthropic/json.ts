/** JSON that a provider's parser takes: half a surrogate pair, which is no text to it, is replaced. */
export function jsonOf(value: unknown): string {
  const json = JSON.stringify(value);
  // `JSON.stringify` escapes surrogates only where they are halves. A backslash of the text is two here.
  if (!json.includes(String.raw`\ud`)) return json;
  return json.replace(/\\\\|\\ud[89a-f][0-9a-f]{2}/g, (found) => (found === '\\\\' ? found : String.raw`\ufffd`));
}
