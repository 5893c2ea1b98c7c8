import { Transform } from 'node:stream';
import { StringDecoder } from 'node:string_decoder';

/** A terminal sends pasted text between PASTE_START and PASTE_END while this mode is on. */
export const PASTE_ON = '\u001b[?2004h';
export const PASTE_OFF = '\u001b[?2004l';

export const PASTE_START = '\u001b[200~';
export const PASTE_END = '\u001b[201~';
/** A terminal sends a mark at once. What has not become one by then are keys, such as Escape. */
const MARK_MS = 50;

/**
 * Keys of a terminal for a line editor, with each pasted text replaced by what `onPaste` returns. So a pasted line break does
 * not enter the line, and a pasted control character is not a command.
 */
export function pasteFilter(onPaste: (text: string) => string): Transform {
  const decoder = new StringDecoder('utf8');
  /** The pasted text so far; undefined: outside of one. */
  let pasted: string | undefined;
  /** The beginning of PASTE_START, or of PASTE_END, at the end of the last chunk. */
  let held = '';
  let timer: NodeJS.Timeout | undefined;
  return new Transform({
    transform(chunk: Buffer, _encoding, done) {
      clearTimeout(timer);
      let rest = held + decoder.write(chunk);
      let keys = '';
      held = '';
      while (rest !== '') {
        const mark: string = pasted === undefined ? PASTE_START : PASTE_END;
        const at = rest.indexOf(mark);
        let text = at < 0 ? rest : rest.slice(0, at);
        rest = at < 0 ? '' : rest.slice(at + mark.length);
        if (at < 0) {
          held = beginningAtEnd(text, mark);
          text = text.slice(0, text.length - held.length);
        }
        if (pasted === undefined) keys += text;
        else pasted += text;
        if (at < 0) break;
        if (pasted === undefined) pasted = '';
        else {
          keys += onPaste(pasted.replaceAll(/\r\n?/g, '\n'));
          pasted = undefined;
        }
      }
      if (held !== '' && pasted === undefined) {
        timer = setTimeout(() => {
          this.push(held);
          held = '';
        }, MARK_MS).unref();
      }
      done(null, keys);
    },
    flush(done) {
      clearTimeout(timer);
      done(null, held + decoder.end());
    },
  });
}

/** The end of a text that may be the beginning of a mark. */
export function beginningAtEnd(text: string, mark: string): string {
  for (let length = Math.min(mark.length - 1, text.length); length > 0; length--) {
    if (text.endsWith(mark.slice(0, length))) return mark.slice(0, length);
  }
  return '';
}
