import { signal } from '@preact/signals';
import type { JSX } from 'preact';
import { useLayoutEffect } from 'preact/hooks';
import { Dialog } from './dialog.tsx';

/** A key that does something while its view is shown. */
export interface Shortcut {
  /** `KeyboardEvent.key`, with `Mod+` for Ctrl, or Command on a Mac. Keys without it do nothing while the user types. */
  readonly keys: string;
  readonly label: string;
  readonly run: () => void;
}

const registered = signal<readonly { readonly title: string; readonly shortcuts: readonly Shortcut[] }[]>([]);
const isHelpOpen = signal(false);
const isMac = /Mac|iPhone|iPad/.test(navigator.platform);

/** Adds shortcuts while the component is rendered. `title`: their heading in the help. */
export function useShortcuts(title: string, shortcuts: readonly Shortcut[]): void {
  // What can be seen can be used.
  useLayoutEffect(() => {
    const group = { title, shortcuts };
    registered.value = [...registered.value.filter((one) => one.title !== title), group];
    return () => {
      registered.value = registered.value.filter((one) => one !== group);
    };
  });
}

export function openShortcutHelp(): void {
  isHelpOpen.value = true;
}

function isTyping(target: EventTarget | null): boolean {
  return (
    target instanceof HTMLElement && (target.isContentEditable || /^(INPUT|TEXTAREA|SELECT)$/.test(target.tagName))
  );
}

addEventListener('keydown', (event) => {
  if (event.defaultPrevented || event.isComposing || document.querySelector('dialog[open]')) return;
  const hasModifier = isMac ? event.metaKey : event.ctrlKey;
  const name = `${hasModifier ? 'Mod+' : ''}${event.key.length === 1 ? event.key.toLowerCase() : event.key}`;
  if ((!hasModifier && isTyping(event.target) && event.key !== 'Escape') || event.altKey) return;
  const found = registered.value.flatMap(({ shortcuts }) => shortcuts).findLast(({ keys }) => keys === name);
  if (!found) return;
  event.preventDefault();
  found.run();
});

/** All shortcuts, over the page. */
export function ShortcutHelp(): JSX.Element | null {
  if (!isHelpOpen.value) return null;
  return (
    <Dialog title="Keyboard shortcuts" onClose={() => (isHelpOpen.value = false)}>
      {registered.value.map(({ title, shortcuts }) => (
        <section key={title}>
          <h3>{title}</h3>
          <dl class="shortcuts">
            {shortcuts.map(({ keys, label }) => (
              <div key={keys}>
                <dt>{label}</dt>
                <dd>
                  {keys.split('+').map((key) => (
                    <kbd key={key}>{keyName(key)}</kbd>
                  ))}
                </dd>
              </div>
            ))}
          </dl>
        </section>
      ))}
    </Dialog>
  );
}

function keyName(key: string): string {
  if (key === 'Mod') return isMac ? '⌘' : 'Ctrl';
  const names: Readonly<Record<string, string>> = {
    Escape: 'Esc',
    ArrowUp: '↑',
    ArrowDown: '↓',
    ArrowLeft: '←',
    ArrowRight: '→',
  };
  return names[key] ?? (key.length === 1 ? key.toUpperCase() : key);
}
