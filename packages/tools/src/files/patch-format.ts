/*
 * Two formats of patches: unified diffs, also those of git, and the format between "*** Begin Patch" and "*** End Patch".
 * Models count lines badly, so the numbers of a hunk are used to find its place, and not to reject it.
 */
import { ToolError } from '../tool-error.ts';
import type { Hunk } from './patch-hunks.ts';

export type FilePatch =
  | {
      readonly type: 'add';
      readonly path: string;
      readonly lines: readonly string[];
      readonly endsInNewline: boolean;
      readonly executable?: boolean;
    }
  /** `hunks`: what the file has to contain, if the patch says it. */
  | { readonly type: 'delete'; readonly path: string; readonly hunks?: readonly Hunk[] }
  | {
      readonly type: 'update';
      readonly path: string;
      readonly to?: string;
      readonly hunks: readonly Hunk[];
      readonly executable?: boolean;
    };

const MAX_FILES = 200;

/** Throws a `ToolError` that names the line. */
export function parsePatch(patch: string): readonly FilePatch[] {
  const all = patch.split('\n');
  // A patch that was written with these line ends; a patch of such a file has them only in its hunks.
  const isTwice = all.every((line, at) => line.endsWith('\r') || at === all.length - 1);
  const lines = isTwice ? all.map((line) => line.replace(/\r$/, '')) : all;
  while (lines.at(-1) === '') lines.pop();
  const begin = lines.findIndex((line) => line.trim() === '*** Begin Patch');
  const files = begin < 0 ? parseUnified(lines) : parseSections(lines, begin + 1);
  if (files.length === 0) {
    throw new ToolError(
      'The patch changes no file. Give a unified diff with "--- a/PATH", "+++ b/PATH" and "@@ -1,3 +1,4 @@" lines, or the ' +
        'format that starts with "*** Begin Patch".',
      'invalid_params',
    );
  }
  if (files.length > MAX_FILES) {
    throw new ToolError(
      `The patch changes ${files.length} files. Split it: at most ${MAX_FILES} are possible.`,
      'invalid_params',
    );
  }
  return files;
}

/** What would undo a patch that was applied. Undefined for a file if the patch does not say what it contained. */
export function reversedPatch(files: readonly FilePatch[]): readonly (FilePatch | { type: 'gone'; path: string })[] {
  return files.toReversed().map((file) => {
    const { path } = file;
    if (file.type === 'add') {
      const hunks = file.lines.length === 0 ? [] : [reversedHunk(addingHunk(file.lines, file.endsInNewline))];
      return { type: 'delete', path, hunks };
    }
    if (file.type === 'update') {
      const hunks = file.hunks.map(reversedHunk);
      return file.to === undefined
        ? { type: 'update', path, hunks }
        : { type: 'update', path: file.to, to: path, hunks };
    }
    return { type: 'gone', path };
  });
}

function reversedHunk({ lines, start, newStart, endsWithout, ...hunk }: Hunk): Hunk {
  return {
    ...hunk,
    ...(newStart !== undefined && { start: newStart }),
    ...(start !== undefined && { newStart: start }),
    endsWithout: { old: endsWithout.new, new: endsWithout.old },
    lines: lines.map((line) => (line[0] === '+' ? `-${line.slice(1)}` : line[0] === '-' ? `+${line.slice(1)}` : line)),
  };
}

function addingHunk(lines: readonly string[], endsInNewline: boolean): Hunk {
  return {
    name: 'the content',
    lines: lines.map((line) => `+${line}`),
    start: 0,
    newStart: 1,
    anchors: [],
    atEnd: false,
    endsWithout: { old: false, new: !endsInNewline },
  };
}

interface UnifiedFile {
  readonly line: number;
  isGit: boolean;
  from: string | undefined;
  to: string | undefined;
  hasPaths: boolean;
  type: 'add' | 'delete' | 'update';
  isRename: boolean;
  executable: boolean | undefined;
  hunks: Hunk[];
}

const HUNK = /^@@ -(\d+)(?:,(\d+))? \+(\d+)(?:,(\d+))? @@/;
const IS_HEADING = /^(diff --git |@@)/;

