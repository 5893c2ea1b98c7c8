/**
 * Writes the pages of the tools from their definitions: `npm run docs:tools`. Each example is a call that a run makes in a
 * temporary folder, and the page shows what it returned.
 */
import { execFileSync } from 'node:child_process';
import { mkdirSync, mkdtempSync, readdirSync, realpathSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { memoryJournal, runLoop, type Tool, type ToolResult, type Touch } from '@treadle/core';
import { agentRegistry } from '@treadle/core/named-agents';
import { scriptedModel, type ScriptedCall } from '@treadle/core/testing';
import {
  agentsListTool,
  codingTools,
  local,
  questionTool,
  readOnlyTools,
  taskTool,
  toLegacyResult,
  type Ops,
} from '@treadle/tools';
import { skillTool } from '@treadle/tools/skills';
import type { Skill } from '@treadle/core/skills';
import { escaped, fenced, table } from './markdown.ts';

interface Example {
  readonly input: Record<string, unknown>;
  /** Calls that come before it, in the same run. */
  readonly before?: readonly ScriptedCall[];
  /** The folder is a git repository with a commit and a change. */
  readonly repository?: true;
  /** What differs from run to run. The page has dots instead. */
  readonly varies?: RegExp;
  /** What the definition does not say. */
  readonly note?: string;
  /** Other inputs, to show the errors that they lead to. */
  readonly errors?: readonly Record<string, unknown>[];
}

const README = '# Shop\n\nSells apples.\nSells pears.\n';
const FILES: Readonly<Record<string, string>> = {
  'README.md': README,
  'src/shop.ts': "import { price } from './price.ts';\n\nexport const total = price('apple') + price('pear');\n",
  'src/price.ts': 'export function price(what: string): number {\n  return what.length;\n}\n',
};

const READ_PRICE: ScriptedCall = { name: 'read', arguments: { path: 'src/price.ts' } };
const IN_BACKGROUND: ScriptedCall = { name: 'bash', arguments: { command: 'cat', background: true } };
const PATCH = `--- a/src/price.ts
+++ b/src/price.ts
@@ -1,3 +1,3 @@
 export function price(what: string): number {
-  return what.length;
+  return what.length * 2;
 }
`;

const PRICING: Skill = {
  name: 'pricing',
  description: 'How prices are made',
  text: 'Every price is in cents. Read src/price.ts before you change one.',
  allowedTools: ['Read', 'Grep'],
  folder: '/skills/pricing',
  files: [],
  invocation: 'both',
  execution: 'inline',
  dependencies: [],
  status: 'active',
};

/** By tool. The answer to each question is its first choice. */
const EXAMPLES: Readonly<Record<string, Example>> = {
  read: { input: { path: 'src/price.ts' }, errors: [{ path: 'src/prices.ts' }, { path: '../secret' }] },
  write: {
    input: { path: 'src/tax.ts', content: 'export const tax = 0.2;\n' },
    errors: [
      { path: 'README.md', content: '' },
      { path: '../secret', content: '' },
    ],
  },
  edit: {
    before: [READ_PRICE],
    input: { path: 'src/price.ts', old_text: 'what.length', new_text: 'what.length * 2' },
    errors: [
      { path: 'src/price.ts', old_text: 'what.size', new_text: '' },
      { path: 'none.ts', old_text: 'a', new_text: '' },
    ],
  },
  apply_patch: { before: [READ_PRICE], input: { patch: PATCH }, errors: [{ patch: PATCH }, { patch: 'not a patch' }] },
  glob: { input: { pattern: '**/*.ts' }, errors: [{ pattern: '*', path: 'none' }] },
  grep: { input: { pattern: 'price\\(' }, errors: [{ pattern: '(' }, { pattern: 'a', path: 'none' }] },
  bash: { input: { command: 'ls src' }, errors: [{ command: 'exit 3' }] },
  background_list: { before: [IN_BACKGROUND], input: {}, varies: /\d+(?= s\b)/g },
  background_read: { before: [IN_BACKGROUND], input: { handle: 'bash-t1.0' }, errors: [{ handle: 'none' }] },
  background_write: {
    before: [IN_BACKGROUND],
    input: { handle: 'bash-t1.0', text: 'hello\n', end: true },
    errors: [{ handle: 'none', text: '' }],
  },
  background_stop: { before: [IN_BACKGROUND], input: { handle: 'bash-t1.0' }, errors: [{ handle: 'none' }] },
  git_status: { repository: true, input: {} },
  git_diff: { repository: true, input: {}, errors: [{ commit: 'none' }] },
  git_log: { repository: true, input: { max_count: 1 } },
  git_branch: { repository: true, input: {} },
  git_commit: {
    repository: true,
    input: { message: 'Sell plums', paths: ['README.md'] },
    errors: [{ message: 'Again' }],
    // The id of the commit depends on the time.
    varies: /\b[0-9a-f]{7,40}\b/g,
  },
  todowrite: { input: { task: 'Add a test for price', priority: 'high' }, errors: [{ id: 9, status: 'completed' }] },
  todoread: {
    before: [
      { name: 'todowrite', arguments: { task: 'Add a test for price', priority: 'high' } },
      { name: 'todowrite', arguments: { task: 'Describe taxes' } },
      { name: 'todowrite', arguments: { id: 1, status: 'in_progress' } },
    ],
    input: { status: 'in_progress' },
  },
  question: {
    input: { prompt: 'May I rename price()?', choices: ['yes', 'no'] },
    note:
      'The run pauses until there is an answer, and the time in which it waits does not count. An answer that is not one of the ' +
      'choices is rejected. `questionTool({ canAnswer: false })` is for runs without people: the model is told at once that ' +
      'nobody can answer, and decides itself. With `ttlMs`, a question without an answer fails with `timeout`.',
  },
  skill: {
    input: { skill_name: 'pricing' },
    errors: [{ skill_name: 'prices' }],
    note:
      '`skillTool({ skills, fork })` gets its skills from `loadSkills`, and `fork` is what a skill uses that runs on its own. ' +
      'Once a skill is active, the run is [narrowed](../changing-runs.md#narrowing). [Skills](../skills.md) describes them.',
  },
  task: {
    input: { task_description: 'Find out which files use price(), and list them.' },
    note:
      '`taskTool({ models, tools, instructions })` says what a task can use. A task is a [child run](../durable-runs.md#a-run-inside-a-run): ' +
      'the policy of its caller judges its calls, it draws on the ledger of its caller, it has a share of what is left of the limits, ' +
      'and its questions and approvals are those of its caller. A task cannot start tasks, unless `maxDepth` allows it. With ' +
      '`namedAgents`, a task can be given to one of the [agents](../agents.md): the tool then also takes `agent` and `inputs`.',
  },
  agents_list: {
    input: {},
    errors: [],
    note: '`agentsListTool(agents)` lists the [agents](../agents.md) that `task` can call. The command offers it if there are any.',
  },
};

const REVIEWER = {
  name: 'reviewer',
  description: 'Reviews a change for mistakes.',
  inputs: { path: { type: 'string', required: true } },
};

interface Page {
  readonly file: string;
  readonly text: string;
}

/** The pages, with their paths below `docs/tools`. */
export async function toolPages(): Promise<readonly Page[]> {
  const documented = documentedTools(local(tmpdir()));
  const missing = documented.filter(({ name }) => !Object.hasOwn(EXAMPLES, name)).map(({ name }) => name);
  if (missing.length > 0) throw new Error(`Add examples to scripts/tool-docs.ts for: ${missing.join(', ')}.`);
  const pages = documented.map(async (tool) => ({ file: `${tool.name}.md`, text: await toolPage(tool) }));
  return [{ file: 'README.md', text: indexPage(documented) }, ...(await Promise.all(pages))];
}

function documentedTools(ops: Ops): readonly Tool[] {
  const helper = scriptedModel(['src/shop.ts uses price(), and src/price.ts defines it.']);
  return [
    ...codingTools(ops),
    questionTool(),
    skillTool({ skills: [PRICING] }),
    taskTool({ models: { small: helper, large: helper } }),
    agentsListTool(agentRegistry([REVIEWER])),
  ];
}

function indexPage(tools: readonly Tool[]): string {
  const readOnly = new Set(readOnlyTools(local(tmpdir())).map(({ name }) => name));
  const coding = new Set(codingTools(local(tmpdir())).map(({ name }) => name));
  const rows = tools.map((tool) => [
    `[${tool.name}](${tool.name}.md)`,
    escaped(firstSentence(tool.description)),
    tool.permissions?.join(', ') ?? '',
    readOnly.has(tool.name) ? 'read-only, coding' : coding.has(tool.name) ? 'coding' : '',
  ]);
  return [
    '# Tools',
    GENERATED,
    'The tools of `@treadle/tools`, each with its arguments, what the policy judges it by, and real results. `readOnlyTools(ops)` ' +
      'and `codingTools(ops)` are sets of them; the others depend on who runs them. ' +
      '[Writing tools](../writing-tools.md) describes how to write one.',
    table(['tool', 'what it does', 'permissions', 'sets'], rows),
  ].join('\n\n');
}

const GENERATED = '<!-- Generated by `npm run docs:tools`. Change the definition of the tool instead. -->';

async function toolPage(tool: Tool): Promise<string> {
  const example = EXAMPLES[tool.name]!;
  const { result, errors } = await runExample(tool.name, example);
  return [
    `# ${tool.name}`,
    GENERATED,
    escaped(tool.description),
    '## Arguments',
    argumentsTable(tool),
    '## For the policy and the loop',
    factsList(tool, example),
    ...(example.note === undefined ? [] : [example.note]),
    '## Example',
    fenced('json', JSON.stringify(example.input, undefined, 2)),
    `It touches ${touchesText(tool, example.input)}. The result:`,
    fenced('text', toolText(result)),
    '## Errors',
    ...errors.flatMap(({ input, failed }) => [
      `\`${failed.errorType}\`, such as for \`${inputText(input)}\`:`,
      fenced('text', toolText(failed)),
    ]),
    'A call that takes too long fails with `timeout`, one that the policy does not allow with `denied`.',
  ].join('\n\n');
}

function inputText(input: unknown): string {
  const text = JSON.stringify(input);
  return text.length <= 100 ? text : `${text.slice(0, 100)}…`;
}

function argumentsTable({ parameters }: Tool): string {
  const { properties = {}, required = [] } = parameters as {
    readonly properties?: Readonly<Record<string, Readonly<Record<string, unknown>>>>;
    readonly required?: readonly string[];
  };
  const rows = Object.entries(properties).map(([name, schema]) => [
    `\`${name}\``,
    typeText(schema),
    required.includes(name) ? 'yes' : '',
    escaped(String(schema['description'] ?? '')),
  ]);
  return rows.length === 0 ? 'None.' : table(['name', 'type', 'required', 'description'], rows);
}

function typeText(schema: Readonly<Record<string, unknown>>): string {
  if (Array.isArray(schema['enum'])) return schema['enum'].map((value) => `\`${value}\``).join(', ');
  const items = schema['items'] as Readonly<Record<string, unknown>> | undefined;
  const type = items ? `array of ${typeText(items)}` : String(schema['type'] ?? 'any');
  const limits = [
    ['at least', schema['minimum'] ?? schema['minLength'] ?? schema['minItems']],
    ['at most', schema['maximum'] ?? schema['maxLength'] ?? schema['maxItems']],
  ].flatMap(([word, limit]) => (limit === undefined ? [] : `${String(word)} ${String(limit)}`));
  const unit = schema['type'] === 'string' ? ' characters' : items ? ' items' : '';
  return limits.length === 0 ? type : `${type}, ${limits.join(', ')}${unit}`;
}

function factsList(tool: Tool, { input }: Example): string {
  const { permissions = [], effect, timeoutMs, verify, exclusive, remembers, resources } = tool;
  const time = typeof timeoutMs === 'function' ? timeoutMs(input) : timeoutMs;
  const keys = typeof remembers === 'function' ? ['files_read:PATH'] : (remembers ?? []);
  const { timeout_ms: asked } = (tool.parameters['properties'] ?? {}) as Readonly<Record<string, { maximum?: number }>>;
  const longest = asked?.maximum === undefined ? '' : `, up to ${asked.maximum / 1000} s with \`timeout_ms\``;
  return [
    `- Permissions: ${permissions.length === 0 ? 'none' : permissions.map((name) => `\`${name}\``).join(', ')}.`,
    `- Effect: \`${effect}\`. ${EFFECTS[effect]}${verify ? ' `verify` finds out what became of a call.' : ''}`,
    `- Time limit: ${time === undefined ? 'that of the run' : time > 86_400_000 ? 'none' : `${time / 1000} s`}${longest}.`,
    ...(exclusive ? ['- It runs alone.'] : []),
    ...(keys.length > 0 ? [`- Memory of the run: ${keys.map((key) => `\`${key}\``).join(', ')}.`] : []),
    ...(typeof remembers === 'function' ? ['- Calls that name the same file run in call order.'] : []),
    ...(resources && !remembers ? ['- Calls that use the same thing run in call order.'] : []),
  ].join('\n');
}

const EFFECTS: Readonly<Record<Tool['effect'], string>> = {
  pure: 'It changes nothing, so it may run again after a crash.',
  idempotent: 'Running it again after a crash does no harm.',
  once: 'It is not run again after a crash.',
};

function touchesText({ touches }: Tool, input: unknown): string {
  const touched = touches?.(input) ?? [{ type: 'unknown' } as const];
  if (touched.length === 0) return 'nothing outside of the run';
  return touched.map((touch) => `\`${touchText(touch)}\``).join(', ');
}

