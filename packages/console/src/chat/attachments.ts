import { sizeText } from '../format.ts';
import type { NewAttachment } from './api.ts';

/** What the server takes, as `docs/chat.md` says. */
const MAX_FILES = 16;
const MAX_BYTES = 10_000_000;
const MAX_TEXT_BYTES = 500_000;
const BINARY = /^(image\/(png|jpeg|gif|webp)|application\/pdf)$/;
const TEXT = /^text\/|^application\/(json|xml|yaml|x-yaml|toml|javascript|typescript|x-sh)$|\+(json|xml)$/;

/** Files without a type that the browser knows. They are sent as text if they are UTF-8. */
async function typeOf(file: File): Promise<string | undefined> {
  if (BINARY.test(file.type)) return file.type;
  if (file.type === 'image/svg+xml' || TEXT.test(file.type)) return 'text/plain';
  if (file.size > MAX_TEXT_BYTES) return file.type === '' ? 'text/plain' : undefined;
  try {
    const text = new TextDecoder('utf-8', { fatal: true }).decode(await file.arrayBuffer());
    return text.includes('\0') ? undefined : 'text/plain';
  } catch {
    return undefined;
  }
}

export interface ReadFiles {
  readonly attachments: readonly NewAttachment[];
  readonly problems: readonly string[];
}

/** `count`: how many the message has already. */
export async function readFiles(files: readonly File[], count: number): Promise<ReadFiles> {
  const attachments: NewAttachment[] = [];
  const problems: string[] = [];
  for (const file of files) {
    const name = file.name || 'file';
    const type = await typeOf(file);
    const most = type === 'text/plain' ? MAX_TEXT_BYTES : MAX_BYTES;
    if (count + attachments.length >= MAX_FILES) {
      problems.push(`A message takes ${MAX_FILES} files. ${name} was left out.`);
    } else if (type === undefined) {
      problems.push(`${name}: images (PNG, JPEG, GIF, WebP), PDFs and texts can be attached.`);
    } else if (file.size > most) {
      problems.push(`${name} has ${sizeText(file.size)}. At most ${sizeText(most)} can be attached.`);
    } else {
      attachments.push({ name, media_type: type, data: await base64Of(file) });
    }
  }
  return { attachments, problems };
}

export function base64Of(blob: Blob): Promise<string> {
  return new Promise((resolve, reject) => {
    const reader = new FileReader();
    reader.addEventListener('load', () => resolve(String(reader.result).replace(/^[^,]*,/, '')));
    reader.addEventListener('error', () => reject(reader.error ?? new Error('The file cannot be read.')));
    reader.readAsDataURL(blob);
  });
}

/**
 * How many pixels an image has, by its header: a small file may need gigabytes when the browser shows it. Undefined if it is not a
 * PNG, GIF, WebP or JPEG.
 */
export function pixelsIn(bytes: ArrayBuffer): number | undefined {
  const view = new DataView(bytes);
  try {
    const start = view.getUint32(0);
    if (start === PNG) return view.getUint32(16) * view.getUint32(20);
    if (start === GIF) return view.getUint16(6, true) * view.getUint16(8, true);
    if (start === RIFF) return webpPixels(view);
    return view.getUint16(0) === JPEG ? jpegPixels(view) : undefined;
  } catch {
    // It ends too early.
    return undefined;
  }
}

const [PNG, GIF, RIFF, JPEG] = [0x89504e47, 0x47494638, 0x52494646, 0xffd8];

function webpPixels(view: DataView): number | undefined {
  const size14 = 0x3fff;
  switch (view.getUint32(12)) {
    case 0x56503820: // "VP8 "
      return (view.getUint16(26, true) & size14) * (view.getUint16(28, true) & size14);
    case 0x5650384c: {
      // "VP8L"
      const sizes = view.getUint32(21, true);
      return ((sizes & size14) + 1) * (((sizes >>> 14) & size14) + 1);
    }
    case 0x56503858: {
      // "VP8X", with 24 bits for each
      const [width, height] = [view.getUint32(23, true) >>> 8, view.getUint32(26, true) >>> 8];
      return (width + 1) * (height + 1);
    }
    default:
      return undefined;
  }
}

/** Its size is in the first segment of the type "start of frame". */
function jpegPixels(view: DataView): number | undefined {
  for (let at = 2; view.getUint8(at) === 0xff;) {
    const type = view.getUint8(at + 1);
    if (type >= 0xc0 && type <= 0xcf && type !== 0xc4 && type !== 0xc8 && type !== 0xcc)
      return view.getUint16(at + 5) * view.getUint16(at + 7);
    // A marker may have fill bytes before it.
    at += type === 0xff ? 1 : 2 + view.getUint16(at + 2);
  }
  return undefined;
}
