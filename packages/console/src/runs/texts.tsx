import type { JSX } from 'preact';
import { useState } from 'preact/hooks';
import type { RunStatus } from '@treadle/core';
import { costText as formatCost, durationText } from '@treadle/core/describe';
import { numberText } from '../format.ts';
import type { RunModel } from './run-model.ts';

/** One line of at most `length` characters. */
export function oneLine(text: string, length: number): string {
  const line = text
    .slice(0, length * 2)
    .replaceAll(/\s+/g, ' ')
    .trim();
  return line.length > length || text.length > length * 2 ? `${line.slice(0, length - 1)}…` : line;
}

const CHIPS: Readonly<Record<RunStatus, readonly [style: string, label: string]>> = {
  running: ['info', 'Running'],
  paused: ['warn', 'Waiting'],
  completed: ['good', 'Completed'],
  exhausted: ['warn', 'Limit reached'],
  failed: ['bad', 'Failed'],
  cancelled: ['', 'Cancelled'],
};

export function StatusChip({ status }: { readonly status: RunStatus }): JSX.Element {
  const [style, label] = CHIPS[status];
  return (
    <span class={`chip ${style}`}>
      {status === 'running' && <span class="spinner" />}
      {label}
    </span>
  );
}

/** The status as a colour, and for screen readers as a text. */
export function StatusDot({ status }: { readonly status: RunStatus }): JSX.Element {
  const [style, label] = CHIPS[status];
  return (
    <>
      <span class={`dot ${style}`} />
      <span class="sr-only">{label}: </span>
    </>
  );
}

const RELATIVE = new Intl.RelativeTimeFormat('en', { numeric: 'auto', style: 'short' });
const UNITS = [
  ['day', 86_400_000],
  ['hour', 3_600_000],
  ['minute', 60_000],
] as const;

export function agoText(at: number, now: number = Date.now()): string {
  const ms = now - at;
  for (const [unit, size] of UNITS) if (ms >= size) return RELATIVE.format(-Math.floor(ms / size), unit);
  return 'just now';
}

/** The time in which a run was not only waiting. */
export function activeText({ shown }: RunModel): string {
  const state = shown.findLast(({ states }) => states)?.states?.state;
  return state ? durationText(state.activeMs) : '';
}

/** Empty if no price is known. */
export function costText(cost: number | null | undefined): string {
  return cost === null || cost === undefined ? '' : formatCost(cost);
}

/** Texts longer than this are shown in part first. */
const SHOWN_CHARS = 8_000;

/** A text as it is, with its spaces. */
export function Exact({ text, label }: { readonly text: string; readonly label?: string }): JSX.Element {
  const [isWhole, showWhole] = useState(false);
  const shown = isWhole || text.length <= SHOWN_CHARS ? text : text.slice(0, SHOWN_CHARS);
  return (
    <>
      <pre class="exact" tabIndex={0} role="group" aria-label={label ?? 'Text'}>
        {shown}
      </pre>
      {shown !== text && (
        <button type="button" class="link-button small" onClick={() => showWhole(true)}>
          Show all {numberText(text.length)} characters
        </button>
      )}
    </>
  );
}
