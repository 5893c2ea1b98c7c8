import { hash } from 'node:crypto';
import type {
  FileBlock,
  ImageBlock,
  Message,
  Model,
  ResultBlock,
  TextBlock,
  ToolMessage,
  UserMessage,
} from '@treadle/core';
import type { ChatProblem } from './wire.ts';

/*
 * What a model gets instead of the images and files that it does not take: the text of a file, or a note. The journal has
 * the originals, so a model that takes them gets them with the next message.
 */

type Media = ImageBlock | FileBlock;

/** A replacement, and what the client is told about it. */
interface Replacement {
  readonly block: TextBlock;
  readonly warning: ChatProblem;
}

export interface TextInput {
  /** The model, with requests that contain only what it takes. */
  readonly model: Model;
  /** What is replaced in messages of the user. */
  warnings(messages: readonly Message[]): Promise<readonly ChatProblem[]>;
}

/** As much as a text that is attached. */
const MAX_CHARS = 500_000;
const MAX_PAGES = 1_000;
const MAX_READ_MS = 20_000;

/** Undefined if the model takes everything. `name`: of the model, for warnings. */
export function textInputFor(model: Model, name: string): TextInput | undefined {
  const isTaken = { image: takes(model, 'images'), file: takes(model, 'files') };
  if (isTaken.image && isTaken.file) return undefined;
  /** By the data. Each is made once in a run. */
  const replacements = new Map<string, Promise<Replacement>>();

  const isReplaced = (block: ResultBlock): block is Media =>
    (block.type === 'image' || block.type === 'file') && !isTaken[block.type];

  function replacementOf(block: Media, signal?: AbortSignal): Promise<Replacement> {
    const key = `${block.name}\n${block.source.type === 'data' ? block.source.data : block.source.url}`;
    const known = replacements.get(key) ?? replacementFor(block, name, signal);
    replacements.set(key, known);
    return known;
  }

  function replaceBlocks<Block extends ResultBlock>(
    blocks: readonly Block[],
    signal: AbortSignal,
  ): Promise<readonly (Block | TextBlock)[]> {
    return Promise.all(
      blocks.map(async (block) => (isReplaced(block) ? (await replacementOf(block, signal)).block : block)),
    );
  }

  async function textMessage(message: Message, signal: AbortSignal): Promise<Message> {
    if (!isMessageReplaced(message)) return message;
    if (message.role === 'user') return { ...message, content: await replaceBlocks(message.content, signal) };
    const results = message.content.map(async (one) => ({
      ...one,
      content: await replaceBlocks(one.content, signal),
    }));
    return { ...message, content: await Promise.all(results) };
  }

  function isMessageReplaced(message: Message): message is UserMessage | ToolMessage {
    if (message.role === 'user') return message.content.some(isReplaced);
    return message.role === 'tool' && message.content.some(({ content }) => content.some(isReplaced));
  }

  return {
    model: {
      ...model,
      async reply(request, emit, signal) {
        // The same array: protocols cache what they derive from it.
        if (!request.messages.some(isMessageReplaced)) return model.reply(request, emit, signal);
        const messages = await Promise.all(request.messages.map((message) => textMessage(message, signal)));
        return model.reply({ ...request, messages }, emit, signal);
      },
    },
    async warnings(messages) {
      const blocks = messages.flatMap((message) => (message.role === 'user' ? message.content.filter(isReplaced) : []));
      const made = await Promise.all(blocks.map((block) => replacementOf(block)));
      return made.map(({ warning }) => warning);
    },
  };
}

/** Whether the model, and each one that may reply instead, takes images or files. */
function takes(model: Model, kind: 'images' | 'files'): boolean {
  if (model.accepts?.[kind] === false) return false;
  return (model.asks ?? []).every((other) => other === model || takes(other, kind));
}

