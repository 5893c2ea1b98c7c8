import { mkdirSync, mkdtempSync, realpathSync, rmSync, writeFileSync } from 'node:fs';
import { homedir, tmpdir } from 'node:os';
import { dirname, join } from 'node:path';
import { approve, memoryJournal, runLoop, tool, type Carried, type Exposure, type Tool } from '@treadle/core';
import { policy, type PolicyRules } from '@treadle/core/policy';
import { scriptedModel } from '@treadle/core/testing';
import { codingTools, local, pathFacts, urlFacts } from '@treadle/tools';
import { commandAnalyser } from '@treadle/tools/commands';

/*
 * A day of coding, as calls of the real tools. They are judged, and not executed: this counts how often people are asked.
 */

/** `online`: it needs the network. A sandbox without network stops it, and it is repeated outside. */
export type DayCall = readonly [tool: string, input: Readonly<Record<string, unknown>>, needs?: 'online'];

/** Messages, with the calls of each. */
export type Day = readonly (readonly DayCall[])[];

const bash = (command: string): DayCall => ['bash', { command }];
const online = (command: string): DayCall => ['bash', { command }, 'online'];
const read = (path: string): DayCall => ['read', { path }];
const edit = (path: string): DayCall => ['edit', { path, old_text: 'a', new_text: 'b' }];
const write = (path: string): DayCall => ['write', { path, content: 'a\n' }];
const grep = (pattern: string, path = 'src'): DayCall => ['grep', { pattern, path }];
const fetchPage = (page: string): DayCall => ['fetch', { url: `https://docs.example.com/${page}` }];

export const DAY: Day = [
  [
    bash('git status'),
    bash('git log --oneline -n 10'),
    read('README.md'),
    ['glob', { pattern: '**/*.ts' }],
    read('package.json'),
    grep('parseDate'),
    bash('ls -la src'),
    bash('npm test'),
  ],
  [
    grep('TODO', '.'),
    read('src/date.ts'),
    read('test/date.test.ts'),
    fetchPage('dates'),
    edit('src/date.ts'),
    edit('test/date.test.ts'),
    bash('npm test 2>&1 | tail -n 40'),
    edit('src/date.ts'),
    bash('npm test'),
    bash('git diff'),
    bash('git add src/date.ts test/date.test.ts'),
    bash('git commit -m "date: accept weeks"'),
  ],
  [
    online('npm ci'),
    bash('npm run build'),
    bash('npx tsc -p . --noEmit'),
    read('src/main.ts'),
    write('src/config.ts'),
    edit('src/main.ts'),
    bash('node src/main.ts --help'),
    bash(`node -e "console.log(require('./package.json').version)"`),
    bash('npm run lint -- --fix'),
    bash('git diff --stat && git status --short'),
    ['git_diff', {}],
    ['git_commit', { message: 'main: read the configuration', paths: ['src/main.ts'] }],
  ],
  [
    ['search_docs', { query: 'csv module' }],
    read('tools/report.py'),
    edit('tools/report.py'),
    bash('python3 tools/report.py data.csv'),
    bash('python3 -m pytest -q'),
    bash(`python3 -c "import json; print(json.load(open('package.json'))['name'])"`),
    bash("python3 - <<'EOF'\nprint(sum(range(10)))\nEOF"),
    bash('head -n 5 data.csv | cut -d, -f2 | sort | uniq -c'),
    online('pip install -r requirements.txt'),
  ],
  [
    read('native/sum.c'),
    write('native/sum.c'),
    bash('gcc -Wall -O2 -o build/sum native/sum.c'),
    bash('make -C native'),
    bash('./build/sum 1 2 3'),
    bash('for f in native/*.c; do gcc -fsyntax-only "$f"; done'),
    bash('find native -name "*.o" -delete'),
    bash('grep -rn "malloc" native'),
  ],
  [
    fetchPage('release'),
    write('docs/release.md'),
    edit('CHANGELOG.md'),
    bash("sed -i 's/1.2.3/1.2.4/' package.json"),
    online('git fetch origin'),
    bash('git log --oneline origin/main..HEAD'),
    bash('git rebase origin/main'),
    bash('npm test'),
    bash('git add -A'),
    bash('git commit -m "release 1.2.4"'),
    online('git push origin main'),
    ['todoread', {}],
  ],
];

