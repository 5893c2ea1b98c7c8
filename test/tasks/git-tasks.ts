import type { Commit, Problem, Task, TaskResult } from './task.ts';

/** Written in two parts, so that scanners for keys do not find it here. */
const KEY = `svc_live_${'9f27c1d04be8'}`;

const discount = (operator: string): string => `[ "$1" ${operator} 100 ] && echo $(($1 / 10)) || echo 0\n`;

/** Twelve commits. The eighth changes when there is a discount, with a message that does not say so. */
const REGRESSION: readonly Commit[] = Array.from({ length: 12 }, (_, index) => ({
  message: index === 7 ? 'Tidy the prices' : `Describe part ${index + 1}`,
  files: {
    ...(index === 0 && {
      'check.sh': '# Exactly 100 is not enough for a discount.\ntest "$(sh discount.sh 100)" = 0\n',
      'discount.sh': discount('-gt'),
    }),
    ...(index === 7 && { 'discount.sh': discount('-ge') }),
    'NOTES.md': `Part ${index + 1} is described.\n`,
  },
}));

const LAST_DESIGN = '# Design\n\nA queue between the reader and the writer.\n';

/** The hashes of the commits of main, by subject. */
function commitsOf({ git }: TaskResult): ReadonlyMap<string, string> {
  const lines = git('log', '--format=%H %s', 'main').split('\n');
  return new Map(lines.map((line) => [line.slice(41), line.slice(0, 40)]));
}

/** Whether a text has the hash, whole or shortened. */
function names(text: string, hash: string | undefined): boolean {
  return (text.match(/\b[0-9a-f]{7,40}\b/g) ?? []).some((found) => hash?.startsWith(found));
}

/** The repository is on main without changes, and main has `count` commits, with these among them. */
function* checkMain(result: TaskResult, count: number, ...subjects: readonly string[]): Iterable<Problem> {
  const commits = commitsOf(result);
  const lost = subjects.filter((subject) => !commits.has(subject));
  yield lost.length > 0 && `these commits were lost: ${lost.join(', ')}`;
  yield commits.size !== count && `main has ${commits.size} commits instead of ${count}`;
  const status = result.git('status', '--porcelain', '--branch');
  yield status !== '## main' && `the repository is not on main, or not clean: ${status}`;
}

