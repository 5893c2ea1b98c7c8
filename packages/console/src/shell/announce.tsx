import { signal } from '@preact/signals';
import type { JSX } from 'preact';

const spoken = signal('');
const shown = signal<readonly { readonly id: number; readonly text: string }[]>([]);
let last = 0;

/** Tells screen readers something that people see anyway. */
export function announce(text: string): void {
  // The same text again is announced again.
  spoken.value = spoken.value === text ? `${text}\u00a0` : text;
}

const SHOWN_MS = 6_000;

/** Shows a short message for a few seconds. */
export function notify(text: string): void {
  const id = ++last;
  shown.value = [...shown.value, { id, text }];
  setTimeout(() => (shown.value = shown.value.filter((one) => one.id !== id)), SHOWN_MS);
}

export function Announcements(): JSX.Element {
  return (
    <>
      <div class="sr-only" role="status">
        {spoken.value}
      </div>
      <div class="toasts" role="status">
        {shown.value.map(({ id, text }) => (
          <p key={id} class="toast">
            {text}
          </p>
        ))}
      </div>
    </>
  );
}