function parseUnified(lines: readonly string[]): readonly FilePatch[] {
  const files: FilePatch[] = [];
  let file: UnifiedFile | undefined;
  const finish = (): void => {
    if (file) files.push(unifiedFile(file));
    file = undefined;
  };
  for (let at = 0; at < lines.length;) {
    const line = lines[at]!.replace(/\r$/, '');
    if (line.startsWith('diff --git ')) {
      finish();
      const [from, to] = gitPaths(line.slice('diff --git '.length));
      file = { ...emptyFile(at), isGit: true, from, to };
      at++;
    } else if (line.startsWith('--- ') && lines[at + 1]?.startsWith('+++ ')) {
      if (!file || file.hasPaths) {
        finish();
        file = emptyFile(at);
      }
      const [from, to] = headerPaths(line.slice(4), lines[at + 1]!.replace(/\r$/, '').slice(4), file.isGit);
      if (from === undefined && to === undefined) throw broken(at, 'names no file: both are /dev/null');
      if (from === undefined) file.type = 'add';
      if (to === undefined) file.type = 'delete';
      file.from = from ?? to;
      file.to = to ?? from;
      file.hasPaths = true;
      at += 2;
    } else if (line.startsWith('@@')) {
      if (!file?.hasPaths) throw broken(at, 'is a hunk without a file. Put "--- a/PATH" and "+++ b/PATH" before it');
      const [hunk, next] = unifiedHunk(lines, at, file.hunks.length + 1);
      file.hunks.push(hunk);
      at = next;
    } else {
      if (file?.isGit) gitHeader(file, line, at);
      else if (/^(GIT binary patch|Binary files .* differ)/.test(line)) throw broken(at, BINARY);
      else if (file?.hunks.length && /^[ +-]/.test(line)) throw broken(at, 'is outside of the hunk before it');
      at++;
    }
  }
  finish();
  return files;
}

const BINARY = 'is a binary patch. Only text files can be patched; write binary files with a command';

function emptyFile(line: number): UnifiedFile {
  return {
    line,
    isGit: false,
    from: undefined,
    to: undefined,
    hasPaths: false,
    type: 'update',
    isRename: false,
    executable: undefined,
    hunks: [],
  };
}

/** The lines between "diff --git" and the first hunk. */
function gitHeader(file: UnifiedFile, line: string, at: number): void {
  const [, key, value = ''] =
    /^(new file mode|deleted file mode|old mode|new mode|rename from|rename to|copy from|copy to) (.*)$/.exec(line) ??
    [];
  switch (key) {
    case 'new file mode':
    case 'deleted file mode':
    case 'new mode':
      if (!/^100\d{3}$/.test(value)) {
        throw broken(at, 'is about a symbolic link or a submodule. Only plain files can be patched');
      }
      if (key === 'new file mode') file.type = 'add';
      else if (key === 'deleted file mode') file.type = 'delete';
      if (key !== 'deleted file mode') file.executable = value.endsWith('755');
      return;
    case 'rename from':
    case 'rename to':
      file.isRename = true;
      file[key === 'rename from' ? 'from' : 'to'] = unquoted(value);
      return;
    case 'copy from':
    case 'copy to':
      throw broken(at, 'is a copy. Add the file with its content instead');
    case undefined:
      if (/^(GIT binary patch|Binary files .* differ)/.test(line)) throw broken(at, BINARY);
  }
}

function unifiedFile({ type, from, to, isRename, hunks, executable, line }: UnifiedFile): FilePatch {
  if (from === undefined || to === undefined)
    throw broken(line, 'does not name its file clearly. Add "--- a/PATH" and "+++ b/PATH"');
  const mode = executable === undefined ? {} : { executable };
  if (type === 'delete') return hunks.length > 0 ? { type, path: from, hunks } : { type, path: from };
  if (type === 'add') {
    const lines = hunks.flatMap((hunk) => hunk.lines);
    const other = lines.find((one) => one[0] !== '+');
    if (other !== undefined || hunks.length > 1) {
      throw broken(line, 'adds a file, so it can have only one hunk, whose lines all start with "+"');
    }
    const endsInNewline = hunks[0]?.endsWithout.new !== true;
    return { type, path: to, lines: lines.map((one) => one.slice(1)), endsInNewline, ...mode };
  }
  if (hunks.length === 0 && !isRename && executable === undefined) {
    throw broken(line, 'has no hunks, so it changes nothing. Add hunks that start with "@@ -1,3 +1,4 @@"');
  }
  return { type, path: isRename ? from : to, ...(isRename && from !== to && { to }), hunks, ...mode };
}

