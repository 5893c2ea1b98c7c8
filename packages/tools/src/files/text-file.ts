import type { OpenFile } from '../ops.ts';

const CHUNK = 64 * 1024;
/** A NUL byte within this many bytes marks a file as binary, as in git. */
const SNIFFED_BYTES = 8 * 1024;

/** Yields the text of a UTF-8 file in chunks; the first chunk is undefined for a binary file. Closes the file. */
export async function* readText(
  { handle }: OpenFile,
  signal: AbortSignal,
): AsyncGenerator<string | undefined, void, void> {
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
