import { tool, type Tool, type ToolContext, type Touch, type Verification } from '@treadle/core';
import type { Ops } from '../ops.ts';
import { timeoutFor, timeoutParameter } from '../call-limits.ts';
import { ToolError } from '../tool-error.ts';
import { JobError, runJob } from '../workers/run-job.ts';
import { count, linesIn } from './listing.ts';
import { fileKey, readFiles, versionOf } from './read-files.ts';
import {
  applyEdits,
  cutLine,
  lineAt,
  lineFeeds,
  MAX_PLACES,
  type Edit,
  type Edited,
  type Unplaced,
} from './text-edits.ts';
import { contentOf, demandStorable, readWhole, textOf } from './whole-text.ts';
import { workspace, type Workspace } from './workspace.ts';

const MAX_EDITS = 100;
/** Edits of shorter texts take a few milliseconds, less than a thread needs to start. */
const MAX_CHARS_HERE = 200_000;

interface EditInput extends Partial<Edit> {
  readonly path: string;
  readonly edits?: readonly Edit[];
}

const EDIT_PROPERTIES = {
  old_text: {
    type: 'string',
    description:
      'The text to replace, exactly as it is in the file, with its indentation and without line numbers. It must occur ' +
      'once: include lines before and after it until it does.',
  },
  new_text: { type: 'string', description: 'The text to put there; empty to remove the old text' },
  replace_all: { type: 'boolean', description: 'Replace every occurrence of old_text; default false' },
} as const;

export function editTool({ files }: Pick<Ops, 'files'>): Tool {
  const space = workspace(files);
  return tool({
    name: 'edit',
    description:
      'Replace text in a file of the working folder. old_text must match exactly and only once; otherwise nothing is ' +
      'changed, and the error shows where it occurs or what is there instead. For several changes of one file give ' +
      'edits instead of old_text and new_text: all are applied, or none. Each is matched against the file as it is before ' +
      'the call. Line ends and the file mode are kept. Returns a diff. To create a file use write; to change several ' +
      'files at once use apply_patch.',
    input: {
      type: 'object',
      properties: {
        path: { type: 'string', description: 'Path relative to the working folder' },
        ...EDIT_PROPERTIES,
        edits: {
          type: 'array',
          minItems: 1,
          maxItems: MAX_EDITS,
          description: 'Several replacements in the file, which must not overlap',
          items: {
            type: 'object',
            properties: EDIT_PROPERTIES,
            required: ['old_text', 'new_text'],
            additionalProperties: false,
          },
        },
        timeout_ms: timeoutParameter('files'),
      },
      required: ['path'],
      additionalProperties: false,
    },
    effect: 'once',
    touches: (input) => touchesOf(input as unknown as EditInput),
    permissions: ['file_read', 'file_write'],
    remembers: ({ path }) => [fileKey(space, path)],
    timeoutMs: timeoutFor('files'),
    execute: (input, context) => edit(space, input as unknown as EditInput, context),
    verify: (input, context) => verifyEdit(space, input as unknown as EditInput, context),
  });
}

/** How often a text is replaced is not known before the file is read. */
function touchesOf({ path, edits, ...edit }: EditInput): readonly Touch[] {
  const all = edits ?? [edit];
  const isKnown = all.every(({ new_text: text, replace_all: everywhere }) => typeof text === 'string' && !everywhere);
  const lines = isKnown && { lines: all.reduce((sum, { new_text: text }) => sum + linesIn(text!), 0) };
  return [
    { type: 'read', path },
    { type: 'write', path, ...lines },
  ];
}

async function edit(space: Workspace, input: EditInput, context: ToolContext): Promise<string> {
  const { signal } = context;
  const edits = editsOf(input);
  const whole = await readWhole(space, input.path, signal);
  const stored = textOf(whole.bytes, input.path);
  const result = await applied(stored.text, edits, signal);
  if (result.type === 'unplaced') throw await unplaced(result, lineFeeds(stored.text), input, signal);
  const { text, replacements, diff } = result;
  if (text === stored.text)
    throw new ToolError('The edits change nothing: new_text is what is there.', 'invalid_params');

  const known = readFiles(space, context);
  const { shown, stamp } = whole.file;
  const state = known.compare(input.path, versionOf(whole.bytes));
  const content = contentOf(stored, text);
  signal.throwIfAborted();
  await space.write(input.path, content, { stamp });
  // Who has not seen the rest of the file, or not its current content, has not seen it by an edit.
  if (state === 'same') known.note(input.path, versionOf(content));
  return [
    `Edited ${JSON.stringify(shown)}: ${count(replacements, 'replacement')}.`,
    ...(state === 'changed'
      ? ['The file has changed since you last read it. Read it again before you rely on what you know of it.']
      : []),
    diff,
  ].join('\n');
}