function touchText({ type, ...rest }: Touch): string {
  const texts = Object.entries(rest).map(([key, value]) => (typeof value === 'number' ? `(${value} ${key})` : value));
  return [type, ...texts].join(' ').replaceAll('\n', String.raw`\n`);
}

interface ExampleResults {
  readonly result: ToolResult;
  readonly errors: readonly { readonly input: Record<string, unknown>; readonly failed: ToolResult }[];
}

/** Makes the calls of an example in one run, in a folder of their own. */
async function runExample(
  name: string,
  { before = [], input, errors = [], repository, varies }: Example,
): Promise<ExampleResults> {
  const base = realpathSync(mkdtempSync(path.join(tmpdir(), 'treadle-tool-docs-')));
  const folder = path.join(base, 'project');
  try {
    writeFiles(folder);
    if (repository) makeRepository(folder);
    const invalid = [...errors, { no_such_argument: true }];
    const calls = [...before, ...[input, ...invalid].map((given) => ({ name, arguments: given }))];
    const results = await resultsOf(documentedTools(local(folder, { env: ENV })), calls);
    const shown = results.map((result) => shownResult(result, base, varies));
    const [result, ...failed] = shown.slice(before.length);
    if (!result || result.isError) throw new Error(`The example of ${name} failed: ${toolText(result!)}`);
    const succeeded = failed.findIndex(({ isError }) => !isError);
    if (succeeded >= 0)
      throw new Error(`No error for ${name} ${JSON.stringify(invalid[succeeded])}. Choose another input.`);
    return { result, errors: failed.map((one, index) => ({ input: invalid[index]!, failed: one })) };
  } finally {
    rmSync(base, { recursive: true });
  }
}

