const SECRET_NAME = /auth|key|token|secret|cookie|password/i;
/** A shorter "secret" is a placeholder such as `none`, and would blot out harmless words. */
const MIN_LENGTH = 8;
const MAX_MESSAGE = 2_000;

/**
 * Makes a provider's words safe to show: without the key, also where the provider echoes it, and not endless. Only then
 * are they cut, lest half a key remain.
 */
export function redactor(
  apiKey: string | undefined,
  headers: Readonly<Record<string, string>>,
): (text: string) => string {
  const secrets = new Set<string>();
  const add = (secret: string): void => {
    if (secret.length >= MIN_LENGTH) secrets.add(secret);
  };
  if (apiKey !== undefined) add(apiKey);
  for (const [name, value] of Object.entries(headers)) {
    if (!SECRET_NAME.test(name)) continue;
    add(value);
    for (const word of value.split(/[\s;,=]+/)) add(word);
  }
  const longestFirst = [...secrets].sort((a, b) => b.length - a.length);
  return (text) => {
    let safe = text;
    for (const secret of longestFirst) safe = safe.replaceAll(secret, '[redacted]');
    return safe.length > MAX_MESSAGE ? `${safe.slice(0, MAX_MESSAGE)}…` : safe;
  };
}
