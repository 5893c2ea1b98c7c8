import type { Task } from './task.ts';

interface LogLine {
  readonly day: string;
  readonly level: 'INFO' | 'WARN' | 'ERROR';
  readonly service: 'api' | 'mail' | 'worker';
}

/** 1,500 lines of five days: more than a tool returns at once. */
const LOG: readonly LogLine[] = Array.from({ length: 1_500 }, (_, index) => {
  // A generator of numbers with a fixed seed.
  const chance = ((index * 7_919 + 104_729) % 1_000) / 1_000;
  return {
    day: `2026-03-0${1 + Math.floor(index / 300)}`,
    level: chance < 0.06 + (index % 300) / 5_000 ? 'ERROR' : chance < 0.2 ? 'WARN' : 'INFO',
    service: (['worker', 'api', 'mail', 'worker', 'api'] as const)[index % 5]!,
  };
});
const LOG_TEXT = LOG.map(({ day, level, service }, index) => {
  const time = `${String(Math.floor((index % 300) / 13)).padStart(2, '0')}:${String((index * 7) % 60).padStart(2, '0')}:00`;
  // A message may have the word of another level.
  const message = index % 17 === 0 ? 'handled a message about ERROR codes' : `handled request ${index}`;
  return `${day}T${time}Z ${level} [${service}] ${level === 'ERROR' ? `failed: code ${500 + (index % 4)}` : message}\n`;
}).join('');

function errorsBy(field: 'day' | 'service'): readonly (readonly [string, number])[] {
  const counts = new Map<string, number>();
  for (const line of LOG) if (line.level === 'ERROR') counts.set(line[field], (counts.get(line[field]) ?? 0) + 1);
  return [...counts].toSorted(([a], [b]) => (a < b ? -1 : 1));
}

/** Most first. */
const ERRORS_BY_SERVICE = errorsBy('service').toSorted(([, a], [, b]) => b - a);

const CSV = `day,errors\n${errorsBy('day')
  .map(([day, count]) => `${day},${count}\n`)
  .join('')}`;

const ENGLISH = {
  'file.missing': 'The file {path} does not exist.',
  'file.large': 'The file {path} is larger than {limit} MB.',
  'user.unknown': 'There is no user {name}.',
  'user.locked': 'The user {name} is locked.',
};
const GERMAN = {
  'file.missing': 'Die Datei {path} existiert nicht.',
  'user.unknown': 'Es gibt keinen Benutzer {name}.',
};

const CONFIG = `# Served by the proxy
port = 8080
host = localhost

[log]
level = debug
# Not yet in use
file = logs/app.log
colour = true
`;

function json(value: unknown): string {
  return `${JSON.stringify(value, undefined, 2)}\n`;
}

/** Undefined if it is not JSON. */
function parsed(text: string | undefined): unknown {
  try {
    return JSON.parse(text ?? '') as unknown;
  } catch {
    return undefined;
  }
}

/** As JSON, with the keys of objects sorted. */
function canonical(value: unknown): string {
  return JSON.stringify(value, (_, part: unknown) =>
    typeof part === 'object' && part !== null && !Array.isArray(part)
      ? Object.fromEntries(Object.entries(part).toSorted(([a], [b]) => (a < b ? -1 : 1)))
      : part,
  );
}

function placeholders(text: unknown): string {
  return [...String(text).matchAll(/\{\w+\}/g)]
    .map(([name]) => name)
    .toSorted()
    .join();
}

