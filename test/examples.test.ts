import { spawnSync } from 'node:child_process';
import { readdirSync, readFileSync } from 'node:fs';
import path from 'node:path';
import { format } from 'node:util';
import { afterEach, expect, test, vi } from 'vitest';
import { PROCESS_ENV } from './process-env.ts';
import { snippetsOf } from './snippets.ts';

const root = path.join(import.meta.dirname, '..');
const folder = path.join(root, 'examples');
const read = (file: string): string => readFileSync(path.join(root, file), 'utf8');
/** Examples that need a process of their own: one with a server, and one that does nothing when it is imported. */
const OWN_PROCESS = ['server.ts', 'workflow.ts'];

afterEach(() => vi.restoreAllMocks());

// test/command/agents.test.ts runs those in examples/agents.
test.each(readdirSync(folder).filter((file) => file !== 'agents'))('examples/%s runs', async (file) => {
  const output = await (OWN_PROCESS.includes(file) ? outputOfProcess(file) : outputOfModule(file));
  expect(output.trim()).not.toBe('');
  const [{ prints } = { prints: [] }] = snippetsOf(file, `\`\`\`ts\n${read(`examples/${file}`)}\`\`\``);
  if (prints.length > 0) expect(output.split('\n')).toEqual(expect.arrayContaining([...prints]));
});

test.each([
  ['docs/typed-agents.md', 'csv-agent.ts'],
  ['README.md', 'quickstart.ts'],
])('%s contains the example %s unchanged', (page, file) => {
  expect(read(page)).toContain(`\`\`\`ts\n${read(`examples/${file}`)}\`\`\``);
});

const SIDE_BY_SIDE = read('docs/library.md').split('## Side by side with the AI SDK')[1]!.split(/^### /m).slice(1);

test.each(SIDE_BY_SIDE.map((section) => [section.split('\n')[0]!, section] as const))(
  'the program "%s" is not longer than with the AI SDK',
  (_, section) => {
    const [theirs, ours] = snippetsOf('library.md', section).map(({ code }) => linesOf(code));
    expect(ours).toBeLessThanOrEqual(theirs!);
  },
);

/** Without imports and blank lines. */
function linesOf(code: string): number {
  return code.split('\n').filter((line) => line.trim() !== '' && !line.startsWith('import ')).length;
}

function outputOfProcess(file: string): string {
  const args = ['--conditions=treadle-source', path.join(folder, file)];
  const { status, stdout, stderr } = spawnSync(process.execPath, args, { encoding: 'utf8', env: PROCESS_ENV });
  expect(status, stderr).toBe(0);
  return stdout;
}

/** Runs the example in this process, which is cheaper. */
async function outputOfModule(file: string): Promise<string> {
  let output = '';
  vi.spyOn(console, 'log').mockImplementation((...values) => void (output += `${format(...values)}\n`));
  vi.spyOn(process.stdout, 'write').mockImplementation((text) => {
    output += String(text);
    return true;
  });
  await import(path.join(folder, file));
  return output;
}
