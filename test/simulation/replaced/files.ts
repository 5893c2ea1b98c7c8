/** `files.ts` of the store: nobody removes the files of the simulated disk. */
export function filesOf(): { readonly database: string; readonly log: string; readonly check: () => void } {
  return { database: 'the simulated disk', log: 'the log of the simulated disk', check() {} };
}
