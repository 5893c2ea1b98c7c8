import { posix } from 'node:path';
import { tool, type Tool, type ToolContext, type Touch, type Verification } from '@treadle/core';
import type { Ops, WriteOptions } from '../ops.ts';
import { timeoutFor, timeoutParameter } from '../call-limits.ts';
import { ToolError } from '../tool-error.ts';
import { runJob } from '../workers/run-job.ts';
import { listing } from './listing.ts';
import { parsePatch, reversedPatch, type FilePatch } from './patch-format.ts';
import type { Hunk, LinesThere, Patched } from './patch-hunks.ts';
import { fileKey, readFiles, versionOf } from './read-files.ts';
import { contentOf, demandStorable, readWhole, textOf, type WholeFile } from './whole-text.ts';
import { UnreachableError, workspace, type Workspace } from './workspace.ts';

const MAX_CHARS = 1_000_000;
const MAX_NOTES = 20;
const MAX_SUMMARY = 100;

export function applyPatchTool({ files }: Pick<Ops, 'files'>): Tool {
  const space = workspace(files);
  return tool({
    name: 'apply_patch',
    description:
      'Apply a patch to files of the working folder: change, create, rename and delete files in one call. If a part of it ' +
      'does not apply, nothing is changed, and the error names the hunk and shows what is there instead. The patch is a ' +
      'unified diff (also of git, with renames, deletions, new files and modes), or has this form:\n' +
      '*** Begin Patch\n*** Update File: src/a.ts\n@@ function name() {\n context\n-old line\n+new line\n context\n' +
      '*** Add File: src/b.ts\n+its lines\n*** Delete File: src/c.ts\n*** Update File: src/d.ts\n*** Move to: src/e.ts\n' +
      '*** End Patch\n' +
      'Give about three lines of context before and after a change. Hunks are also found at other line numbers, and if ' +
      'whitespace or the outer lines of context differ; the result says so. For a small change of one file, edit is simpler.',
    input: {
      type: 'object',
      properties: {
        patch: {
          type: 'string',
          maxLength: MAX_CHARS,
          description: 'The patch. Paths are relative to the working folder',
        },
        timeout_ms: timeoutParameter('files'),
      },
      required: ['patch'],
      additionalProperties: false,
    },
    effect: 'once',
    touches: ({ patch }) => touchesOf(String(patch)),
    permissions: ['file_read', 'file_write'],
    remembers: ({ patch }) => pathsOf(String(patch)).map((path) => fileKey(space, path)),
    timeoutMs: timeoutFor('files'),
    execute: ({ patch }, context) => applyPatch(space, String(patch), context),
    verify: ({ patch }, context) => verifyPatch(space, String(patch), context.signal),
  });
}

/** Empty for a patch that cannot be parsed: a call with it changes nothing. */
function partsOf(patch: string): readonly FilePatch[] {
  try {
    return parsePatch(patch);
  } catch {
    return [];
  }
}

function pathsOf(patch: string): readonly string[] {
  return [...new Set(partsOf(patch).flatMap(pathsIn))];
}

function pathsIn(file: FilePatch): readonly string[] {
  return 'to' in file && file.to !== undefined ? [file.path, file.to] : [file.path];
}

/** A file that is removed has no lines written, and of one that is renamed only those that change. */
function touchesOf(patch: string): readonly Touch[] {
  const lines = new Map<string, number>();
  for (const file of partsOf(patch)) {
    const paths = pathsIn(file);
    for (const path of paths) lines.set(path, (lines.get(path) ?? 0) + (path === paths.at(-1) ? addedLines(file) : 0));
  }
  return [...lines].flatMap(([path, added]): readonly Touch[] => [
    { type: 'read', path },
    { type: 'write', path, lines: added },
  ]);
}

function addedLines(file: FilePatch): number {
  if (file.type === 'add') return file.lines.length;
  if (file.type === 'delete') return 0;
  return file.hunks.flatMap(({ lines }) => lines.filter((line) => line.startsWith('+'))).length;
}

async function applyPatch(space: Workspace, patch: string, context: ToolContext): Promise<string> {
  const { signal } = context;
  demandStorable('patch', patch);
  const plan = await planPatch(space, parsePatch(patch), context);
  signal.throwIfAborted();
  await writeAll(space, [...plan.files.values()]);

  const known = readFiles(space, context);
  for (const { shown, path, before, from = before && { path, file: before }, after } of plan.files.values()) {
    if (after === undefined) continue;
    const state = from ? known.compare(from.path, versionOf(from.file.bytes)) : 'same';
    if (state === 'changed') {
      plan.notes.push(
        `${JSON.stringify(shown)} had changed since you last read it: read it again before you rely on what you know of it`,
      );
    }
    if (state === 'same') known.note(path, versionOf(after));
  }
  for (const { path, after } of plan.files.values()) if (after === undefined) known.forget(path);
  const notes = plan.notes.slice(0, MAX_NOTES);
  if (plan.notes.length > notes.length) notes.push(`${plan.notes.length - notes.length} more notes`);
  const summary = listing(MAX_SUMMARY);
  for (const line of plan.summary) if (!summary.add(line)) break;
  const left = plan.summary.length - summary.length;
  const more = left > 0 ? [`${left} more files`] : [];
  return ['Applied the patch:', summary.text(more), ...notes.map((note) => `Note: ${note}.`)].join('\n');
}

