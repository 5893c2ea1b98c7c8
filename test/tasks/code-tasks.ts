import type { Task } from './task.ts';

/** Jobs that change or explain code. */
export const CODE_TASKS: readonly Task[] = [
  {
    name: 'rename-function',
    prompt:
      'Rename the function getUser to findUser everywhere in this project, code and docs. getUserName is another function ' +
      'and keeps its name. Run "node test.mjs" at the end.',
    history: [
      {
        message: 'Add users',
        files: {
          'src/users.mjs':
            "const users = new Map([[1, { name: 'Ann' }]]);\n\nexport function getUser(id) {\n  return users.get(id);\n}\n\n" +
            'export function getUserName(id) {\n  return getUser(id)?.name;\n}\n',
          'src/greet.mjs':
            "import { getUser, getUserName } from './users.mjs';\n\nexport const greet = (id) =>\n" +
            '  getUser(id) ? `Hello ${getUserName(id)}` : `Hello`;\n',
          'test.mjs':
            "import assert from 'node:assert';\nimport { greet } from './src/greet.mjs';\nimport * as users from './src/users.mjs';\n\n" +
            "assert.equal(greet(1), 'Hello Ann');\nassert.equal(users.getUser(2), undefined);\n",
          'README.md': '# Users\n\n`getUser(id)` returns a user, `getUserName(id)` its name.\n',
        },
      },
    ],
    script: [
      [['grep', { pattern: '\\bgetUser\\b' }]],
      [
        [
          'edit',
          {
            path: 'src/users.mjs',
            edits: [
              { old_text: 'function getUser(id)', new_text: 'function findUser(id)' },
              { old_text: 'return getUser(id)', new_text: 'return findUser(id)' },
            ],
          },
        ],
        [
          'edit',
          {
            path: 'src/greet.mjs',
            edits: [
              { old_text: '{ getUser,', new_text: '{ findUser,' },
              { old_text: '  getUser(id)', new_text: '  findUser(id)' },
            ],
          },
        ],
        ['edit', { path: 'test.mjs', old_text: 'users.getUser(', new_text: 'users.findUser(' }],
        ['edit', { path: 'README.md', old_text: '`getUser(', new_text: '`findUser(' }],
      ],
      [['bash', { command: 'node test.mjs' }]],
      'Renamed getUser to findUser in four files.',
    ],
    *check({ read, run, changedOthers }) {
      const files = ['src/users.mjs', 'src/greet.mjs', 'test.mjs', 'README.md'];
      const old = files.filter((file) => /\bgetUser\b/.test(read(file) ?? ''));
      yield old.length > 0 && `getUser is still in ${old.join(', ')}`;
      yield !read('src/users.mjs')?.includes('function getUserName(') && 'getUserName was renamed too';
      yield !read('README.md')?.includes('findUser(id)') && 'README.md does not name findUser';
      yield changedOthers(...files);
      yield !run(process.execPath, ['test.mjs']).isOk && 'test.mjs fails';
    },
    wrong: {
      // Replaces the beginning of getUserName too.
      files: {
        'src/users.mjs':
          "const users = new Map([[1, { name: 'Ann' }]]);\n\nexport function findUser(id) {\n  return users.get(id);\n}\n\n" +
          'export function findUserName(id) {\n  return findUser(id)?.name;\n}\n',
        'src/greet.mjs':
          "import { findUser, findUserName } from './users.mjs';\n\nexport const greet = (id) =>\n" +
          '  findUser(id) ? `Hello ${findUserName(id)}` : `Hello`;\n',
        'test.mjs':
          "import assert from 'node:assert';\nimport { greet } from './src/greet.mjs';\nimport * as users from './src/users.mjs';\n\n" +
          "assert.equal(greet(1), 'Hello Ann');\nassert.equal(users.findUser(2), undefined);\n",
        'README.md': '# Users\n\n`findUser(id)` returns a user, `findUserName(id)` its name.\n',
      },
    },
  },
  {
    name: 'fix-failing-test',
    prompt: '"node test.mjs" fails. Find the mistake in src/ and correct it. The test is right: do not change it.',
    history: [
      {
        message: 'Add pages',
        files: {
          'src/pages.mjs':
            '/** Pages that `count` items need. */\nexport function pageCount(count, size) {\n  return Math.floor(count / size);\n}\n\n' +
            '/** The items of a page, counted from 1. */\nexport function pageOf(items, page, size) {\n' +
            '  return items.slice((page - 1) * size, page * size);\n}\n',
          'test.mjs':
            "import assert from 'node:assert';\nimport { pageCount, pageOf } from './src/pages.mjs';\n\n" +
            'assert.deepEqual(pageOf([1, 2, 3], 2, 2), [3]);\nassert.equal(pageCount(4, 2), 2);\nassert.equal(pageCount(5, 2), 3);\n',
        },
      },
    ],
    script: [
      [['bash', { command: 'node test.mjs' }]],
      [['read', { path: 'src/pages.mjs' }]],
      [['edit', { path: 'src/pages.mjs', old_text: 'Math.floor(', new_text: 'Math.ceil(' }]],
      [['bash', { command: 'node test.mjs' }]],
      'pageCount rounded down. It rounds up now, and the test passes.',
    ],
    *check({ run, changedOthers }) {
      yield changedOthers('src/pages.mjs');
      // Other numbers than those of the test, for solutions that return its values.
      const code =
        "import './test.mjs'; import { pageCount, pageOf } from './src/pages.mjs'; " +
        "if (pageCount(7, 3) + pageCount(0, 3) + pageOf([1, 2, 3], 1, 2).length !== 5) throw new Error('wrong');";
      yield !run(process.execPath, ['--input-type=module', '--eval', code]).isOk && 'the code is still wrong';
    },
    wrong: {
      files: {
        'test.mjs':
          "import assert from 'node:assert';\nimport { pageCount } from './src/pages.mjs';\n\nassert.equal(pageCount(5, 2), 2);\n",
      },
    },
  },
  {
    name: 'remove-dead-code',
    prompt:
      'Remove the functions in src/text.mjs that nothing in this project uses, exported or not. Keep everything that is used. ' +
      '"node test.mjs" must pass.',
    history: [
      {
        message: 'Add texts',
        files: {
          'src/text.mjs':
            "export function upper(text) {\n  return text.toUpperCase();\n}\n\nexport function reverse(text) {\n  return [...text].toReversed().join('');\n}\n\n" +
            'function pad(text) {\n  return text.padStart(8);\n}\n\nexport function indent(text) {\n  return `  ${trim(text)}`;\n}\n\nfunction trim(text) {\n  return text.trim();\n}\n',
          'src/main.mjs': "import { upper } from './text.mjs';\n\nexport const shout = (text) => `${upper(text)}!`;\n",
          'test.mjs':
            "import assert from 'node:assert';\nimport { shout } from './src/main.mjs';\nimport { indent } from './src/text.mjs';\n\n" +
            "assert.equal(shout('a'), 'A!');\nassert.equal(indent(' a'), '  a');\n",
        },
      },
    ],
    script: [
      [
        ['read', { path: 'src/text.mjs' }],
        ['grep', { pattern: '\\b(upper|reverse|pad|indent|trim)\\b', output: 'content' }],
      ],
      [
        [
          'apply_patch',
          {
            patch:
              '*** Begin Patch\n*** Update File: src/text.mjs\n@@\n-export function reverse(text) {\n' +
              "-  return [...text].toReversed().join('');\n-}\n-\n-function pad(text) {\n-  return text.padStart(8);\n-}\n-\n" +
              ' export function indent(text) {\n*** End Patch\n',
          },
        ],
      ],
      'Removed reverse and pad, which nothing used.',
    ],
    *check({ read, run, changedOthers }) {
      const text = read('src/text.mjs') ?? '';
      const left = ['reverse', 'pad'].filter((name) => text.includes(`function ${name}(`));
      const gone = ['upper', 'indent', 'trim'].filter((name) => !text.includes(`function ${name}(`));
      yield left.length > 0 && `${left.join(' and ')} should be removed`;
      yield gone.length > 0 && `${gone.join(' and ')} should be kept`;
      yield changedOthers('src/text.mjs');
      yield !run(process.execPath, ['test.mjs']).isOk && 'test.mjs fails';
    },
    // Only what is not exported.
    wrong: {
      files: {
        'src/text.mjs':
          "export function upper(text) {\n  return text.toUpperCase();\n}\n\nexport function reverse(text) {\n  return [...text].toReversed().join('');\n}\n\n" +
          'export function indent(text) {\n  return `  ${trim(text)}`;\n}\n\nfunction trim(text) {\n  return text.trim();\n}\n',
      },
    },
  },
  {
    name: 'extract-constant',
    prompt:
      'The timeout 30000 is repeated in src/client.mjs and src/upload.mjs. Export it once as DEFAULT_TIMEOUT_MS from a new file ' +
      'src/timeouts.mjs, and import it where it is used. The 30000 in src/limits.mjs is a number of rows: leave it. ' +
      '"node test.mjs" must pass.',
    history: [
      {
        message: 'Add the client',
        files: {
          'src/client.mjs': 'export const request = (url, timeoutMs = 30000) => ({ url, timeoutMs });\n',
          'src/upload.mjs':
            'export function upload(file, { timeoutMs } = {}) {\n  return { file, timeoutMs: timeoutMs ?? 30000 };\n}\n',
          'src/limits.mjs': 'export const MAX_ROWS = 30000;\n',
          'test.mjs':
            "import assert from 'node:assert';\nimport { request } from './src/client.mjs';\nimport { upload } from './src/upload.mjs';\n\n" +
            "assert.equal(request('x').timeoutMs, 30000);\nassert.equal(upload('x').timeoutMs, 30000);\nassert.equal(upload('x', { timeoutMs: 5 }).timeoutMs, 5);\n",
        },
      },
    ],
    script: [
      [['grep', { pattern: '30000', path: 'src' }]],
      [
        ['write', { path: 'src/timeouts.mjs', content: 'export const DEFAULT_TIMEOUT_MS = 30_000;\n' }],
        [
          'apply_patch',
          {
            patch:
              '--- a/src/client.mjs\n+++ b/src/client.mjs\n@@ -1 +1,3 @@\n' +
              '-export const request = (url, timeoutMs = 30000) => ({ url, timeoutMs });\n' +
              "+import { DEFAULT_TIMEOUT_MS } from './timeouts.mjs';\n+\n" +
              '+export const request = (url, timeoutMs = DEFAULT_TIMEOUT_MS) => ({ url, timeoutMs });\n' +
              '--- a/src/upload.mjs\n+++ b/src/upload.mjs\n@@ -1,3 +1,5 @@\n' +
              "+import { DEFAULT_TIMEOUT_MS } from './timeouts.mjs';\n+\n export function upload(file, { timeoutMs } = {}) {\n" +
              '-  return { file, timeoutMs: timeoutMs ?? 30000 };\n+  return { file, timeoutMs: timeoutMs ?? DEFAULT_TIMEOUT_MS };\n }\n',
          },
        ],
      ],
      'The timeout is in src/timeouts.mjs now.',
    ],
    *check({ read, run, changedOthers }) {
      yield (
        !/export const DEFAULT_TIMEOUT_MS = 30_?000\b/.test(read('src/timeouts.mjs') ?? '') &&
          'src/timeouts.mjs does not export DEFAULT_TIMEOUT_MS'
      );
      for (const file of ['src/client.mjs', 'src/upload.mjs']) {
        const text = read(file) ?? '';
        yield (/30_?000/.test(text) || !text.includes('DEFAULT_TIMEOUT_MS')) && `${file} does not use the constant`;
      }
      yield changedOthers('src/timeouts.mjs', 'src/client.mjs', 'src/upload.mjs');
      yield !run(process.execPath, ['test.mjs']).isOk && 'test.mjs fails';
    },
    // Replaces the number of rows too.
    wrong: {
      files: {
        'src/timeouts.mjs': 'export const DEFAULT_TIMEOUT_MS = 30000;\n',
        'src/client.mjs':
          "import { DEFAULT_TIMEOUT_MS } from './timeouts.mjs';\n\n" +
          'export const request = (url, timeoutMs = DEFAULT_TIMEOUT_MS) => ({ url, timeoutMs });\n',
        'src/upload.mjs':
          "import { DEFAULT_TIMEOUT_MS } from './timeouts.mjs';\n\nexport function upload(file, { timeoutMs } = {}) {\n" +
          '  return { file, timeoutMs: timeoutMs ?? DEFAULT_TIMEOUT_MS };\n}\n',
        'src/limits.mjs':
          "import { DEFAULT_TIMEOUT_MS } from './timeouts.mjs';\n\nexport const MAX_ROWS = DEFAULT_TIMEOUT_MS;\n",
      },
    },
  },
  {
    name: 'add-cli-flag',
    prompt:
      'Add a flag --upper to cli.mjs that prints the greeting in upper case. It may come before or after the name. Add a line ' +
      'for it to the help text. Everything else stays as it is.',
    history: [
      {
        message: 'Add the command',
        files: {
          'cli.mjs':
            "const args = process.argv.slice(2);\n\nif (args.includes('--help')) {\n" +
            "  console.log('Usage: cli.mjs [NAME]\\n\\n  --help  Show this help');\n  process.exit(0);\n}\n\n" +
            "const [name = 'world'] = args;\nconsole.log(`Hello ${name}`);\n",
        },
      },
    ],
    script: [
      [['read', { path: 'cli.mjs' }]],
      [
        [
          'edit',
          {
            path: 'cli.mjs',
            edits: [
              {
                old_text: '  --help  Show this help',
                new_text: '  --help   Show this help\\n  --upper  Print in upper case',
              },
              {
                old_text: "const [name = 'world'] = args;\nconsole.log(`Hello ${name}`);",
                new_text:
                  "const [name = 'world'] = args.filter((arg) => arg !== '--upper');\nconst greeting = `Hello ${name}`;\n" +
                  "console.log(args.includes('--upper') ? greeting.toUpperCase() : greeting);",
              },
            ],
          },
        ],
      ],
      'cli.mjs has the flag --upper.',
    ],
    *check({ run, changedOthers }) {
      yield changedOthers('cli.mjs');
      const printed = (...args: readonly string[]): string => run(process.execPath, ['cli.mjs', ...args]).output.trim();
      yield printed('Ann', '--upper') !== 'HELLO ANN' && 'the flag does not work after the name';
      yield printed('--upper', 'Ann') !== 'HELLO ANN' && 'the flag does not work before the name';
      yield printed() !== 'Hello world' && 'without arguments it does not print "Hello world"';
      const help = printed('--help');
      yield !(help.includes('--upper') && help.includes('--help')) && 'the help does not name both flags';
    },
    wrong: {
      // Works only if the flag comes first.
      files: {
        'cli.mjs':
          "const args = process.argv.slice(2);\n\nif (args.includes('--help')) {\n" +
          "  console.log('Usage: cli.mjs [NAME]\\n\\n  --help  Show this help\\n  --upper  Upper case');\n  process.exit(0);\n}\n\n" +
          "const upper = args[0] === '--upper' && args.shift();\nconst [name = 'world'] = args;\n" +
          'console.log(upper ? `Hello ${name}`.toUpperCase() : `Hello ${name}`);\n',
      },
    },
  },
  {
    name: 'write-missing-test',
    prompt:
      'src/clamp.mjs has no test. Write test.mjs with node:assert, to be run by "node test.mjs": it must fail if clamp does not ' +
      'respect its lower bound, its upper bound, or does not throw when min is larger than max. Do not change src/clamp.mjs.',
    history: [
      {
        message: 'Add clamp',
        files: {
          'src/clamp.mjs':
            "export function clamp(value, min, max) {\n  if (min > max) throw new RangeError('min is larger than max');\n" +
            '  return Math.min(Math.max(value, min), max);\n}\n',
        },
      },
    ],
    script: [
      [['read', { path: 'src/clamp.mjs' }]],
      [
        [
          'write',
          {
            path: 'test.mjs',
            content:
              "import assert from 'node:assert';\nimport { clamp } from './src/clamp.mjs';\n\nassert.equal(clamp(5, 0, 10), 5);\n" +
              'assert.equal(clamp(-1, 0, 10), 0);\nassert.equal(clamp(11, 0, 10), 10);\nassert.throws(() => clamp(1, 2, 1), RangeError);\n',
          },
        ],
      ],
      'test.mjs covers both bounds and the error.',
    ],
    *check({ read, run, changedOthers }) {
      if (read('test.mjs') === undefined) return yield 'there is no test.mjs';
      yield changedOthers('test.mjs');
      const passesWith = (body: string): boolean =>
        run(process.execPath, ['test.mjs'], { 'src/clamp.mjs': `export function clamp(value, min, max) {${body}}\n` })
          .isOk;
      const check = "if (min > max) throw new RangeError('min is larger than max');";
      yield passesWith(`${check} return Math.min(value, max);`) && 'the lower bound is not tested';
      yield passesWith(`${check} return Math.max(value, min);`) && 'the upper bound is not tested';
      yield passesWith('return Math.min(Math.max(value, min), max);') && 'the error is not tested';
      yield !run(process.execPath, ['test.mjs']).isOk && 'test.mjs fails';
    },
    wrong: {
      files: {
        'test.mjs':
          "import assert from 'node:assert';\nimport { clamp } from './src/clamp.mjs';\n\nassert.equal(clamp(5, 0, 10), 5);\nassert.equal(clamp(11, 0, 10), 10);\n",
      },
    },
  },
  {
    name: 'split-file',
    prompt:
      'Split src/shapes.mjs: each class goes into a file of its own, src/circle.mjs and src/square.mjs. src/shapes.mjs stays, and ' +
      'only re-exports both, because others import it. "node test.mjs" must pass.',
    history: [
      {
        message: 'Add shapes',
        files: {
          'src/shapes.mjs':
            'export class Circle {\n  constructor(radius) {\n    this.radius = radius;\n  }\n\n  area() {\n    return Math.PI * this.radius ** 2;\n  }\n}\n\n' +
            'export class Square {\n  constructor(side) {\n    this.side = side;\n  }\n\n  area() {\n    return this.side ** 2;\n  }\n}\n',
          'test.mjs':
            "import assert from 'node:assert';\nimport { Circle, Square } from './src/shapes.mjs';\n\n" +
            'assert.equal(new Square(3).area(), 9);\nassert.equal(new Circle(1).area(), Math.PI);\n',
        },
      },
    ],
    script: [
      [['read', { path: 'src/shapes.mjs' }]],
      (results) => {
        const text = results[0]!.replace(/^\s*\d+\t/gm, '');
        const at = text.indexOf('export class Square');
        return [
          ['write', { path: 'src/circle.mjs', content: `${text.slice(0, at).trim()}\n` }],
          ['write', { path: 'src/square.mjs', content: `${text.slice(at).trim()}\n` }],
          [
            'write',
            {
              path: 'src/shapes.mjs',
              content: "export { Circle } from './circle.mjs';\nexport { Square } from './square.mjs';\n",
            },
          ],
        ];
      },
      'Each class has a file of its own.',
    ],
    *check({ read, run, changedOthers }) {
      yield (
        /^\s*(export )?class /m.test(read('src/shapes.mjs') ?? 'class ') &&
          'src/shapes.mjs still has a class, or is gone'
      );
      yield !/class Circle/.test(read('src/circle.mjs') ?? '') && 'src/circle.mjs does not have the class';
      yield !/class Square/.test(read('src/square.mjs') ?? '') && 'src/square.mjs does not have the class';
      yield changedOthers('src/shapes.mjs', 'src/circle.mjs', 'src/square.mjs');
      yield !run(process.execPath, ['test.mjs']).isOk && 'test.mjs fails';
    },
    // One class is not exported any more.
    wrong: {
      files: {
        'src/shapes.mjs': "export { Circle } from './circle.mjs';\n",
        'src/circle.mjs': 'export class Circle {\n  area() {\n    return Math.PI;\n  }\n}\n',
        'src/square.mjs': 'export class Square {\n  area() {\n    return 9;\n  }\n}\n',
      },
    },
  },
  {
    name: 'sort-imports',
    prompt:
      'Sort the imports at the top of src/app.mjs: first those from "node:…", then an empty line, then the relative ones; each ' +
      'group by the name of the module. Change nothing else.',
    history: [
      {
        message: 'Add the app',
        files: {
          'src/app.mjs':
            "import { two } from './two.mjs';\nimport { join } from 'node:path';\nimport { one } from './one.mjs';\nimport { EOL } from 'node:os';\n\n" +
            "// import { zero } from './zero.mjs';\nexport const all = join(one, two) + EOL;\n",
          'src/one.mjs': "export const one = 'one';\n",
          'src/two.mjs': "export const two = 'two';\n",
        },
      },
    ],
    script: [
      [['read', { path: 'src/app.mjs', limit: 6 }]],
      [
        [
          'edit',
          {
            path: 'src/app.mjs',
            old_text:
              "import { two } from './two.mjs';\nimport { join } from 'node:path';\nimport { one } from './one.mjs';\nimport { EOL } from 'node:os';\n",
            new_text:
              "import { EOL } from 'node:os';\nimport { join } from 'node:path';\n\nimport { one } from './one.mjs';\nimport { two } from './two.mjs';\n",
          },
        ],
      ],
      'The imports are sorted.',
    ],
    check: ({ read, changedOthers }) => [
      read('src/app.mjs') !==
        "import { EOL } from 'node:os';\nimport { join } from 'node:path';\n\nimport { one } from './one.mjs';\nimport { two } from './two.mjs';\n\n" +
          "// import { zero } from './zero.mjs';\nexport const all = join(one, two) + EOL;\n" &&
        'src/app.mjs is not as described',
      changedOthers('src/app.mjs'),
    ],
    // Sorted by the whole line.
    wrong: {
      files: {
        'src/app.mjs':
          "import { EOL } from 'node:os';\nimport { join } from 'node:path';\nimport { one } from './one.mjs';\nimport { two } from './two.mjs';\n\n" +
          "// import { zero } from './zero.mjs';\nexport const all = join(one, two) + EOL;\n",
      },
    },
  },
  {
    name: 'fix-shell-script',
    prompt:
      'count.sh prints the number of lines of each file that it gets as an argument, as "NAME: COUNT". It fails for names with ' +
      'spaces, and it ends with exit code 0 if a file is missing. Correct both: a missing file is reported on standard error, ' +
      'the other files are still counted, and the exit code is 1 then.',
    history: [
      {
        message: 'Add count.sh',
        files: {
          'count.sh': '#!/bin/sh\nfor file in $*; do\n  echo "$file: $(wc -l < $file | tr -d \' \')"\ndone\nexit 0\n',
          'data/a b.txt': 'one\ntwo\n',
          'data/c.txt': 'one\n',
        },
      },
    ],
    script: [
      [
        ['read', { path: 'count.sh' }],
        ['bash', { command: './count.sh "data/a b.txt" data/none.txt; echo "code $?"' }],
      ],
      [
        [
          'write',
          {
            path: 'count.sh',
            content:
              '#!/bin/sh\ncode=0\nfor file in "$@"; do\n  if [ -f "$file" ]; then\n    echo "$file: $(wc -l < "$file" | tr -d \' \')"\n' +
              '  else\n    echo "$file: no such file" >&2\n    code=1\n  fi\ndone\nexit "$code"\n',
          },
        ],
      ],
      [['bash', { command: './count.sh "data/a b.txt" data/none.txt data/c.txt; echo "code $?"' }]],
      'count.sh handles spaces and missing files.',
    ],
    *check({ run, changedOthers }) {
      yield changedOthers('count.sh');
      const missing = './count.sh data/none.txt "data/a b.txt" 2>/dev/null; echo "code $?"';
      const { output } = run('sh', ['-c', `${missing}; ./count.sh data/none.txt 2>&1 >/dev/null`]);
      yield (
        !output.startsWith('data/a b.txt: 2\ncode 1\n') && `with a missing file it prints ${JSON.stringify(output)}`
      );
      yield !output.split('code 1\n')[1]?.includes('none.txt') && 'the missing file is not reported on standard error';
      const all = run('sh', ['-c', './count.sh "data/a b.txt" data/c.txt && echo fine']).output;
      yield all !== 'data/a b.txt: 2\ndata/c.txt: 1\nfine\n' && `for two files it prints ${JSON.stringify(all)}`;
    },
    // The first missing file ends it.
    wrong: {
      files: {
        'count.sh':
          '#!/bin/sh\nset -e\nfor file in "$@"; do\n  lines=$(wc -l < "$file")\n  echo "$file: $((lines))"\ndone\n',
      },
    },
  },
  {
    name: 'answer-question',
    prompt:
      'How many times is a failed request sent at most, counted together with the first attempt, with the settings that ' +
      'src/main.mjs uses? Answer with a sentence that contains the number as digits, and name the file that sets it. Change nothing.',
    history: [
      {
        message: 'Add retries',
        files: {
          'src/retry.mjs':
            'import { defaults } from "./defaults.mjs";\n\n/** `retries`: attempts after the first one. */\n' +
            'export async function send(request, { retries = defaults.retries } = {}) {\n  for (let attempt = 0; ; attempt++) {\n' +
            '    try {\n      return await request();\n    } catch (error) {\n      if (attempt >= retries) throw error;\n    }\n  }\n}\n',
          'src/defaults.mjs': 'export const defaults = { retries: 2, timeoutMs: 5 };\n',
          'src/settings/production.mjs': 'export const production = { retries: 6 };\n',
          'src/main.mjs':
            "import { send } from './retry.mjs';\nimport { production } from './settings/production.mjs';\n\nawait send(fetchAll, production);\n",
        },
      },
    ],
    script: [
      [['grep', { pattern: 'retries', context: 2 }]],
      [['read', { path: 'src/main.mjs' }]],
      'A request is sent at most 7 times: src/settings/production.mjs allows 6 retries after the first attempt.',
    ],
    check: ({ answer, changedOthers }) => [
      !/\b7\b/.test(answer) && 'the answer is not 7',
      !answer.includes('production.mjs') && 'the answer does not name the file',
      changedOthers(),
    ],
    wrong: { answer: 'It is sent at most 6 times, as src/settings/production.mjs says.' },
  },
  {
    name: 'apply-review',
    prompt:
      'REVIEW.md has the comments of a review. Do what they ask for, and check off ("[x]") each comment in REVIEW.md. "node test.mjs" ' +
      'must pass.',
    history: [
      {
        message: 'Add the cart',
        files: {
          'src/cart.mjs':
            "export function total(items) {\n  console.log('total', items);\n  var sum = 0;\n  for (const item of items) sum += item.price;\n  return sum;\n}\n",
          'test.mjs':
            "import assert from 'node:assert';\nimport { total } from './src/cart.mjs';\n\nassert.equal(total([{ price: 2, count: 1 }]), 2);\n",
          'REVIEW.md':
            '- [ ] src/cart.mjs: remove the debug output\n- [ ] src/cart.mjs: use let instead of var\n' +
            '- [ ] src/cart.mjs: total ignores `count` of the items. Multiply by it; an item without `count` counts once.\n' +
            '- [ ] test.mjs: add an assertion for an item with count 3\n',
        },
      },
    ],
    script: [
      [
        ['read', { path: 'REVIEW.md' }],
        ['read', { path: 'src/cart.mjs' }],
        ['todowrite', { task: 'Do the four comments of REVIEW.md', priority: 'high' }],
      ],
      [
        [
          'apply_patch',
          {
            patch:
              "*** Begin Patch\n*** Update File: src/cart.mjs\n@@\n-  console.log('total', items);\n-  var sum = 0;\n-  for (const item of items) sum += item.price;\n" +
              '+  let sum = 0;\n+  for (const { price, count = 1 } of items) sum += price * count;\n' +
              '*** Update File: test.mjs\n@@\n assert.equal(total([{ price: 2, count: 1 }]), 2);\n' +
              '+assert.equal(total([{ price: 2, count: 3 }, { price: 1 }]), 7);\n*** End Patch\n',
          },
        ],
        ['edit', { path: 'REVIEW.md', old_text: '- [ ]', new_text: '- [x]', replace_all: true }],
      ],
      [['todoread', {}]],
      'All comments are done.',
    ],
    *check({ read, run, changedOthers }) {
      const code = read('src/cart.mjs') ?? '';
      yield code.includes('console.log') && 'the debug output is still there';
      yield /\bvar\b/.test(code) && 'var is still used';
      yield !/count: ?3/.test(read('test.mjs') ?? '') && 'test.mjs has no item with count 3';
      yield read('REVIEW.md')?.match(/^- \[x\]/gim)?.length !== 4 && 'not all comments are checked off';
      yield changedOthers('src/cart.mjs', 'test.mjs', 'REVIEW.md');
      const { isOk, output } = run(process.execPath, [
        '--input-type=module',
        '--eval',
        "import './test.mjs'; import { total } from './src/cart.mjs'; console.log(total([{ price: 2, count: 4 }, { price: 1 }]));",
      ]);
      yield !isOk && 'test.mjs fails';
      yield output.trim() !== '9' && 'total does not use count as described';
    },
    wrong: {
      // Everything is checked off, and items without count are lost.
      files: {
        'src/cart.mjs':
          'export function total(items) {\n  let sum = 0;\n  for (const item of items) sum += item.price * item.count;\n  return sum;\n}\n',
        'test.mjs':
          "import assert from 'node:assert';\nimport { total } from './src/cart.mjs';\n\nassert.equal(total([{ price: 2, count: 3 }]), 6);\n",
        'REVIEW.md':
          '- [x] src/cart.mjs: remove the debug output\n- [x] src/cart.mjs: use let instead of var\n' +
          '- [x] src/cart.mjs: total ignores `count` of the items. Multiply by it; an item without `count` counts once.\n' +
          '- [x] test.mjs: add an assertion for an item with count 3\n',
      },
    },
  },
];
