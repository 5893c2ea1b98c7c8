import { closeSync, constants, fstatSync, openSync, readFileSync } from 'node:fs';
import { resolve } from 'node:path';
import type { CallAnswered, ToolCall } from '@treadle/core';
import type { Line } from '../screen/spans.ts';
import { argumentsOf, patchedFiles } from './call-text.ts';
import { changeLines, contentLines, patchLines, type FileChange } from './diff-lines.ts';

/** The arguments of tools that change files, which their changes show. */
const SHOWN_BY_CHANGES: Readonly<Record<string, readonly string[]>> = {
  write: ['content'],
  edit: ['old_text', 'new_text', 'edits'],
  apply_patch: ['patch'],
};

/** Larger files are not compared. */
const MAX_BYTES = 1_000_000;

/** What a call would do to files. */
export interface ChangePreview {
  readonly lines: readonly Line[];
  /** The call without what the lines show. */
  readonly call: Pick<ToolCall, 'name' | 'arguments'>;
}

/** The changes that calls make to files, before and after they run. */
export interface CallChanges {
  /** Undefined for other tools, and for a change that cannot be shown. */
  preview(call: Pick<ToolCall, 'name' | 'arguments'>, width: number): ChangePreview | undefined;
  /** Remembers what the files of a call contain. Called before it runs. */
  start(call: ToolCall): void;
  /** What has changed since. Called when the call has its result. */
  end(answered: Pick<CallAnswered, 'call' | 'result'>, width: number): readonly Line[];
}

/** The changes to the files of a folder. */
export interface FileChanges extends CallChanges {
  /** What has changed in all files of calls since their first one. */
  sinceStart(width: number): readonly Line[];
}

export function fileChanges(folder: string): FileChanges {
  const before = new Map<string, readonly FileChange[]>();
  /** By their paths, as they were before the first call. */
  const first = new Map<string, FileChange>();
  const textOf = (path: string): ReturnType<typeof readText> => readText(resolve(folder, path));
  const changesOf = (files: readonly FileChange[], width: number): readonly Line[] =>
    files.flatMap((file) => {
      const after = textOf(file.path);
      return after === null ? [] : changeLines({ ...file, after }, width);
    });
  return {
    preview(call, width) {
      return previewOf(call, (given) =>
        call.name === 'apply_patch' ? patchPreview(given, width) : changePreview(call.name, given, { textOf, width }),
      );
    },
    start(call) {
      const files = changedFiles(call);
      if (files.length === 0) return;
      const found = files.flatMap((path): readonly FileChange[] => {
        const text = textOf(path);
        return text === null ? [] : [{ path, before: text }];
      });
      before.set(call.id, found);
      for (const file of found) if (!first.has(file.path)) first.set(file.path, file);
    },
    end({ call }, width) {
      const files = before.get(call.id) ?? [];
      before.delete(call.id);
      return changesOf(files, width);
    },
    sinceStart: (width) => changesOf([...first.values()], width),
  };
}

/** The changes to files that are elsewhere: what the arguments of the calls say. */
export function changesElsewhere(): CallChanges {
  const preview = (call: Pick<ToolCall, 'name' | 'arguments'>, width: number): ChangePreview | undefined =>
    previewOf(call, (given) => {
      if (call.name === 'apply_patch') return patchPreview(given, width);
      const { path, content } = given;
      if (typeof path !== 'string') return undefined;
      if (call.name === 'edit') return editsOf(given)?.flatMap((edit) => partLines(path, edit, width));
      return typeof content === 'string' ? contentLines({ path, content }, width) : undefined;
    });
  return {
    preview,
    start() {},
    end: ({ call, result }, width) => (result.isError ? [] : (preview(call, width)?.lines ?? [])),
  };
}

function previewOf(
  call: Pick<ToolCall, 'name' | 'arguments'>,
  linesFor: (given: Readonly<Record<string, unknown>>) => readonly Line[] | undefined,
): ChangePreview | undefined {
  const given = argumentsOf(call);
  const hidden = Object.hasOwn(SHOWN_BY_CHANGES, call.name) ? SHOWN_BY_CHANGES[call.name] : undefined;
  const lines = given && hidden && linesFor(given);
  if (!lines) return undefined;
  const rest = Object.fromEntries(Object.entries(given).filter(([name]) => !hidden.includes(name)));
  return { lines, call: { name: call.name, arguments: JSON.stringify(rest) } };
}

