import { effect, signal, type ReadonlySignal } from '@preact/signals';

/** `auto`: that of the system. */
export type Theme = 'auto' | 'light' | 'dark';

const KEY = 'treadle.theme';
const THEMES: readonly Theme[] = ['auto', 'light', 'dark'];
const chosen = signal<Theme>(THEMES.find((one) => one === localStorage.getItem(KEY)) ?? 'auto');

export const theme: ReadonlySignal<Theme> = chosen;

export function chooseNextTheme(): void {
  chosen.value = THEMES[(THEMES.indexOf(chosen.value) + 1) % THEMES.length]!;
  localStorage.setItem(KEY, chosen.value);
}

effect(() => {
  if (chosen.value === 'auto') delete document.documentElement.dataset['theme'];
  else document.documentElement.dataset['theme'] = chosen.value;
});
