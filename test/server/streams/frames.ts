import type { StreamEvent } from '../open-responses/asking.ts';

/** Cuts a text that comes in pieces into its frames: what stands before each empty line. A large one costs no more. */
export function frameReader(onFrame: (frame: string) => void): (chunk: string) => void {
  let parts: string[] = [];
  // The last character waits: the end of a frame may be cut in two.
  let last = '';
  return (chunk) => {
    const text = last + chunk;
    let from = 0;
    for (let at = text.indexOf('\n\n'); at !== -1; at = text.indexOf('\n\n', from)) {
      parts.push(text.slice(from, at));
      onFrame(parts.join(''));
      parts = [];
      from = at + 2;
    }
    const rest = text.slice(from);
    last = rest.slice(-1);
    if (rest.length > 1) parts.push(rest.slice(0, -1));
  };
}

/** LF only, one line for the name and one for the data, and the name is the type. */
export function eventIn(frame: string): StreamEvent {
  const cut = frame.indexOf('\n');
  const [name, data] = [frame.slice(0, cut), frame.slice(cut + 1)];
  const isFramed = name.startsWith('event: ') && data.startsWith('data: ') && !/[\r\n]/.test(data);
  if (!isFramed || name.endsWith('\r')) throw new Error(`This is not one event: ${frame.slice(0, 1_000)}`);
  const event = JSON.parse(data.slice('data: '.length)) as StreamEvent;
  if (`event: ${event.type}` !== name) throw new Error(`${name} has the type ${event.type}.`);
  return event;
}
