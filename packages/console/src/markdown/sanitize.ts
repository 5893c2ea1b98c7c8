import DOMPurify, { type Config } from 'dompurify';
import { Parser, Renderer, type Token } from 'marked';

/**
 * Text of models, tools and people becomes markup only here, in two steps that do not rely on each other: the renderer writes no
 * HTML of the text itself, and DOMPurify keeps a short list of elements and attributes.
 */

const IMAGE = /^data:image\/(?:png|jpeg|gif|webp);base64,/i;

const ALLOWED: Config = {
  ALLOWED_TAGS:
    'a b blockquote br code del em h3 hr i img li ol p pre s span strong sub sup table tbody td th thead tr ul'.split(
      ' ',
    ),
  ALLOWED_ATTR: ['href', 'title', 'alt', 'src', 'start', 'align', 'target', 'rel', 'class'],
  ALLOWED_URI_REGEXP: /^(?:https?:|mailto:|data:image\/(?:png|jpeg|gif|webp);base64,)/i,
  ADD_URI_SAFE_ATTR: ['start', 'align', 'target', 'rel'],
  ALLOW_DATA_ATTR: false,
  ALLOW_ARIA_ATTR: false,
  RETURN_TRUSTED_TYPE: true,
};

DOMPurify.addHook('afterSanitizeAttributes', (node) => {
  // Others would let a text look like a part of the page.
  const classes = [...node.classList].filter((name) => /^(hljs-[\w-]+|_|level-[1-6]|short)$/.test(name));
  if (classes.length > 0) node.setAttribute('class', classes.join(' '));
  else node.removeAttribute('class');
  if (node.nodeName === 'A') {
    if (/^data:/i.test(node.getAttribute('href') ?? '')) node.removeAttribute('href');
    node.setAttribute('target', '_blank');
    node.setAttribute('rel', 'noopener noreferrer nofollow');
  }
  if (node.nodeName === 'IMG' && !IMAGE.test(node.getAttribute('src') ?? '')) node.remove();
});

const renderer = new Renderer();
const escaped: Readonly<Record<string, string>> = {
  '&': '&amp;',
  '<': '&lt;',
  '>': '&gt;',
  '"': '&quot;',
  "'": '&#39;',
};
const escape = (text: string): string => text.replaceAll(/[&<>"']/g, (character) => escaped[character]!);
// HTML in the text is shown as text. A line break in a cell of a table has no other form.
renderer.html = ({ text }) => (/^<br\s*\/?>$/i.test(text.trim()) ? '<br>' : escape(text));
// The page never loads images from elsewhere: they are links.
renderer.image = ({ href, title, text }) =>
  IMAGE.test(href)
    ? `<img src="${escape(href)}" alt="${escape(text)}"${title ? ` title="${escape(title)}"` : ''}>`
    : `<a href="${escape(href)}">${escape(text || href)}</a>`;
renderer.checkbox = ({ checked }) => (checked ? '☑ ' : '☐ ');
// Below the headings of the page. A text may begin with any level, and leave some out.
renderer.heading = function heading({ tokens, depth }) {
  return `<h3 class="level-${depth}">${this.parser.parseInline(tokens)}</h3>`;
};

/** Cells with at most this many characters are not wrapped: a number or a date is not torn apart. */
const SHORT_CELL = 28;
renderer.tablecell = function tablecell(token) {
  const html = Renderer.prototype.tablecell.call(this, token);
  return token.text.length > SHORT_CELL ? html : html.replace(/^<t[dh]/, '$& class="short"');
};

/** Markup that DOMPurify has made: a `TrustedHTML` at run time, which the browser requires. Preact has no type for it. */
export type Markup = string;

/** The markup of one block of Markdown. */
export function blockMarkup(token: Token): Markup {
  try {
    return sanitized(new Parser({ renderer, gfm: true }).parse([token]));
  } catch {
    // What is nested too deeply for the parser is shown as it is.
    return sanitized(`<p>${escape(token.raw)}</p>`);
  }
}

export function sanitized(html: string): Markup {
  return DOMPurify.sanitize(html, ALLOWED) as unknown as Markup;
}
