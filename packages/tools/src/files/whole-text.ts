import { ToolError } from '../tool-error.ts';
import type { Located, Workspace } from './workspace.ts';

/** Files that are changed are read as a whole. */
const MAX_BYTES = 10_000_000;
const BOM = '\uFEFF';

/** A text file to be changed. */
export interface WholeText {
  readonly file: Located;
  readonly bytes: Uint8Array;
  /** Without a byte order mark. */
  readonly text: string;
  readonly hasBom: boolean;
}

/** Reads a text file of UTF-8 as a whole. Other files are refused, because a change would damage them. */
export async function readWhole(space: Workspace, path: string, signal: AbortSignal): Promise<WholeText> {
  const file = await space.locate(path);
  const name = JSON.stringify(path);
  if (file.kind !== 'file') {
    throw new ToolError(
      `${name} is a ${file.kind === 'folder' ? 'folder' : 'special file'}. Name a text file.`,
      'execution_failed',
    );
  }
  if (file.size > MAX_BYTES) throw tooLarge(name, file.size);
  const { handle } = await space.open(file.real);
  const parts: Uint8Array[] = [];
  let size = 0;
  try {
    for (;;) {
      signal.throwIfAborted();
      const buffer = Buffer.allocUnsafe(Math.max(file.size - size, 0) + 1);
      const { bytesRead } = await handle.read(buffer, 0, buffer.length, null);
      if (bytesRead === 0) break;
      size += bytesRead;
      if (size > MAX_BYTES) throw tooLarge(name, size);
      parts.push(buffer.subarray(0, bytesRead));
    }
  } finally {
    await handle.close();
  }
  const bytes = parts.length === 1 ? parts[0]! : Buffer.concat(parts);
  let text: string;
  try {
    text = new TextDecoder('utf-8', { fatal: true, ignoreBOM: true }).decode(bytes);
  } catch {
    throw notText(name);
  }
  if (text.includes('\0')) throw notText(name);
  const hasBom = text.startsWith(BOM);
  return { file, bytes, text: hasBom ? text.slice(1) : text, hasBom };
}

/** The content of the file with another text. */
export function contentOf({ hasBom }: Pick<WholeText, 'hasBom'>, text: string): Uint8Array {
  return Buffer.from(hasBom ? BOM + text : text);
}

/** Throws if somebody else has changed the file since it was read. */
export async function demandUnchanged(space: Workspace, { file }: WholeText): Promise<void> {
  const { size, modifiedMs } = await space.locate(file.real);
  if (size === file.size && modifiedMs === file.modifiedMs) return;
  throw new ToolError(
    `${JSON.stringify(file.shown)} was changed by somebody else meanwhile. This call has changed nothing. Read it and try again.`,
    'execution_failed',
  );
}

function tooLarge(name: string, size: number): ToolError {
  return new ToolError(
    `${name} has ${size} bytes; only files of up to ${MAX_BYTES} can be changed with this tool. Use a command such as sed.`,
    'execution_failed',
  );
}

function notText(name: string): ToolError {
  return new ToolError(
    `${name} is not a text file in UTF-8, so a change could damage it. Convert it first, or use a program that knows its format.`,
    'execution_failed',
  );
}
