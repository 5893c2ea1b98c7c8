/** A file or a host was not accessed, because a check did not allow it. */
export class DeniedError extends Error {
  override readonly name = 'DeniedError';
}

/** Why a path outside of the working folder cannot be used. */
export function outsideText(path: string): string {
  return (
    `${JSON.stringify(path)} is outside the working folder. Only files inside it are accessible: give a path relative to it, ` +
    `without ".." and symbolic links that lead out of it.`
  );
}
