/** A fenced `ts` block of a page. All blocks are compiled; those marked `ts no-run` are not run. */
export interface Snippet {
  /** File and line, such as `README.md:12`. */
  readonly at: string;
  readonly code: string;
  readonly runs: boolean;
  /** The lines of its `// prints: …` comments, in order. If there are none, it may print anything. */
  readonly prints: readonly string[];
}

export function snippetsOf(file: string, markdown: string): Snippet[] {
  const fences = markdown.matchAll(/^( *)```(?:ts|typescript)\b([^\n]*)\n(.*?)^ *```$/gms);
  return Array.from(fences, ({ index, 1: indent = '', 2: mark = '', 3: code = '' }) => ({
    at: `${file}:${markdown.slice(0, index).split('\n').length}`,
    code: code.replaceAll(new RegExp(`^${indent}`, 'gm'), ''),
    runs: mark.trim() !== 'no-run',
    prints: Array.from(code.matchAll(/\/\/ prints: (.*)$/gm), ([, line = '']) => line.trimEnd()),
  }));
}
