/**
 * Records what the command prints, as pictures for the docs: npm run docs:recordings. It runs the real commands in a temporary
 * folder, with a model that follows a script.
 */
import { spawn } from 'node:child_process';
import { mkdirSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { scriptedOpenAi, type ChatRequest, type Step } from '../test/command/scripted-openai.ts';

const root = path.resolve(import.meta.dirname, '..');
const MAIN = path.join(root, 'packages/treadle/src/main.ts');
const COLUMNS = 100;

const call = (name: string, args: object): Step => ({ calls: [{ name, arguments: JSON.stringify(args) }] });
const LOOK: readonly Step[] = [
  call('glob', { pattern: '*' }),
  call('read', { path: 'package.json' }),
  { hang: 'The file package.json s' },
];

/** Answers by the last result, as a model would. */
function answer({ messages }: ChatRequest): Step {
  const licence = /license\\?": \\?"([\w.-]+)/.exec(JSON.stringify(messages.at(-1)))?.[1];
  return { text: [`The licence is ${licence}, as package.json says.`] };
}

const parent = mkdtempSync(path.join(tmpdir(), 'recording-'));
const folder = path.join(parent, 'shop');
mkdirSync(folder);
writeFileSync(path.join(folder, 'package.json'), '{ "name": "shop", "version": "2.1.0", "license": "MIT" }\n');
writeFileSync(path.join(folder, 'README.md'), '# Shop\n');
const server = await scriptedOpenAi([...LOOK, answer, answer]);
const config = path.join(parent, 'model.toml');
const store = `sqlite:${path.join(parent, 'runs.db')}`;
writeFileSync(config, `[models.main]\nmodel = "qwen3"\nbase_url = "${server.baseURL}"\n`);

/** Runs the command, and returns what a terminal shows. With `killAt`, kills it with SIGKILL when it has printed that text. */
async function treadle(args: readonly string[], killAt?: string): Promise<string> {
  const where = ['--config', config, '--store', store];
  const child = spawn(process.execPath, ['--conditions=treadle-source', MAIN, ...args, ...where], {
    cwd: folder,
    env: { PATH: process.env['PATH'] },
    stdio: ['ignore', 'pipe', 'pipe'],
  });
  let shown = `$ treadle ${args.map((arg) => (/[\s"{]/.test(arg) ? `'${arg}'` : arg)).join(' ')}\n`;
  for (const stream of [child.stdout, child.stderr]) {
    stream.setEncoding('utf8').on('data', (text: string) => {
      shown += text;
      if (killAt !== undefined && shown.includes(killAt)) child.kill('SIGKILL');
    });
  }
  await new Promise((resolve) => void child.once('close', resolve));
  return `${shown.trimEnd()}\n`;
}

/** A picture of a terminal. */
function picture(title: string, text: string): string {
  const lines = text
    .trimEnd()
    .split('\n')
    .flatMap((line) => line.match(new RegExp(`.{1,${COLUMNS}}`, 'g')) ?? ['']);
  const [charWidth, lineHeight, margin] = [7.83, 18, 16];
  const [width, height] = [Math.ceil(COLUMNS * charWidth) + 2 * margin, (lines.length + 2) * lineHeight + margin];
  const escaped = (line: string): string => line.replaceAll('&', '&amp;').replaceAll('<', '&lt;');
  const rows = lines.map((line, index) => {
    const kind = line.startsWith('$ ') ? ' class="c"' : line.startsWith('# ') ? ' class="n"' : '';
    return `<text${kind} x="${margin}" y="${(index + 3) * lineHeight}">${escaped(line)}</text>`;
  });
  return `<svg xmlns="http://www.w3.org/2000/svg" width="${width}" height="${height}" viewBox="0 0 ${width} ${height}" role="img">
<title>${escaped(title)}</title>
<style>text{font:13px ui-monospace,SFMono-Regular,Menlo,Consolas,monospace;fill:#d6deeb;white-space:pre}.c{fill:#7fdbca;font-weight:bold}.n{fill:#8a99a8}</style>
<rect width="${width}" height="${height}" rx="8" fill="#111820"/>
<circle cx="20" cy="18" r="5" fill="#ff5f57"/><circle cx="38" cy="18" r="5" fill="#febc2e"/><circle cx="56" cy="18" r="5" fill="#28c840"/>
${rows.join('\n')}
</svg>
`;
}

function save(name: string, title: string, text: string): void {
  writeFileSync(path.join(root, 'docs', name), picture(title, text));
  console.log(`docs/${name}\n${text}`);
}

try {
  const killed = await treadle(['run', 'Which licence does this have?'], 'package.json s');
  const listed = await treadle(['runs', 'list']);
  const [id] = /run_[0-9a-f]{8}/.exec(listed)!;
  const resumed = await treadle(['runs', 'resume', id]);
  const resume = `${killed}# another terminal: kill -9\nKilled\n\n${listed}\n${resumed}`;
  save('resume-after-kill.svg', 'A run that was killed with kill -9 is resumed', resume);

  const result = 't2.tool.0={ "name": "shop", "license": "GPL-3.0" }';
  const forked = await treadle(['runs', 'fork', id, '--result', result]);
  const [fork] = /run_[0-9a-f]{8}/.exec(forked.slice(forked.indexOf('entry')))!;
  const diff = await treadle(['runs', 'diff', id, fork]);
  save('fork-and-diff.svg', 'A fork of a run with another result, and where the two differ', `${forked}\n${diff}`);
} finally {
  await server.close();
  rmSync(parent, { recursive: true });
}