/** The hunk that starts at a line, and the line after it. */
function unifiedHunk(lines: readonly string[], at: number, number: number): [Hunk, number] {
  const heading = lines[at]!.replace(/\r$/, '');
  const [, start, oldCount = '1', newStart, newCount = '1'] = HUNK.exec(heading) ?? [];
  const left = start === undefined ? { old: 0, new: 0 } : { old: Number(oldCount), new: Number(newCount) };
  const body: string[] = [];
  const endsWithout = { old: false, new: false };
  let next = at + 1;
  for (; next < lines.length; next++) {
    const line = lines[next]!;
    const isFull = left.old <= 0 && left.new <= 0;
    if (IS_HEADING.test(line) || line === '```' || (isFull && /^-- ?\r?$/.test(line))) break;
    if (line.startsWith('--- ') && lines[next + 1]?.startsWith('+++ ') && (isFull || lines[next + 2]?.startsWith('@@')))
      break;
    if (line.startsWith('\\')) {
      const last = body.at(-1)?.[0];
      if (last !== '+') endsWithout.old = true;
      if (last !== '-') endsWithout.new = true;
      continue;
    }
    // Editors and models remove the blank of an empty line.
    const marker = line === '' || line === '\r' ? ' ' : line[0]!;
    if (!' +-'.includes(marker)) {
      if (isFull) break;
      throw broken(next, 'is in a hunk, but starts with none of " ", "+" and "-"');
    }
    if (marker !== '+') left.old--;
    if (marker !== '-') left.new--;
    body.push(line);
  }
  const name = `hunk ${number} (${heading.slice(0, 80)})`;
  const hunk: Hunk = {
    name,
    lines: hunkLines(body),
    ...(start !== undefined && { start: Number(start) }),
    ...(newStart !== undefined && { newStart: Number(newStart) }),
    anchors: [],
    atEnd: false,
    endsWithout,
  };
  demandChange(hunk, at);
  return [hunk, Math.max(next, at + 1)];
}

/** Empty lines at the end may be there to separate hunks, so they are not taken as context. */
function hunkLines(body: readonly string[]): readonly string[] {
  const end = body.findLastIndex((line) => line !== '' && line !== '\r');
  return body.slice(0, end + 1).map((line) => (line === '' || line === '\r' ? ` ${line}` : line));
}

function demandChange({ name, lines, start, anchors, atEnd }: Hunk, at: number): void {
  if (!lines.some((line) => line[0] !== ' ')) throw broken(at, `starts ${name}, which has no lines with "+" or "-"`);
  const hasContext = lines.some((line) => line[0] !== '+');
  if (!hasContext && start === undefined && anchors.length === 0 && !atEnd) {
    throw broken(
      at,
      `starts ${name}, which does not say where its lines belong. Add lines before and after them as context`,
    );
  }
}

function parseSections(lines: readonly string[], begin: number): readonly FilePatch[] {
  const files: FilePatch[] = [];
  let at = begin;
  for (;;) {
    const line = lines[at];
    if (line === undefined) {
      throw new ToolError(
        'The patch has no "*** End Patch" line, so it may have been cut off. Send all of it, or smaller ones.',
        'invalid_params',
      );
    }
    const [, key, named = ''] =
      /^\*\*\* (Add File|Delete File|Update File|End Patch)(?::(.*))?$/s.exec(line.trimEnd()) ?? [];
    at++;
    if (key === undefined) {
      if (line.trim() === '') continue;
      throw broken(
        at - 1,
        'is not in a file section. Start one with "*** Add File: PATH", "*** Update File: PATH" or "*** Delete File: PATH"',
      );
    }
    if (key === 'End Patch') return files;
    const path = named.trim();
    if (path === '') throw broken(at - 1, 'names no file');
    const end = sectionEnd(lines, at);
    if (key === 'Add File') files.push(addedFile(path, lines, at, end));
    else if (key === 'Update File') files.push(updatedFile(path, lines, at, end));
    else {
      const rest = lines.slice(at, end).findIndex((one) => one.trim() !== '');
      if (rest >= 0) throw broken(at + rest, 'follows "*** Delete File", which takes no content');
      files.push({ type: 'delete', path });
    }
    at = end;
  }
}

function sectionEnd(lines: readonly string[], from: number): number {
  let at = from;
  while (at < lines.length && !/^\*\*\* (Add File:|Delete File:|Update File:|End Patch)/.test(lines[at]!)) at++;
  return at;
}

function addedFile(path: string, lines: readonly string[], from: number, end: number): FilePatch {
  const section = lines.slice(from, end);
  while (section.at(-1)?.trim() === '') section.pop();
  const content = section.map((line, at) => {
    if (line.trim() === '') return '';
    if (!line.startsWith('+')) throw broken(from + at, `is in "*** Add File: ${path}", but does not start with "+"`);
    return line.slice(1);
  });
  return { type: 'add', path, lines: content, endsInNewline: true };
}