/** Whether an interrupted patch was applied: if so, it can be undone; if not, it can be applied. */
async function verifyPatch(space: Workspace, patch: string, signal: AbortSignal): Promise<Verification> {
  const files = parsePatch(patch);
  const [forth, back] = [await fits(files), await fits(reversedPatch(files))];
  if (forth !== 'no' && back === 'no') return { type: 'not-done' };
  if (forth === 'no' && back === 'exactly')
    return { type: 'done', result: 'Applied the patch. The call was interrupted; the files have the new content.' };
  return { type: 'unknown' };

  async function fits(
    parts: readonly (FilePatch | { type: 'gone'; path: string })[],
  ): Promise<'exactly' | 'roughly' | 'no'> {
    try {
      for (const part of parts) if (part.type === 'gone' && (await readIfThere(space, part.path, signal))) return 'no';
      const rest = parts.filter((part) => part.type !== 'gone');
      const { isExact } = await planPatch(space, rest, { signal, report: () => {} });
      return isExact ? 'exactly' : 'roughly';
    } catch (error) {
      if (error instanceof ToolError) return 'no';
      throw error;
    }
  }
}

/** A file that the patch touches: what is there, and what will be. */
interface Change {
  /** As messages name it. */
  readonly shown: string;
  /** Where it is written. */
  readonly path: string;
  readonly before: WholeFile | undefined;
  /** What was moved here. */
  from?: { readonly path: string; readonly file: WholeFile } | undefined;
  /** Undefined: no file. */
  after: Uint8Array | undefined;
  executable: boolean | undefined;
}

interface Plan {
  /** By place. */
  readonly files: ReadonlyMap<string, Change>;
  readonly summary: readonly string[];
  readonly notes: string[];
  /** All lines of the patch are there as it has them. */
  readonly isExact: boolean;
}

/** Applies all parts in memory. Later parts see what earlier ones did. */
async function planPatch(
  space: Workspace,
  parts: readonly FilePatch[],
  { signal, report }: Pick<ToolContext, 'signal' | 'report'>,
): Promise<Plan> {
  const files = new Map<string, Change>();
  const places = new Map<string, string>();
  const summary: string[] = [];
  const notes: string[] = [];
  let isExact = true;

  async function changeAt(path: string): Promise<Change> {
    const name = posix.normalize(path);
    const known = places.get(name);
    if (known !== undefined) return files.get(known)!;
    const before = await readIfThere(space, path, signal);
    const place = before?.file.real ?? name;
    places.set(name, place);
    const same = files.get(place);
    if (same) return same;
    const change: Change = {
      shown: before?.file.shown ?? name,
      path,
      before,
      after: before?.bytes,
      executable: before?.file.executable,
    };
    files.set(place, change);
    return change;
  }

  function demandNothingAt({ after }: Change, path: string, instead: string): void {
    if (after === undefined) return;
    throw new ToolError(`${JSON.stringify(path)} exists. Nothing was changed. ${instead}`);
  }

  async function patched(
    { after }: Change,
    { path, hunks = [] }: { path: string; hunks?: readonly Hunk[] | undefined },
  ): Promise<{ after: Uint8Array; added: number; removed: number }> {
    if (after === undefined) {
      throw new ToolError(
        `There is no ${JSON.stringify(path)}, which the patch changes. Nothing was changed. Use glob to see what is there.`,
        'not_found',
      );
    }
    if (hunks.length === 0) return { after, added: 0, removed: 0 };
    const stored = textOf(after, path);
    const result = await runJob('applyHunks', { text: stored.text, hunks }, signal);
    if (result.type === 'failed') throw hunkFailed(path, result);
    isExact &&= result.isExact;
    notes.push(...result.notes.map((note) => `in ${JSON.stringify(path)}, ${note}`));
    return { after: contentOf(stored, result.text), added: result.added, removed: result.removed };
  }

  for (const [index, part] of parts.entries()) {
    signal.throwIfAborted();
    const { path } = part;
    const change = await changeAt(path);
    if (part.type === 'add') {
      demandNothingAt(change, path, 'Change it with "Update File", a hunk with context, or the edit tool.');
      const text = part.lines.join('\n') + (part.endsInNewline && part.lines.length > 0 ? '\n' : '');
      change.after = Buffer.from(text);
      change.executable = part.executable ?? false;
      summary.push(`A ${path} (+${part.lines.length})`);
    } else if (part.type === 'delete') {
      const { after, removed } = await patched(change, part);
      await demandNoLink(space, path, change);
      if (part.hunks && after.length > 0) {
        throw new ToolError(
          `${JSON.stringify(path)} has other lines than those that the patch deletes. Nothing was changed. Read it, and use "Delete File" to delete it anyway.`,
        );
      }
      change.after = undefined;
      summary.push(`D ${path}${removed > 0 ? ` (-${removed})` : ''}`);
    } else {
      const { after, added, removed } = await patched(change, part);
      const { executable = change.executable } = part;
      const counts = `(+${added} -${removed})${part.executable === undefined ? '' : part.executable ? ', executable' : ', not executable'}`;
      if (part.to === undefined) {
        change.after = after;
        change.executable = executable;
        summary.push(`M ${path} ${counts}`);
      } else {
        await demandNoLink(space, path, change);
        const target = await changeAt(part.to);
        demandNothingAt(target, part.to, 'Move the file to another name, or delete that file first.');
        change.after = undefined;
        target.from = change.from ?? (change.before && { path: change.path, file: change.before });
        target.after = after;
        target.executable = executable;
        summary.push(`R ${path} -> ${part.to} ${counts}`);
      }
    }
    if (parts.length > 1) report(`checked ${index + 1} of ${parts.length} files`);
  }
  const isSame = [...files.values()].every(
    ({ before, after, executable }) =>
      before?.bytes.length === after?.length &&
      (!before || Buffer.compare(before.bytes, after!) === 0) &&
      before?.file.executable === executable,
  );
  if (isSame) throw new ToolError('The patch changes nothing: the files already have the new content.');
  return { files, summary, notes, isExact };
}

