/* What a file is, by its first bytes. */

type Signature = readonly [bytes: string, kind: string, at?: number];

/** Images that models can see. */
const IMAGES: readonly Signature[] = [
  ['\x89PNG\r\n\x1a\n', 'image/png'],
  ['\xff\xd8\xff', 'image/jpeg'],
  ['GIF87a', 'image/gif'],
  ['GIF89a', 'image/gif'],
  ['WEBP', 'image/webp', 8],
];

const OTHERS: readonly Signature[] = [
  ['\x7fELF', 'a Linux program or library'],
  ['MZ', 'a Windows program or library'],
  ['\xcf\xfa\xed\xfe', 'a macOS program or library'],
  ['\xca\xfe\xba\xbe', 'a Java class or macOS program'],
  ['\0asm', 'a WebAssembly module'],
  ['PK\x03\x04', 'a zip archive, or a document in one (docx, xlsx, jar)'],
  ['\x1f\x8b', 'gzip data'],
  ['BZh', 'bzip2 data'],
  ['\xfd7zXZ\0', 'xz data'],
  ['\x28\xb5\x2f\xfd', 'zstd data'],
  ['7z\xbc\xaf', 'a 7z archive'],
  ['ustar', 'a tar archive', 257],
  ['SQLite format 3\0', 'an SQLite database'],
  ['ID3', 'MP3 audio'],
  ['OggS', 'Ogg audio or video'],
  ['ftyp', 'MP4 audio or video', 4],
  ['BM', 'a BMP image'],
];

const MAX_SIGNATURE = 262;

/** The media type of an image that models can see. */
export function imageTypeOf(bytes: Uint8Array): string | undefined {
  return kindIn(IMAGES, bytes);
}

export function isPdf(bytes: Uint8Array): boolean {
  return kindIn([['%PDF-', 'pdf']], bytes) !== undefined;
}

/** What data is that is not text. */
export function binaryKindOf(bytes: Uint8Array): string | undefined {
  return kindIn(OTHERS, bytes);
}

function kindIn(signatures: readonly Signature[], bytes: Uint8Array): string | undefined {
  const head = Buffer.from(bytes.subarray(0, MAX_SIGNATURE)).toString('latin1');
  return signatures.find(([signature, , at = 0]) => head.startsWith(signature, at))?.[1];
}
