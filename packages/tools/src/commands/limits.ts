/** Longer commands are refused, because looking for destructive forms in them could take long. */
export const MAX_COMMAND_LENGTH = 65_536;
