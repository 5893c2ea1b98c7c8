/** Models call tools that do not exist, by names that could not, and APIs refuse those in a history. */
export function callNameFor(name: string): string {
  if (/^[\w-]{1,64}$/.test(name)) return name;
  return name.replace(/[^\w-]/g, '_').slice(0, 64) || 'unknown';
}
