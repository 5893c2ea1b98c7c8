import type { Framing } from './framing.ts';
import { lines } from './lines.ts';

/** One JSON value a line. A last line that lacks its end is given out: a protocol sees for itself whether it was cut. */
export const ndjson: Framing = {
  mediaType: 'application/x-ndjson',
  open: (onEvent) =>
    lines((line) => {
      if (line.trim() !== '') onEvent({ name: '', data: line });
    }),
};
