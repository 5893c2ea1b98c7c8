import { crc32 } from 'node:zlib';
import type { JournalEntry, Parent, RunStore } from '@treadle/core';

/** An exported run, and its child runs at every depth, each after its parent. */
export type RunFamily = readonly [ExportedRun, ...ExportedRun[]];

export interface ExportedRun {
  readonly runId: string;
  readonly entries: readonly JournalEntry[];
  readonly blobs: readonly ExportedBlob[];
}

/** `bytes` is base64. */
export type ExportedBlob =
  | { readonly id: string; readonly text: string }
  | { readonly id: string; readonly bytes: string; readonly mediaType: string };

/**
 * Reads a run before its children. So if a process drives it at the same time, all children that it has recorded are
 * found. Those that it called later are left out: the exported run has yet to call them. `beforeRead` is called before each run
 * and each long result, with its size, and with a negative size for what is not kept.
 */
export async function readRunFamily(store: MeasuredStore, runId: string, beforeRead?: BeforeRead): Promise<RunFamily> {
  const { entries } = await readMeasured(store, runId, beforeRead);
  const first = { runId, entries, blobs: await readBlobs(store, runId, beforeRead) };
  const family = new Map<string, ExportedRun>([[runId, first]]);
  // The loop also visits the children that it adds.
  for (const caller of family.values()) {
    const issued = new Set(caller.entries.flatMap((entry) => entry.issued));
    for (const { runId: id } of await store.list({ parent: caller.runId, limit: Infinity })) {
      const child = await readMeasured(store, id, beforeRead);
      const effect = parentOf(child)?.effect;
      // A fork has no effect.
      if (effect === undefined || !issued.has(effect) || family.has(id)) await beforeRead?.(-child.bytes);
      else family.set(id, { runId: id, entries: child.entries, blobs: await readBlobs(store, id, beforeRead) });
    }
  }
  const [, ...others] = family.values();
  return [first, ...others];
}

type MeasuredStore = RunStore & { sizeOf?(runId: string): Promise<number> };
type BeforeRead = (bytes: number) => void | Promise<void>;

async function readMeasured(
  store: MeasuredStore,
  runId: string,
  beforeRead?: BeforeRead,
): Promise<Pick<ExportedRun, 'entries'> & { readonly bytes: number }> {
  const bytes = (beforeRead && (await store.sizeOf?.(runId))) ?? 0;
  await beforeRead?.(bytes);
  return { entries: await store.read(runId), bytes };
}

async function readBlobs(store: RunStore, runId: string, beforeRead?: BeforeRead): Promise<readonly ExportedBlob[]> {
  const blobs: ExportedBlob[] = [];
  for (const id of await store.blobs.list(runId)) {
    if (beforeRead) await beforeRead((await store.blobs.read(runId, id, 0, 0))?.length ?? 0);
    const content = await store.blobs.read(runId, id, 0, Infinity);
    if (!content?.bytes) blobs.push({ id, text: content?.text ?? '' });
    else blobs.push({ id, bytes: Buffer.from(content.bytes).toString('base64'), mediaType: content.mediaType });
  }
  return blobs;
}

/** What started an exported run, if it is the child run or the fork of another one. */
export function parentOf({ entries }: Pick<ExportedRun, 'entries'>): Parent | undefined {
  const first = entries[0]?.event;
  return first?.type === 'run-started' ? first.parent : undefined;
}

export const RUN_FILE_FORMAT: string = 'treadle-run';
/**
 * Version 1 contains one run, described in the header itself. A run without children is still written as version 1.
 * Version 3 contains blobs of bytes; without them, version 2 is written.
 */
export const RUN_FILE_VERSION: number = 3;

/**
 * JSON lines: a header, then for each run one line per entry and one line per blob. Each line has a checksum, so that
 * damage is found where it is. The header has the number of lines, so that a missing end is found.
 */
export function* runFileLines(family: RunFamily): Generator<string, void> {
  const runs = family.map(({ runId, entries, blobs }) => ({ runId, entries: entries.length, blobs: blobs.length }));
  const hasBytes = family.some(({ blobs }) => blobs.some((blob) => 'bytes' in blob));
  const header = runs.length === 1 && !hasBytes ? { version: 1, ...runs[0] } : { version: hasBytes ? 3 : 2, runs };
  yield `${JSON.stringify({ format: RUN_FILE_FORMAT, ...header })}\n`;
  for (const { entries, blobs } of family) {
    for (const entry of entries) yield checkedLine('entry', JSON.stringify(entry));
    for (const blob of blobs) yield checkedLine('blob', JSON.stringify(blob));
  }
}

function checkedLine(name: string, content: string): string {
  return `{"${name}":${content},"sum":${crc32(content)}}\n`;
}

/** Of an entry or a blob. */
export function lineChecksum(content: unknown): number {
  return crc32(JSON.stringify(content));
}
