const SECRET_NAME = /auth|key|token|secret|cookie|password/i;
/** A shorter secret would remove half of every message. */
const MIN_LENGTH = 4;
/** A shorter secret is redacted only as a whole word: it may well be part of harmless ones. */
const LONG = 8;
const MAX_MESSAGE = 2_000;

/**
 * Makes a message of a provider safe to show: removes the key and secret headers, and then limits the length. In the other
 * order a part of a key could remain.
 */
export function redactor(
  apiKey: string | undefined,
  headers: Readonly<Record<string, string>>,
): (text: string) => string {
  const secrets = new Set(apiKey === undefined ? [] : [apiKey]);
  for (const [name, value] of Object.entries(headers)) {
    if (SECRET_NAME.test(name)) for (const secret of secretsIn(value)) secrets.add(secret);
  }
  const patterns = [...secrets]
    .filter(({ length }) => length >= MIN_LENGTH)
    .sort((a, b) => b.length - a.length)
    .map(patternOf);
  return (text) => {
    let safe = text;
    for (const pattern of patterns) safe = safe.replaceAll(pattern, '[redacted]');
    return safe.length > MAX_MESSAGE ? `${safe.slice(0, MAX_MESSAGE)}…` : safe;
  };
}

/** The whole value, the part after a scheme (`Bearer …`), and the values of its fields (`session=…; …`). */
function secretsIn(value: string): readonly string[] {
  const words = value.split(/[\s;,]+/);
  const secrets = words.length > 1 && !words[0]!.includes('=') ? words.slice(1) : words;
  return [value, ...secrets.flatMap((word) => [word.replace(/=+$/, ''), word.slice(word.indexOf('=') + 1)])];
}

function patternOf(secret: string): string | RegExp {
  if (secret.length >= LONG) return secret;
  return new RegExp(String.raw`(?<!\w)${secret.replaceAll(/[^\w\s]/g, String.raw`\$&`)}(?!\w)`, 'g');
}
