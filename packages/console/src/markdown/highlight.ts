import hljs from 'highlight.js/lib/core';
import bash from 'highlight.js/lib/languages/bash';
import css from 'highlight.js/lib/languages/css';
import diff from 'highlight.js/lib/languages/diff';
import json from 'highlight.js/lib/languages/json';
import python from 'highlight.js/lib/languages/python';
import sql from 'highlight.js/lib/languages/sql';
import typescript from 'highlight.js/lib/languages/typescript';
import xml from 'highlight.js/lib/languages/xml';
import yaml from 'highlight.js/lib/languages/yaml';
import { sanitized, type Markup } from './sanitize.ts';

const languages = { bash, css, diff, json, python, sql, typescript, xml, yaml };
for (const [name, language] of Object.entries(languages)) hljs.registerLanguage(name, language);
hljs.registerAliases(['ts', 'tsx', 'js', 'jsx', 'javascript', 'mjs'], { languageName: 'typescript' });
hljs.registerAliases(['sh', 'shell', 'console', 'zsh'], { languageName: 'bash' });

/** Longer code is not coloured. */
const MAX_CHARS = 50_000;

/** Code with colours. Undefined if the language is not known. Loaded when the first code is complete. */
export function highlighted(code: string, language: string): Markup | undefined {
  if (code.length > MAX_CHARS || !hljs.getLanguage(language)) return undefined;
  return sanitized(hljs.highlight(code, { language, ignoreIllegals: true }).value);
}
