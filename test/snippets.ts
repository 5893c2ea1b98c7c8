import { existsSync, globSync, mkdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import path from 'node:path';

const root = path.resolve(import.meta.dirname, '..');

/** A fenced `ts` or `tsx` block of a page. All blocks are compiled; `tsx` blocks and those marked `ts no-run` are not run. */
export interface Snippet {
  readonly language: 'ts' | 'tsx';
  /** File and line, such as `README.md:12`. */
  readonly at: string;
  readonly code: string;
  readonly runs: boolean;
  /** The lines of its `// prints: …` comments, in order. If there are none, it may print anything. */
  readonly prints: readonly string[];
}

export function snippetsOf(file: string, markdown: string): Snippet[] {
  const fences = markdown.matchAll(/^( *)```(tsx?|typescript)\b([^\n]*)\n(.*?)^ *```$/gms);
  return Array.from(fences, ({ index, 1: indent = '', 2: tag, 3: mark = '', 4: code = '' }) => ({
    language: tag === 'tsx' ? 'tsx' : 'ts',
    at: `${file}:${markdown.slice(0, index).split('\n').length}`,
    code: code.replaceAll(new RegExp(`^${indent}`, 'gm'), ''),
    runs: tag !== 'tsx' && mark.trim() !== 'no-run',
    prints: Array.from(code.matchAll(/\/\/ prints: (.*)$/gm), ([, line = '']) => line.trimEnd()),
  }));
}

/** Those of all pages. */
export const snippets: readonly Snippet[] = ['README.md', ...globSync('docs/**/*.md', { cwd: root }).toSorted()]
  .filter((file) => existsSync(path.join(root, file)))
  .flatMap((file) => snippetsOf(file, readFileSync(path.join(root, file), 'utf8')));

export function fileOf({ at, language }: Snippet): string {
  return `${at.replaceAll(/[/:]/g, '-')}.${language}`;
}

/**
 * Writes all snippets, and settings to compile them, to a folder with this name inside the repository, so that packages can be resolved;
 * not in node_modules, where Node does not strip types.
 */
export function writeSnippets(name: string): string {
  const folder = path.join(root, '.cache', name);
  rmSync(folder, { recursive: true, force: true });
  mkdirSync(folder, { recursive: true });
  const compilerOptions = {
    customConditions: ['treadle-source'],
    types: ['node'],
    jsx: 'react-jsx',
    moduleDetection: 'force',
    noEmit: true,
    // The packages are checked with the pages. What has not changed since the last time need not be checked again.
    incremental: true,
    tsBuildInfoFile: `../${name}.tsbuildinfo`,
    composite: false,
    declaration: false,
    emitDeclarationOnly: false,
    declarationMap: false,
    isolatedDeclarations: false,
    noUnusedLocals: false,
  };
  const config = { extends: '../../tsconfig.base.json', compilerOptions, include: ['*.ts', '*.tsx'], files: [] };
  writeFileSync(path.join(folder, 'tsconfig.json'), JSON.stringify(config));
  for (const snippet of snippets) writeFileSync(path.join(folder, fileOf(snippet)), snippet.code);
  return folder;
}
