/** The name of a call as the loop keeps it: one that every provider takes back. */
export function acceptedName(name: string): string {
  return /^[a-zA-Z0-9_-]{1,64}$/.test(name) ? name : name.replace(/[^\w-]/g, '_').slice(0, 64) || 'unnamed';
}
