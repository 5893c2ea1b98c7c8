/**
 * Builds the documentation as a static site in dist/docs: `npm run docs`. Its pages are README.md, docs/ and the API reference.
 * The navigation is that of docs/README.md. Links to files that are no pages lead to the repository.
 */
import { cpSync, globSync, mkdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import path from 'node:path';
import { Marked, type Tokens } from 'marked';
import { apiPages } from '../api-docs.ts';

const root = path.resolve(import.meta.dirname, '../..');
const REPOSITORY = 'https://github.com/treadle-dev/treadle/blob/main/';
const NAVIGATION = 'docs/README.md';

interface Page {
  /** Of the Markdown, relative to the root. Links are relative to it. */
  readonly source: string;
  /** Of the HTML, relative to the site. */
  readonly target: string;
  readonly markdown: string;
}

/** A part of a page below a heading, for the search: page, heading, id of the heading, text. */
type Section = readonly [page: string, heading: string, url: string, text: string];

interface Rendered extends Page {
  readonly title: string;
  readonly body: string;
  readonly sections: readonly Section[];
}

/** Writes the site, and returns the problems of its links: files and headings that do not exist. */
export async function buildSite(folder: string): Promise<readonly string[]> {
  const pages = await allPages();
  const targets = new Map(pages.map(({ source, target }) => [source, target]));
  const types = new Map(
    pages.flatMap(({ source, markdown }) => (source.startsWith('api/') ? typesIn(source, markdown) : [])),
  );
  const problems: string[] = [];
  const rendered = pages.map((page) => renderPage(page, { targets, types, problems }));
  rmSync(folder, { recursive: true, force: true });
  const navigation = navigationOf(
    rendered.find(({ source }) => source === NAVIGATION)!,
    pages,
  );
  for (const page of rendered) {
    const file = path.join(folder, page.target);
    mkdirSync(path.dirname(file), { recursive: true });
    writeFileSync(file, layout(page, navigation));
  }
  for (const image of globSync('docs/**/*.{svg,png}', { cwd: root })) {
    cpSync(path.join(root, image), path.join(folder, path.relative('docs', image)));
  }
  for (const asset of ['style.css', 'search.js']) {
    cpSync(path.join(import.meta.dirname, asset), path.join(folder, asset));
  }
  const index = JSON.stringify(rendered.flatMap(({ sections }) => sections)).replaceAll('<', String.raw`\u003c`);
  writeFileSync(path.join(folder, 'search-index.js'), `window.searchIndex = ${index};\n`);
  return problems;
}

async function allPages(): Promise<readonly Page[]> {
  const files = ['README.md', 'CONTRIBUTING.md', 'SECURITY.md', ...globSync('docs/**/*.md', { cwd: root }).toSorted()];
  const own = files.map((file) => {
    const source = file.replaceAll(path.sep, '/');
    return { source, target: targetOf(source), markdown: readFileSync(path.join(root, source), 'utf8') };
  });
  const api = (await apiPages()).map(({ file, text }) => ({
    source: `api/${file}`,
    target: targetOf(`api/${file}`),
    markdown: text,
  }));
  return [...own, ...api];
}

function targetOf(source: string): string {
  if (source === NAVIGATION) return 'contents.html';
  const inside = source.replace(/^docs\//, '').replace(/README\.md$/, 'index.md');
  return inside.replace(/\.md$/, '.html');
}

/** The names that an API page declares, with their addresses relative to the site. */
function typesIn(source: string, markdown: string): [string, string][] {
  const slug = slugger();
  const names = [...markdown.matchAll(/^#{1,2} (.+)$/gm)].map(([, name]) => [name!, slug(name!)] as const);
  return names.slice(1).map(([name, id]) => [name, `${targetOf(source)}#${id}`]);
}

interface Context {
  readonly targets: ReadonlyMap<string, string>;
  readonly types: ReadonlyMap<string, string>;
  readonly problems: string[];
}

function renderPage(page: Page, { targets, types, problems }: Context): Rendered {
  const slug = slugger();
  const sections: [string, string, string, string][] = [];
  const up = '../'.repeat(page.target.split('/').length - 1);
  const isApi = page.source.startsWith('api/');
  let title = '';
  const marked = new Marked({
    renderer: {
      heading({ tokens, depth }: Tokens.Heading): string {
        const html = this.parser.parseInline(tokens);
        const text = plain(html);
        const id = slug(text);
        if (title === '') title = text;
        sections.push([title, depth === 1 ? '' : text, `${page.target}#${id}`, '']);
        return `<h${depth} id="${id}">${html} <a class="anchor" href="#${id}" aria-label="Link to this heading">#</a></h${depth}>\n`;
      },
      link({ href, tokens }: Tokens.Link): string {
        return `<a href="${addressOf(href, page, { targets, problems, up })}">${this.parser.parseInline(tokens)}</a>`;
      },
      // README.md is one folder above the pages, and the first page of the site.
      image({ href, text }: Tokens.Image): string {
        return `<img src="${escapeHtml(href.replace(/^docs\//, ''))}" alt="${escapeHtml(text)}">`;
      },
      code({ text, lang = '' }: Tokens.Code): string {
        const html = highlighted(text, lang.split(' ')[0]!);
        const linked = isApi ? html.replaceAll(/\b[A-Z]\w+/g, (name) => typeLink(name, types, up)) : html;
        return `<pre><code>${linked}</code></pre>\n`;
      },
      table(token: Tokens.Table): string {
        const row = (cells: readonly Tokens.TableCell[], tag: string): string =>
          `<tr>${cells.map((cell) => `<${tag}>${this.parser.parseInline(cell.tokens)}</${tag}>`).join('')}</tr>`;
        const body = token.rows.map((cells) => row(cells, 'td')).join('\n');
        return `<div class="table"><table><thead>${row(token.header, 'th')}</thead><tbody>\n${body}\n</tbody></table></div>\n`;
      },
    },
  });
  const body = marked.parse(page.markdown, { async: false });
  const texts = body
    .split(/<h\d id="[^"]*">.*?<\/h\d>\n/s)
    .slice(1)
    .map(plain);
  return {
    ...page,
    title,
    body,
    sections: sections.map(([name, heading, url], at) => [name, heading, url, texts[at] ?? '']),
  };
}

/** The address of a link on the site. Reports links to files and headings that do not exist. */
function addressOf(
  href: string,
  { source }: Page,
  { targets, problems, up }: Pick<Context, 'targets' | 'problems'> & { readonly up: string },
): string {
  if (/^(https?|mailto):/.test(href) || href.startsWith('#')) return escapeHtml(href);
  const [file = '', anchor] = href.split('#');
  const linked = path.posix.join(path.posix.dirname(source), file);
  const target = targets.get(linked);
  if (target !== undefined) return `${up}${target}${anchor === undefined ? '' : `#${anchor}`}`;
  if (globSync(linked, { cwd: root }).length === 0) problems.push(`${source} links to ${href}, which does not exist.`);
  return `${REPOSITORY}${linked}`;
}

/** The ids of headings as GitHub makes them. */
function slugger(): (text: string) => string {
  const used = new Map<string, number>();
  return (text) => {
    const slug = text
      .toLowerCase()
      .replaceAll(/[^\p{L}\p{N}\s_-]/gu, '')
      .trim()
      .replaceAll(/\s/g, '-');
    const count = used.get(slug) ?? 0;
    used.set(slug, count + 1);
    return count === 0 ? slug : `${slug}-${count}`;
  };
}

const ENTITIES: Readonly<Record<string, string>> = { '&': '&amp;', '<': '&lt;', '>': '&gt;', '"': '&quot;' };

function escapeHtml(text: string): string {
  return text.replaceAll(/[&<>"]/g, (character) => ENTITIES[character]!);
}

function plain(html: string): string {
  const text = html.replaceAll(/<[^>]*>/g, ' ').replaceAll(/&(amp|lt|gt|quot|#39);/g, (entity) => {
    if (entity === '&#39;') return "'";
    return Object.keys(ENTITIES).find((character) => ENTITIES[character] === entity)!;
  });
  return text.replaceAll(/\s+/g, ' ').trim();
}

const TOKEN =
  /(\/\*[^]*?\*\/|(?<![:\w"'])\/\/.*|(?<=^|\s)#(?!!\[).*)|('(?:[^'\\\n]|\\.)*'|"(?:[^"\\\n]|\\.)*"|`(?:[^`\\]|\\.)*`)|\b(import|from|export|const|let|function|async|await|return|if|else|for|of|in|new|type|interface|readonly|extends|class|throw|try|catch|yield|true|false|null|undefined)\b/gm;

/** Comments, texts and keywords have colours; other languages than these have none. */
function highlighted(code: string, language: string): string {
  if (!['ts', 'tsx', 'js', 'json', 'toml', 'sh', 'yaml', 'python'].includes(language)) return escapeHtml(code);
  const isScript = language.startsWith('t') || language.startsWith('js');
  let html = '';
  let at = 0;
  for (const match of code.matchAll(TOKEN)) {
    const [token, comment, text, keyword] = match;
    const isHash = comment?.startsWith('#') ?? false;
    if ((isHash && isScript && language !== 'toml') || (comment && !isHash && !isScript)) continue;
    if (keyword !== undefined && !isScript) continue;
    const kind = comment === undefined ? (text === undefined ? 'keyword' : 'text') : 'comment';
    html += `${escapeHtml(code.slice(at, match.index))}<span class="${kind}">${escapeHtml(token)}</span>`;
    at = match.index + token.length;
  }
  return html + escapeHtml(code.slice(at));
}

function typeLink(name: string, types: ReadonlyMap<string, string>, up: string): string {
  const url = types.get(name);
  return url === undefined ? name : `<a href="${up}${url}">${name}</a>`;
}

interface Group {
  readonly title: string;
  readonly links: readonly (readonly [title: string, target: string])[];
}

/** The headings and links of docs/README.md, and the pages of the API reference. */
function navigationOf({ body }: Rendered, pages: readonly Page[]): readonly Group[] {
  const groups = body
    .split('<h2 ')
    .slice(1)
    .map((part) => ({
      title: plain(/>(.*?) <a class="anchor"/.exec(part)![1]!),
      links: [...part.matchAll(/<tr><td><a href="([^"]+)">(.*?)<\/a>/g)].map(
        ([, href, name]) => [plain(name!), href!] as const,
      ),
    }));
  const api = pages.filter(({ source }) => source.startsWith('api/'));
  const links = api.map(({ markdown, target }) => [/^# (.*)/.exec(markdown)![1]!, target] as const);
  return [...groups, { title: 'API reference', links }];
}

function layout({ title, body, target }: Rendered, navigation: readonly Group[]): string {
  const up = '../'.repeat(target.split('/').length - 1);
  const groups = navigation.map(({ title: name, links }) => {
    const items = links.map(([text, url]) => {
      const current = url === target ? ' aria-current="page"' : '';
      return `<li><a href="${url.startsWith('http') ? '' : up}${url}"${current}>${escapeHtml(text)}</a></li>`;
    });
    const open = links.some(([, url]) => url === target) || name !== 'API reference' ? ' open' : '';
    return `<details${open}><summary>${escapeHtml(name)}</summary><ul>${items.join('')}</ul></details>`;
  });
  return `<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>${escapeHtml(title)}${title === 'Treadle' ? '' : ' · Treadle'}</title>
<link rel="icon" href="data:,">
<link rel="stylesheet" href="${up}style.css">
</head>
<body data-up="${up}">
<header>
<a class="home" href="${up}index.html">Treadle</a>
<div class="search"><input type="search" placeholder="Search (press /)" aria-label="Search" autocomplete="off"><ol hidden></ol></div>
</header>
<div class="page">
<nav aria-label="Pages"><details class="menu" open><summary>Pages</summary>${groups.join('\n')}</details></nav>
<main>
${body}</main>
</div>
<script src="${up}search.js" defer></script>
</body>
</html>
`;
}

if (import.meta.main) {
  const problems = await buildSite(path.join(root, 'dist', 'docs'));
  for (const problem of problems) console.error(problem);
  if (problems.length > 0) process.exitCode = 1;
  else console.log('Open dist/docs/index.html.');
}