/** Writes all files. If one cannot be written, those that were are put back. */
async function writeAll(space: Workspace, changes: readonly Change[]): Promise<void> {
  // What is removed goes last, because a file that is put back may get another mode.
  const ordered = [
    ...changes.filter(({ after }) => after !== undefined),
    ...changes.filter(({ after }) => after === undefined),
  ];
  const done: Change[] = [];
  try {
    for (const change of ordered) {
      const { path, before, from, after, executable } = change;
      const stamp = before && { stamp: before.file.stamp };
      // What is moved is still at its old place.
      const like = from && { like: from.file.file.real };
      if (after !== undefined) await write(path, after, { before, executable, ...stamp, ...like });
      else if (before) await space.remove(path, stamp);
      done.push(change);
    }
  } catch (error) {
    const left: string[] = [];
    for (const { shown, path, before, after } of done.toReversed()) {
      try {
        if (before) {
          const { executable } = before.file;
          await write(path, before.bytes, { before: after === undefined ? undefined : before, executable });
        } else if (after !== undefined) await space.remove(path);
      } catch {
        left.push(JSON.stringify(shown));
      }
    }
    const { message, errorType } = error as UnreachableError;
    const state = left.length === 0 ? 'Nothing was changed.' : `These files could not be put back: ${left.join(', ')}.`;
    throw new ToolError(`${message} ${state}`, errorType ?? 'execution_failed', { cause: error });
  }

  function write(
    path: string,
    content: Uint8Array,
    {
      before,
      executable,
      ...options
    }: Pick<WriteOptions, 'stamp' | 'like'> & {
      readonly before: WholeFile | undefined;
      readonly executable: boolean | undefined;
    },
  ): Promise<void> {
    const mode = executable === undefined || executable === before?.file.executable ? {} : { executable };
    return space.write(path, content, { create: !before, ...mode, ...options });
  }
}

/** Removing a link would leave its target, and removing the target would leave the link. */
async function demandNoLink(space: Workspace, path: string, { shown }: Change): Promise<void> {
  const name = posix.normalize(path);
  if (shown === name) return;
  const entries = await space.list(posix.dirname(name));
  if (!entries.some((entry) => entry.type === 'link' && entry.name === posix.basename(name))) return;
  throw new ToolError(
    `${JSON.stringify(path)} is a symbolic link to ${JSON.stringify(shown)}. Nothing was changed. Name the file itself, or remove the ` +
      `link with a command.`,
  );
}

async function readIfThere(space: Workspace, path: string, signal: AbortSignal): Promise<WholeFile | undefined> {
  try {
    return await readWhole(space, path, signal);
  } catch (error) {
    if (error instanceof UnreachableError && error.errorType === 'not_found') return undefined;
    throw error;
  }
}

function hunkFailed(path: string, { hunk, why, near, there }: Extract<Patched, { type: 'failed' }>): ToolError {
  const hint = near
    ? `The nearest text is at line ${near.line}${near.difference ? `; it differs only in ${near.difference}` : ''}. Use what is there (+) instead of what the patch has (-):\n${near.diff.join('\n')}`
    : there
      ? `No text in it is similar. ${linesText(there)}`
      : 'Read the file, and make the patch again.';
  return new ToolError(`In ${JSON.stringify(path)}, ${hunk} does not apply: ${why}. Nothing was changed. ${hint}`);
}

function linesText({ line, lines, count }: LinesThere): string {
  if (count === 0) return 'The file is empty.';
  const numbered = lines.map((text, index) => `${line + index}: ${text}`).join('\n');
  return `The file has ${count} ${count === 1 ? 'line' : 'lines'}. Where the hunk should be, it has:\n${numbered}`;
}
