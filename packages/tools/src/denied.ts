/** A file or a host was not accessed, because a check did not allow it. */
export class DeniedError extends Error {
  override readonly name = 'DeniedError';
}
