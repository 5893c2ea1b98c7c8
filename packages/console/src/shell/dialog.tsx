import type { ComponentChildren, JSX } from 'preact';
import { useLayoutEffect, useRef } from 'preact/hooks';
import { Icon } from './icon.tsx';

export interface DialogProps {
  readonly title: string;
  /** Called when the user closes it, also with Escape. */
  readonly onClose: () => void;
  readonly children: ComponentChildren;
}

/** A modal dialog. It is open as long as it is rendered. */
export function Dialog({ title, onClose, children }: DialogProps): JSX.Element {
  const element = useRef<HTMLDialogElement>(null);
  // Before anything else happens, so that a key that is pressed at once is for the dialog.
  useLayoutEffect(() => element.current!.showModal(), []);
  return (
    <dialog
      ref={element}
      class="dialog"
      aria-label={title}
      onClose={onClose}
      onClick={({ target }) => target === element.current && element.current?.close()}
    >
      <div class="dialog-body">
        <header class="dialog-head">
          <h2>{title}</h2>
          <button type="button" class="icon-button" aria-label="Close" onClick={() => element.current!.close()}>
            <Icon name="close" />
          </button>
        </header>
        {children}
      </div>
    </dialog>
  );
}
