import type { HLJSApi } from 'highlight.js';
import { span, type Line, type Span, type Style } from './spans.ts';
import type { Highlight } from './markdown.ts';

/** The styles of the classes of highlight.js. Others are inherited. */
const STYLES: Readonly<Record<string, Style>> = {
  keyword: 'magenta',
  built_in: 'cyan',
  type: 'cyan',
  literal: 'yellow',
  number: 'yellow',
  symbol: 'yellow',
  regexp: 'red',
  string: 'green',
  char: 'green',
  comment: 'dim',
  doctag: 'dim',
  meta: 'dim',
  title: 'blue',
  function: 'blue',
  section: 'blue',
  name: 'blue',
  tag: 'blue',
  attr: 'cyan',
  attribute: 'cyan',
  property: 'cyan',
  variable: 'cyan',
  'selector-class': 'cyan',
  'selector-id': 'cyan',
  addition: 'green',
  deletion: 'red',
};

/** Longer code is shown without colours: nobody waits for them. */
const MAX_CHARS = 20_000;

/** The common languages. Loaded with the first code: that takes longer than the start of a chat. */
export async function loadHighlight(): Promise<Highlight> {
  const { default: library } = await import('highlight.js/lib/common');
  return highlightWith(library);
}

function highlightWith(library: HLJSApi): Highlight {
  return (code, language) => {
    if (language === '' || code.length > MAX_CHARS || !library.getLanguage(language)) return undefined;
    return htmlLines(library.highlight(code, { language, ignoreIllegals: true }).value);
  };
}

const ENTITIES: Readonly<Record<string, string>> = {
  '&amp;': '&',
  '&lt;': '<',
  '&gt;': '>',
  '&quot;': '"',
  '&#x27;': "'",
};

/** What highlight.js writes: text with entities, and spans inside each other. */
function htmlLines(html: string): readonly Line[] {
  const lines: Span[][] = [[]];
  const styles: (Style | undefined)[] = [];
  for (const [piece, opened, closed] of html.matchAll(/<span class="([^"]*)">|(<\/span>)|[^<]+/g)) {
    if (opened !== undefined) styles.push(styleOf(opened) ?? styles.at(-1));
    else if (closed !== undefined) styles.pop();
    else {
      const style = styles.at(-1);
      const text = piece.replace(/&(?:amp|lt|gt|quot|#x27);/g, (entity) => ENTITIES[entity]!);
      for (const [index, part] of text.split('\n').entries()) {
        if (index > 0) lines.push([]);
        if (part !== '') lines.at(-1)!.push(style ? span(part, style) : span(part));
      }
    }
  }
  return lines;
}

/** `hljs-title function_` becomes the style of `title`. */
function styleOf(classes: string): Style | undefined {
  return STYLES[classes.split(' ')[0]!.replace('hljs-', '')];
}
