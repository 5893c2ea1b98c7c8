import { ToolError } from '../tool-error.ts';
import { encodeText, encodingOf, MAX_WHOLE_BYTES, readBytes, type TextForm } from './text-file.ts';
import type { Located, Workspace } from './workspace.ts';

/** A file to be changed. */
export interface WholeFile {
  readonly file: Located;
  readonly bytes: Uint8Array;
}

export interface StoredText {
  /** Without a byte order mark, with the line ends that it has. */
  readonly text: string;
  readonly form: Pick<TextForm, 'encoding' | 'bom'>;
}

/** Reads a plain file as a whole. */
export async function readWhole(space: Workspace, path: string, signal: AbortSignal): Promise<WholeFile> {
  const file = await space.locate(path);
  const name = JSON.stringify(file.shown);
  if (file.kind !== 'file') {
    throw new ToolError(`${name} is ${file.kind === 'folder' ? 'a folder' : 'not a regular file'}. Name a text file.`);
  }
  const opened = await space.open(path);
  let bytes: Uint8Array;
  try {
    bytes = await readBytes(opened, signal, MAX_WHOLE_BYTES + 1);
  } finally {
    await opened.handle.close();
  }
  if (bytes.length <= MAX_WHOLE_BYTES) return { file, bytes };
  throw new ToolError(
    `${name} has ${opened.size} bytes; only files of up to ${MAX_WHOLE_BYTES} can be changed with this tool. Use a command such as sed.`,
  );
}

/** The text of a file. What is not text is refused, because a change would damage it. */
export function textOf(bytes: Uint8Array, name: string): StoredText {
  const encoding = encodingOf(bytes);
  const text = encoding && decoded(bytes, encoding);
  if (text === undefined || text.includes('\0')) {
    throw new ToolError(
      `${JSON.stringify(name)} is not a text in UTF-8 or UTF-16, so a change could damage it. Convert it first, or use a ` +
        `program that knows its format.`,
    );
  }
  const bom = text.startsWith('\uFEFF');
  return { text: bom ? text.slice(1) : text, form: { encoding: encoding!, bom } };
}

/** Whether bytes that are read as text have parts that cannot be decoded. */
export function isDamagedText(bytes: Uint8Array): boolean {
  const encoding = encodingOf(bytes);
  return encoding !== undefined && decoded(bytes, encoding) === undefined;
}

/** Undefined if it is not valid. */
function decoded(bytes: Uint8Array, encoding: TextForm['encoding']): string | undefined {
  try {
    return new TextDecoder(encoding, { fatal: true, ignoreBOM: true }).decode(bytes);
  } catch {
    return undefined;
  }
}

/** The content of the file with another text. */
export function contentOf({ form }: Pick<StoredText, 'form'>, text: string): Uint8Array {
  return encodeText(text, { ...form, lineEnd: '\n' });
}

/** Throws if a text for a file contains what no file can. `name`: the argument. */
export function demandStorable(name: string, text: string): void {
  if (text.isWellFormed() && !text.includes('\0')) return;
  throw new ToolError(
    `${name} contains a NUL character or a half of a surrogate pair, which a text file cannot have. Send it again without.`,
    'invalid_params',
  );
}
