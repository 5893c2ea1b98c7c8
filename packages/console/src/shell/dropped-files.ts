import type { Signal } from '@preact/signals';

/*
 * Files that are dropped anywhere on the page. The browser would open them, and leave the page, so the page always takes the
 * event: also if no part of it wants files.
 */

interface Taker {
  readonly add: (files: readonly File[]) => void;
  /** Files are over the page. */
  readonly isOver: Signal<boolean>;
}

let taker: Taker | undefined;

/** Passes dropped files on until the returned function is called. */
export function takeDroppedFiles(given: Taker): () => void {
  taker = given;
  return () => {
    given.isOver.value = false;
    if (taker === given) taker = undefined;
  };
}

const hasFiles = ({ dataTransfer }: DragEvent): boolean => dataTransfer?.types.includes('Files') ?? false;

function setOver(isOver: boolean): void {
  if (taker) taker.isOver.value = isOver;
}

addEventListener('dragover', (event) => {
  if (!hasFiles(event)) return;
  event.preventDefault();
  event.dataTransfer!.dropEffect = taker ? 'copy' : 'none';
  setOver(true);
});
// It leaves the window.
addEventListener('dragleave', ({ relatedTarget }) => relatedTarget ?? setOver(false));
addEventListener('drop', (event) => {
  setOver(false);
  if (!hasFiles(event)) return;
  event.preventDefault();
  taker?.add([...event.dataTransfer!.files]);
});
