/**
 * Whether to run a test that needs something from the machine. If that is missing, the test is skipped with a message; in
 * CI it runs anyway and fails.
 */
export function needs(what: string, isAvailable: boolean): boolean {
  if (isAvailable || process.env['CI'] !== undefined) return true;
  process.stderr.write(`\nSKIPPED: a test needs ${what}, which is not available here.\n`);
  return false;
}
