/** `grep` and `glob` on 100,000 files, beside ripgrep and `find`. */
import { execFile } from 'node:child_process';
import { mkdirSync, writeFileSync } from 'node:fs';
import path from 'node:path';
import { promisify } from 'node:util';
import { registry } from '@treadle/core';
import { globTool, grepTool, local, type Ops } from '@treadle/tools';

const FOLDERS = 1_000;
const FILES = 100;
const ROUNDS = 9;

const run = promisify(execFile);

interface Row {
  readonly name: string;
  readonly use: () => Promise<unknown>;
  /** The row that it is compared with. */
  readonly beside?: string;
  /** Slow rows are measured less often. */
  readonly rounds?: number;
}

export async function measureSearch(parent: string): Promise<void> {
  const folder = path.join(parent, 'files');
  makeFiles(folder);
  const { files, exec } = local(folder);
  const { ripgrep } = exec;
  if (ripgrep === undefined) throw new Error('There is no ripgrep for this platform.');
  const fast = toolsOf({ files, exec });
  const walking = toolsOf({ files, exec: { ...exec, ripgrep: undefined } });
  const direct = (program: string, args: readonly string[]): Promise<unknown> =>
    run(program, args, { cwd: folder, maxBuffer: 64e6 });

  await measure([
    { name: 'rg', use: () => direct(ripgrep, ['--no-config', '-n', 'needle \\d+', './']) },
    { name: 'grep', use: () => fast('grep', { pattern: 'needle \\d+' }), beside: 'rg' },
    { name: 'grep, own walker', use: () => walking('grep', { pattern: 'needle \\d+' }), beside: 'rg', rounds: 1 },
    { name: 'find', use: () => direct('find', ['.', '-name', '*9.md', '-type', 'f']) },
    { name: 'rg --files', use: () => direct(ripgrep, ['--no-config', '--files', '-g', '**/*9.md', './']) },
    { name: 'glob', use: () => fast('glob', { pattern: '**/*9.md' }), beside: 'find' },
    { name: 'glob, own walker', use: () => walking('glob', { pattern: '**/*9.md' }), beside: 'find', rounds: 1 },
  ]);
}

/** Most files are code; 1 in 10 is Markdown, and 1 in 1,000 has what is searched. */
function makeFiles(folder: string): void {
  for (let i = 0; i < FOLDERS; i++) {
    const at = path.join(folder, `part${i % 10}`, `folder${i}`);
    mkdirSync(at, { recursive: true });
    for (let j = 0; j < FILES; j++) {
      const text = `export const value${j} = ${i};\n`.repeat(8) + (j === i % 1_000 ? `// needle ${i}\n` : '');
      writeFileSync(path.join(at, `file${j}.${j % 10 === 9 ? 'md' : 'ts'}`), text);
    }
  }
  writeFileSync(path.join(folder, '.gitignore'), 'dist/\n*.log\nnode_modules\n');
}

function toolsOf(ops: Ops): (name: string, input: object) => Promise<void> {
  const tools = registry();
  for (const tool of [globTool(ops), grepTool(ops)]) tools.register(tool, 'bench');
  return async (name, input) => {
    const result = await tools.execute(name, input, { timeoutMs: 300_000 });
    if (result.type !== 'result' || result.isError) throw new Error(JSON.stringify(result));
  };
}

async function measure(rows: readonly Row[]): Promise<void> {
  const series = new Map<string, number[]>(rows.map(({ name }) => [name, []]));
  for (let round = -1; round < ROUNDS; round++) {
    for (const { name, use, rounds = ROUNDS } of rows) {
      if (round >= rounds || (round < 0 && rounds < ROUNDS)) continue;
      const start = performance.now();
      await use();
      // The first round is to warm up.
      if (round >= 0) series.get(name)!.push(performance.now() - start);
    }
  }
  console.log(`${FOLDERS * FILES} files, median of ${ROUNDS} rounds (own walker: 1)`);
  for (const { name, beside } of rows) {
    const sorted = series.get(name)!.toSorted((a, b) => a - b);
    const ratio =
      beside === undefined ? '' : `${(median(sorted) / median(series.get(beside)!)).toFixed(2)} of ${beside}`;
    const spread = `(${sorted[0]!.toFixed(0)} to ${sorted.at(-1)!.toFixed(0)})`;
    console.log(`  ${name.padEnd(18)}${median(sorted).toFixed(0).padStart(7)} ms  ${spread.padEnd(18)} ${ratio}`);
  }
}

function median(values: readonly number[]): number {
  return values.toSorted((a, b) => a - b)[Math.floor(values.length / 2)]!;
}
