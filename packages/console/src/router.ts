import { signal, type ReadonlySignal } from '@preact/signals';

/** Where the page is: the part of the address after `#`. `#/runs/resp_1/at/4?x=1` has the segments runs, resp_1, at and 4. */
export interface Place {
  readonly segments: readonly string[];
  readonly query: URLSearchParams;
}

const current = signal<Place>(placeOf(location.hash));
/** The address of the current place. */
let shown = location.hash;
addEventListener('hashchange', update);

function update(): void {
  shown = location.hash;
  current.value = placeOf(shown);
}

export const place: ReadonlySignal<Place> = current;

/** The address of a place, for links. Segments are encoded. */
export function hrefTo(...segments: readonly (string | number)[]): string {
  return `#/${segments.map((segment) => encodeURIComponent(segment)).join('/')}`;
}

/**
 * Goes to an address that `hrefTo` has made. `replace`: without a new entry in the history of the browser, and only if the user
 * has not followed a link, which the page learns of a moment later.
 */
export function navigate(href: string, { replace = false }: { readonly replace?: boolean } = {}): void {
  if (replace && location.hash !== shown) return;
  history[replace ? 'replaceState' : 'pushState'](null, '', href);
  update();
}

function placeOf(hash: string): Place {
  const [path = '', query = ''] = hash.replace(/^#?\/?/, '').split('?', 2);
  return { segments: path.split('/').filter(Boolean).map(decoded), query: new URLSearchParams(query) };
}

function decoded(segment: string): string {
  try {
    return decodeURIComponent(segment);
  } catch {
    return segment;
  }
}
