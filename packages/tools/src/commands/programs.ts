/*
 * The programs that are known completely: every option, what operands mean, and what those touch. What is not here is not
 * known. A program is added with the options that do nothing but what its entry says; when in doubt, leave the option out.
 */
import {
  applySpec,
  joinedArg,
  literal,
  parseArgs,
  SOURCE_FILES,
  useFree,
  writeInto,
  type Call,
  type Kind,
  type Parsed,
  type Spec,
} from './arguments.ts';
import { awkProgramProblem, sedScriptProblem } from './scripts.ts';
import { Unclear, type Arg } from './words.ts';

const NOTHING: Spec = { operands: [] };
const TEXTS: Spec = { operands: ['text'] };
const reads = (flags: string, more: Partial<Spec> = {}): Spec => ({ flags, operands: ['read'], ...more });
/** A program that runs code of the project: its options are known, and what it passes on is looked at. */
const runs = (words: string, more: Partial<Spec> = {}): Spec => ({ words, operands: ['free'], ...more });

const SPECS: Readonly<Record<string, Spec>> = {
  ...each('true false whoami nproc pwd', NOTHING),
  echo: { flags: 'ne', operands: ['text'] },
  ...each('which basename dirname seq', TEXTS),
  printf: { operands: ['text'], check: ({ args }) => checkPrintf(args.map(({ text }) => text)) },
  sleep: { operands: ['number'] },
  uname: { flags: 'amnrspvo', operands: [] },
  date: {
    flags: 'uR',
    words: '--utc --iso-8601= -I',
    values: { text: '-d --date' },
    operands: ['text'],
    check: checkDate,
  },
  ps: { operands: ['text'], words: '-e -f -ef -A -ax', check: checkPs },

  // Readers
  ls: reads('laAhtrSRd1FgoiknpsUcu', {
    words: '--all --almost-all --color= --human-readable --recursive --group-directories-first --full-time',
    alone: ['read', '.'],
  }),
  cat: reads('nbsAeEtTuv'),
  tac: reads(''),
  rev: reads(''),
  nl: reads('', { values: { text: '-b -w -s' } }),
  head: reads('qv', { lines: true, values: { number: '-n --lines -c --bytes' } }),
  tail: reads('qvfF', { lines: true, values: { number: '-n --lines -c --bytes' } }),
  wc: reads('lwcmL', { words: '--lines --words --bytes --chars' }),
  cut: reads('s', { values: { text: '-d --delimiter -f --fields -c --characters -b --output-delimiter' } }),
  tr: { flags: 'dscC', words: '--delete --squeeze-repeats --complement', operands: ['text'] },
  sort: reads('nrufbdghiMVzsc', {
    words: '--numeric-sort --reverse --unique --version-sort --human-numeric-sort --stable --ignore-case',
    values: { text: '-k --key -t --field-separator', write: '-o --output' },
  }),
  uniq: {
    flags: 'cdiuD',
    words: '--count --repeated --unique',
    values: { number: '-f -s -w' },
    operands: ['read', 'write'],
    check: (_, { operands }) => {
      if (operands.some(({ text }) => text.startsWith('+'))) throw new Unclear('uniq has an old form of options');
    },
  },
  diff: reads('uqswbBiyN', {
    check: noFolders,
    words: '--color= --brief --unified --side-by-side --ignore-all-space --strip-trailing-cr',
    values: { number: '-U --unified', text: '--label -I' },
  }),
  cmp: reads('sl'),
  comm: reads('123'),
  join: reads('', { values: { text: '-t -1 -2 -j -o' } }),
  paste: reads('s', { values: { text: '-d' } }),
  column: reads('t', { values: { text: '-s' } }),
  fold: reads('s', { values: { number: '-w' } }),
  stat: reads('L', { values: { text: '-c --format' } }),
  file: reads('biL', { words: '--brief --mime --mime-type' }),
  ...each('cksum md5sum sha1sum sha256sum sha512sum', reads('b')),
  base64: reads('d', { words: '--decode', values: { number: '-w --wrap' } }),
  hexdump: reads('C', { values: { number: '-n -s' } }),
  od: reads('c', { values: { text: '-A -t -N -j' } }),
  strings: reads('a', { values: { number: '-n' } }),
  readlink: reads('fe'),
  realpath: reads('ems'),
  tree: reads('adfhi', { values: { number: '-L', text: '-I -P' }, alone: ['read', '.'] }),
  du: reads('shack', {
    words: '--summarize --human-readable',
    values: { number: '-d --max-depth', text: '--exclude' },
    alone: ['read', '.'],
  }),
  df: reads('hTki'),
  ...each('grep egrep fgrep', {
    flags: 'rnlLciIvwxoEFPGhHsqazy',
    words:
      '--recursive --line-number --ignore-case --count --invert-match --word-regexp --only-matching --color= --line-buffered --no-filename --with-filename --files-with-matches --files-without-match --extended-regexp --fixed-strings --perl-regexp --quiet --text',
    values: {
      text: '-e --regexp --include --exclude --exclude-dir',
      number: '-m --max-count -A --after-context -B --before-context -C --context',
    },
    lines: true,
    check: grep,
  }),
  rg: {
    flags: 'niIlcvwxoFSsPNHpqU',
    words:
      '--files --hidden --line-number --ignore-case --smart-case --count --count-matches --files-with-matches --fixed-strings --word-regexp --invert-match --no-heading --heading --no-line-number --multiline --stats --json --no-filename --with-filename --trim --vimgrep',
    values: {
      text: '-e --regexp -g --glob --iglob -t --type -T --type-not -r --replace --sort --sortr --color',
      number:
        '-m --max-count -A --after-context -B --before-context -C --context -M --max-columns -d --max-depth -j --threads',
    },
    check: grep,
  },
  sed: {
    flags: 'nErszu',
    words: '--quiet --regexp-extended -i --in-place',
    values: { text: '-e --expression' },
    check: sed,
  },
  ...each('awk gawk mawk', { values: { text: '-F -v' }, stops: true, check: awk }),

  // Writers
  mkdir: { flags: 'pv', words: '--parents', values: { text: '-m --mode' }, operands: ['write'] },
  rmdir: { flags: 'pv', operands: ['write'] },
  touch: { flags: 'acm', values: { text: '-d --date -t', read: '-r --reference' }, operands: ['write'] },
  truncate: { values: { text: '-s --size' }, operands: ['write'] },
  tee: { flags: 'a', words: '--append', operands: ['write'] },
  rm: { flags: 'rfRvdi', words: '--recursive --force --verbose', operands: ['remove'] },
  cp: {
    flags: 'rRpfvnua',
    words: '--recursive --archive --force --no-clobber',
    operands: ['read'],
    last: 'write',
    check: copy,
  },
  mv: { flags: 'fvnu', words: '--force --no-clobber', operands: ['move'], last: 'write', check: move },
  ln: { flags: 'sfnv', words: '--symbolic --force', operands: ['text'], check: link },
  chmod: { flags: 'Rv', words: '-x -w', operands: ['text', 'write'], check: checkMode },
  unzip: { flags: 'qol', values: { write: '-d' }, operands: ['read'], check: unzip },
  rsync: {
    flags: 'avrn',
    words: '--archive --recursive',
    values: { text: '--exclude' },
    operands: ['tree'],
    last: 'write',
    check: rsync,
  },

  // Wrappers
  env: { operands: ['text'], stops: true, check: env },
  nohup: { operands: ['text'], stops: true, check: (call, { operands }) => call.run(operands) },
  nice: {
    values: { number: '-n --adjustment' },
    operands: ['text'],
    stops: true,
    check: (call, { operands }) => call.run(operands),
  },
  timeout: {
    words: '--foreground --preserve-status -v',
    values: { text: '-k --kill-after -s --signal' },
    operands: ['number', 'text'],
    stops: true,
    check: (call, { operands }) => call.run(operands.slice(1)),
  },
  xargs: {
    flags: '0rt',
    words: '--null --no-run-if-empty',
    values: { number: '-n --max-args -P --max-procs' },
    operands: ['text'],
    stops: true,
    check: xargs,
  },

  // Programs that run code of the project
  node: {
    words: '--test --check --version -v --enable-source-maps --trace-warnings --test-only',
    values: { text: '--test-name-pattern --test-timeout --test-concurrency' },
    operands: ['script', 'free'],
    stops: true,
    check: needsScript,
  },
  ...each('pip pip3', {
    operands: [],
    words: '--version',
    verbs: {
      install: {
        flags: 'qU',
        words: '--upgrade --quiet --no-deps --user',
        values: { read: '-r --requirement -c --constraint' },
        operands: ['package'],
      },
      ...each('list freeze', { words: '--outdated', operands: [] }),
      show: { operands: ['package'] },
    },
  }),
  pytest: runs('--lf --ff --last-failed --failed-first --collect-only --no-header --cov --cov=', {
    flags: 'xqvsl',
    values: { text: '-k -m --tb --durations', number: '--maxfail -n' },
  }),
  ruff: {
    operands: [],
    words: '--version',
    verbs: {
      check: runs('--fix --diff --statistics', { check: (call, parsed) => formats(call, parsed, '--fix') }),
      format: runs('--check --diff', { check: (call, parsed) => formats(call, parsed) }),
    },
  },
  tsc: {
    // Otherwise the result is written beside a file.
    check: (_, { operands, options }) => {
      if (operands.length > 0 && !['--noEmit', '--outDir', '--build', '-b'].some((option) => options.has(option)))
        throw new Unclear('it is not known what tsc writes: use --noEmit');
    },
    words: '--noEmit --watch -w --strict --pretty --version -v --build -b --verbose',
    values: { read: '-p --project', write: '--outDir', text: '--target --module' },
    operands: ['read'],
  },
  make: {
    flags: 'ksBn',
    words: '-j --jobs --silent --dry-run --keep-going',
    values: { number: '-j', read: '-C --directory' },
    operands: ['text'],
    check: make,
  },
  gofmt: {
    flags: 'ldse',
    words: '-w',
    operands: ['read'],
    check: (call, { options, operands }) => options.has('-w') && operands.forEach(call.write),
  },
  go: {
    operands: [],
    verbs: {
      build: runs('-v -race -x -a', { values: { write: '-o', name: '-tags' }, check: goPackages }),
      test: runs('-v -race -cover -short -failfast -json', {
        values: {
          text: '-run -bench -skip -timeout',
          number: '-count -parallel',
          name: '-tags',
          write: '-coverprofile',
        },
        check: goPackages,
      }),
      ...each('vet run list', runs('-v -race', { check: goPackages })),
      fmt: runs('', {
        check: (call, parsed) => {
          goPackages(call, parsed);
          call.writeAll();
        },
      }),
      mod: {
        operands: [],
        verbs: { tidy: { flags: 'v', operands: [] }, ...each('download verify', NOTHING), graph: NOTHING },
      },
      version: NOTHING,
    },
  },
  cargo: {
    operands: [],
    words: '--version',
    verbs: each('build test check clippy fmt run doc clean tree', {
      check: (call, { options }) => {
        if (call.name === 'cargo fmt' && !options.has('--check')) call.writeAll();
      },
      flags: 'rqv',
      words:
        '--release --all-targets --workspace --all --all-features --no-default-features --verbose --quiet --no-run --no-fail-fast --locked --offline --lib --bins --tests --check --no-deps',
      values: { name: '-p --package --features -F --bin --test --example', number: '-j --jobs' },
      operands: ['free'],
    }),
  },
  ...each('npm pnpm', {
    words: '--version -v',
    operands: [],
    verbs: {
      ...each('ci outdated audit prune dedupe', {
        words: '--no-audit --no-fund --ignore-scripts --prefer-offline --json --omit= --frozen-lockfile',
        operands: [],
      }),
      ...each('install i add', {
        flags: 'DE',
        words:
          '--save-dev --save-exact --save --no-save --legacy-peer-deps --ignore-scripts --no-audit --no-fund --prefer-offline --production --omit= --frozen-lockfile',
        values: { name: '--workspace -w' },
        operands: ['package'],
      }),
      ...each('uninstall remove rm update', {
        flags: 'D',
        words: '--save-dev',
        values: { name: '--workspace -w' },
        operands: ['package'],
      }),
      ...each('run run-script', npmScript(['name', 'free'])),
      ...each('test t start build lint', npmScript(['free'])),
      ...each('ls list', { words: '--depth= --all --json --prod -a', operands: ['package'] }),
      ...each('view info', { words: '--json', operands: ['package', 'name'] }),
      version: { words: '--no-git-tag-version', operands: ['name'] },
    },
  }),
  yarn: {
    words: '--version',
    operands: [],
    verbs: {
      install: { words: '--frozen-lockfile --immutable --ignore-scripts', operands: [] },
      add: { flags: 'DE', words: '--dev --exact', operands: ['package'] },
      remove: { operands: ['package'] },
      run: npmScript(['name', 'free']),
      ...each('test start build lint', npmScript(['free'])),
    },
  },
  curl: {
    flags: 'sSfIivg',
    words: '--silent --show-error --fail --head --include --verbose --compressed --fail-with-body -O --remote-name',
    values: {
      text: '-X --request -A --user-agent --data-raw -H --header -d --data --json -w --write-out',
      number: '-m --max-time --connect-timeout --retry --retry-delay',
      write: '-o --output',
      url: '--url',
    },
    operands: ['url'],
    check: curl,
  },
  git: {
    words: '--no-pager --version',
    values: { read: '-C', text: '-c' },
    operands: [],
    verbs: gitVerbs(),
    check: git,
  },
};