/** Jobs about the history of a repository. */
export const GIT_TASKS: readonly Task[] = [
  {
    name: 'resolve-conflict',
    prompt:
      'A merge of the branch "colours" into main stopped with a conflict. Resolve it so that both changes are kept (the default ' +
      'size 12 of main and the default colour "blue" of the branch), and complete the merge with a commit. "node test.mjs" must pass.',
    history: [
      {
        message: 'Add the pen',
        files: {
          'pen.mjs': "export function pen({ size = 10, colour = 'black' } = {}) {\n  return `${colour} ${size}`;\n}\n",
          'test.mjs': "import { pen } from './pen.mjs';\n\nif (pen() !== 'blue 12') throw new Error(pen());\n",
        },
      },
      {
        message: 'Use blue',
        branch: 'colours',
        files: {
          'pen.mjs': "export function pen({ size = 10, colour = 'blue' } = {}) {\n  return `${colour} ${size}`;\n}\n",
        },
      },
      {
        message: 'Use size 12',
        files: {
          'pen.mjs': "export function pen({ size = 12, colour = 'black' } = {}) {\n  return `${colour} ${size}`;\n}\n",
        },
      },
    ],
    git: [['merge', 'colours']],
    script: [
      [
        ['git_status', {}],
        ['read', { path: 'pen.mjs' }],
      ],
      [
        [
          'write',
          {
            path: 'pen.mjs',
            content: "export function pen({ size = 12, colour = 'blue' } = {}) {\n  return `${colour} ${size}`;\n}\n",
          },
        ],
      ],
      [['git_commit', { message: 'Merge colours', paths: ['pen.mjs'] }]],
      'The conflict is resolved, and the merge is complete.',
    ],
    *check(result) {
      const { read, git, run, changedOthers } = result;
      yield /^(<{7}|={7}|>{7})/m.test(read('pen.mjs') ?? '') && 'pen.mjs has conflict markers';
      yield changedOthers('pen.mjs');
      yield !run(process.execPath, ['test.mjs']).isOk && 'test.mjs fails';
      yield (
        git('rev-list', '--parents', '--max-count=1', 'main').split(' ').length !== 3 && 'the merge is not committed'
      );
      yield* checkMain(result, 4, 'Use blue', 'Use size 12');
    },
    // One side only.
    wrong: {
      git: [
        ['checkout', '--ours', 'pen.mjs'],
        ['commit', '--all', '--message', 'Merge'],
      ],
    },
  },
  {
    name: 'bisect-regression',
    prompt:
      '"sh check.sh" fails, and passed in the first commit. Which commit broke it? Answer with its hash and its subject. Leave ' +
      'the repository on main, without changes.',
    history: REGRESSION,
    script: [
      [['git_log', { max_count: 20 }]],
      (results) => {
        const first = results[0]!.trim().split('\n').at(-1)!.split(' ')[0]!;
        return [
          [
            'bash',
            {
              command: `git bisect start HEAD ${first} && git bisect run sh check.sh; git bisect reset`,
            },
          ],
        ];
      },
      (results) => `${/([0-9a-f]{40}) is the first bad commit/.exec(results[1]!)![1]} ("Tidy the prices") broke it.`,
    ],
    *check(result) {
      const { answer, changedOthers } = result;
      yield !answer.includes('Tidy the prices') && 'the answer does not have the subject of the commit';
      yield !names(answer, commitsOf(result).get('Tidy the prices')) && 'the answer does not have its hash';
      yield changedOthers();
      yield* checkMain(result, 12);
    },
    wrong: { answer: 'The last commit, "Describe part 12", broke it.' },
  },
  {
    name: 'find-leaked-key',
    prompt:
      'Somebody once committed a key of the service (it starts with "svc_live_") and removed it later. Find it in the history. Answer ' +
      'with the hash of the commit that added it, the hash of the commit that removed it, and the file. Do not repeat the key itself.',
    history: [
      {
        message: 'Add the deployment',
        files: { 'deploy/settings.json': '{ "region": "eu" }\n', 'README.md': '# App\n' },
      },
      { message: 'Prepare the release', files: { 'deploy/settings.json': `{ "region": "eu", "key": "${KEY}" }\n` } },
      { message: 'Describe the app', files: { 'README.md': '# App\n\nKeys start with svc_live_.\n' } },
      { message: 'Tidy settings', files: { 'deploy/settings.json': '{ "region": "eu", "key": "$KEY" }\n' } },
      { message: 'Add a licence', files: { LICENSE: 'MIT\n' } },
    ],
    script: [
      [['bash', { command: "git log --pickaxe-regex -S'svc_live_[0-9a-f]+' --format=%H --name-only --reverse" }]],
      (results) => {
        const [added, removed] = results[0]!.match(/\b[0-9a-f]{40}\b/g)!;
        return `${added} added it to deploy/settings.json, and ${removed} removed it.`;
      },
    ],
    *check(result) {
      const { answer, changedOthers } = result;
      yield !answer.includes('settings.json') && 'the answer does not name the file';
      yield answer.includes(KEY) && 'the answer repeats the key';
      yield changedOthers();
      const commits = commitsOf(result);
      yield !names(answer, commits.get('Prepare the release')) && 'the answer does not have the commit that added it';
      yield !names(answer, commits.get('Tidy settings')) && 'the answer does not have the commit that removed it';
      yield names(answer, commits.get('Describe the app')) && 'the answer names a commit that only describes keys';
    },
    wrong: { answer: `The key ${KEY} was in deploy/settings.json.` },
  },
  {
    name: 'revert-commit',
    prompt:
      'The commit "Round totals down" was a mistake. Undo it with a new commit. Later commits must stay, and the working folder must ' +
      'be clean at the end.',
    history: [
      {
        message: 'Add totals',
        files: { 'total.mjs': 'export const total = (sum) => sum;\n', 'README.md': '# Totals\n' },
      },
      { message: 'Round totals down', files: { 'total.mjs': 'export const total = (sum) => Math.floor(sum);\n' } },
      { message: 'Describe totals', files: { 'README.md': '# Totals\n\nSums of prices.\n' } },
    ],
    script: [
      [['git_log', {}]],
      (results) => {
        const hash = /^(\w+) .*Round totals down$/m.exec(results[0]!)![1];
        return [
          ['git_diff', { commit: `${hash}~1..${hash}` }],
          ['bash', { command: `git revert --no-edit ${hash}` }],
        ];
      },
      [['git_status', {}]],
      'The commit is reverted.',
    ],
    *check(result) {
      const { read, changedOthers } = result;
      yield read('total.mjs') !== 'export const total = (sum) => sum;\n' && 'total.mjs is not as before that commit';
      yield changedOthers('total.mjs');
      yield* checkMain(result, 4, 'Round totals down', 'Describe totals');
    },
    // Later commits are lost.
    wrong: { git: [['reset', '--hard', 'HEAD~2']] },
  },
  {
    name: 'recover-deleted-file',
    prompt:
      'docs/design.md was deleted some commits ago. Put it back with its last content. Do not commit, and do not change anything else.',
    history: [
      { message: 'Add the design', files: { 'docs/design.md': '# Design\n\nA file.\n', 'README.md': '# App\n' } },
      { message: 'Use a queue', files: { 'docs/design.md': LAST_DESIGN } },
      { message: 'Tidy the docs', files: { 'docs/design.md': null, 'docs/use.md': '# Use\n' } },
      { message: 'Describe the app', files: { 'README.md': '# App\n\nReads and writes.\n' } },
    ],
    script: [
      [['git_log', { path: 'docs/design.md' }]],
      (results) => [['bash', { command: `git show ${results[0]!.split(' ')[0]}~1:docs/design.md > docs/design.md` }]],
      [['read', { path: 'docs/design.md' }]],
      'docs/design.md is back.',
    ],
    *check(result) {
      const { read, changedOthers } = result;
      yield read('docs/design.md') !== LAST_DESIGN && 'docs/design.md does not have its last content';
      yield changedOthers('docs/design.md');
      yield commitsOf(result).size !== 4 && 'something was committed';
    },
    wrong: { files: { 'docs/design.md': '# Design\n\nA file.\n' } },
  },
  {
    name: 'update-changelog',
    prompt:
      'Add a section "## 1.1.0" at the top of the versions in CHANGELOG.md, in the form of the existing one: one line "- SUBJECT" for ' +
      'each commit since "Release 1.0.0" whose subject does not start with "chore:", oldest first. Create a branch "release-1.1.0", and ' +
      'commit the change there as "Describe 1.1.0".',
    history: [
      { message: 'Add a parser', files: { 'parse.mjs': 'export const parse = JSON.parse;\n' } },
      {
        message: 'Release 1.0.0',
        files: { 'CHANGELOG.md': '# Changes\n\n## 1.0.0\n\n- Add a parser\n' },
      },
      { message: 'Accept comments', files: { 'parse.mjs': 'export const parse = (text) => JSON.parse(text);\n' } },
      { message: 'chore: add a licence', files: { LICENSE: 'MIT\n' } },
      { message: 'Report the line of an error', files: { 'error.mjs': 'export const line = 1;\n' } },
    ],
    script: [
      [
        ['git_log', {}],
        ['read', { path: 'CHANGELOG.md' }],
        ['git_branch', { operation: 'create', name: 'release-1.1.0' }],
      ],
      [
        [
          'edit',
          {
            path: 'CHANGELOG.md',
            old_text: '## 1.0.0\n',
            new_text: '## 1.1.0\n\n- Accept comments\n- Report the line of an error\n\n## 1.0.0\n',
          },
        ],
      ],
      [['git_commit', { message: 'Describe 1.1.0', paths: ['CHANGELOG.md'] }]],
      'CHANGELOG.md describes 1.1.0 on the branch release-1.1.0.',
    ],
    *check(result) {
      const { git, changedOthers } = result;
      yield changedOthers('CHANGELOG.md');
      const text = git('show', 'release-1.1.0:CHANGELOG.md');
      yield (
        text !==
          '# Changes\n\n## 1.1.0\n\n- Accept comments\n- Report the line of an error\n\n## 1.0.0\n\n- Add a parser' &&
          'CHANGELOG.md on release-1.1.0 is not as described'
      );
      const added = git('log', '--format=%s', 'main..release-1.1.0');
      yield added !== 'Describe 1.1.0' && 'release-1.1.0 does not have that commit, or others too';
      yield commitsOf(result).size !== 5 && 'main has changed';
    },
    // Lists the chore too.
    wrong: {
      files: {
        'CHANGELOG.md':
          '# Changes\n\n## 1.1.0\n\n- Accept comments\n- chore: add a licence\n- Report the line of an error\n\n## 1.0.0\n\n- Add a parser\n',
      },
      git: [
        ['checkout', '-b', 'release-1.1.0'],
        ['commit', '--all', '--message', 'Describe 1.1.0'],
      ],
    },
  },
];