async function applied(raw: string, edits: readonly Edit[], signal: AbortSignal): Promise<Edited | Unplaced> {
  if (raw.length < MAX_CHARS_HERE) return applyEdits({ raw, edits });
  return runJob('applyEdits', { raw, edits }, signal).catch((error: unknown) => {
    if (!(error instanceof JobError)) throw error;
    throw new ToolError(
      `The edits cannot be made: ${error.message} Nothing was changed. Use a command such as sed.`,
      'execution_failed',
      { cause: error },
    );
  });
}

/** Whether an interrupted edit was applied. */
async function verifyEdit(space: Workspace, input: EditInput, context: ToolContext): Promise<Verification> {
  const edits = editsOf(input);
  const whole = await readWhole(space, input.path, context.signal);
  const stored = textOf(whole.bytes, input.path);
  const text = lineFeeds(stored.text);
  const state = readFiles(space, context).compare(input.path, versionOf(whole.bytes));
  const applies = (await applied(stored.text, edits, context.signal)).type === 'edited';
  // What the run knows is the content before the edit, because an interrupted call has recorded nothing.
  if (state === 'same') return { type: applies ? 'not-done' : 'unknown' };
  const isThere = edits.every(({ old_text, new_text }) => {
    const [before, after] = [lineFeeds(old_text), lineFeeds(new_text)];
    return after !== '' && text.includes(after) && !text.replaceAll(after, '\0').includes(before);
  });
  const result = `Edited ${JSON.stringify(whole.file.shown)}. The call was interrupted; the file has the new text.`;
  if (isThere && (!applies || state === 'changed')) return { type: 'done', result };
  // If the new text contains the old one, an edit that was applied could be applied again.
  return { type: applies && !isThere ? 'not-done' : 'unknown' };
}

function editsOf({
  edits,
  old_text: oldText = '',
  new_text: newText = '',
  replace_all: all,
}: EditInput): readonly Edit[] {
  if (edits && (oldText !== '' || newText !== '')) {
    throw new ToolError('Give either old_text and new_text, or edits, not both.', 'invalid_params');
  }
  const asked: readonly Edit[] = edits ?? [{ old_text: oldText, new_text: newText, ...(all && { replace_all: all }) }];
  for (const [index, { old_text: before, new_text: after }] of asked.entries()) {
    const which = nameOf(index, asked.length);
    if (before === '') {
      throw new ToolError(
        `${which} is empty. Give the text to replace, exactly as it is in the file; to insert text, ` +
          `replace a line beside it; to create a file or to replace all of it, use write.`,
        'invalid_params',
      );
    }
    if (before === after)
      throw new ToolError(`${which} and its new_text are the same: nothing would change.`, 'invalid_params');
    demandStorable('new_text', after);
  }
  return asked;
}

function nameOf(index: number, of: number): string {
  return of === 1 ? 'old_text' : `old_text of edits[${index}]`;
}

async function unplaced(
  { problem, index, wanted, places, of }: Unplaced,
  text: string,
  { path }: EditInput,
  signal: AbortSignal,
): Promise<ToolError> {
  const which = nameOf(index, of);
  const file = JSON.stringify(path);
  if (problem === 'overlap') {
    return new ToolError(
      `${which} overlaps another edit at line ${lineAt(text, places[0]!)} of ${file}. Nothing was changed. Join the two edits.`,
      'invalid_params',
    );
  }
  if (problem === 'ambiguous') {
    const lines = text.split('\n');
    const shown = places.slice(0, MAX_PLACES).map((place) => {
      const line = lineAt(text, place);
      return `${line}\t${cutLine(lines[line - 1]!)}`;
    });
    const number = places.length > MAX_PLACES ? `more than ${MAX_PLACES} times` : `${places.length} times`;
    return new ToolError(
      `${which} occurs ${number} in ${file}, so it is not clear which one is meant. Nothing was changed. Include more ` +
        `lines around it, or set replace_all. It starts at these lines:\n${shown.join('\n')}`,
    );
  }
  const hint = wanted.split('\n').every((line) => /^\s*\d+\t/.test(line))
    ? ' It seems to contain line numbers, which are not part of the file: leave them out.'
    : '';
  const near = await runJob('nearestBlock', { text, wanted }, signal);
  if (!near) {
    return new ToolError(
      `${which} does not occur in ${file}, and nothing there is similar. Nothing was changed.${hint} Read the file, and ` +
        `copy the text from it.`,
    );
  }
  const difference = near.difference ? `; it differs only in ${near.difference}` : '';
  return new ToolError(
    `${which} does not occur in ${file}. Nothing was changed.${hint} The nearest text is at line ${near.line}${difference}. ` +
      `Use what is there (+) instead of what you gave (-):\n${near.diff.join('\n')}`,
  );
}