/** Programs whose arguments have a form of their own. */
const READERS: Readonly<Record<string, (call: Call) => void>> = {
  jq,
  tar,
  find,
  python,
  python3: python,
  sh: (call) => shell(call, { posix: true }),
  dash: (call) => shell(call, { posix: true }),
  bash: (call) => shell(call, { posix: false }),
};

const TABLE: ReadonlyMap<string, (call: Call) => void> = new Map([
  ...Object.entries(SPECS).map(([name, spec]) => [name, (call: Call) => applySpec(call, spec)] as const),
  ...Object.entries(READERS),
]);

function each(names: string, spec: Spec): Record<string, Spec> {
  return Object.fromEntries(names.split(' ').map((name) => [name, spec]));
}

function npmScript(operands: readonly Kind[]): Spec {
  return { words: '--silent -s --if-present --workspaces -ws', values: { name: '--workspace -w' }, operands };
}

/** Reports what a program does with its arguments. Returns false if it is not known. */
export function analyseProgram(call: Call): boolean {
  const analyse = TABLE.get(call.name);
  if (analyse) analyse(call);
  else for (const arg of call.args) useFree(call, arg);
  return analyse !== undefined;
}

/* Readers */

export function checkPrintf([format, ...values]: readonly string[]): void {
  if (format?.startsWith('-')) throw new Unclear('an option of printf is not known');
  // Others assign variables, or take a width from an argument.
  if (!/^([^%]|%%|%[-+ 0#]*\d*(\.\d+)?[sbqdiouxXeEfFgGc])*$/.test(format ?? ''))
    throw new Unclear('the format of printf is not known');
  // Some shells evaluate what is printed as a number.
  if (/%[^sbq%]/.test(format ?? '') && values.some((value) => !/^[-+]?[\w.]*$/.test(value)))
    throw new Unclear('printf may evaluate an argument');
}

function checkDate({ args }: Call, { operands }: Parsed): void {
  if (operands.some(({ text }) => !text.startsWith('+')) || args.length > 3)
    throw new Unclear('date may set the clock');
}

function checkPs(_: Call, { operands }: Parsed): void {
  // With `e` it shows the environment of other processes.
  if (operands.some(({ text }) => !/^(aux|ax|au|auxf|auxww|x)$/.test(text))) throw new Unclear('ps may show keys');
}

function grep(call: Call, { operands, options, values }: Parsed): void {
  const hasPattern = ['-e', '--regexp', '--files'].some((option) => options.has(option));
  const files = hasPattern ? operands : operands.slice(1);
  const isRecursive = call.name === 'rg' || options.has('-r') || options.has('--recursive');
  if (!isRecursive) {
    for (const file of files) if (file.text !== '-') call.read(file);
    return;
  }
  if (files.length === 0 && call.name === 'rg' && call.stdin !== null && !options.has('--files')) return;
  const of = (option: string): readonly string[] =>
    values.flatMap((one) => (one.option === option ? one.value.text : []));
  const [excluded, folders, included] = [of('--exclude'), of('--exclude-dir'), of('--include')];
  // The order of both decides.
  const isMixed = excluded.length > 0 && included.length > 0;
  const isNamed = (list: readonly string[], name: string): boolean => /^[\w.-]+$/.test(name) && list.includes(name);
  const names = (name: string, isFolder: boolean): boolean => {
    // Globs, types and files in the folder bring hidden and ignored names back.
    if (call.name === 'rg') return !options.has('--files');
    if (isFolder) return !isNamed(folders, name);
    if (isMixed) return true;
    return !isNamed(excluded, name) && (included.length === 0 || hasEnding(name, included));
  };
  for (const file of files.length === 0 ? [literal('.')] : files) call.tree(file, names);
}

/** Whether a pattern may match a name. */
function hasEnding(name: string, patterns: readonly string[]): boolean {
  return patterns.some((one) => !SOURCE_FILES.test(one) || name.toLowerCase().endsWith(one.slice(1).toLowerCase()));
}

/** It would compare files in them. */
function noFolders(call: Call, { operands }: Parsed): void {
  for (const operand of operands)
    if (operand.text !== '-' && !['file', 'none'].includes(call.kindOf(operand)))
      throw new Unclear(`it is not known which files of ${operand.text} ${call.name} compares`);
}

const JQ: Spec = {
  flags: 'rcnsSeaMCj',
  words: '--raw-output --compact-output --null-input --slurp --sort-keys --exit-status --tab',
  values: { number: '--indent' },
};

function jq(call: Call): void {
  const args: Arg[] = [];
  if (call.args.some(({ text }) => text === '--')) throw new Unclear('an option of jq is not known');
  // A name and a text follow.
  for (let at = 0; at < call.args.length; at++)
    if (/^--arg(json)?$/.test(call.args[at]!.text)) at += 2;
    else args.push(call.args[at]!);
  const [filter, ...files] = parseArgs(call, JQ, args).operands;
  if (/\b(import|include|modulemeta)\b/.test(filter?.text ?? '')) throw new Unclear('jq may import a file');
  for (const file of files) call.read(file);
}

function sed(call: Call, { operands, options, values }: Parsed): void {
  const given = values.map(({ value }) => value.text);
  const [first, ...rest] = operands;
  const files = given.length > 0 ? operands : rest;
  // Several scripts are joined by line ends, and a text may continue in the next one.
  const problem = sedScriptProblem(given.length > 0 ? given.join('\n') : (first?.text ?? ''));
  if (problem !== undefined) throw new Unclear(problem);
  const isWriting = options.has('-i') || options.has('--in-place');
  for (const file of files) {
    if (isWriting) call.write(file);
    if (isWriting || file.text !== '-') call.read(file);
  }
}

function awk(call: Call, { operands }: Parsed): void {
  const [program, ...files] = operands;
  const problem = awkProgramProblem(program?.text ?? '');
  if (problem !== undefined) throw new Unclear(problem);
  for (const file of files) {
    if (file.text.startsWith('-') && file.text !== '-') throw new Unclear('an option of awk is not known');
    if (file.text !== '-' && !/^[a-z]\w*=/.test(file.text)) call.read(file);
  }
}

/* Writers */

function isRecursiveCopy({ options }: Parsed): boolean {
  return ['-r', '-R', '-a', '--recursive', '--archive'].some((option) => options.has(option));
}

function copy(call: Call, parsed: Parsed): void {
  const { operands } = parsed;
  const target = operands.at(-1);
  if (!target || operands.length < 2) throw new Unclear(`${call.name} has no target`);
  writeInto(call, operands.slice(0, -1), target);
  if (!isRecursiveCopy(parsed)) return;
  for (const source of operands.slice(0, -1)) call.tree(source);
  call.reshape();
}

function move(call: Call, { operands }: Parsed): void {
  const target = operands.at(-1);
  if (!target || operands.length < 2) throw new Unclear(`${call.name} has no target`);
  const sources = operands.slice(0, -1);
  writeInto(call, sources, target);
  // A file that an earlier part of the command writes is not there yet, and is no link.
  if (sources.some((source) => !['file', 'none'].includes(call.kindOf(source)))) call.reshape();
}

function link(call: Call, { operands, options }: Parsed): void {
  const [target, name, ...more] = operands;
  if (!target || !name || more.length > 0) throw new Unclear('the arguments of ln are not known');
  const isSymbolic = options.has('-s') || options.has('--symbolic');
  // The target of a symbolic link is seen from the folder of the link.
  const folder = name.text.includes('/') ? name.text.slice(0, name.text.lastIndexOf('/')) : '';
  const seen = isSymbolic && folder !== '' && !/^[/~]/.test(target.text) ? literal(`${folder}/${target.text}`) : target;
  for (const one of [seen, target]) {
    call.tree(one);
    call.write(one);
  }
  call.write(name);
  writeInto(call, [target], name);
  call.reshape();
}

function checkMode(_: Call, { operands: [mode] }: Parsed): void {
  if (!/^(0?[0-7]{3}|[ugoa]*[-+=][rwxX]+)$/.test(mode?.text ?? '')) throw new Unclear('the mode of chmod is not known');
}

/** `tar czf a.tgz dist`, `tar -xzf a.tgz -C vendor`, `tar tf a.tgz`. */
function tar(call: Call): void {
  const [letters, archive, ...rest] = call.args;
  const [, verb] = /^-?(?=[zjJv]*([cxt])[zjJv]*f$)/.exec(letters?.text ?? '') ?? [];
  if (verb === undefined || !archive || /[:-]/.test(archive.text[0] ?? '-') || archive.text.includes(':'))
    throw new Unclear('the options of tar are not known');
  const spec: Spec =
    verb === 'c'
      ? { values: { text: '--exclude' }, operands: ['tree'] }
      : verb === 'x'
        ? { values: { write: '-C --directory', number: '--strip-components' }, operands: [] }
        : { operands: ['text'] };
  if (verb === 'c') call.write(archive);
  else call.read(archive);
  applySpec(call, spec, rest);
  if (verb !== 'x') return;
  const folders = parseArgs(call, spec, rest).values.flatMap(({ option, value }) =>
    /C|directory/.test(option) ? value : [],
  );
  extractsInto(call, folders.length === 1 ? folders[0] : undefined);
}

function unzip(call: Call, { operands, options, values }: Parsed): void {
  if (operands.length !== 1) throw new Unclear('the arguments of unzip are not known');
  if (!options.has('-l')) extractsInto(call, values.length === 1 ? values[0]!.value : undefined);
}

/** An archive chooses the names of files, also those of a repository or of our configuration. */
function extractsInto(call: Call, folder: Arg | undefined): void {
  if (!folder || /^(\.?\/?)*$/.test(folder.text) || folder.text.includes('..') || folder.home)
    throw new Unclear('an archive chooses which files are written: extract it into a folder of its own');
  ofItsOwn(call, folder);
  call.reshape();
}

/** Names that come from elsewhere must not replace a repository or our configuration. */
function ofItsOwn(call: Call, folder: Arg): void {
  const isPlain =
    ['none', 'folder'].includes(call.kindOf(folder)) &&
    ['.git', '.treadle', 'treadle.toml'].every((name) => call.kindOf(joinedArg(folder, name)) === 'none');
  if (!isPlain) throw new Unclear(`it is not known what ${call.name} replaces in ${folder.text}`);
}

function rsync(call: Call, { operands }: Parsed): void {
  const target = operands.at(-1);
  if (!target || operands.length < 2 || operands.some(({ text }) => text.includes(':')))
    throw new Unclear('rsync copies to or from another machine');
  if (/^(\.?\/?)*$/.test(target.text) || target.text.includes('..'))
    throw new Unclear('it is not known what rsync writes');
  ofItsOwn(call, target);
  call.reshape();
}

/* Wrappers */

function env(call: Call, { operands }: Parsed): void {
  let at = 0;
  for (; /^\w+=/.test(operands[at]?.text ?? ''); at++) {
    const { text } = operands[at]!;
    call.assign(text.slice(0, text.indexOf('=')), text.slice(text.indexOf('=') + 1));
  }
  if (at < operands.length) call.run(operands.slice(at));
}

function xargs(call: Call, { operands, options, values }: Parsed): void {
  const command = operands.length > 0 ? operands : [literal('echo')];
  const text = options.has('-0') || options.has('--null') ? undefined : call.stdin;
  if (typeof text !== 'string' || !/^[\w \t\n./:@%+=,-]*$/.test(text)) {
    if (command[0]!.text !== 'echo') throw new Unclear('it is not known what xargs passes on');
    call.run(command);
    return;
  }
  const words = text
    .split(/[ \t\n]+/)
    .filter(Boolean)
    .map(literal);
  const count = Number(
    values.findLast(({ option }) => option === '-n' || option === '--max-args')?.value.text ?? words.length,
  );
  if (!Number.isSafeInteger(count) || count < 0) throw new Unclear('a number for xargs is not known');
  for (let at = 0; at === 0 || at < words.length; at += count || 1)
    call.run([...command, ...words.slice(at, at + (count || 1))]);
}

const FIND_ALONE =
  /^(-(a|o|not|and|or|print|print0|ls|prune|quit|depth|xdev|mount|empty|readable|writable|executable|true|false|daystart)|[()!])$/;
const FIND_VALUED =
  /^-(i?path|i?wholename|i?regex|regextype|type|size|[mca]time|[mca]min|perm|maxdepth|mindepth|printf|user|group)$/;

function find(call: Call): void {
  const { args } = call;
  const start = args.findIndex(({ text }) => /^[-(!]/.test(text));
  const roots = args.slice(0, start === -1 ? args.length : start);
  if (roots.length === 0) roots.push(literal('.'));
  for (const root of roots) call.read(root);
  const names: string[] = [];
  const tests = new Set<string>();
  const commands: (readonly Arg[])[] = [];
  for (let at = start === -1 ? args.length : start; at < args.length; at++) {
    const test = args[at]!.text;
    // What stands after an action does not limit it.
    if (commands.length > 0 || tests.has('-delete')) throw new Unclear('find acts before its last test');
    tests.add(FIND_VALUED.test(test) ? `${test} ${args[at + 1]?.text ?? ''}` : test);
    if (/^-i?name$/.test(test)) names.push(args[++at]?.text ?? '');
    else if (FIND_VALUED.test(test)) at++;
    else if (test === '-exec') {
      const end = args.findIndex(({ text }, index) => index > at && (text === ';' || text === '+'));
      if (end === -1) throw new Unclear('find -exec does not end');
      commands.push(args.slice(at + 1, end));
      at = end;
    } else if (test !== '-delete' && !FIND_ALONE.test(test)) throw new Unclear(`find ${test} is not known`);
  }
  const isBounded =
    names.length > 0 &&
    names.every((name) => SOURCE_FILES.test(name)) &&
    !['-o', '-or', '-not', '!'].some((test) => tests.has(test));
  if (tests.has('-delete'))
    for (const root of roots) {
      call.write(root);
      if (!isBounded && call.kindOf(joinedArg(root, '.git')) !== 'none') call.write(joinedArg(root, '.git'));
    }
  if (commands.length > 0 && (!isBounded || !tests.has('-type f')))
    throw new Unclear('it is not known which files find passes on: use -type f and -name with an ending');
  if (commands.length > 0)
    for (const root of roots)
      call.tree(root, (name, isFolder) => (isFolder ? name !== '.git' : hasEnding(name, names)));
  for (const command of commands)
    for (const root of roots)
      for (const name of names)
        call.run(
          command.map((arg) => {
            if (arg.text === '{}') return joinedArg(root, `NAME${name.slice(1)}`);
            if (arg.text.includes('{}')) throw new Unclear('find puts a name into a text');
            return arg;
          }),
        );
}

function shell(call: Call, how: { readonly posix: boolean }): void {
  const { args } = call;
  let at = 0;
  while (/^-[eu]+$/.test(args[at]?.text ?? '')) at++;
  const [first, code, ...more] = args.slice(at);
  const isCode = /^-[eu]*c$/.test(first?.text ?? '');
  if (isCode && code && more.length === 0) call.code(code.text, how);
  else if (first?.text === '-n' && code && more.length === 0) call.read(code);
  else if (first && !/^[-+]/.test(first.text)) {
    call.script(first);
    for (const arg of args.slice(at + 1)) useFree(call, arg);
  } else throw new Unclear(`${call.name} runs code that is not known`);
}

/* Programs that run code of the project */

function needsScript(call: Call, { operands, options }: Parsed): void {
  if (operands.length === 0 && !['--test', '--version', '-v'].some((option) => options.has(option)))
    throw new Unclear(`${call.name} runs what it reads`);
}

function python(call: Call): void {
  let at = 0;
  while (/^-[uBO]+$/.test(call.args[at]?.text ?? '')) at++;
  const [first, second, ...rest] = call.args.slice(at);
  if (!first) throw new Unclear(`${call.name} runs what it reads`);
  if (/^(-V|--version)$/.test(first.text) && !second) return;
  if (first.text === '-m' && second) pythonModule(call, second.text, rest);
  else if (first.text.startsWith('-')) throw new Unclear(`the option ${first.text} of ${call.name} is not known`);
  else {
    call.script(first);
    for (const arg of call.args.slice(at + 1)) useFree(call, arg);
  }
}

function pythonModule(call: Call, module: string, args: readonly Arg[]): void {
  const spec = module === 'pytest' ? SPECS['pytest'] : PYTHON_MODULES[module];
  if (!spec) throw new Unclear(`the module ${module} of ${call.name} is not known`);
  applySpec({ ...call, name: `${call.name} -m ${module}` }, spec, args);
}

const PYTHON_MODULES: Readonly<Record<string, Spec | undefined>> = Object.assign(Object.create(null), {
  unittest: runs('-v -q -b -f discover'),
  venv: { operands: ['write'] },
  'json.tool': { words: '--sort-keys --compact', operands: ['read', 'write'] },
} satisfies Record<string, Spec>);

/** A formatter writes what it is given, unless it only shows it. */
function formats(call: Call, { operands, options }: Parsed, writes?: string): void {
  if (options.has('--check') || options.has('--diff') || (writes !== undefined && !options.has(writes))) return;
  for (const operand of operands) call.write(operand);
  if (operands.length === 0) call.writeAll();
}

function make(_: Call, { operands }: Parsed): void {
  for (const { text } of operands)
    if (!/^[\w.-]+$/.test(text) && !/^[A-Z_]+=(\d+|yes|no|true|false)$/.test(text))
      throw new Unclear(`the argument ${text} of make is not known`);
}

/** Only packages of the folder: others are downloaded. */
function goPackages({ name }: Call, { operands }: Parsed): void {
  const [first] = operands;
  const given = name === 'go run' ? (first ? [first] : []) : operands;
  for (const { text } of given)
    if (!/^\.[^@]*$|^[\w/-]+\.go$/.test(text)) throw new Unclear(`${name} may download ${text}`);
}

function curl(call: Call, { operands, options, values }: Parsed): void {
  for (const { option, value } of values) {
    const isFile = /^(-d|--data|--json|-H|--header)$/.test(option) && value.text.startsWith('@');
    const isFormat = /^(-w|--write-out)$/.test(option) && !/^([^@%]|%\{\w+\})*$/.test(value.text);
    if (isFile || isFormat) throw new Unclear(`the value of ${option} of curl is not analysed`);
  }
  if (!options.has('-O') && !options.has('--remote-name')) return;
  for (const { text } of operands) {
    const name = /^https?:\/\/[^/?#]+\/(?:[^?#]*\/)?([\w.-]+)$/.exec(text)?.[1];
    if (name === undefined) throw new Unclear('it is not known which file curl writes');
    call.write(literal(name));
  }
}

/* Git. Hooks, fsmonitor and pagers are off by the environment of commands. */

const GIT_KEYS =
  /^(color\.[\w.]+|core\.quotepath|user\.(name|email)|advice\.\w+|log\.(date|decorate)|init\.defaultbranch|diff\.(algorithm|context|renames)|pull\.rebase)=[\w.@ -]*$/i;

function git({ args }: Call, { values }: Parsed): void {
  if (args.some(({ text }) => text.includes('%G'))) throw new Unclear('git may run a program that checks signatures');
  for (const { option, value } of values)
    if (option === '-c' && !GIT_KEYS.test(value.text))
      throw new Unclear(`git -c ${value.text} may change what git runs`);
}

/** A file is replaced by one of a commit. */
function changePath(call: Call, operand: Arg): void {
  call.read(operand);
  call.write(operand);
}

function reshapes(call: Call): void {
  call.writeAll();
  call.reshape();
}

/** Git reads patterns and signs in these operands. */
function plainPaths({ name }: Call, { operands }: Parsed): void {
  for (const { text } of operands)
    if (/^:|[*?[\\]/.test(text)) throw new Unclear(`${text} has a meaning for ${name} that is not analysed`);
}

/** Without a path it searches everything that git knows, also private files. */
function gitGrep(call: Call, { operands, options, before }: Parsed): void {
  if (options.has('-e')) throw new Unclear('git grep -e is not analysed');
  const hasPath = operands.some((operand, at) => at > 0 && (at >= before || call.kindOf(operand) !== 'none'));
  if (!hasPath) call.tree(literal('.'), (name) => name !== '.git' && name !== 'node_modules');
}

function gitVerbs(): Readonly<Record<string, Spec>> {
  const shown =
    '--stat --shortstat --numstat --name-only --name-status --patch --color= --no-color --word-diff= --ignore-all-space --no-renames --summary --raw --minimal --patience --histogram --function-context --check --exit-code --no-patch --full-index --no-prefix --relative --abbrev= --unified= -U0 -U1 -U2 -U3 -U5 -U10 -U20 -U50 -U100';
  const history = `${shown} --oneline --graph --decorate= --all --follow --reverse --no-merges --merges --first-parent --abbrev-commit --branches --tags --remotes --pickaxe-regex --left-right --cherry-pick --topo-order --date-order --full-history --regexp-ignore-case --no-decorate --pretty=`;
  const texts =
    '-S -G --since --until --after --before --author --committer --grep --format --date --diff-filter --stat-width';
  const counts = '-n --max-count --skip';
  const change = { operands: ['revision'] as const, check: reshapes };
  const remote = '--all --prune --tags --no-tags --quiet --verbose --force --dry-run --atomic';
  return {
    status: {
      flags: 'sbuvz',
      words: '--short --branch --porcelain= --long --untracked-files= --ignored --show-stash',
      operands: ['pathspec'],
    },
    diff: {
      flags: 'pwbMRW',
      words: `${shown} --cached --staged --merge-base`,
      values: { text: texts },
      operands: ['revision'],
    },
    reflog: { words: history, values: { text: texts, number: counts }, lines: true, operands: [] },
    ...each('log show', {
      flags: 'pwbMiEgs',
      words: history,
      values: { text: texts, number: counts, range: '-L' },
      lines: true,
      operands: ['revision'],
    }),
    shortlog: { flags: 'sne', words: '--summary --numbered --email', values: { text: texts }, operands: ['revision'] },
    blame: { flags: 'wslc', values: { text: '-L --date' }, operands: ['revision'] },
    grep: {
      flags: 'nilwEFPchHvoI',
      words:
        '--line-number --ignore-case --files-with-matches --word-regexp --count --name-only --cached --show-function --heading --break',
      values: { text: '-e', number: '-A -B -C -m --max-depth' },
      operands: ['text', 'revision'],
      check: gitGrep,
    },
    'ls-files': {
      flags: 'cmosdtz',
      words: '--others --exclude-standard --modified --cached --deleted --stage',
      operands: ['pathspec'],
    },
    'ls-tree': { flags: 'rtl', words: '--name-only --full-tree', operands: ['revision', 'pathspec'] },
    'rev-parse': {
      words: '--short= --abbrev-ref --show-toplevel --git-dir --verify --is-inside-work-tree --show-prefix --quiet',
      operands: ['revision'],
    },
    'rev-list': { words: '--count --all --no-merges', values: { number: counts }, operands: ['revision'] },
    'merge-base': { words: '--is-ancestor', operands: ['revision'] },
    describe: { words: '--tags --always --dirty --long', values: { number: '--abbrev' }, operands: ['revision'] },
    'cat-file': { flags: 'pte', operands: ['revision'] },
    branch: {
      flags: 'arvdDmM',
      words: '-vv --show-current --list --all --remotes --merged --no-merged --delete --move',
      operands: ['name'],
    },
    tag: {
      flags: 'aldnf',
      words: '--list --annotate --delete',
      values: { text: '-m --message --sort' },
      operands: ['name'],
    },
    remote: {
      flags: 'v',
      operands: [],
      verbs: { 'get-url': { operands: ['name'] }, show: { flags: 'n', operands: ['name'] } },
    },
    worktree: { operands: [], verbs: { list: { words: '--porcelain', operands: [] } } },
    add: { flags: 'Auv', words: '--all --update --verbose --intent-to-add -N', operands: ['pathspec'] },
    commit: {
      flags: 'aqvsn',
      words: '--all --amend --no-edit --allow-empty --allow-empty-message --no-verify --quiet --signoff',
      values: { text: '-m --message --author --date', read: '-F --file' },
      operands: ['pathspec'],
    },
    rm: { flags: 'rfqn', words: '--cached --force --quiet', operands: ['remove'], check: plainPaths },
    mv: { flags: 'fkvn', operands: ['move'], last: 'write', check: (call, parsed) => move(call, parsed) },
    clean: {
      flags: 'fdnq',
      words: '--dry-run --force',
      operands: ['remove'],
      alone: ['write', '.'],
      check: plainPaths,
    },
    checkout: {
      flags: 'q',
      words: '--quiet --detach --ours --theirs',
      values: { name: '-b -B' },
      operands: ['revision'],
      check: (call, { operands, values, before }) => {
        for (const [at, operand] of operands.entries()) {
          if (at > 0 || at >= before || call.kindOf(operand) !== 'none') changePath(call, operand);
        }
        if (values.length === 0 || operands.length > 0) reshapes(call);
      },
    },
    switch: {
      flags: 'q',
      words: '--quiet --detach',
      values: { name: '-c -C --create' },
      operands: ['name'],
      check: (call, { operands, values }) => {
        if (values.length === 0 || operands.length > 0) reshapes(call);
      },
    },
    restore: {
      flags: 'SWq',
      words: '--staged --worktree --quiet',
      values: { name: '-s --source' },
      operands: ['pathspec'],
      check: (call, { operands, options }) => {
        if (options.has('--staged') && options.size === 1) return;
        for (const operand of operands) call.write(operand);
        call.reshape();
      },
    },
    reset: {
      flags: 'q',
      words: '--soft --mixed --hard --keep --quiet',
      operands: ['revision'],
      check: (call, { options }) => {
        if (options.has('--hard') || options.has('--keep')) reshapes(call);
      },
    },
    stash: {
      flags: 'u',
      words: '--include-untracked',
      operands: [],
      check: reshapes,
      verbs: {
        push: {
          flags: 'uqk',
          words: '--include-untracked --keep-index --quiet --staged',
          values: { text: '-m --message' },
          operands: ['pathspec'],
          check: reshapes,
        },
        ...each('pop apply drop', { flags: 'q', words: '--index --quiet', operands: ['text'], check: reshapes }),
        list: NOTHING,
        show: { flags: 'pu', words: shown, operands: ['text'] },
      },
    },
    merge: {
      flags: 'q',
      words: '--no-ff --ff-only --squash --abort --continue --no-edit --no-commit --quiet',
      values: { text: '-m' },
      ...change,
    },
    rebase: {
      flags: 'q',
      words: '--continue --abort --skip --autostash --quiet',
      values: { name: '--onto' },
      ...change,
    },
    'cherry-pick': { flags: 'xn', words: '--abort --continue --skip --no-commit', ...change },
    revert: { flags: 'n', words: '--no-edit --abort --continue --no-commit', ...change },
    bisect: {
      operands: [],
      verbs: {
        ...each('start good bad skip new old', change),
        reset: { operands: ['name'], check: reshapes },
        log: NOTHING,
        run: { operands: ['text'], stops: true, check: (call, { operands }) => call.run(operands) },
      },
    },
    fetch: { flags: 'pqvt', words: remote, values: { number: '--depth' }, operands: ['repository', 'name'] },
    pull: {
      flags: 'qv',
      words: `${remote} --rebase= --no-rebase --ff-only --autostash`,
      operands: ['repository', 'name'],
      check: reshapes,
    },
    push: {
      flags: 'uqvfdn',
      words: `${remote} --set-upstream --force-with-lease= --delete --no-verify`,
      operands: ['repository', 'name'],
    },
    'ls-remote': { flags: 'ht', words: '--heads --tags', operands: ['repository', 'name'] },
    clone: {
      flags: 'q',
      words: '--quiet --single-branch --no-tags --no-checkout',
      values: { number: '--depth', name: '-b --branch' },
      operands: ['repository', 'write'],
      check: (call, { operands: [repository, folder] }) => {
        const name = /^[^?#]*[/:]([\w.-]+?)(\.git)?\/?$/.exec(repository?.text ?? '')?.[1];
        if (name === undefined || /^\.*$/.test(name)) throw new Unclear('it is not known where git clones to');
        if (!folder) call.write(literal(name));
        call.reshape();
      },
    },
    init: {
      flags: 'q',
      words: '--quiet',
      values: { name: '-b --initial-branch' },
      operands: ['write'],
      alone: ['write', '.'],
    },
  };
}
