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
