/** Models call tools that do not exist, by names that could not, and APIs refuse those in a history. */
export function callNameFor(name: string): string {
  return name.replace(/[^\w-]/g, '_').slice(0, 64) || 'unknown';
}
