import { crc32 } from 'node:zlib';
import type { JournalEntry } from '@treadle/core';
import { CommandError } from '../command-line/command.ts';

/** A run outside of a store. */
export interface RunFile {
  readonly runId: string;
  readonly entries: readonly JournalEntry[];
  readonly blobs: readonly { readonly id: string; readonly text: string }[];
}

const FORMAT = 'treadle-run';
const VERSION = 1;

/**
 * JSON lines: a header, then one line for each entry, then one for each blob. A line has the checksum of its content, so
 * that damage is found where it is; the header says how many there are, so that a missing end is found too.
 */
export function* writeRunFile({ runId, entries, blobs }: RunFile): Generator<string> {
  const line = (content: object): string => `${JSON.stringify(content)}\n`;
  yield line({ format: FORMAT, version: VERSION, runId, entries: entries.length, blobs: blobs.length });
  for (const entry of entries) yield line({ entry, sum: sumOf(entry) });
  for (const blob of blobs) yield line({ blob, sum: sumOf(blob) });
}

function sumOf(content: unknown): number {
  return crc32(JSON.stringify(content));
}

/** Throws for what is damaged, foreign or newer, and names the line. */
export function readRunFile(text: string, name: string): RunFile {
  const lines = text.split('\n');
  while (lines.at(-1)?.trim() === '') lines.pop();
  const { runId, entries: entryCount, blobs: blobCount } = headerOf(lines[0], name);
  const contents = lines.slice(1).map((line, index) => contentOf(line, index, { name, entryCount }));
  if (contents.length !== entryCount + blobCount) {
    throw new CommandError(
      `${name} ends with line ${lines.length}, and should have ${entryCount + blobCount + 1}: it is not whole.`,
    );
  }
  const entries = contents.slice(0, entryCount) as readonly JournalEntry[];
  const first = entries[0]?.event;
  if (first?.type !== 'run-started' || first.runId !== runId) throw damaged(name, 2, `it is not the start of ${runId}`);
  return { runId, entries, blobs: contents.slice(entryCount) as RunFile['blobs'] };
}

interface Header {
  readonly runId: string;
  readonly entries: number;
  readonly blobs: number;
}

function headerOf(line: string | undefined, name: string): Header {
  if (line === undefined)
    throw new CommandError(`${name} is empty. It should hold a run that "treadle runs export" wrote.`);
  const header = parsed(line) as Partial<Header & { readonly format: unknown; readonly version: unknown }> | undefined;
  if (header?.format !== FORMAT) {
    throw new CommandError(`${name} is nothing that "treadle runs export" wrote: line 1 is not the header of a run.`);
  }
  const { version, runId, entries, blobs } = header;
  if (typeof version === 'number' && version > VERSION) {
    throw new CommandError(
      `${name}, line 1: it has version ${version}, and this Treadle reads version ${VERSION}. Update Treadle.`,
    );
  }
  if (version !== VERSION || typeof runId !== 'string' || !isCount(entries) || !isCount(blobs) || entries === 0) {
    throw damaged(name, 1, 'the header is not whole');
  }
  return { runId, entries, blobs };
}

function isCount(value: unknown): value is number {
  return Number.isSafeInteger(value) && (value as number) >= 0;
}

interface Content {
  readonly entry?: JournalEntry;
  readonly blob?: { readonly id: string; readonly text: string };
  readonly sum?: number;
}

function contentOf(
  line: string,
  index: number,
  { name, entryCount }: { readonly name: string; readonly entryCount: number },
): unknown {
  const at = index + 2;
  const content = parsed(line) as Content | undefined;
  if (content === undefined) throw damaged(name, at, 'it is not JSON');
  const wanted = index < entryCount ? 'entry' : 'blob';
  const held = content[wanted];
  if (held === undefined || held === null)
    throw damaged(name, at, `it should hold ${wanted === 'entry' ? 'an entry' : 'a blob'}`);
  if (content.sum !== sumOf(held)) throw damaged(name, at, 'its checksum is another');
  if (wanted === 'entry') {
    const { v, seq } = held as JournalEntry;
    if ((v as number) > 1) {
      throw new CommandError(
        `${name}, line ${at}: the entry has version ${v}, and this Treadle reads version 1. Update Treadle.`,
      );
    }
    if (seq !== index) throw damaged(name, at, `it should be entry ${index}, and is ${seq}`);
  }
  return held;
}

function parsed(line: string): object | undefined {
  try {
    const value: unknown = JSON.parse(line);
    return typeof value === 'object' && value !== null ? value : undefined;
  } catch {
    return undefined;
  }
}

function damaged(name: string, line: number, what: string): CommandError {
  return new CommandError(`${name}, line ${line}: ${what}. The file is damaged; export the run again.`);
}
