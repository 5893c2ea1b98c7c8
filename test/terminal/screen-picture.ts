import type { Run } from './emulated-screen.ts';

const CHAR_WIDTH = 7.83;
const LINE_HEIGHT = 18;
const MARGIN = 16;

interface Theme {
  readonly background: string;
  readonly text: string;
  /** By the numbers that the chat uses. */
  readonly colours: Readonly<Record<number, string>>;
}

const THEMES: Readonly<Record<'dark' | 'light', Theme>> = {
  dark: {
    background: '#111820',
    text: '#d6deeb',
    colours: { 1: '#ff7b72', 2: '#7ee787', 3: '#e3b341', 5: '#d2a8ff', 6: '#76e3ea', 75: '#5fafff' },
  },
  light: {
    background: '#ffffff',
    text: '#1f2328',
    colours: { 1: '#b62324', 4: '#0550ae', 5: '#8250df', 28: '#008700', 30: '#008787', 130: '#af5f00' },
  },
};

/** What differs from one run of the suite to the next. */
const CHANGING: readonly (readonly [what: RegExp, instead: string])[] = [
  [/[⠋⠙⠹⠸⠼⠴⠦⠧⠇⠏]/g, '⠹'],
  [/\b\d+(\.\d+)? (ms|s)\b/g, '2 s'],
];

/** The lines of a terminal as SVG. The picture of the same screen is always the same. */
export function screenPicture(
  lines: readonly (readonly Run[])[],
  { title, theme, columns }: { readonly title: string; readonly theme: 'dark' | 'light'; readonly columns: number },
): string {
  const { background, text, colours } = THEMES[theme];
  const [width, height] = [Math.ceil(columns * CHAR_WIDTH) + 2 * MARGIN, (lines.length + 2) * LINE_HEIGHT + MARGIN];
  const rows = lines.flatMap((runs, row) => {
    let column = 0;
    return runs.flatMap((run) => {
      const shown = CHANGING.reduce((all, [what, instead]) => all.replaceAll(what, instead), run.text);
      const x = (MARGIN + column * CHAR_WIDTH).toFixed(1);
      column += run.columns + shown.length - run.text.length;
      if (shown.trim() === '') return [];
      const colour = run.colour === undefined ? undefined : colours[run.colour];
      if (run.colour !== undefined && colour === undefined) throw new Error(`No colour ${run.colour} in ${theme}`);
      const looks = [
        ...(run.bold ? ['font-weight="bold"'] : []),
        ...(run.italic ? ['font-style="italic"'] : []),
        ...(run.dim ? ['opacity="0.65"'] : []),
        ...(colour === undefined ? [] : [`fill="${colour}"`]),
      ];
      return `<text x="${x}" y="${(row + 3) * LINE_HEIGHT}"${looks.map((look) => ` ${look}`).join('')}>${escaped(shown)}</text>`;
    });
  });
  return `<svg xmlns="http://www.w3.org/2000/svg" width="${width}" height="${height}" viewBox="0 0 ${width} ${height}" role="img">
<title>${escaped(title)}</title>
<style>text{white-space:pre}</style>
<rect width="${width}" height="${height}" rx="8" fill="${background}" stroke="#8a99a8" stroke-opacity="0.4"/>
<circle cx="20" cy="18" r="5" fill="#ff5f57"/><circle cx="38" cy="18" r="5" fill="#febc2e"/><circle cx="56" cy="18" r="5" fill="#28c840"/>
<g font-family="ui-monospace,SFMono-Regular,Menlo,Consolas,monospace" font-size="13" fill="${text}">
${rows.join('\n')}
</g>
</svg>
`;
}

function escaped(text: string): string {
  return text.replaceAll('&', '&amp;').replaceAll('<', '&lt;');
}
