// The search of the site. The index is loaded when the field gets the focus, so that pages stay small.
const up = document.body.dataset.up;
const field = document.querySelector('.search input');
const list = document.querySelector('.search ol');
const menu = document.querySelector('.menu');
let loading;

if (matchMedia('(max-width: 60rem)').matches) menu.open = false;
document.querySelector('nav [aria-current]')?.scrollIntoView({ block: 'nearest' });

function loadIndex() {
  loading ??= new Promise((resolve, reject) => {
    const script = document.createElement('script');
    script.src = `${up}search-index.js`;
    script.addEventListener('load', () => resolve(window.searchIndex));
    script.addEventListener('error', reject);
    document.head.append(script);
  });
  return loading;
}

/** All words have to occur. Titles count most, then headings, then the text; whole words count more than parts of words. */
function scoreOf([page, heading, , text], words) {
  let score = 0;
  for (const word of words) {
    const value = count(page, word) * 6 + count(heading, word) * 10 + Math.min(count(text, word), 5);
    if (value === 0) return 0;
    score += value;
  }
  return heading === '' ? score + 1 : score;
}

function count(text, word) {
  const lower = text.toLowerCase();
  let found = 0;
  for (let at = lower.indexOf(word); at >= 0 && found < 10; at = lower.indexOf(word, at + word.length)) {
    const isStart = at === 0 || !/\w/.test(lower[at - 1]);
    const isEnd = !/\w/.test(lower[at + word.length] ?? ' ');
    found += isStart && isEnd ? 2 : isStart ? 1 : 0.3;
  }
  return found;
}

function excerpt(text, word) {
  const at = Math.max(0, text.toLowerCase().indexOf(word) - 40);
  return `${at > 0 ? '…' : ''}${text.slice(at, at + 140)}`;
}

async function search() {
  const words = field.value.toLowerCase().split(/\s+/).filter(Boolean);
  const index = words.length === 0 ? [] : await loadIndex();
  const hits = index
    .map((section) => ({ section, score: scoreOf(section, words) }))
    .filter(({ score }) => score > 0)
    .sort((a, b) => b.score - a.score)
    .slice(0, 12);
  list.replaceChildren(
    ...hits.map(({ section: [page, heading, url, text] }) => {
      const link = document.createElement('a');
      link.href = up + url;
      const title = document.createElement('strong');
      title.textContent = heading === '' ? page : `${page} › ${heading}`;
      const line = document.createElement('span');
      line.textContent = excerpt(text, words[0]);
      link.append(title, line);
      const item = document.createElement('li');
      item.append(link);
      return item;
    }),
  );
  if (words.length > 0 && hits.length === 0) {
    const item = document.createElement('li');
    item.textContent = 'Nothing found.';
    list.append(item);
  }
  list.hidden = words.length === 0;
}

field.addEventListener('focus', loadIndex);
field.addEventListener('input', search);
addEventListener('keydown', (event) => {
  if (event.key === '/' && document.activeElement !== field) {
    event.preventDefault();
    field.focus();
  }
  if (event.key === 'Escape') {
    list.hidden = true;
    field.blur();
  }
  if (event.key === 'Enter' && document.activeElement === field) list.querySelector('a')?.click();
  const links = [...list.querySelectorAll('a')];
  const at = links.indexOf(document.activeElement);
  if (!list.hidden && (event.key === 'ArrowDown' || event.key === 'ArrowUp')) {
    event.preventDefault();
    (links[at + (event.key === 'ArrowDown' ? 1 : -1)] ?? field).focus();
  }
});
addEventListener('click', ({ target }) => {
  if (!target.closest('.search')) list.hidden = true;
});
