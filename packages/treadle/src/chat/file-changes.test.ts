import { execFileSync } from 'node:child_process';
import { mkdtempSync, rmSync, unlinkSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, beforeEach, describe, expect, test } from 'vitest';
import { lineText, type Line } from '../screen/spans.ts';
import { changesElsewhere, fileChanges, type FileChanges } from './file-changes.ts';

let folder: string;
let changes: FileChanges;
beforeEach(() => {
  folder = mkdtempSync(join(tmpdir(), 'treadle-changes-'));
  writeFileSync(join(folder, 'a.txt'), 'one\ntwo\nthree\nfour\nfive\nsix\n');
  changes = fileChanges(folder);
});
afterEach(() => rmSync(folder, { recursive: true }));

const texts = (lines: readonly Line[] = []): readonly string[] => lines.map(lineText);
const call = (name: string, given: object): { id: string; type: 'tool-call'; name: string; arguments: string } => ({
  type: 'tool-call',
  id: 'c',
  name,
  arguments: JSON.stringify(given),
});

const answered = (one: ReturnType<typeof call>, isError = false): Parameters<FileChanges['end']>[0] => ({
  call: one,
  result: { type: 'result', content: [], isError } as never,
});

describe('before a call runs', () => {
  test('a write is compared with the file, and its content is not shown twice', () => {
    const preview = changes.preview(
      call('write', { path: 'a.txt', content: 'one\nTWO\nthree\nfour\nfive\nsix\n', overwrite: true }),
      60,
    );
    expect(texts(preview?.lines)).toEqual([
      '  a.txt +1 -1',
      '  1   one',
      '  2 - two',
      '  2 + TWO',
      '  3   three',
      '  4   four',
      '  5   five',
    ]);
    expect(preview?.call).toEqual({ name: 'write', arguments: '{"path":"a.txt","overwrite":true}' });
  });

  test('a new file is shown whole', () => {
    const preview = changes.preview(call('write', { path: 'b.txt', content: 'x\n' }), 60);
    expect(texts(preview?.lines)).toEqual(['  b.txt (new) +1 -0', '  1 + x']);
  });

  test('edits are shown at their lines', () => {
    const edits = [
      { old_text: 'one', new_text: '1' },
      { old_text: 'six\n', new_text: '' },
    ];
    expect(texts(changes.preview(call('edit', { path: 'a.txt', edits }), 60)?.lines)).toEqual([
      '  a.txt +1 -2',
      '  1 - one',
      '  1 + 1',
      '  2   two',
      '  3   three',
      '  4   four',
      '  5   five',
      '  6 - six',
    ]);
  });

  test('an edit that matches in another way is shown as its texts', () => {
    const edit = { path: 'a.txt', old_text: 'nowhere', new_text: 'here' };
    expect(texts(changes.preview(call('edit', edit), 60)?.lines)).toContain('  - nowhere');
  });

  test('a patch is shown as it is, with everything visible', () => {
    const patch = '*** Begin Patch\n*** Update File: a.txt\n@@\n-two\n+t\u202ewo\n*** End Patch';
    const lines = changes.preview(call('apply_patch', { patch }), 60)?.lines ?? [];
    expect(texts(lines)).toContain('  + t\\u202ewo');
    expect(lines.find((line) => lineText(line).includes('- two'))?.at(-1)?.styles).toEqual(['red']);
  });

  test('other calls, and arguments of another form, have none', () => {
    expect(changes.preview(call('bash', { command: 'ls' }), 60)).toBeUndefined();
    expect(changes.preview(call('write', { path: 1 }), 60)).toBeUndefined();
    expect(changes.preview({ name: 'write', arguments: '{' }, 60)).toBeUndefined();
  });
});

test('after a call, what has really changed is shown', () => {
  const edit = call('edit', { path: 'a.txt', old_text: 'x', new_text: 'y' });
  changes.start(edit);
  writeFileSync(join(folder, 'a.txt'), 'one\ntwo\nthree\nfour\nfive\nsix');
  expect(texts(changes.end(answered(edit), 60)).slice(-3)).toEqual([
    '  6 - six',
    '  6 + six',
    '    \\  No newline at end of file',
  ]);
  expect(changes.end(answered(edit), 60)).toEqual([]);
  changes.start(edit);
  unlinkSync(join(folder, 'a.txt'));
  expect(texts(changes.end(answered(edit), 60))[0]).toBe('  a.txt (removed) +0 -6');
});

test.runIf(process.platform === 'linux')('a pipe is not read', () => {
  execFileSync('mkfifo', [join(folder, 'pipe')]);
  const write = call('write', { path: 'pipe', content: 'x' });
  changes.start(write);
  expect(changes.end(answered(write), 60)).toEqual([]);
});

describe('if the files are elsewhere', () => {
  const elsewhere = changesElsewhere();

  test('a write shows the whole file, before and after', () => {
    const write = call('write', { path: 'a.txt', content: 'one\n\u202etwo\n', overwrite: true });
    const preview = elsewhere.preview(write, 60);
    expect(texts(preview?.lines)).toEqual(['  a.txt (the whole file)', '  1 + one', '  2 + \\u202etwo']);
    expect(preview?.call.arguments).toBe('{"path":"a.txt","overwrite":true}');
    expect(elsewhere.end(answered(write), 60)).toEqual(preview?.lines);
    expect(elsewhere.end(answered(write, true), 60)).toEqual([]);
  });

  test('an edit shows its texts, without the numbers of lines', () => {
    const edits = [
      { old_text: 'a\nb\nc', new_text: 'a\nB\nc' },
      { old_text: 'x', new_text: 'y' },
    ];
    expect(texts(elsewhere.preview(call('edit', { path: 'a.txt', edits }), 60)?.lines)).toEqual([
      '  a.txt +1 -1',
      '    a',
      '  - b',
      '  + B',
      '    c',
      '  a.txt +1 -1',
      '  - x',
      '  + y',
    ]);
  });
});
