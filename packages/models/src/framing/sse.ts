import type { Framing } from './framing.ts';
import { lines } from './lines.ts';

/**
 * Server-sent events, as far as model providers use them: `data` and `event` fields and comments. Unlike a browser, an
 * event that the end of the bytes leaves open is given out: some hosts forget the last blank line, and a protocol sees
 * for itself whether the data was cut.
 */
export const sse: Framing = {
  mediaType: 'text/event-stream',
  open(onEvent) {
    let name = '';
    let data: string | undefined;

    const dispatch = (): void => {
      if (data !== undefined) onEvent({ name, data });
      name = '';
      data = undefined;
    };

    const { feed, end } = lines((line) => {
      if (line === '') return dispatch();
      const colon = line.indexOf(':');
      if (colon === 0) return;
      const field = colon === -1 ? line : line.slice(0, colon);
      if (field !== 'data' && field !== 'event') return;
      const value = colon === -1 ? '' : line.slice(line.charCodeAt(colon + 1) === 32 ? colon + 2 : colon + 1);
      if (field === 'event') name = value;
      else data = data === undefined ? value : `${data}\n${value}`;
    });

    return {
      feed,
      end() {
        end();
        dispatch();
      },
    };
  },
};