const FILES = [
  '.npmrc',
  '.git/config',
  'README.md',
  'CHANGELOG.md',
  'package.json',
  'data.csv',
  'requirements.txt',
  'src/date.ts',
  'src/main.ts',
  'test/date.test.ts',
  'tools/report.py',
  'native/sum.c',
  'build/sum',
];

/** What a day costs. */
export interface DayReport {
  readonly calls: number;
  /** What people were asked about, by the rule that asked. */
  readonly asked: readonly { readonly rule: string; readonly call: string }[];
  readonly exposure: Exposure | undefined;
}

/** `promises`: of the sandbox that commands and git run in; none without one. */
export async function judgeDay(day: Day, rules: PolicyRules, promises: readonly string[]): Promise<DayReport> {
  const folder = realpathSync(mkdtempSync(join(tmpdir(), 'treadle-day-')));
  try {
    for (const file of FILES) {
      mkdirSync(dirname(join(folder, file)), { recursive: true });
      writeFileSync(join(folder, file), '');
    }
    const home = homedir();
    const judging = policy(
      { ...rules, rate: { minute: 10_000, second: 10_000 } },
      {
        folder,
        home,
        analysers: {
          command: commandAnalyser({ folder }),
          path: (path) => pathFacts(path, { folder, home }),
          url: urlFacts,
        },
      },
    );
    const isWalled = promises.includes('network');
    return await countAsks(isWalled ? day.map(withRepeats) : day, dayTools(folder, promises), judging);
  } finally {
    rmSync(folder, { recursive: true, force: true });
  }
}

function withRepeats(calls: readonly DayCall[]): readonly DayCall[] {
  return calls.flatMap((call): readonly DayCall[] => {
    const [name, input, needs] = call;
    return needs === 'online' ? [call, [name, { ...input, outside: 'It needs the network.' }]] : [call];
  });
}

async function countAsks(day: Day, tools: readonly Tool[], judging: ReturnType<typeof policy>): Promise<DayReport> {
  const journal = memoryJournal();
  const asked: { rule: string; call: string }[] = [];
  let carried: Carried | undefined;
  for (const [index, calls] of day.entries()) {
    const steps = calls.map(([name, input]) => ({ calls: [{ name, arguments: input }] }));
    const model = scriptedModel([...steps, 'Done.']);
    const common = { model, tools, policy: judging, journal, runId: `message-${index}` };
    let result = await runLoop({ ...common, input: 'Go on.', ...(carried && { carried }) });
    while (result.waiting.length > 0) {
      for (const wait of result.waiting) {
        if (wait.type !== 'approval') throw new Error(`The day waits for ${wait.type}.`);
        asked.push({ rule: wait.rule ?? '', call: `${wait.call.name} ${wait.call.arguments}` });
      }
      result = await runLoop({ ...common, answers: result.waiting.map((wait) => approve(wait as never)) });
    }
    const failed = result.messages.flatMap(({ role, content }) =>
      role === 'tool' ? content.filter(({ isError }) => isError).flatMap((one) => one.content) : [],
    );
    if (failed.length > 0) throw new Error(`Not all calls run: ${JSON.stringify(failed)}`);
    ({ carried } = result);
  }
  return { calls: day.flat().length, asked, exposure: carried?.exposure };
}

/** The real tools, which declare what they touch, without what they do; and two that bring pages. */
function dayTools(folder: string, promises: readonly string[]): readonly Tool[] {
  const pages = [
    tool({
      name: 'fetch',
      description: 'Fetches a page',
      input: { type: 'object' },
      permissions: ['network'],
      touches: ({ url }) => [{ type: 'url', url: String(url) }],
      execute: () => '',
    }),
    tool({
      name: 'search_docs',
      description: 'A tool of an MCP server that only reads',
      input: { type: 'object' },
      touches: () => [],
      exposes: 'outside',
      execute: () => '',
    }),
  ];
  const ops = local(folder);
  const { exec } = ops;
  const nowhere = (): never => {
    throw new Error('Nothing is executed.');
  };
  const sandbox = { engine: 'none', promises, outside: exec, openRoom: nowhere, blocked: () => undefined };
  const confined = promises.length > 0 ? { ...ops, exec: { ...exec, sandbox } } : ops;
  const coding = codingTools(ops, { bash: confined, git: confined }).map((one) => ({ ...one, execute: () => 'done' }));
  return [...coding, ...pages];
}