async function replacementFor(block: Media, model: string, signal?: AbortSignal): Promise<Replacement> {
  const named = block.name === undefined ? '' : ` ${JSON.stringify(block.name)}`;
  const kind = block.type === 'image' ? 'an image' : block.mediaType === 'application/pdf' ? 'a PDF' : 'a file';
  const refusal = `The model ${JSON.stringify(model)} does not take ${block.type === 'image' ? 'images' : 'files'}.`;
  const read = block.type === 'file' ? await textOfFile(block, signal) : {};
  if (read.text !== undefined) {
    return {
      block: { type: 'text', text: `\n\nAttachment${named}, as text:\n${read.text}` },
      warning: {
        code: 'attachment_as_text',
        message: `${refusal} It gets ${read.extent ?? 'the text'} of ${kind}${named} instead.`,
      },
    };
  }
  const size = block.source.type === 'data' ? sizeOf(block.source.data) : block.source.url;
  const why = read.problem === undefined ? '' : ` Its text cannot be read: ${read.problem}`;
  return {
    block: {
      type: 'text',
      text: `\n\n(${kind}${named}, ${block.mediaType}, ${size}, which this model cannot ${block.type === 'image' ? 'see' : 'read'})`,
    },
    warning: {
      code: 'attachment_not_shown',
      message: `${refusal} It gets a note instead of ${kind}${named}.${why}`,
    },
  };
}

function sizeOf(data: string): string {
  return `${Math.ceil(Buffer.byteLength(data, 'base64') / 1_000)} kB`;
}

interface FileText {
  readonly text?: string;
  /** Which part of the text, if it is not the whole. */
  readonly extent?: string;
  readonly problem?: string;
}

async function textOfFile({ mediaType, source }: FileBlock, signal?: AbortSignal): Promise<FileText> {
  if (source.type !== 'data') return {};
  if (mediaType.startsWith('text/')) {
    return { text: new TextDecoder().decode(Buffer.from(source.data, 'base64')).slice(0, MAX_CHARS) };
  }
  if (mediaType !== 'application/pdf') return {};
  const digest = hash('sha256', source.data);
  const known = pdfTexts.get(digest);
  if (known) {
    pdfTexts.delete(digest);
    pdfTexts.set(digest, known);
    return known;
  }
  const read = await textOfPdf(source.data, signal);
  if (!signal?.aborted) keepPdfText(digest, read);
  return read;
}

/**
 * What was read from PDFs, by the digest of their data: a conversation has the same ones with every message. Those that were
 * used last are at the end.
 */
const pdfTexts = new Map<string, FileText>();
const MAX_KEPT_CHARS = 8_000_000;
let keptChars = 0;

function keepPdfText(digest: string, read: FileText): void {
  keptChars += keptSize(read) - keptSize(pdfTexts.get(digest));
  pdfTexts.set(digest, read);
  for (const [oldest, one] of pdfTexts) {
    if (keptChars <= MAX_KEPT_CHARS) break;
    pdfTexts.delete(oldest);
    keptChars -= keptSize(one);
  }
}

/** With what an entry needs in any case. */
function keptSize(read: FileText | undefined): number {
  return read ? 200 + (read.text?.length ?? 0) : 0;
}

async function textOfPdf(data: string, signal?: AbortSignal): Promise<FileText> {
  const bytes = new Uint8Array(Buffer.from(data, 'base64'));
  try {
    // Loaded for the first PDF.
    const { pdfPages } = await import('@treadle/tools');
    const request = { bytes, firstPage: 1, maxPages: MAX_PAGES, maxChars: MAX_CHARS };
    const { pages, pageCount, hasText } = await pdfPages(
      request,
      AbortSignal.any([AbortSignal.timeout(MAX_READ_MS), ...(signal ? [signal] : [])]),
    );
    if (!hasText) return { problem: 'Its pages may be images.' };
    const extent = pages.length < pageCount && `the text of the first ${pages.length} of ${pageCount} pages`;
    return { text: pages.join('\n'), ...(extent && { extent }) };
  } catch (error) {
    return { problem: error instanceof Error ? error.message : String(error) };
  }
}
