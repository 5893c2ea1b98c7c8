import { useSignal } from '@preact/signals';
import type { ChangeObject } from 'diff';
import type { JSX } from 'preact';
import { useEffect, useMemo } from 'preact/hooks';
import { exactText, numberText } from '../format.ts';
import { Icon } from './icon.tsx';

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

type Change = Pick<ChangeObject<string>, 'value' | 'added' | 'removed'>;

/** The lines that differ between two texts. Until what compares them is loaded, they are shown as wholly different. */
export function TextDiff({ before, after, label }: TextDiffProps): JSX.Element {
  const compared = useSignal<(Omit<TextDiffProps, 'label'> & { readonly changes: readonly Change[] }) | undefined>(
    undefined,
  );
  useEffect(() => {
    if (before === '' || after === '') return;
    import('./diff-lines.ts').then(
      ({ diffLines }) => {
        const changes = diffLines(before, after, { timeout: TIMEOUT_MS });
        if (changes) compared.value = { before, after, changes };
      },
      // They stay wholly different.
      () => {},
    );
  }, [before, after, compared]);
  const found = compared.value?.before === before && compared.value.after === after ? compared.value : undefined;
  const lines = useMemo(() => changedLines(found?.changes ?? replaced(before, after)), [before, after, found]);
  return <DiffLines lines={lines} label={label} />;
}

function replaced(before: string, after: string): readonly Change[] {
  const changes = [
    { value: before, removed: true, added: false },
    { value: after, removed: false, added: true },
  ];
  return changes.filter(({ value }) => value !== '');
}

/** A patch in unified format. */
export function PatchText({ patch, label }: { readonly patch: string; readonly label: string }): JSX.Element {
  const lines = useMemo(() => patch.split('\n').map(patchLine), [patch]);
  return <DiffLines lines={lines} label={label} />;
}

function patchLine(text: string): DiffLine {
  if (/^(\+\+\+|---|@@|\*\*\*)/.test(text)) return { type: 'gap', text };
  if (text.startsWith('+')) return { type: 'added', text: text.slice(1) };
  if (text.startsWith('-')) return { type: 'removed', text: text.slice(1) };
  return { type: 'same', text: text.replace(/^ /, '') };
}

/** How many lines are shown at first. With each request for more, ten times as many are. */
const FIRST_LINES = 500;

function DiffLines({ lines, label }: { readonly lines: readonly DiffLine[]; readonly label: string }): JSX.Element {
  const most = useSignal(FIRST_LINES);
  const hidden = lines.length - most.value;
  return (
    <>
      <div class="diff" role="group" aria-label={label} tabIndex={0}>
        {lines.slice(0, most.value).map(({ type, text }, index) => (
          <div key={index} class={`diff-line ${type}`}>
            <span class="diff-mark" aria-label={NAMES[type]} role={NAMES[type] && 'img'}>
              {MARKS[type]}
            </span>
            <span class="diff-text">{exactText(text)}</span>
          </div>
        ))}
      </div>
      {hidden > 0 && (
        <p class="diff-more">
          <Icon name="warning" size={16} />
          <span>
            {numberText(hidden)} of {numberText(lines.length)} lines are not shown.
          </span>
          <button type="button" class="button small-button" onClick={() => (most.value *= 10)}>
            Show {hidden > 9 * most.value ? `${numberText(9 * most.value)} more` : 'the rest'}
          </button>
        </p>
      )}
    </>
  );
}

function changedLines(changes: readonly Change[]): readonly DiffLine[] {
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