function updatedFile(path: string, lines: readonly string[], from: number, end: number): FilePatch {
  let at = from;
  const [, to] = /^\*\*\* Move to: (.*)$/s.exec(lines[at]?.trimEnd() ?? '') ?? [];
  if (to !== undefined) at++;
  const hunks: Hunk[] = [];
  while (at < end) {
    const first = at;
    const anchors: string[] = [];
    for (; at < end && lines[at]!.startsWith('@@'); at++) {
      const anchor = lines[at]!.slice(2)
        .replace(/@@\s*$/, '')
        .trim();
      // Numbers of a unified diff, which are not part of this format.
      if (anchor !== '' && !/^-\d+(,\d+)? \+\d+(,\d+)?$/.test(anchor) && !/^\.+$/.test(anchor)) anchors.push(anchor);
    }
    const body: string[] = [];
    let atEnd = false;
    for (; at < end && !lines[at]!.startsWith('@@') && !atEnd; at++) {
      const line = lines[at]!;
      if (line.trim() === '*** End of File') atEnd = true;
      else if (line.startsWith('\\ No newline')) continue;
      else if (line === '' || ' +-'.includes(line[0]!)) body.push(line);
      else throw broken(at, 'is in a hunk, but starts with none of " ", "+", "-" and "@@"');
    }
    const changes = hunkLines(body);
    if (changes.length === 0 && at === end) break;
    const hunk: Hunk = {
      name: `hunk ${hunks.length + 1}${anchors.length > 0 ? ` (@@ ${anchors.join(' / ').slice(0, 80)})` : ''}`,
      lines: changes,
      anchors,
      atEnd,
      endsWithout: { old: false, new: false },
    };
    demandChange(hunk, first);
    hunks.push(hunk);
  }
  if (hunks.length === 0 && to === undefined) throw broken(from - 1, 'has no hunks, so it changes nothing');
  return { type: 'update', path, ...(to !== undefined && to !== path && { to }), hunks };
}

/** "a/x b/x", if it is clear: git writes two names that are the same, unless other lines name them. */
function gitPaths(text: string): [string | undefined, string | undefined] {
  if (text.startsWith('"')) {
    const [, from, to] = /^("(?:[^"\\]|\\.)*") ("(?:[^"\\]|\\.)*"|\S.*)$/.exec(text) ?? [];
    return from === undefined ? [undefined, undefined] : [withoutPrefix(unquoted(from)), withoutPrefix(unquoted(to!))];
  }
  const half = (text.length - 1) / 2;
  const [from, to] = [text.slice(0, half), text.slice(half + 1)];
  if (text[half] === ' ' && withoutPrefix(from) === withoutPrefix(to)) return [withoutPrefix(from), withoutPrefix(to)];
  const words = text.split(' ');
  return words.length === 2 ? [withoutPrefix(words[0]!), withoutPrefix(words[1]!)] : [undefined, undefined];
}

/** Undefined for /dev/null. */
function headerPaths(oldText: string, newText: string, isGit: boolean): [string | undefined, string | undefined] {
  const [from, to] = [oldText, newText].map((text) => {
    const path = text.startsWith('"') ? unquoted(text) : text.split('\t', 1)[0]!.trimEnd();
    return path === '/dev/null' ? undefined : path;
  });
  const hasPrefix =
    isGit || ((from === undefined || from.startsWith('a/')) && (to === undefined || to.startsWith('b/')));
  const shown = (path: string | undefined): string | undefined =>
    path !== undefined && hasPrefix ? withoutPrefix(path) : path;
  return [shown(from), shown(to)];
}

function withoutPrefix(path: string): string {
  return path.replace(/^[abciow]\//, '');
}

/** A name as git quotes it: with the escapes of C, and bytes in octal. */
function unquoted(text: string): string {
  const [, quoted] = /^"(.*)"/.exec(text) ?? [];
  if (quoted === undefined) return text;
  const bytes: Buffer[] = [];
  for (const [part, octal, escaped] of quoted.matchAll(/\\([0-7]{3})|\\(.)|[^\\]+/g)) {
    if (octal !== undefined) bytes.push(Buffer.of(Number.parseInt(octal, 8) & 0xff));
    else bytes.push(Buffer.from(escaped === undefined ? part : (ESCAPES[escaped] ?? escaped)));
  }
  return Buffer.concat(bytes).toString();
}

const ESCAPES: Readonly<Record<string, string>> = { n: '\n', t: '\t', r: '\r', a: '\u0007', b: '\b', f: '\f', v: '\v' };

function broken(at: number, what: string): ToolError {
  return new ToolError(`Line ${at + 1} of the patch ${what}. Nothing was changed.`, 'invalid_params');
}
