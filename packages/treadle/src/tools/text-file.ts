import { constants } from 'node:fs';
import { open } from 'node:fs/promises';
import type { Located } from './workspace.ts';

const CHUNK = 64 * 1024;
/** Where a NUL byte marks a file as binary, as in git. */
const SNIFFED = 8 * 1024;

/**
 * The text of a file in pieces as they are read, UTF-8; its first piece is undefined for a binary file. Refuses to open
 * anything that has become a link or a pipe since it was located.
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
      if (first && bytes.subarray(0, SNIFFED).includes(0)) return yield undefined;
      first = false;
      if (bytesRead === 0) return;
      yield decoder.decode(bytes, { stream: true });
    }
  } finally {
    await handle.close();
  }
}
