import type { Framing } from './framing.ts';
import { lines } from './lines.ts';

const SPACE = 32;

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

    const take = (field: string, value: string): void => {
      if (field === 'data') data = data === undefined ? value : `${data}\n${value}`;
      else if (field === 'event') name = value;
    };

    const { feed, end } = lines((line) => {
      if (line === '') return dispatch();
      if (line.startsWith('data:')) return take('data', valueAfter(line, 4));
      const colon = line.indexOf(':');
      if (colon === -1) take(line, '');
      else take(line.slice(0, colon), valueAfter(line, colon));
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

function valueAfter(line: string, colon: number): string {
  return line.slice(line.charCodeAt(colon + 1) === SPACE ? colon + 2 : colon + 1);
}
