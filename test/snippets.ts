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
