/** A fenced `ts` block of a page. Every block is compiled; one that is marked `ts no-run` is not run. */
export interface Snippet {
  /** Where it is, as `README.md:12`. */
  readonly at: string;
  readonly code: string;
  readonly runs: boolean;
  /** What its `// prints: …` comments say, in order; empty when it has none, and then it may print anything. */
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
