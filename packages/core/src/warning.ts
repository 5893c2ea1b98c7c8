/** What was said already. A program that repeats a mistake reads about it once. */
const said = new Set<string>();

/**
 * Tells the developer once about something that is probably a mistake, but may be intended: as a warning of the process where
 * there is one, else on the console.
 */
export function warnOnce(message: string): void {
  if (said.has(message)) return;
  said.add(message);
  const { process } = globalThis as { readonly process?: { emitWarning?(message: string, type: string): void } };
  if (process?.emitWarning) process.emitWarning(message, 'TreadleWarning');
  // oxlint-disable-next-line no-console
  else console.warn(message);
}