async function resultsOf(tools: readonly Tool[], calls: readonly ScriptedCall[]): Promise<readonly ToolResult[]> {
  const model = scriptedModel([...calls.map((call) => ({ calls: [call] })), 'Done.']);
  const run = { model, tools, journal: memoryJournal(), runId: 'docs', errorLimit: 0, repeatLimit: 0 };
  let result = await runLoop({ ...run, input: 'Go.' });
  while (result.waiting.length > 0) {
    const answers = result.waiting.map((wait) => {
      if (wait.type !== 'question') throw new Error(`An example waits for: ${wait.type}.`);
      return { type: 'answer', effect: wait.effect, value: wait.question.choices?.[0] ?? 'yes' } as const;
    });
    result = await runLoop({ ...run, answers });
  }
  return result.messages.flatMap((message) => (message.role === 'tool' ? message.content : []));
}

/** Without the path of the temporary folder. */
function shownResult(result: ToolResult, base: string, varies?: RegExp): ToolResult {
  const shown = (text: string): string => {
    const here = text.replaceAll(base, '');
    return varies ? here.replaceAll(varies, '…') : here;
  };
  const content = result.content.map((block) => ('text' in block ? { ...block, text: shown(block.text) } : block));
  return { ...result, content };
}

/** With it, the ids of commits are always the same. */
const DATE = '2026-01-02T03:04:05Z';
const ENV = {
  PATH: process.env['PATH'] ?? '',
  GIT_AUTHOR_DATE: DATE,
  GIT_COMMITTER_DATE: DATE,
  GIT_CONFIG_GLOBAL: '/dev/null',
};

