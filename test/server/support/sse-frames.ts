import type { StreamEvent } from './responses-client.ts';

/** Splits text that arrives in chunks into frames, at each empty line. The cost is linear, also for a large frame. */
export function frameReader(onFrame: (frame: string) => void): (chunk: string) => void {
  let parts: string[] = [];
  // The last character is held back: the end of a frame may be split between two chunks.
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

/** Requires LF only, one `event` line and one `data` line, and that the event name is the type. */
export function parseEventFrame(frame: string): StreamEvent {
  const cut = frame.indexOf('\n');
  const [name, data] = [frame.slice(0, cut), frame.slice(cut + 1)];
  const isFramed = name.startsWith('event: ') && data.startsWith('data: ') && !/[\r\n]/.test(data);
  if (!isFramed || name.endsWith('\r')) throw new Error(`The frame is not one event: ${frame.slice(0, 1_000)}`);
  const event = JSON.parse(data.slice('data: '.length)) as StreamEvent;
  if (`event: ${event.type}` !== name) throw new Error(`${name} has the type ${event.type}.`);
  return event;
}