function changedFiles(call: ToolCall): readonly string[] {
  if (!Object.hasOwn(SHOWN_BY_CHANGES, call.name)) return [];
  const { path, patch } = argumentsOf(call) ?? {};
  if (typeof patch === 'string') return patchedFiles(patch);
  return typeof path === 'string' ? [path] : [];
}

function patchPreview({ patch }: Readonly<Record<string, unknown>>, width: number): readonly Line[] | undefined {
  return typeof patch === 'string' ? patchLines(patch.replace(/\n$/, ''), width) : undefined;
}

function changePreview(
  name: string,
  given: Readonly<Record<string, unknown>>,
  { textOf, width }: { readonly textOf: (path: string) => string | undefined | null; readonly width: number },
): readonly Line[] | undefined {
  const { path, content } = given;
  if (typeof path !== 'string') return undefined;
  const before = textOf(path);
  if (before === null) return undefined;
  if (name === 'write') {
    return typeof content === 'string' ? changeLines({ path, before, after: content }, width) : undefined;
  }
  const edits = editsOf(given);
  if (!edits) return undefined;
  const after = before === undefined ? undefined : edited(before, edits);
  if (after !== undefined) return changeLines({ path, before, after }, width);
  // The texts may match in a way that only the tool knows.
  return edits.flatMap((edit) => partLines(path, edit, width));
}

function partLines(path: string, edit: Edit, width: number): readonly Line[] {
  // Most texts end inside of a line. It is said only if the change is about that.
  const end = edit.old.endsWith('\n') || edit.new.endsWith('\n') ? '' : '\n';
  return changeLines({ path, before: edit.old + end, after: edit.new + end, isPart: true }, width);
}

interface Edit {
  readonly old: string;
  readonly new: string;
  readonly everywhere: boolean;
}

function editsOf(given: Readonly<Record<string, unknown>>): readonly Edit[] | undefined {
  const all: readonly unknown[] = Array.isArray(given['edits']) ? given['edits'] : [given];
  const edits = all.map((one): Edit | undefined => {
    const { old_text: old, new_text: next, replace_all: everywhere } = (one ?? {}) as Readonly<Record<string, unknown>>;
    return typeof old === 'string' && typeof next === 'string'
      ? { old, new: next, everywhere: everywhere === true }
      : undefined;
  });
  return edits.every((edit) => edit !== undefined) ? edits : undefined;
}

/** Undefined if an old text does not occur exactly once, or edits overlap. */
function edited(text: string, edits: readonly Edit[]): string | undefined {
  const places = edits.flatMap((edit) => {
    const found: { at: number; edit: Edit }[] = [];
    if (edit.old === '') return found;
    for (let at = text.indexOf(edit.old); at >= 0; at = text.indexOf(edit.old, at + edit.old.length))
      found.push({ at, edit });
    return found.length === 1 || edit.everywhere ? found : [];
  });
  if (edits.some((edit) => !places.some((place) => place.edit === edit))) return undefined;
  let changed = '';
  let end = 0;
  for (const { at, edit } of places.sort((a, b) => a.at - b.at)) {
    if (at < end) return undefined;
    changed += text.slice(end, at) + edit.new;
    end = at + edit.old.length;
  }
  return changed + text.slice(end);
}

/**
 * The text of a plain file; undefined: there is none; null: it cannot be shown. Pipes and devices are not read, because that may
 * not return.
 */
function readText(path: string): string | undefined | null {
  let file: number | undefined;
  try {
    file = openSync(path, constants.O_RDONLY | (constants.O_NONBLOCK ?? 0));
    const facts = fstatSync(file);
    if (!facts.isFile() || facts.size > MAX_BYTES) return null;
    return new TextDecoder('utf-8', { fatal: true }).decode(readFileSync(file));
  } catch (error) {
    return (error as NodeJS.ErrnoException).code === 'ENOENT' ? undefined : null;
  } finally {
    if (file !== undefined) closeSync(file);
  }
}
