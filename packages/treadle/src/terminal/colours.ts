import { styleText } from 'node:util';
import type { Io } from './io.ts';

export interface Colours {
  plain(text: string): string;
  dim(text: string): string;
  red(text: string): string;
  bold(text: string): string;
}

/** Colours on a terminal, unless NO_COLOR is set (https://no-color.org). */
export function coloursFor(stream: { readonly isTTY?: boolean }, env: Io['env']): Colours {
  const on = hasColours(stream, env);
  const paint =
    (style: 'dim' | 'red' | 'bold') =>
    (text: string): string =>
      on ? styleText(style, text, { validateStream: false }) : text;
  return { plain: (text) => text, dim: paint('dim'), red: paint('red'), bold: paint('bold') };
}

export function hasColours(stream: { readonly isTTY?: boolean }, env: Io['env']): boolean {
  return stream.isTTY === true && !env['NO_COLOR'] && env['TERM'] !== 'dumb';
}