function writeFiles(folder: string): void {
  for (const [file, text] of Object.entries(FILES)) {
    mkdirSync(path.dirname(path.join(folder, file)), { recursive: true });
    writeFileSync(path.join(folder, file), text);
  }
}

function makeRepository(folder: string): void {
  const git = (...args: readonly string[]): unknown =>
    execFileSync('git', args, { cwd: folder, env: ENV, stdio: 'pipe' });
  git('init', '-q', '-b', 'main');
  git('config', 'user.name', 'Ada');
  git('config', 'user.email', 'ada@example.com');
  git('add', '.');
  git('commit', '-q', '-m', 'Open the shop');
  writeFileSync(path.join(folder, 'README.md'), `${README}Sells plums.\n`);
}

function toolText(result: ToolResult): string {
  const plain = toLegacyResult(result);
  return plain.status === 'success' ? plain.result : plain.error;
}

function firstSentence(text: string): string {
  return /^.*?\.(?= |$)/s.exec(text)?.[0] ?? text;
}

if (import.meta.main) {
  const folder = path.join(import.meta.dirname, '..', 'docs', 'tools');
  mkdirSync(folder, { recursive: true });
  const pages = await toolPages();
  for (const { file, text } of pages) writeFileSync(path.join(folder, file), `${text}\n`);
  const known = new Set(pages.map(({ file }) => file));
  for (const file of readdirSync(folder)) if (!known.has(file)) rmSync(path.join(folder, file));
  console.log(`docs/tools: ${pages.length} pages`);
}
