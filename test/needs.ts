/**
 * Whether to run a test that needs something from the machine. If that is missing, the test is skipped with a message; in
 * CI it runs anyway and fails.
 */
export function needs(what: string, isAvailable: boolean): boolean {
  if (isAvailable || process.env['CI'] !== undefined) return true;
  process.stderr.write(`\nSKIPPED: a test needs ${what}, which is not available here.\n`);
  return false;
}

/** The same for something that no step of CI can install: there, too, the test is only skipped. */
export function uses(what: string, isAvailable: boolean): boolean {
  if (!isAvailable) process.stderr.write(`\nSKIPPED: a test uses ${what}, which is not available here.\n`);
  return isAvailable;
}
