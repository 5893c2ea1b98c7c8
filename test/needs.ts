/**
 * Whether a test that needs something of the machine runs. Where it is missing the test is left out, and that is said
 * loudly; in CI it runs all the same, and fails.
 */
export function needs(what: string, isThere: boolean): boolean {
  if (isThere || process.env['CI'] !== undefined) return true;
  process.stderr.write(`\nLEFT OUT: a test needs ${what}, which is not to be had here.\n`);
  return false;
}
