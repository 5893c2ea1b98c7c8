import { diffLines } from 'diff';
import type { JSX } from 'preact';
import { useMemo } from 'preact/hooks';
import { exactText } from '../format.ts';

interface DiffLine {
  readonly type: 'same' | 'added' | 'removed' | 'gap';
  readonly text: string;
}

const MARKS = { same: ' ', added: '+', removed: '-', gap: ' ' } as const;
const NAMES = { same: undefined, added: 'added', removed: 'removed', gap: undefined } as const;
/** Unchanged lines around a change. */
const AROUND = 3;
/** After this time the texts are shown as wholly different. */
const TIMEOUT_MS = 200;

export interface TextDiffProps {
  readonly before: string;
  readonly after: string;
  readonly label: string;
}

/** The lines that differ between two texts. */
export function TextDiff({ before, after, label }: TextDiffProps): JSX.Element {
  const lines = useMemo(() => changedLines(before, after), [before, after]);
  return <DiffLines lines={lines} label={label} />;
}

/** A patch in unified format. */
export function PatchText({ patch, label }: { readonly patch: string; readonly label: string }): JSX.Element {
  const lines = patch.split('\n').map((text): DiffLine => {
    if (/^(\+\+\+|---|@@|\*\*\*)/.test(text)) return { type: 'gap', text };
    if (text.startsWith('+')) return { type: 'added', text: text.slice(1) };
    return text.startsWith('-')
      ? { type: 'removed', text: text.slice(1) }
      : { type: 'same', text: text.replace(/^ /, '') };
  });
  return <DiffLines lines={lines} label={label} />;
}

function DiffLines({ lines, label }: { readonly lines: readonly DiffLine[]; readonly label: string }): JSX.Element {
  return (
    <div class="diff" role="group" aria-label={label} tabIndex={0}>
      {lines.map(({ type, text }, index) => (
        <div key={index} class={`diff-line ${type}`}>
          <span class="diff-mark" aria-label={NAMES[type]} role={NAMES[type] && 'img'}>
            {MARKS[type]}
          </span>
          <span class="diff-text">{exactText(text)}</span>
        </div>
      ))}
    </div>
  );
}

function changedLines(before: string, after: string): readonly DiffLine[] {
  const changes = diffLines(before, after, { timeout: TIMEOUT_MS }) ?? [
    { value: before, removed: true, added: false },
    { value: after, removed: false, added: true },
  ];
  const all = changes.flatMap(({ value, added, removed }) =>
    value
      .replace(/\n$/, '')
      .split('\n')
      .map((text): DiffLine => ({ type: added ? 'added' : removed ? 'removed' : 'same', text })),
  );
  const isNear = (index: number): boolean =>
    all.slice(Math.max(0, index - AROUND), index + AROUND + 1).some(({ type }) => type !== 'same');
  const shown: DiffLine[] = [];
  for (const [index, line] of all.entries()) {
    if (isNear(index)) shown.push(line);
    else if (shown.at(-1)?.type !== 'gap') shown.push({ type: 'gap', text: '…' });
  }
  return shown;
}