/** Jobs about texts, data and settings. */
export const TEXT_TASKS: readonly Task[] = [
  {
    name: 'summarise-log',
    prompt:
      'Summarise logs/app.log: how many lines have the level ERROR, and which service (in brackets) has the most of them, with its ' +
      'number? Answer in a sentence with both numbers and the name of the service. Change nothing.',
    history: [{ message: 'Keep a log', files: { 'logs/app.log': LOG_TEXT } }],
    script: [
      [
        ['read', { path: 'logs/app.log', limit: 5 }],
        [
          'bash',
          { command: "grep -oE '^[^ ]+ ERROR \\[[a-z]+\\]' logs/app.log | cut -d' ' -f3 | sort | uniq -c | sort -rn" },
        ],
      ],
      (results) => {
        const counts = [...results[1]!.matchAll(/(\d+) \[(\w+)\]/g)].map(([, count, name]) => [Number(count), name]);
        const all = counts.reduce((sum, [count]) => sum + Number(count), 0);
        return `There are ${all} errors; most are of ${counts[0]![1]}, which has ${counts[0]![0]}.`;
      },
    ],
    check: ({ answer, changedOthers }) => {
      const all = ERRORS_BY_SERVICE.reduce((sum, [, count]) => sum + count, 0);
      const numbers: readonly string[] = answer.replaceAll(/(?<=\d),(?=\d{3})/g, '').match(/\d+/g) ?? [];
      const [service, most] = ERRORS_BY_SERVICE[0]!;
      return [
        !numbers.includes(String(all)) && `the answer does not have the number of errors, ${all}`,
        !numbers.includes(String(most)) && `the answer does not have the number of the service, ${most}`,
        !answer.includes(service) && `the answer does not name ${service}`,
        changedOthers(),
      ];
    },
    // Counts messages that contain the word.
    wrong: {
      answer: `There are ${LOG_TEXT.match(/ERROR/g)!.length} errors; most are of ${ERRORS_BY_SERVICE[0]!.join(', which has ')}.`,
    },
  },
  {
    name: 'count-errors-per-day',
    prompt:
      'Write errors.csv with the number of lines of logs/app.log that have the level ERROR, per day: a header "day,errors", then a line ' +
      'for each day such as "2026-03-01,12", sorted by day.',
    history: [{ message: 'Keep a log', files: { 'logs/app.log': LOG_TEXT } }],
    script: [
      [['read', { path: 'logs/app.log', limit: 3 }]],
      [
        [
          'bash',
          {
            command:
              'echo day,errors > errors.csv && ' +
              'awk \'$2 == "ERROR" { count[substr($1, 1, 10)]++ } END { for (day in count) print day "," count[day] }\' logs/app.log | ' +
              'sort >> errors.csv && cat errors.csv',
          },
        ],
      ],
      'errors.csv has the errors per day.',
    ],
    check: ({ read, changedOthers }) => [
      read('errors.csv')?.replaceAll('\r\n', '\n').trimEnd() !== CSV.trimEnd() && 'errors.csv is missing, or wrong',
      changedOthers('errors.csv'),
    ],
    wrong: { files: { 'errors.csv': CSV.replace(/\d+\n/, '99\n') } },
  },
  {
    name: 'convert-crlf',
    prompt:
      'The text files in src/ have different line ends. Convert all of them to LF. src/logo.bin is not a text: it must not change by a ' +
      'single byte.',
    history: [
      {
        message: 'Add sources',
        files: {
          'src/one.txt': 'first\r\nsecond\r\n',
          'src/deep/two.txt': 'mixed\r\nlines\nhere\r\n',
          'src/three.txt': 'fine\n',
          'src/logo.bin': '\0\u0001\r\n\0\r\n',
          'other.txt': 'not in src\r\n',
        },
      },
    ],
    script: [
      [['bash', { command: "grep -rlI $'\\r' src" }]],
      (results) => {
        const files = results[0]!.trim().split('\n').join(' ');
        return [['bash', { command: `for file in ${files}; do tr -d '\\r' < $file > new && mv new $file; done` }]];
      },
      [['git_diff', {}]],
      'The texts in src have LF line ends.',
    ],
    check: ({ read, changedOthers }) => [
      read('src/one.txt') !== 'first\nsecond\n' && 'src/one.txt is wrong',
      read('src/deep/two.txt') !== 'mixed\nlines\nhere\n' && 'src/deep/two.txt is wrong',
      changedOthers('src/one.txt', 'src/deep/two.txt'),
    ],
    wrong: {
      files: {
        'src/one.txt': 'first\nsecond\n',
        'src/deep/two.txt': 'mixed\nlines\nhere\n',
        'src/logo.bin': '\0\u0001\n\0\n',
      },
    },
  },
  {
    name: 'find-duplicates',
    prompt:
      'Some files in assets/ have the same content. Write duplicates.txt: one line for each group of equal files, with their paths ' +
      '(such as assets/a.txt) sorted and separated by a blank; the lines sorted too. Files without a duplicate are left out.',
    history: [
      {
        message: 'Add assets',
        files: {
          'assets/a.txt': 'same\n',
          'assets/b.txt': 'same \n',
          'assets/c.txt': 'other\n',
          'assets/old/a.txt': 'different\n',
          'assets/old/d.txt': 'same\n',
          'assets/old/e.txt': 'other\n',
          'assets/z.txt': 'same\n',
        },
      },
    ],
    script: [
      [['glob', { pattern: 'assets/**/*' }]],
      [
        [
          'bash',
          {
            command:
              'find assets -type f | sort | xargs cksum | awk \'{ key = $1 " " $2; files[key] = files[key] (count[key]++ ? " " : "") $3 } ' +
              "END { for (key in files) if (count[key] > 1) print files[key] }' | sort > duplicates.txt; cat duplicates.txt",
          },
        ],
      ],
      (results) => `There are ${results[1]!.trim().split('\n').length} groups of equal files.`,
    ],
    check: ({ read, changedOthers }) => [
      read('duplicates.txt')?.trim() !== 'assets/a.txt assets/old/d.txt assets/z.txt\nassets/c.txt assets/old/e.txt' &&
        'duplicates.txt is missing, or wrong',
      changedOthers('duplicates.txt'),
    ],
    // The same names, not the same content.
    wrong: { files: { 'duplicates.txt': 'assets/a.txt assets/old/a.txt\n' } },
  },
  {
    name: 'upgrade-config',
    prompt:
      'Convert app.ini to app.json and delete app.ini: a section becomes an object, numbers and true/false become JSON values, ' +
      'everything else a string; comments are dropped. The new format needs "version": 2 at the top level, and the key "colour" is ' +
      'called "color" now.',
    history: [{ message: 'Configure', files: { 'app.ini': CONFIG, 'README.md': 'The settings are in app.ini.\n' } }],
    script: [
      [['read', { path: 'app.ini' }]],
      [
        [
          'apply_patch',
          {
            patch:
              '*** Begin Patch\n*** Delete File: app.ini\n*** Add File: app.json\n' +
              json({
                version: 2,
                port: 8080,
                host: 'localhost',
                log: { level: 'debug', file: 'logs/app.log', color: true },
              })
                .trimEnd()
                .split('\n')
                .map((line) => `+${line}\n`)
                .join('') +
              '*** End Patch\n',
          },
        ],
      ],
      'app.json replaces app.ini.',
    ],
    check: ({ read, changedOthers }) => [
      canonical(parsed(read('app.json'))) !==
        canonical({
          version: 2,
          port: 8080,
          host: 'localhost',
          log: { level: 'debug', file: 'logs/app.log', color: true },
        }) && 'app.json is missing, or wrong',
      read('app.ini') !== undefined && 'app.ini is still there',
      changedOthers('app.json', 'app.ini', 'README.md'),
    ],
    wrong: {
      // Numbers and booleans are strings.
      files: {
        'app.ini': null,
        'app.json': json({
          version: 2,
          port: '8080',
          host: 'localhost',
          log: { level: 'debug', file: 'logs/app.log', color: 'true' },
        }),
      },
    },
  },
  {
    name: 'translate-messages',
    prompt:
      'messages/de.json is a German translation of messages/en.json, and some messages are missing. Add them in German, with the same ' +
      'placeholders such as {name}. Keep the existing ones, and the order of the keys as in en.json.',
    history: [
      { message: 'Add messages', files: { 'messages/en.json': json(ENGLISH), 'messages/de.json': json(GERMAN) } },
    ],
    script: [
      [
        ['read', { path: 'messages/en.json' }],
        ['read', { path: 'messages/de.json' }],
      ],
      [
        [
          'write',
          {
            path: 'messages/de.json',
            content: json({
              'file.missing': GERMAN['file.missing'],
              'file.large': 'Die Datei {path} ist größer als {limit} MB.',
              'user.unknown': GERMAN['user.unknown'],
              'user.locked': 'Der Benutzer {name} ist gesperrt.',
            }),
          },
        ],
      ],
      'Two messages were missing; they are translated now.',
    ],
    check: ({ read, changedOthers }) => {
      const messages = parsed(read('messages/de.json'));
      if (typeof messages !== 'object' || messages === null) return ['messages/de.json is not an object'];
      const german = messages as Readonly<Record<string, unknown>>;
      const unlike = Object.entries(ENGLISH).filter(([key, text]) => placeholders(german[key]) !== placeholders(text));
      const same = Object.entries(ENGLISH).filter(([key, text]) => german[key] === text);
      return [
        Object.keys(german).join() !== Object.keys(ENGLISH).join() && 'the keys or their order are wrong',
        unlike.length > 0 && `the placeholders differ in ${unlike.map(([key]) => key).join(', ')}`,
        same.length > 0 && `not translated: ${same.map(([key]) => key).join(', ')}`,
        Object.entries(GERMAN).some(([key, text]) => german[key] !== text) && 'an existing message has changed',
        changedOthers('messages/de.json'),
      ];
    },
    // Translates a placeholder.
    wrong: {
      files: {
        'messages/de.json': json({
          'file.missing': GERMAN['file.missing'],
          'file.large': 'Die Datei {pfad} ist größer als {limit} MB.',
          'user.unknown': GERMAN['user.unknown'],
          'user.locked': 'Der Benutzer {name} ist gesperrt.',
        }),
      },
    },
  },
  {
    name: 'fix-broken-links',
    prompt:
      'Some relative links between the Markdown files of this folder lead to files that do not exist under that name. Correct these links ' +
      'so that they lead to the file that is meant. Do not move or rename files, and do not change links that work.',
    history: [
      {
        message: 'Add docs',
        files: {
          'README.md': '# App\n\nSee [how to install](docs/install.md) and [settings](docs/config.md).\n',
          'docs/installation.md': '# How to install\n\nThen read the [settings](config.md).\n',
          'docs/config.md':
            '# Settings\n\nBack to [the start](README.md), or see [a site](https://example.com/install.md).\n',
        },
      },
    ],
    script: [
      [
        ['grep', { pattern: '\\]\\(', glob: '*.md' }],
        ['glob', { pattern: '**/*.md' }],
      ],
      [
        ['edit', { path: 'README.md', old_text: '(docs/install.md)', new_text: '(docs/installation.md)' }],
        ['edit', { path: 'docs/config.md', old_text: '(README.md)', new_text: '(../README.md)' }],
      ],
      'Two links are corrected.',
    ],
    check: ({ read, changedOthers }) => [
      read('README.md') !== '# App\n\nSee [how to install](docs/installation.md) and [settings](docs/config.md).\n' &&
        'README.md is wrong',
      read('docs/config.md') !==
        '# Settings\n\nBack to [the start](../README.md), or see [a site](https://example.com/install.md).\n' &&
        'docs/config.md is wrong',
      changedOthers('README.md', 'docs/config.md'),
    ],
    // Renames the file instead.
    wrong: {
      files: {
        'docs/installation.md': null,
        'docs/install.md': '# How to install\n\nThen read the [settings](config.md).\n',
        'docs/config.md':
          '# Settings\n\nBack to [the start](../README.md), or see [a site](https://example.com/install.md).\n',
      },
    },
  },
  {
    name: 'merge-json',
    prompt:
      'Merge base.json and local.json into merged.json: objects are merged key by key at every level, the values of local.json win, ' +
      'and lists are joined: base first, without repeating a value. Keep both files.',
    history: [
      {
        message: 'Add settings',
        files: {
          'base.json': json({
            name: 'app',
            server: { port: 80, tls: { on: false, ciphers: ['a'] } },
            tags: ['x', 'y'],
          }),
          'local.json': json({ server: { port: 8080, tls: { on: true } }, tags: ['y', 'z'], debug: null }),
        },
      },
    ],
    script: [
      [
        ['read', { path: 'base.json' }],
        ['read', { path: 'local.json' }],
      ],
      [
        [
          'write',
          {
            path: 'merged.json',
            content: json({
              name: 'app',
              server: { port: 8080, tls: { on: true, ciphers: ['a'] } },
              tags: ['x', 'y', 'z'],
              debug: null,
            }),
          },
        ],
      ],
      'merged.json has both.',
    ],
    check: ({ read, changedOthers }) => [
      canonical(parsed(read('merged.json'))) !==
        canonical({
          name: 'app',
          server: { port: 8080, tls: { on: true, ciphers: ['a'] } },
          tags: ['x', 'y', 'z'],
          debug: null,
        }) && 'merged.json is missing, or wrong',
      changedOthers('merged.json'),
    ],
    // Merges the first level only.
    wrong: {
      files: {
        'merged.json': json({ name: 'app', server: { port: 8080, tls: { on: true } }, tags: ['y', 'z'], debug: null }),
      },
    },
  },
];
