import { constants } from 'node:fs';
import { open } from 'node:fs/promises';
import type { Located } from './workspace.ts';

const CHUNK = 64 * 1024;
/** A NUL byte within this many bytes marks a file as binary, as in git. */
const SNIFFED_BYTES = 8 * 1024;

/**
 * Yields the text of a UTF-8 file in chunks; the first chunk is undefined for a binary file. Fails if the file has become
 * a link since it was located, and does not block if it has become a pipe.
 */
export async function* readText(file: Located, signal: AbortSignal): AsyncGenerator<string | undefined, void, void> {
  const handle = await open(file.real, constants.O_RDONLY | (constants.O_NOFOLLOW ?? 0) | (constants.O_NONBLOCK ?? 0));
  try {
    const decoder = new TextDecoder();
    const buffer = Buffer.allocUnsafe(CHUNK);
    let first = true;
    for (;;) {
      signal.throwIfAborted();
      const { bytesRead } = await handle.read(buffer, 0, CHUNK, null);
      const bytes = buffer.subarray(0, bytesRead);
      if (first && bytes.subarray(0, SNIFFED_BYTES).includes(0)) return yield undefined;
      first = false;
      if (bytesRead === 0) return;
      yield decoder.decode(bytes, { stream: true });
    }
  } finally {
    await handle.close();
  }
}
