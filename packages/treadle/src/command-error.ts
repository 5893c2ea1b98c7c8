/** Something that the user can put right. Its message is all that is shown: what was wrong, and what to do. */
export class CommandError extends Error {
  override readonly name = 'CommandError';
}
