/*
 * What well-known programs do with their arguments: which are paths, addresses, code, or another command.
 *
 * 1. An argument that is not understood is never ignored: it is a read of a path, or the command is unclear.
 * 2. Long options are recognised by any beginning, because most programs accept that.
 */
import path from 'node:path/posix';
import { awkProgramProblem, sedScriptProblem } from './scripts.ts';
import { COMPUTED_FIELD, literalField, type Field } from './words.ts';

/** One program that would run, and what its analysis reports. */
export interface Invocation {
  /** The last component of the name. */
  readonly base: string;
  readonly args: readonly Field[];
  /** Text on standard input. Undefined: it is computed. Null: it is not redirected. */
  readonly stdin: string | undefined | null;
  read(field: Field): void;
  write(field: Field): void;
  url(url: string): void;
  unclear(reason: string): void;
  /** Code for a shell. */
  shell(code: Field, how: { readonly posix: boolean; readonly inFolder?: Field }): void;
  /** Another program with its arguments. */
  run(command: readonly Field[], how?: { readonly inFolder?: Field; readonly stdin?: null }): void;
  /** A variable for the environment of another program. */
  variable(name: string): void;
}

type Kind = 'read' | 'write' | 'none' | 'url' | 'shell' | 'unclear';

interface Options {
  /** Options with a value that is a path, an address, code, or nothing of interest. Separated by blanks. */
  readonly read?: string;
  readonly write?: string;
  readonly none?: string;
  readonly url?: string;
  readonly shell?: string;
  /** Options that make the program do something that cannot be analysed. */
  readonly unclear?: string;
}

interface Spec extends Options {
  /** The first positional argument, the others, and the last of several. */
  readonly first?: Kind;
  readonly rest?: Kind;
  readonly last?: Kind;
}

interface Parsed {
  readonly positional: readonly Field[];
  /** The options that occur, as written in the table or in the command. */
  readonly flags: ReadonlySet<string>;
  readonly values: readonly { readonly option: string; readonly value: Field }[];
}

/** Finds options and positional arguments, and reports what the table says about options. */
function parseOptions(
  call: Invocation,
  spec: Options,
  args: readonly Field[] = call.args,
  stopAtPositional = false,
): Parsed {
  const table = tableOf(spec);
  const positional: Field[] = [];
  const flags = new Set<string>();
  const values: { option: string; value: Field }[] = [];
  const isRisky = spec.unclear !== undefined || spec.write !== undefined || spec.shell !== undefined;
  const take = (option: string, value: Field | undefined): void => {
    flags.add(option);
    if (!value) return;
    values.push({ option, value });
    report(call, table.get(option) ?? 'none', value, `the option ${option} of ${call.base}`);
  };
  let at = 0;
  for (; at < args.length; at++) {
    const arg = args[at];
    if (!arg) break;
    const text = arg.value ?? arg.start;
    if (text === '--' && arg.value !== undefined) {
      positional.push(...args.slice(at + 1));
      break;
    }
    if (arg.value === undefined && (text === '' || text.startsWith('-')) && !arg.pipe && isRisky) {
      call.unclear(`an argument of ${call.base} is computed and could be an option`);
    }
    if (!text.startsWith('-') || text === '-') {
      if (stopAtPositional) {
        positional.push(...args.slice(at));
        break;
      }
      positional.push(arg);
    } else if (text.startsWith('--') || table.has(text)) {
      const equals = text.startsWith('--') ? text.indexOf('=') : -1;
      const written = equals === -1 ? text : text.slice(0, equals);
      const option = longOption(written, table);
      if (equals !== -1) {
        const value = arg.value === undefined ? COMPUTED_FIELD : literalField(text.slice(equals + 1));
        if (table.has(option)) take(option, value);
        else {
          flags.add(option);
          values.push({ option, value });
          reportUnknown(call, value, /out|log-?file|dest/.test(option));
        }
      } else if (table.get(option) === 'unclear') take(option, literalField(''));
      else if (table.has(option)) take(option, args[++at]);
      else flags.add(option);
    } else {
      const isUnknown = spec.write === UNKNOWN.write;
      const equals = isUnknown ? text.indexOf('=') : -1;
      if (equals !== -1) {
        const name = text.slice(0, equals);
        const value = arg.value === undefined ? COMPUTED_FIELD : literalField(text.slice(equals + 1));
        if (table.has(name)) take(name, value);
        else reportUnknown(call, value, false);
        flags.add(name);
        continue;
      }
      for (let letter = 1; letter < (isUnknown ? 2 : text.length); letter++) {
        const option = `-${text[letter]}`;
        const kind = table.get(option);
        if (kind === undefined) {
          flags.add(option);
          if (letter === 1 && /[/~]/.test(text)) reportUnknown(call, literalField(text.slice(2)), false);
          continue;
        }
        const attached = text.slice(letter + 1);
        if (kind === 'unclear') take(option, literalField(attached));
        else
          take(
            option,
            attached
              ? { ...literalField(attached), value: arg.value === undefined ? undefined : attached }
              : args[++at],
          );
        break;
      }
    }
  }
  return { positional, flags, values };
}

const tables = new WeakMap<Options, ReadonlyMap<string, Kind>>();

function tableOf(spec: Options): ReadonlyMap<string, Kind> {
  let table = tables.get(spec);
  if (!table) {
    const kinds = ['none', 'read', 'write', 'url', 'shell', 'unclear'] as const;
    table = new Map(
      kinds.flatMap((kind) =>
        (spec[kind] ?? '')
          .split(' ')
          .filter(Boolean)
          .map((option) => [option, kind] as const),
      ),
    );
    tables.set(spec, table);
  }
  return table;
}

/** The option that a beginning stands for: the one that matters most. */
function longOption(written: string, table: ReadonlyMap<string, Kind>): string {
  if (table.has(written) || written.length < 4) return written;
  const matches = [...table].filter(([option]) => option.startsWith(written));
  return (
    (matches.find(([, kind]) => kind === 'unclear') ??
      matches.find(([, kind]) => kind !== 'none') ??
      matches[0])?.[0] ?? written
  );
}

function report(call: Invocation, kind: Kind, value: Field, what: string): void {
  switch (kind) {
    case 'none':
      return;
    case 'read':
      if (value.value !== '-') call.read(value);
      return;
    case 'write':
      if (value.value !== '-') call.write(value);
      return;
    case 'url':
      reportUrl(call, value);
      return;
    case 'shell':
      call.shell(value, { posix: true });
      return;
    case 'unclear':
      call.unclear(`${what} is not analysed`);
      return;
    default:
      kind satisfies never;
  }
}

const URL_FORM = /^[a-z][a-z0-9+.-]*:\/\//i;

function reportUrl(call: Invocation, field: Field): void {
  if (field.value === undefined) {
    // The host decides about the rules, so it has to be known.
    const host = /^([a-z]+:\/\/[^/?#@\\]+)[/?#]/i.exec(field.start);
    if (host?.[1]) call.url(`${host[1]}/`);
    else call.unclear(`an address for ${call.base} is computed`);
  } else if (/^file:/i.test(field.value)) {
    const [, file = ''] =
      /^file:\/*(?:localhost)?(\/.*)$/i.exec(`file:/${field.value.slice(5).replace(/^\/+/, '')}`) ?? [];
    call.read(literalField(file.includes('%') ? decodeURIComponentOr(file) : file));
  } else if (/[\\\s]|[^ -~]/.test(field.value))
    call.unclear('an address has characters that programs read in different ways');
  else if (URL_FORM.test(field.value)) call.url(field.value);
  else call.url(`http://${field.value}`);
}

function decodeURIComponentOr(text: string): string {
  try {
    return decodeURIComponent(text);
  } catch {
    return text;
  }
}

/** `user@host:path` and `ssh://…`, as git, scp and rsync take them. */
function remoteHost(text: string): string | undefined {
  return /^(?:[^@/\s]+@)?(\[[^\]]+\]|[^:/@\s]+):(?!\/\/)/.exec(text)?.[1];
}

/** An argument of a program that is not known: an address, or a read if it looks like a path. */
function reportUnknown(call: Invocation, field: Field, isWrite: boolean): void {
  const { value } = field;
  if (value === undefined) {
    if (!field.pipe) call.unclear(`an argument of ${call.base} is computed`);
    return;
  }
  if (URL_FORM.test(value) && !/\s/.test(value)) {
    reportUrl(call, field);
    return;
  }
  if (isWrite) call.write(field);
  else if (/^(?:[.~]|id_)|\/|^[^\s=]+\.\w+$/.test(value) && !/[\n\s]/.test(value)) call.read(field);
}

/** Applies the table of a program. */
function applySpec(call: Invocation, spec: Spec, args: readonly Field[] = call.args): Parsed {
  const parsed = parseOptions(call, spec, args);
  const { positional } = parsed;
  for (const [at, field] of positional.entries()) {
    const isLast = at > 0 && at === positional.length - 1;
    const kind = at === 0 && spec.first ? spec.first : isLast && spec.last ? spec.last : (spec.rest ?? 'read');
    report(call, kind, field, `an argument of ${call.base}`);
  }
  return parsed;
}

const READS: Spec = {};
const NOTHING: Spec = { rest: 'none' };
const WRITES: Spec = { rest: 'write' };

const COPY: Spec = {
  rest: 'read',
  last: 'write',
  none: '-S --suffix',
  write: '-t --target-directory',
};

const GREP: Spec = {
  first: 'none',
  none: '-m --max-count -A --after-context -B --before-context -C --context --include --exclude --exclude-dir -d -D --label --binary-files',
  read: '--exclude-from',
};

const SPECS: Readonly<Record<string, Spec>> = {
  ...each(
    'cat tac nl od hexdump xxd strings file stat sum cksum md5sum sha1sum sha256sum sha512sum b2sum base64 base32 rev paste join comm cmp column fold fmt expand unexpand readlink realpath df ls dir tree zcat bzcat xzcat pr tsort look lsof cloc tokei',
    READS,
  ),
  ...each('wc du', { none: '-d --max-depth -B --block-size --exclude -t --threshold', unclear: '--files0-from' }),
  head: { none: '-n --lines -c --bytes' },
  tail: { none: '-n --lines -c --bytes --pid -s --sleep-interval' },
  less: { unclear: '-o -O --log-file -k --lesskey-file' },
  more: READS,
  diff: { none: '-U -C --label -I --exclude -x', read: '--from-file --to-file' },
  sort: {
    none: '-k --key -t --field-separator -S --buffer-size --parallel',
    write: '-o --output -T --temporary-directory',
    unclear: '--compress-program --files0-from',
  },
  uniq: { none: '-f -s -w', last: 'write' },
  cut: { none: '-d -f -c -b --delimiter --fields --output-delimiter' },
  split: { none: '-l -b -n -a -C', last: 'write', unclear: '--filter' },
  shuf: { none: '-n -i --input-range', write: '-o --output', read: '--random-source' },
  ...each('grep egrep fgrep zgrep', GREP),
  rg: {
    ...GREP,
    none: `${GREP.none} -g --glob --iglob -t --type -T --type-not -e --regexp -j --threads -r --replace --sort --sortr --max-depth -M`,
    read: '-f --file --ignore-file',
    unclear: '--pre --hostname-bin',
  },
  ...each(
    'echo printf true false pwd tr sleep seq uname whoami id groups ps pgrep nproc uptime free basename dirname expr which whereis tput clear arch locale getconf logname tty yes factor numfmt uuidgen lsb_release sw_vers',
    NOTHING,
  ),
  ...each('rmdir unlink mktemp', WRITES),
  ...each('mkfifo mknod', { ...WRITES, none: '-m --mode' }),
  truncate: { rest: 'write', none: '-s --size', read: '-r --reference' },
  shred: { rest: 'write', none: '-n --iterations -s --size', read: '--random-source' },
  touch: { rest: 'write', none: '-d --date -t --time', read: '-r --reference' },
  mkdir: { rest: 'write', none: '-m --mode' },
  rm: WRITES,
  date: { rest: 'none', none: '-d --date -s --set', read: '-f --file -r --reference' },
  tee: WRITES,
  ...each('setfacl chattr chcon', WRITES),
  cp: COPY,
  mv: { ...COPY, rest: 'write' },
  install: { ...COPY, none: '-m --mode -o --owner -g --group', unclear: '--strip-program' },
  ln: { rest: 'write', write: '-t --target-directory' },
  ...each('gzip gunzip bzip2 bunzip2 xz unxz zstd', WRITES),
  zip: { rest: 'read', first: 'write', none: '-x -i', unclear: '-TT --unzip-command -m --move -@' },
  unzip: { rest: 'none', first: 'read', write: '-d' },
  tar: {
    rest: 'read',
    none: '-f --file --exclude --owner --group --mode --mtime --strip-components --format',
    write: '-C --directory',
    read: '-X --exclude-from',
    unclear:
      '-T --files-from --to-command --checkpoint-action --transform --xform -I --use-compress-program --rsh-command --rmt-command -F --info-script --new-volume-script',
  },
  openssl: {
    rest: 'none',
    read: '-in -inkey -key -CAfile -cert',
    write: '-out -keyout',
    unclear: '-engine -provider -provider-path',
  },
  curl: {
    rest: 'url',
    url: '--url --referer',
    none: '-X --request -H --header -A --user-agent -e -m --max-time --connect-timeout --retry --retry-delay -r --range -u --user -w --write-out --data-raw --limit-rate --max-redirs -y -Y -z --ciphers --json --form-string --retry-max-time --max-filesize --tls-max',
    read: '-T --upload-file --cacert --capath -E --cert --key --netrc-file --egd-file',
    write:
      '-o --output -D --dump-header -c --cookie-jar --trace --trace-ascii --stderr --libcurl --etag-save --hsts --alt-svc --output-dir',
    unclear:
      '-K --config -x --proxy --preproxy --socks5 --socks4 --socks4a --socks5-hostname --unix-socket --abstract-unix-socket --proto-default --resolve --connect-to --interface --dns-servers --doh-url -n --netrc --netrc-optional --variable --expand-url --expand-output --expand-data --engine -Q --quote --postquote --prequote -t --telnet-option --etag-compare',
  },
  wget: {
    rest: 'url',
    none: '-t --tries -T --timeout -U --user-agent --header --method --body-data --post-data -w --wait -l --level -A -R -D --domains -Q --quota --limit-rate',
    read: '--post-file --body-file --ca-certificate --certificate --private-key --load-cookies',
    write:
      '-O --output-document -o --output-file -a --append-output -P --directory-prefix --save-cookies --warc-file --hsts-file --rejected-log',
    unclear:
      '-e --execute -i --input-file --use-askpass --config --base -B -p --page-requisites -H --span-hosts -x --force-directories --content-disposition --trust-server-names --metalink-over-http --input-metalink --dns-servers',
  },
  ...each('vim vi nvim view ex ed emacs nano pico joe mcedit code subl', {
    rest: 'write',
    unclear: '-c --cmd -S -s -u -W -w --eval -l --load -f --funcall --batch --script -es -E --listen',
  }),
  man: { rest: 'none', unclear: '-P --pager -H --html -C --config-file --preprocessor -p' },
  ...each('docker podman nerdctl', { rest: 'none' }),
  rsync: {
    rest: 'write',
    none: '--exclude --include --bwlimit --timeout --chmod -f --filter',
    read: '--exclude-from --include-from',
    write: '--log-file --backup-dir --temp-dir --partial-dir',
    unclear: '-e --rsh --rsync-path --daemon --config --files-from',
  },
  scp: { rest: 'write', none: '-P -l -c', read: '-i', unclear: '-S -o -F -J -D' },
  patch: { rest: 'write', none: '-p', read: '-i --input', write: '-o --output -r -d --directory' },
  tsc: {
    rest: 'read',
    read: '-p --project',
    write: '--outDir --outFile --declarationDir --tsBuildInfoFile',
    none: '--target --module --moduleResolution --jsx --lib',
  },
  ...each('eslint oxlint prettier oxfmt biome', {
    rest: 'read',
    read: '--config -c --ignore-path',
    write: '-o --output-file --cache-location',
    none: '--ext --max-warnings --format -f --rule',
    unclear: '--rulesdir --resolve-plugins-relative-to --plugin',
  }),
  systemctl: NOTHING,
};

function each(names: string, spec: Spec): Record<string, Spec> {
  return Object.fromEntries(names.split(' ').map((name) => [name, spec]));
}

/** Programs that run another one: how many arguments come before it, and their options. */
const WRAPPERS: Readonly<
  Record<string, Options & { readonly skip?: number; readonly flags?: string; readonly assignments?: true }>
> = {
  nohup: { flags: '' },
  setsid: { flags: '-c -f -w --ctty --fork --wait' },
  nice: { none: '-n --adjustment', flags: '-1 -5 -9 -10 -15 -19 -20' },
  ionice: { none: '-c --class -n --classdata', flags: '-t' },
  chrt: { flags: '-b -f -i -o -r -m', skip: 1 },
  taskset: { flags: '-c', skip: 1 },
  stdbuf: { none: '-i --input -o --output -e --error', flags: '' },
  timeout: { none: '-k --kill-after -s --signal', flags: '--preserve-status --foreground -v --verbose -f -p', skip: 1 },
  time: { none: '-f --format', write: '-o --output', flags: '-p -v -a --append --verbose --portability' },
  sudo: {
    none: '-u --user -g --group -h --host -p --prompt -C -T -r -t',
    unclear: '-e --edit -i --login -s --shell -D --chdir -R --chroot',
    flags: '-n -E -H -k -K -S -b -A -P --preserve-env',
    assignments: true,
  },
  doas: { none: '-u', unclear: '-C -s', flags: '-n -L' },
  busybox: { unclear: '--install', flags: '--list' },
  toybox: { flags: '' },
  unbuffer: { flags: '-p' },
  caffeinate: { none: '-t -w', flags: '-d -i -m -s -u' },
};

/** Subcommands that run another program. */
const SUB_WRAPPERS: Readonly<Record<string, string>> = {
  poetry: 'run',
  pipenv: 'run',
  uv: 'run',
  bundle: 'exec',
  rye: 'run',
  hatch: 'run',
  direnv: 'exec',
  mise: 'exec',
  asdf: 'exec',
  dotenvx: 'run',
  doppler: 'run',
};

const SHELLS: ReadonlySet<string> = new Set(['sh', 'bash', 'dash', 'ash', 'rbash']);
const OTHER_SHELLS: ReadonlySet<string> = new Set(
  'zsh ksh mksh ksh93 fish csh tcsh pwsh powershell nu elvish xonsh rc es yash osh'.split(' '),
);

/** Interpreters, the options that take code, and those that load it from elsewhere than the script. */
const INTERPRETERS: readonly {
  readonly names: RegExp;
  readonly code: string;
  readonly none?: string;
  /** The option that runs a module. */
  readonly module?: RegExp;
}[] = [
  { names: /^(python|pypy)[\d.]*w?$/, code: '-c -i', none: '-W -X', module: /^-[bBdEIOPqsSuvx]*m/ },
  {
    names: /^(node|nodejs|bun|tsx|ts-node|iojs)$/,
    code: '-e --eval -p --print -pe -r --require --import --loader --experimental-loader --experimental-default-type --env-file --env-file-if-exists -i --interactive --inspect-brk --build-snapshot --run --test-reporter --test-global-setup --experimental-config-file --openssl-config --preload --build-sea --experimental-sea-config exec inspect debug',
    none: '-C --conditions --test-name-pattern --max-old-space-size --stack-size --title --test-concurrency --test-timeout --watch-path',
  },
  { names: /^deno$/, code: 'eval repl' },
  { names: /^perl[\d.]*$/, code: '-e -E -M -m -I -x -i -n -p -d -S -F' },
  { names: /^(ruby|jruby|irb)[\d.]*$/, code: '-e -r -I -x -n -p -i' },
  { names: /^php[\d.]*$/, code: '-r -R -B -E -F -d -c -z -a' },
  { names: /^(lua|luajit)[\d.]*$/, code: '-e -l -i' },
  {
    names:
      /^(osascript|Rscript|R|julia|ghci|ghc|groovy|scala|clojure|clj|elixir|iex|erl|jshell|swift|racket|guile|sbcl|tclsh|wish|expect|octave|gdb|lldb|bc|dc|m4|sqlite3|psql|mysql|gnuplot)$/,
    code: '-e -E --eval --expr -c --execute -ex --batch -x -cmd --command -p --print -f -r -l',
  },
];

/** Reports what a program does with its arguments. */
export function analyseProgram(call: Invocation): void {
  const { base } = call;
  const special = SPECIAL[base];
  if (special) {
    special(call);
    return;
  }
  if (SHELLS.has(base)) {
    analyseShell(call);
    return;
  }
  const wrapper = Object.hasOwn(WRAPPERS, base) ? WRAPPERS[base] : undefined;
  if (wrapper) {
    analyseWrapper(call, wrapper);
    return;
  }
  const interpreter = INTERPRETERS.find(({ names }) => names.test(base));
  if (interpreter) {
    analyseInterpreter(call, interpreter);
    return;
  }
  if (OTHER_SHELLS.has(base)) {
    call.unclear(`the grammar of ${base} is not known`);
    return;
  }
  const spec = Object.hasOwn(SPECS, base) ? SPECS[base] : undefined;
  if (spec) {
    applySpec(call, spec);
    return;
  }
  const sub = Object.hasOwn(SUB_WRAPPERS, base) ? SUB_WRAPPERS[base] : undefined;
  if (sub !== undefined && call.args[0]?.value === sub) {
    const at = call.args.findIndex(({ value }, index) => index > 0 && value !== undefined && !value.startsWith('-'));
    if (call.args.slice(1, at).some(({ value }) => value !== '--'))
      call.unclear(`options of ${base} ${sub} are not analysed`);
    if (at > 0) call.run(call.args.slice(at));
    return;
  }
  analyseUnknown(call, call.args);
}

function analyseUnknown(call: Invocation, args: readonly Field[]): void {
  const { positional } = parseOptions(call, UNKNOWN, args);
  for (const field of positional) reportUnknown(call, field, false);
}

const UNKNOWN: Options = {
  write: '-o --output --out --outfile --out-dir --output-dir --outdir --log-file --output-file',
};

function analyseWrapper(call: Invocation, wrapper: (typeof WRAPPERS)[string]): void {
  const { positional, flags } = parseOptions(call, wrapper, call.args, true);
  const known = new Set([...(wrapper.flags ?? '').split(' '), ...tableOf(wrapper).keys()]);
  for (const flag of flags) if (!known.has(flag)) call.unclear(`the option ${flag} of ${call.base} is not known`);
  let command: readonly Field[] = positional.slice(wrapper.skip ?? 0);
  if (wrapper.assignments) command = takeAssignments(call, command);
  if (command.length > 0) call.run(command, { stdin: null });
}

function takeAssignments(call: Invocation, args: readonly Field[]): readonly Field[] {
  let at = 0;
  for (; at < args.length; at++) {
    const name = /^([A-Za-z_]\w*)=/.exec(args[at]?.start ?? '')?.[1];
    if (name === undefined) break;
    call.variable(name);
  }
  return args.slice(at);
}

function analyseShell(call: Invocation): void {
  const posix = call.base !== 'bash' && call.base !== 'rbash';
  let readsStdin = false;
  for (let at = 0; at < call.args.length; at++) {
    const arg = call.args[at];
    const text = arg?.value;
    if (!arg || text === undefined) {
      call.unclear(`an argument of ${call.base} is computed`);
      return;
    }
    if (text === '--' || text === '-') continue;
    if (/^--(rcfile|init-file)/.test(text) || /^[-+]O/.test(text) || /^-[a-z]*i/.test(text) || text === '--login') {
      call.unclear(`${call.base} with ${text} runs start-up files`);
      at += /^--(rcfile|init-file)$|^[-+]O$/.test(text) ? 1 : 0;
    } else if (/^[-+]o$/.test(text)) at++;
    else if (/^-[a-z]*c[a-z]*$/i.test(text) && !text.startsWith('--')) {
      // Options may follow -c: the code is the first argument that is none.
      let code = at + 1;
      while (/^[-+]./.test(call.args[code]?.value ?? ''))
        code += /^[-+][a-z]*o$/.test(call.args[code]?.value ?? '') ? 2 : 1;
      if (text.includes('o')) code++;
      if (text.includes('l')) call.unclear(`${call.base} ${text} runs start-up files`);
      const field = call.args[code];
      if (field) call.shell(field, { posix });
      else call.unclear(`${call.base} ${text} has no code`);
      return;
    } else if (/^-[a-z]*s/.test(text)) readsStdin = true;
    else if (/^-l$/.test(text)) call.unclear(`${call.base} ${text} runs start-up files`);
    else if (/^[-+]/.test(text)) {
      if (/^--(version|help)$/.test(text) && call.args.length === 1) return;
    } else if (!readsStdin) {
      // A script in a file. What it does is not analysed: allowing this program means allowing the script.
      reportScript(call, arg);
      for (const rest of call.args.slice(at + 1)) reportUnknown(call, rest, false);
      return;
    }
  }
  if (typeof call.stdin === 'string') call.shell(literalField(call.stdin), { posix });
  else call.unclear(`${call.base} runs what it reads from standard input`);
}

function analyseInterpreter(call: Invocation, { code, none = '', module }: (typeof INTERPRETERS)[number]): void {
  const codeOptions = code.split(' ');
  const valued = none.split(' ');
  const takesCode = (text: string): boolean => {
    const name = text.split('=', 1)[0] ?? '';
    return codeOptions.some(
      (option) =>
        name === option ||
        (option.startsWith('--') && name.length > 3 && name !== '--test' && option.startsWith(name)) ||
        (/^-\w$/.test(option) &&
          /^-\w/.test(text) &&
          text.slice(1).includes(option.slice(1)) &&
          !valued.includes(text.slice(0, 2)) &&
          !/^-(version|help)$/.test(text)),
    );
  };
  let needsScript = true;
  for (let at = 0; at < call.args.length; at++) {
    const arg = call.args[at];
    const text = arg?.value ?? arg?.start ?? '';
    if (!arg || arg.value === undefined) {
      call.unclear(`an argument of ${call.base} is computed`);
      return;
    }
    if (module?.test(text)) {
      const attached = text.replace(module, '');
      const rest = call.args.slice(at + 1);
      if ([attached, ...rest.map(({ start }) => start)].some((name) => CODE_MODULES.test(name)))
        call.unclear(`a module of ${call.base} runs code`);
      for (const field of attached === '' ? rest.slice(1) : rest) reportUnknown(call, field, false);
      return;
    }
    if (takesCode(text)) {
      call.unclear(`${call.base} runs code that is given in the command`);
      for (const rest of call.args.slice(at + 1)) reportUnknown(call, rest, false);
      return;
    }
    const name = text.split('=', 1)[0] ?? '';
    if (text === '-') break;
    if (valued.includes(text)) at++;
    else if (/^--?(version|help|[vVh]|versions|v8-options)$/.test(text) && call.args.length === 1) return;
    else if (text === '--test') needsScript = false;
    else if (text.startsWith('-')) {
      const value = text.includes('=') ? text.slice(text.indexOf('=') + 1) : '';
      reportUnknown(call, literalField(value), value !== '' && /dir|file|dest|redirect|out/.test(name));
    } else {
      // After an option it may be the value of that option, so that further options follow.
      if (
        /^--[^=]+$/.test(call.args[at - 1]?.value ?? '') &&
        call.args.slice(at + 1).some(({ start }) => takesCode(start))
      )
        call.unclear(`${call.base} may run code that is given in the command`);
      reportScript(call, arg);
      for (const rest of call.args.slice(at + 1)) reportUnknown(call, rest, false);
      return;
    }
  }
  if (needsScript) call.unclear(`${call.base} runs what it reads from standard input`);
}

/** Modules of Python that run code from their arguments or their input. */
const CODE_MODULES = /^(timeit|code|codeop|pdb|runpy|asyncio|idlelib(\..*)?|IPython|sqlite3|http\.server)$/;

function reportScript(call: Invocation, script: Field): void {
  if (/^(https?|data|ftp):/i.test(script.value ?? '')) call.unclear(`${call.base} runs code from an address`);
  else if (/^\/dev\/(stdin|fd)|^\/proc\//.test(script.value ?? ''))
    call.unclear(`${call.base} runs what it reads from a pipe`);
  else call.read(script);
}

const SPECIAL: Readonly<Record<string, ((call: Invocation) => void) | undefined>> = Object.assign(
  Object.create(null) as Record<string, (call: Invocation) => void>,
  {
    env: analyseEnv,
    xargs: analyseXargs,
    find: analyseFind,
    gfind: analyseFind,
    fd: analyseFd,
    fdfind: analyseFd,
    git: analyseGit,
    sed: analyseSed,
    gsed: analyseSed,
    awk: analyseAwk,
    gawk: analyseAwk,
    mawk: analyseAwk,
    nawk: analyseAwk,
    original_awk: analyseAwk,
    make: analyseMake,
    gmake: analyseMake,
    dd: analyseDd,
    su: analyseSu,
    runuser: analyseSu,
    watch: analyseWatch,
    flock: analyseFlock,
    script: analyseScript,
    ssh: analyseSsh,
    npm: analyseNpm,
    npx: analyseNpm,
    pnpm: analyseNpm,
    pnpx: analyseNpm,
    yarn: analyseNpm,
    bunx: analyseNpm,
    docker: analyseDocker,
    podman: analyseDocker,
    nerdctl: analyseDocker,
    curl: analyseCurl,
    wget: analyseWget,
    rsync: analyseRemoteCopy,
    scp: analyseRemoteCopy,
    tar: analyseTar,
    grep: analyseGrep,
    egrep: analyseGrep,
    fgrep: analyseGrep,
    zgrep: analyseGrep,
    rg: analyseGrep,
    ...Object.fromEntries('vim vi nvim view emacs nano'.split(' ').map((name) => [name, analysePager])),
    ...Object.fromEntries('chmod chown chgrp'.split(' ').map((name) => [name, analyseMode])),
    jq: analyseJq,
    go: (call: Invocation) => analyseSubcommand(call, GO, /^(generate|tool|telemetry|bug)$/),
    cargo: (call: Invocation) => analyseSubcommand(call, CARGO, /^(install|login|publish)$/),
    gh: (call: Invocation) =>
      analyseSubcommand(call, GH, /^(alias|extension|ext|config|auth|codespace|cs|ssh-key|gpg-key)$/),
    less: analysePager,
    more: analysePager,
    most: analysePager,
    ...unclearPrograms('nc ncat netcat socat telnet ftp sftp tftp lftp', 'opens a connection that is not analysed'),
    ...unclearPrograms(
      'parallel at batch crontab systemd-run chroot unshare nsenter bwrap firejail start-stop-daemon run-parts entr screen tmux ' +
        'dialog whiptail expect ed ex capsh setpriv pkexec gosu su-exec proot fakeroot ld.so ld-linux.so.2 ld-linux-x86-64.so.2 ' +
        'torsocks proxychains proxychains4 tsocks multitool pueue task-spooler tsp nq inotifywait watchexec nodemon rlwrap ssh-agent ' +
        'dbus-run-session xvfb-run script-replay gtester lldb-server gdbserver strace valgrind ltrace perf rr hyperfine ' +
        'vipe sponge-exec install-info update-alternatives alternatives insmod modprobe kexec',
      'runs other programs in a way that is not analysed',
    ),
  },
);

function unclearPrograms(names: string, reason: string): Record<string, (call: Invocation) => void> {
  return Object.fromEntries(
    names.split(' ').map((name) => [
      name,
      (call: Invocation) => {
        call.unclear(`${name} ${reason}`);
        for (const arg of call.args) if (arg.value !== undefined) reportUnknown(call, arg, false);
      },
    ]),
  );
}

function analyseEnv(call: Invocation): void {
  const known = new Set(['-i', '--ignore-environment', '-0', '--null', '-v', '--debug', '-']);
  const spec = ENV_OPTIONS;
  const { positional, flags, values } = parseOptions(call, spec, call.args, true);
  for (const flag of flags)
    if (!known.has(flag) && !tableOf(spec).has(flag)) call.unclear(`the option ${flag} of env is not known`);
  const split = values.filter(({ option }) => option === '-S' || option === '--split-string');
  // Without PATH another program of the same name may run.
  if (flags.has('-i') || flags.has('--ignore-environment') || positional[0]?.value === '-') call.variable('PATH');
  for (const { option, value } of values)
    if (option === '-u' || option === '--unset') call.variable(value.value ?? 'PATH');
  const folder = values.find(({ option }) => option === '-C' || option === '--chdir')?.value;
  if (folder) call.read(folder);
  let rest = positional[0]?.value === '-' ? positional.slice(1) : positional;
  if (split.length > 0) {
    const text = split[0]?.value.value;
    // The string has quotes and escapes of its own; only plain words are clear.
    if (split.length > 1 || text === undefined || !/^[\w ./:@%+=,-]*$/.test(text)) {
      call.unclear('env splits a string into a command');
      return;
    }
    rest = [...text.split(' ').filter(Boolean).map(literalField), ...rest];
    if (rest[0]?.value?.startsWith('-')) call.unclear('env splits a string into options');
  }
  const command = takeAssignments(call, rest);
  if (command.length > 0) call.run(command, folder ? { inFolder: folder, stdin: null } : { stdin: null });
}

const ENV_OPTIONS: Options = {
  none: '-u --unset -C --chdir -S --split-string',
  unclear: '--block-signal --default-signal --ignore-signal -P -L -U',
};

const XARGS: Options & { readonly flags: string } = {
  none: '-d --delimiter -E -I -i -J -L -l -n --max-args -P --max-procs -s --max-chars',
  unclear: '--replace --max-lines --eof --process-slot-var -R',
  read: '-a --arg-file',
  flags: '-0 --null -r --no-run-if-empty -t --verbose -x --exit -p --interactive -o --open-tty',
};

function analyseXargs(call: Invocation): void {
  // -i, -l and -e take only attached values, so they end the analysis of the options.
  const { positional, flags, values } = parseOptions(call, XARGS, call.args, true);
  const own = call.args.slice(0, call.args.length - positional.length);
  if (own.some(({ start }) => /^-[ile]$/.test(start))) call.unclear('an old option of xargs is not analysed');
  const known = new Set([...XARGS.flags.split(' '), ...tableOf(XARGS).keys()]);
  for (const flag of flags) if (!known.has(flag)) call.unclear(`the option ${flag} of xargs is not known`);
  const marker = values.find(({ option }) => option === '-I' || option === '--replace')?.value.value;
  const command = positional.length > 0 ? positional : [literalField('echo')];
  const isPlain =
    typeof call.stdin === 'string' &&
    values.every(
      ({ option }) => option !== '-a' && option !== '-d' && option !== '--arg-file' && option !== '--delimiter',
    );
  const words =
    isPlain && /^[\w\s./:@%+=,~*-]*$/.test(call.stdin ?? '') && !flags.has('-0')
      ? (call.stdin ?? '').split(/\s+/).filter(Boolean).map(literalField)
      : undefined;
  const input = words ?? [
    { ...COMPUTED_FIELD, guesses: typeof call.stdin === 'string' ? call.stdin.split(/[\s'"\0]+/) : [''] },
  ];
  if (marker) {
    for (const word of input.length > 0 ? input : [COMPUTED_FIELD]) {
      call.run(
        command.map((field) => replaceMarker(field, marker, word)),
        { stdin: null },
      );
    }
  } else call.run([...command, ...input], { stdin: null });
}

function replaceMarker(field: Field, marker: string, word: Field): Field {
  if (!field.start.includes(marker)) return field;
  if (field.value !== undefined && word.value !== undefined)
    return literalField(field.value.replaceAll(marker, word.value));
  return {
    ...COMPUTED_FIELD,
    start: field.start.slice(0, field.start.indexOf(marker)),
    guesses: word.guesses.map((guess) => field.start.replaceAll(marker, guess)),
  };
}

const SOURCE_FILES =
  /^\*\.(tsx?|jsx?|mjs|cjs|mts|cts|py|rb|go|rs|java|kt|c|h|cc|cpp|hpp|cs|php|swift|sh|md|mdx|txt|css|scss|less|html?|vue|svelte|sql|log|tmp|bak|orig|rej|pyc|o|map|snap|proto|graphql|csv|test\.[jt]sx?|spec\.[jt]sx?|d\.ts)$/;

function analyseFind(call: Invocation): void {
  const { args } = call;
  let at = 0;
  while (/^-([HLP]|O\d?|D)$/.test(args[at]?.value ?? '')) at += args[at]?.value === '-D' ? 2 : 1;
  const roots: Field[] = [];
  for (; at < args.length && !/^[-(!]/.test(args[at]?.start ?? ''); at++) {
    const root = args[at];
    if (root) roots.push(root);
  }
  if (roots.length === 0) roots.push(literalField('.'));
  for (const root of roots) call.read(root);
  const names: string[] = [];
  const actions: { command: readonly Field[]; isFolder: boolean }[] = [];
  for (; at < args.length; at++) {
    const arg = args[at];
    const test = arg?.value;
    if (test === undefined) {
      call.unclear('an argument of find is computed');
      return;
    }
    if (/^-(exec|ok)(dir)?$/.test(test)) {
      const end = args.findIndex(
        ({ value }, index) => index > at && (value === ';' || (value === '+' && args[index - 1]?.value === '{}')),
      );
      if (end === -1) {
        call.unclear(`find ${test} does not end`);
        return;
      }
      if (args.some(({ value }) => value === '-L' || value === '-follow')) call.unclear('find follows links');
      actions.push({ command: args.slice(at + 1, end), isFolder: test.endsWith('dir') });
      at = end;
    } else if (test === '-delete') for (const root of roots) call.write(root);
    else if (/^-f(print0?|ls)$/.test(test)) report(call, 'write', args[++at] ?? COMPUTED_FIELD, test);
    else if (test === '-fprintf') {
      report(call, 'write', args[at + 1] ?? COMPUTED_FIELD, test);
      at += 2;
    } else if (test === '-files0-from') call.unclear('find reads where it starts from a file');
    else if (/^-i?name$/.test(test)) names.push(args[++at]?.value ?? '*');
    else if (/^-(newer\w*|samefile)$/.test(test)) report(call, 'read', args[++at] ?? COMPUTED_FIELD, test);
    else if (
      /^-(i?path|i?wholename|i?regex|type|xtype|size|mtime|ctime|atime|mmin|cmin|amin|user|group|perm|maxdepth|mindepth|printf|regextype|links|inum|uid|gid|fstype|i?lname|used|context)$/.test(
        test,
      )
    )
      at++;
    else if (
      !/^(-(a|o|not|and|or|print|print0|ls|prune|quit|depth|d|xdev|mount|empty|readable|writable|executable|true|false|follow|daystart|noleaf|nouser|nogroup|warn|nowarn|ignore_readdir_race)|[()!,])$/.test(
        test,
      )
    ) {
      call.unclear(`find ${test} is not known`);
    }
  }
  // A path that find passes on is known well enough only if all names are those of sources below the roots.
  const isBounded =
    names.length > 0 &&
    !args.some(({ value }) => /^(-o|-or|-not|!|,)$/.test(value ?? '')) &&
    names.every((name) => SOURCE_FILES.test(name));
  for (const { command, isFolder } of actions) {
    const words = roots.flatMap((root) => {
      if (!isBounded || root.value === undefined) return [{ ...COMPUTED_FIELD, guesses: root.guesses }];
      return names.map((name) => literalField(`${isFolder ? '.' : root.value}/${name.replace('*', 'NAME')}`));
    });
    for (const word of words)
      call.run(
        command.map((field) => replaceMarker(field, '{}', word)),
        { stdin: null },
      );
  }
}

function analyseFd(call: Invocation): void {
  if (call.args.some(({ start }) => /^-[a-zA-Z]*[xX]|^--exec/.test(start)))
    call.unclear(`${call.base} runs a program for each file`);
  applySpec(call, {
    first: 'none',
    rest: 'read',
    none: '-e --extension -t --type -d --max-depth -E --exclude -g --glob -j --threads',
  });
}

const GREP_PATTERN: Options = { ...GREP, none: `${GREP.none} -e --regexp`, read: `${GREP.read} -f --file` };
const RG_PATTERN: Options = { ...SPECS['rg'] };

function analyseGrep(call: Invocation): void {
  const options = call.base === 'rg' ? RG_PATTERN : GREP_PATTERN;
  const { positional, flags } = parseOptions(call, options);
  const hasPattern = ['-e', '--regexp', '-f', '--file', '--files'].some((flag) => flags.has(flag));
  for (const field of positional.slice(hasPattern ? 0 : 1)) report(call, 'read', field, '');
}

const GO: Options = {
  ...UNKNOWN,
  unclear: '-toolexec -exec -vettool -overlay -modfile -C -w -ldflags -gcflags -gccgoflags -asmflags -compiler -pkgdir',
};
const CARGO: Options = {
  ...UNKNOWN,
  read: '--manifest-path',
  unclear: '--config -Z -C',
};
const GH: Options = {
  ...UNKNOWN,
  read: '-F --field --body-file --input --notes-file',
  unclear: '--hostname --web -w --editor',
};

/** A program with subcommands, some of which cannot be analysed. */
function analyseSubcommand(call: Invocation, options: Options, unclear: RegExp): void {
  const { positional } = parseOptions(call, options);
  if (positional.some(({ value }, at) => at < 2 && (value === undefined || unclear.test(value)))) {
    call.unclear(`${call.base} ${positional[0]?.value ?? ''} is not analysed`);
  }
  for (const field of positional) reportUnknown(call, field, false);
}

function analyseMode(call: Invocation): void {
  const { positional, flags } = parseOptions(call, MODE);
  const mode = call.base === 'chmod' ? /^([0-7]{3,5}|[ugoa]*[-+=][-+=rwxXstugo,]*)$/ : /^[\w.-]*(:[\w.-]*)?$/;
  const hasMode = positional.length > 1 && !flags.has('--reference') && mode.test(positional[0]?.value ?? '/');
  for (const field of positional.slice(hasMode ? 1 : 0)) report(call, 'write', field, '');
}

const MODE: Options = { read: '--reference', none: '--from' };

function analyseJq(call: Invocation): void {
  const args: Field[] = [];
  for (let at = 0; at < call.args.length; at++) {
    const arg = call.args[at];
    // It is followed by a name and a text.
    if (/^--arg(json)?$/.test(arg?.value ?? '')) at += 2;
    else if (arg) args.push(arg);
  }
  const { positional, flags } = parseOptions(call, JQ, args);
  const hasFilter = !flags.has('-f') && !flags.has('--from-file');
  const filter = hasFilter ? positional[0] : undefined;
  // Imports stand at the beginning, and may name any folder.
  if (filter && (filter.start.trim() === '' ? filter.value === undefined : /\b(import|include)\b/.test(filter.start)))
    call.unclear('jq may import a file');
  for (const field of positional.slice(hasFilter ? 1 : 0)) report(call, 'read', field, '');
}

const JQ: Options = {
  none: '--indent',
  read: '-f --from-file -L',
  unclear: '--slurpfile --rawfile --argfile --run-tests',
};

function analysePager(call: Invocation): void {
  if (call.args.some(({ start }) => start.startsWith('+'))) call.unclear(`${call.base} runs a command when it starts`);
  applySpec(call, SPECS[call.base] ?? READS);
}

const SED: Options = { none: '-e --expression -l --line-length', unclear: '-f --file' };

function analyseSed(call: Invocation): void {
  // The suffix of -i is attached, and it must not be read as other options.
  const inPlace = call.args.filter(({ start }) => /^-[nErsuz]*i|^--i/.test(start));
  if (inPlace.some(({ start }) => /[/*]/.test(start))) call.unclear('sed writes its backups elsewhere');
  const args = call.args.map((arg) =>
    inPlace.includes(arg) && arg.value !== undefined
      ? literalField(`${arg.value.replace(/i.*$/s, '')}i`.replace(/^--?i$/, '--in-place'))
      : arg,
  );
  const { positional, values } = parseOptions(call, SED, args);
  const scripts = values.filter(({ option }) => option === '-e' || option === '--expression').map(({ value }) => value);
  const files = scripts.length > 0 ? positional : positional.slice(1);
  if (scripts.length === 0 && positional[0]) scripts.push(positional[0]);
  // Several scripts are joined by line ends, and a text may continue in the next one.
  const script = scripts.some(({ value }) => value === undefined)
    ? undefined
    : scripts.map(({ value }) => value).join('\n');
  const problem = script === undefined ? 'the sed script is computed' : sedScriptProblem(script);
  if (problem !== undefined) call.unclear(problem);
  const suffixes = inPlace.map(({ value }) => value && /^(?:-[nErsuz]*i|--i[a-z-]*=)(.+)$/s.exec(value)?.[1]);
  if (inPlace.some(({ value }) => value === undefined)) call.unclear('the suffix of the backups of sed is computed');
  for (const file of files) {
    report(call, inPlace.length > 0 ? 'write' : 'read', file, '');
    for (const suffix of suffixes) if (suffix && file.value) call.write(literalField(file.value + suffix));
  }
}

const AWK: Options = {
  none: '-F --field-separator -v --assign',
  unclear:
    '-f --file -i --include -l --load -E --exec -e --source -o --pretty-print -d --dump-variables -p --profile -D --debug -W',
};

function analyseAwk(call: Invocation): void {
  const { positional } = parseOptions(call, AWK);
  const [program, ...files] = positional;
  const problem = program?.value === undefined ? 'the awk program is computed' : awkProgramProblem(program.value);
  if (problem !== undefined) call.unclear(problem);
  for (const file of files) if (!/^[A-Za-z_]\w*=/.test(file.start)) report(call, 'read', file, '');
}

const MAKE: Options = {
  none: '-W -o',
  read: '-C --directory -I --include-dir',
  unclear: '-f --file --makefile --eval -E --environment-overrides',
};

function analyseMake(call: Invocation): void {
  // The number after -j is attached or absent.
  const { positional } = parseOptions(
    call,
    MAKE,
    call.args.filter(({ value }) => value === undefined || !/^-j\d*$/.test(value)),
  );
  for (const field of positional) {
    if (field.value === undefined) call.unclear('an argument of make is computed');
    else if (
      /^[\w.]+[:+?!]*=/.test(field.value) &&
      !/^(?!SHELL|MAKE|CC|CXX|LD|AR|\.SHELL)\w+=[\w.,/-]*$/.test(field.value)
    ) {
      call.unclear(`make sets a variable to ${field.value}, which recipes may run`);
    }
  }
}

function analyseDd(call: Invocation): void {
  for (const arg of call.args) {
    const [, key, value] = /^(\w+)=(.*)$/s.exec(arg.start) ?? [];
    if (key === 'if' || key === 'of') {
      const field =
        arg.value === undefined
          ? COMPUTED_FIELD
          : { ...literalField(value ?? ''), home: value?.startsWith('~') ?? false };
      report(call, key === 'if' ? 'read' : 'write', field, '');
    } else if (key === undefined) call.unclear('an argument of dd is not known');
  }
}

function analyseSu(call: Invocation): void {
  const { flags } = parseOptions(call, {
    none: '-g -G -w --group -u --user',
    shell: '-c --command --session-command',
    unclear: '-s --shell -l --login',
  });
  if (!flags.has('-c') && !flags.has('--command')) call.unclear(`${call.base} starts a shell`);
}

function analyseWatch(call: Invocation): void {
  const { positional, flags } = parseOptions(
    call,
    { none: '-n --interval -q --equexit', unclear: '' },
    call.args,
    true,
  );
  if (positional.length === 0) return;
  if (flags.has('-x') || flags.has('--exec')) call.run(positional, { stdin: null });
  else if (positional.some(({ value }) => value === undefined)) call.unclear('the command of watch is computed');
  else call.shell(literalField(positional.map(({ value }) => value).join(' ')), { posix: true });
}

function analyseFlock(call: Invocation): void {
  const { positional } = parseOptions(call, { none: '-w --timeout -E --conflict-exit-code' }, call.args, true);
  const [file, next, code, ...more] = positional;
  if (file) report(call, /^\d+$/.test(file.value ?? '') ? 'none' : 'write', file, '');
  if (next?.value === '-c' || next?.value === '--command') {
    if (code && more.length === 0) call.shell(code, { posix: true });
    else call.unclear('flock -c is not analysed');
  } else if (next?.start.startsWith('-')) call.unclear('an option of flock is not analysed');
  else if (next) call.run(positional.slice(1), { stdin: null });
}

function analyseScript(call: Invocation): void {
  const { positional, flags } = applySpec(call, SCRIPT);
  const hasCode = flags.has('-c') || flags.has('--command');
  if (!hasCode || positional.length > 1) call.unclear('script starts a shell');
}

const SCRIPT: Spec = {
  rest: 'write',
  shell: '-c --command',
  write: '-I -O -B -T --log-in --log-out --log-io --log-timing',
};

function analyseSsh(call: Invocation): void {
  const { positional } = parseOptions(
    call,
    {
      none: '-p -l -b -c -m -e -B',
      read: '-i',
      write: '-E',
      unclear: '-o -F -J -L -R -D -W -w -S -O -I -Q',
    },
    call.args,
    true,
  );
  const [host, ...command] = positional;
  if (host?.value === undefined) call.unclear('the host of ssh is computed');
  else call.url(URL_FORM.test(host.value) ? host.value : `ssh://${host.value.replace(/^.*@/, '')}`);
  if (command.length > 0) call.unclear('ssh runs a command on another machine');
}

const NPM: Options = {
  read: '--prefix -C --dir --cwd',
  url: '--registry',
  unclear:
    '--script-shell --node-options --globalconfig --userconfig --init-module --editor --viewer --git --shell --node-gyp --cafile --proxy --https-proxy --modules-folder --use-yarnrc --onload-script --node-arg',
  shell: '-c --call --shell-mode',
};

function analyseNpm(call: Invocation): void {
  const end = call.args.findIndex(({ value }) => value === '--');
  const own = end === -1 ? call.args : call.args.slice(0, end);
  const isRunner =
    /^(npx|pnpx|bunx)$/.test(call.base) ||
    /^(exec|x|dlx|explore|run|run-script|test|start)$/.test(
      own.find(({ start }) => !start.startsWith('-'))?.value ?? '',
    );
  // Arguments after the name of a program or script belong to it.
  const { positional } = parseOptions(call, NPM, own, /^(npx|pnpx|bunx)$/.test(call.base));
  const [verb, object] = positional;
  const isReading = /^(get|list|ls|delete)$/.test(object?.value ?? 'list') && verb?.value !== 'set';
  if (/^(config|c|set|set-script|pkg|init|create)$/.test(verb?.value ?? '') && !isReading) {
    call.unclear(`${call.base} ${verb?.value} changes what later commands run`);
  }
  if (verb?.value === 'explore') call.unclear('npm explore starts a shell');
  for (const field of [...positional.slice(isRunner ? 0 : 1), ...call.args.slice(own.length + (end === -1 ? 0 : 1))]) {
    if (
      /^(git\+|github:|gitlab:|bitbucket:|gist:|https?:|file:|link:)/.test(field.start) &&
      !URL_FORM.test(field.start)
    ) {
      call.unclear(`${call.base} installs from ${field.start}`);
    } else if (!/^@[\w.-]+\/[\w.-]+(@[\w.^~-]+)?$/.test(field.value ?? '')) reportUnknown(call, field, false);
  }
}

function analyseDocker(call: Invocation): void {
  const isRun = call.args.some(({ value }) => value === 'run' || value === 'create');
  for (const [at, { value, start }] of call.args.entries()) {
    const next = call.args[at + 1];
    const attached = isRun ? /^(--volume|--mount|-[a-z]*v)=?(.+)$/.exec(start)?.[2] : undefined;
    if (value === undefined) call.unclear(`an argument of ${call.base} is computed`);
    if (
      /^--(privileged|cap-add|device|pid|ipc|uts|userns|cgroupns|security-opt|volumes-from|use-api-socket|group-add|host|context|config|env-file|entrypoint)\b|^-H/.test(
        start,
      ) ||
      /^--(net|network)=?host/.test(start) ||
      (/^--(net|network)$/.test(start) && next?.value === 'host')
    ) {
      call.unclear(`${call.base} ${start} is not analysed`);
    }
    if ((isRun && /^(-[a-z]*v|--volume|--mount)$/.test(start)) || attached !== undefined) {
      const mount = attached ?? next?.value ?? '';
      const source = /(?:^|,)(?:source|src)=([^,]*)/.exec(mount)?.[1] ?? mount.split(':')[0] ?? '';
      if (/docker\.sock|podman\.sock|containerd/.test(mount))
        call.unclear(`${call.base} gets the socket of the container engine`);
      if (next?.value === undefined && attached === undefined) call.unclear(`a mount of ${call.base} is computed`);
      // A name without a slash is a volume.
      else if (/[/.~]/.test(source)) call.write(literalField(source));
    }
    if (/^(-f|--file)$/.test(start) && next) call.read(next);
  }
  if (call.args[0]?.value === 'cp')
    for (const arg of call.args.slice(1)) if (!arg.start.includes(':')) report(call, 'write', arg, '');
  if (call.args[0]?.value === 'build') {
    const context = call.args.at(-1);
    if (context) reportUnknown(call, context, false);
  }
}

function analyseCurl(call: Invocation): void {
  const { positional, flags, values } = applySpec(call, CURL);
  for (const { option, value } of values) {
    if (!CURL_DATA.test(option)) continue;
    const text = value.value ?? value.start;
    const file =
      /^[@<]([^]*)$/.exec(text)?.[1] ??
      (/urlencode|query/.test(option) ? /^[^=@]*@([^]*)$/.exec(text)?.[1] : undefined);
    if (/form|-F/.test(option)) {
      // Several files are separated by commas; quotes and further fields are not analysed.
      const files = /^[^=]*=[@<]([^;]*)/.exec(text)?.[1];
      if (files?.includes('"') || /;\s*headers=/.test(text)) call.unclear('a form of curl is not analysed');
      else if (files !== undefined && value.value !== undefined)
        for (const one of files.split(',')) if (one !== '-') call.read(literalField(one));
      if (value.value === undefined && files !== undefined) call.read(COMPUTED_FIELD);
    }
    if (value.value === undefined && (file !== undefined || text === '')) call.read(COMPUTED_FIELD);
    else if (file !== undefined && file !== '-') call.read(literalField(file));
    if (/^(-b|--cookie)$/.test(option) && !text.includes('=')) call.read(value);
    if (/%output|%\{stderr/.test(text)) call.unclear('curl writes to a file that its output format names');
  }
  const uploads = values.flatMap(({ option, value }) => (/^(-T|--upload-file)$/.test(option) ? value : []));
  for (const field of [...positional, ...uploads]) {
    if (/[{}[\]]/.test(field.start) && !flags.has('-g') && !flags.has('--globoff'))
      call.unclear('curl expands brackets and braces in an address');
  }
  for (const field of positional) {
    if (flags.has('-O') || flags.has('--remote-name') || flags.has('--remote-name-all')) writeRemoteName(call, field);
  }
  if (flags.has('-J') || flags.has('--remote-header-name'))
    call.unclear('the server chooses the name of the file that curl writes');
}

/** Options whose value may name a file. */
const CURL_DATA =
  /^(-[dFHwb]|--(data|data-ascii|data-binary|data-urlencode|form|url-query|header|write-out|cookie|json))$/;

const CURL: Spec = {
  ...SPECS['curl'],
  none: `${SPECS['curl']?.none} -d --data --data-ascii --data-binary --data-urlencode -F --form --url-query -b --cookie`,
};

function analyseWget(call: Invocation): void {
  const { positional, flags } = applySpec(call, SPECS['wget'] ?? {});
  if (flags.has('-r') || flags.has('--recursive') || flags.has('-m') || flags.has('--mirror'))
    call.unclear('wget follows the links of pages');
  if (!flags.has('-O') && !flags.has('--output-document') && !flags.has('--spider'))
    for (const field of positional) writeRemoteName(call, field);
}

function writeRemoteName(call: Invocation, field: Field): void {
  const name =
    field.value === undefined
      ? undefined
      : path.basename(
          field.value
            .replace(URL_FORM, '')
            .replace(/^[^/]*/, '')
            .replace(/[?#].*$/s, ''),
        );
  call.write(name === undefined ? COMPUTED_FIELD : literalField(name || 'index.html'));
}

function analyseRemoteCopy(call: Invocation): void {
  const { positional, flags } = parseOptions(call, SPECS[call.base] ?? {});
  for (const [at, field] of positional.entries()) {
    const isTarget = at > 0 && at === positional.length - 1;
    const host = remoteHost(field.start);
    if (host !== undefined) call.url(`ssh://${host}`);
    else if (URL_FORM.test(field.start)) reportUrl(call, field);
    else report(call, isTarget || flags.has('--remove-source-files') ? 'write' : 'read', field, '');
  }
}

function analyseTar(call: Invocation): void {
  const spec = SPECS['tar'] ?? {};
  const [first, ...rest] = call.args;
  // The first argument may be a cluster of options without a dash, whose values follow in order.
  const isOldStyle = first?.value !== undefined && /^[a-zA-Z]+$/.test(first.value);
  const args = isOldStyle
    ? [
        literalField(`-${first.value.replaceAll(/[fCTXIFbgKNV]/g, '')}`),
        ...[...first.value]
          .filter((letter) => /[fCTXIFbgKNV]/.test(letter))
          .flatMap((letter, at) => [literalField(`-${letter}`), rest[at] ?? COMPUTED_FIELD]),
        ...rest.slice([...first.value].filter((letter) => /[fCTXIFbgKNV]/.test(letter)).length),
      ]
    : call.args;
  const { positional, flags, values } = parseOptions(call, spec, args);
  if (
    values.some(
      ({ option, value }) =>
        (option === '-f' || option === '--file') && /^[^/]*:/.test(value.start) && !flags.has('--force-local'),
    )
  ) {
    call.unclear('tar opens an archive on another machine');
  }
  const isWriting = hasFlag(flags, '-c --create -r --append -u --update -A --catenate --concatenate --delete');
  for (const { option, value } of values) {
    if (option === '-f' || option === '--file') report(call, isWriting ? 'write' : 'read', value, '');
  }
  const isExtracting = hasFlag(flags, '-x --extract --get');
  if (isExtracting) {
    if (flags.has('-P') || flags.has('--absolute-names')) call.unclear('the archive chooses which files tar writes');
    if (!flags.has('-C') && !flags.has('--directory')) call.write(literalField('.'));
  } else for (const field of positional) report(call, 'read', field, '');
}

function hasFlag(flags: ReadonlySet<string>, names: string): boolean {
  return names
    .split(' ')
    .some((name) => flags.has(name) || [...flags].some((flag) => flag.length > 3 && name.startsWith(flag)));
}

const GIT_COMMANDS: ReadonlySet<string> = new Set(
  (
    'add am apply archive bisect blame branch bundle cat-file check-ignore checkout cherry cherry-pick clean clone commit config ' +
    'count-objects describe diff diff-files diff-index diff-tree difftool fetch for-each-ref format-patch fsck gc grep hash-object help ' +
    'init interpret-trailers log ls-files ls-remote ls-tree maintenance merge merge-base merge-file mv name-rev notes pack-refs ' +
    'prune pull push range-diff rebase reflog remote repack replace reset restore rev-list rev-parse revert rm shortlog show ' +
    'show-branch show-ref sparse-checkout stash status stripspace submodule switch symbolic-ref tag update-index update-ref var ' +
    'verify-commit verify-tag version whatchanged worktree write-tree read-tree commit-tree'
  ).split(' '),
);

const GIT_HARMLESS_KEYS =
  /^(user\.(name|email)|color\..*|advice\..*|core\.(quotepath|abbrev|autocrlf|safecrlf)|init\.defaultbranch|pull\.(rebase|ff)|push\.(default|autosetupremote)|commit\.gpgsign|tag\.gpgsign|log\..*|diff\.(renames|algorithm|context)|merge\.(conflictstyle|ff)|rebase\.autosquash|fetch\.prune|column\.ui|grep\.linenumber|gc\.auto|protocol\.version|http\.postbuffer)$/i;

const GIT_GLOBAL: Options = {
  none: '-c',
  read: '-C',
  unclear: '--exec-path --config-env --git-dir --work-tree --namespace --super-prefix --attr-source',
};
const GIT_SUB: Options = {
  read: '-F --file --pathspec-from-file --reference',
  write: '-o --output --output-directory --separate-git-dir',
  unclear:
    '--upload-pack --receive-pack --exec --extcmd --open-files-in-pager -O --ext-diff --textconv --template --tool --smtp-server --sendmail-cmd --show-signature --config --server-option --bundle-uri --tool-help --editor --trailer-cmd --remote --to-cmd --cc-cmd --signature-file --env-filter --tree-filter --index-filter --msg-filter --edit-description --interactive --strategy --stdin-paths --web',
};

function analyseGit(call: Invocation): void {
  const { positional, values, flags } = parseOptions(call, GIT_GLOBAL, call.args, true);
  for (const { option, value } of values) {
    if (option === '-c' && !GIT_HARMLESS_KEYS.test((value.value ?? '').split('=', 1)[0] ?? '')) {
      call.unclear(`git -c ${value.value ?? 'with a computed value'} can change what git runs`);
    }
  }
  const [verb, ...args] = positional;
  if (!verb) return;
  const name = verb.value;
  if (name === undefined || !GIT_COMMANDS.has(name)) {
    call.unclear(`git ${name ?? 'with a computed subcommand'} may be an alias, which can run anything`);
    return;
  }
  const inFolder = values.find(({ option }) => option === '-C')?.value;
  analyseGitCommand(call, name, args);
  if (inFolder && flags.has('-C')) call.read(inFolder);
}

function analyseGitCommand(call: Invocation, name: string, args: readonly Field[]): void {
  const [first, ...more] = args;
  switch (name) {
    case 'difftool':
      call.unclear('git difftool runs another program');
      return;
    case 'bisect':
      if (first?.value === 'run') call.run(more, { stdin: null });
      return;
    case 'submodule': {
      const isQuiet = /^(-q|--quiet)$/.test(first?.value ?? '');
      const [verb, ...rest] = isQuiet ? more : args;
      if (verb?.value === undefined ? verb : verb.value.startsWith('-'))
        call.unclear('an option of git submodule is not known');
      if (verb?.value === 'foreach') {
        const code = rest.filter(({ value }) => value !== '--recursive' && value !== '-q' && value !== '--quiet');
        if (code.length === 1 && code[0]) call.shell(code[0], { posix: true });
        else call.run(code, { stdin: null });
        return;
      }
      if (verb?.value === 'add' || verb?.value === 'set-url') {
        const { positional } = parseOptions(call, { ...GIT_SUB, none: '-b --branch --name --depth' }, rest);
        for (const field of positional) reportRepository(call, field);
        return;
      }
      break;
    }
    case 'rebase': {
      for (const [at, { start, value }] of args.entries()) {
        const attached = /^(?:-x|--exe?c?=)(.+)$/s.exec(start)?.[1];
        const code = /^(?:-x|--exe?c?)$/.test(start)
          ? args[at + 1]
          : attached === undefined
            ? undefined
            : literalField(attached);
        if (/^-[a-wyz][a-z]*x/i.test(start)) call.unclear('a cluster of options of git rebase is not analysed');
        if (/^(-s|--strat)/.test(start) && !start.startsWith('--strategy-o'))
          call.unclear('a merge strategy is a program');
        if (code) call.shell(value === undefined ? COMPUTED_FIELD : code, { posix: true });
        if (/^(-[a-z]*i|--interactive|--edit-todo)/.test(start)) call.unclear('git rebase opens an editor');
      }
      return;
    }
    case 'config': {
      const { positional, flags } = parseOptions(
        call,
        { none: '--type --default --blob --comment --value --url', read: '-f --file' },
        args,
      );
      const isReading =
        ['--get', '--get-all', '--get-regexp', '-l', '--list', '--get-urlmatch', '--show-origin'].some((flag) =>
          flags.has(flag),
        ) || /^(get|list)$/.test(positional[0]?.value ?? '');
      const isRemoving = ['--unset', '--unset-all', '--remove-section'].some((flag) => flags.has(flag));
      if (isRemoving || positional.length > 3) {
        call.unclear(`git config changes ${positional[0]?.value ?? 'a computed key'}, which can change what git runs`);
      } else if (isReading || positional.length <= 1) {
        if (
          ['-l', '--list', '--get-regexp', '-e', '--edit'].some((flag) => flags.has(flag)) ||
          positional[0]?.value === 'list'
        )
          call.read(literalField('.git/config'));
        if (flags.has('-e') || flags.has('--edit')) call.unclear('git config opens an editor');
      } else if (!GIT_HARMLESS_KEYS.test(positional[positional[0]?.value === 'set' ? 1 : 0]?.value ?? '')) {
        call.unclear(`git config changes ${positional[0]?.value ?? 'a computed key'}, which can change what git runs`);
      }
      return;
    }
    case 'clone':
    case 'init':
    case 'worktree': {
      const { positional } = parseOptions(call, GIT_CLONE, args);
      for (const [at, field] of positional.entries()) {
        if (name === 'clone' && at === 0) {
          reportRepository(call, field);
          if (positional.length === 1)
            call.write(literalField(path.basename(field.value ?? '').replace(/\.git$/, '') || '.'));
        } else if (name !== 'worktree' || at === 1) call.write(field);
      }
      return;
    }
    case 'fetch':
    case 'pull':
    case 'push':
    case 'ls-remote':
    case 'remote': {
      const { positional, values } = parseOptions(
        call,
        name === 'push'
          ? { ...GIT_SUB, none: '-o --push-option --repo', write: '--output' }
          : name === 'pull'
            ? { ...GIT_FETCH, unclear: `${GIT_FETCH.unclear} -s` }
            : GIT_FETCH,
        args,
      );
      for (const { option, value } of values) if (option === '--repo') reportRepository(call, value);
      // Others than the first are names of branches, such as main:main.
      for (const [at, field] of positional.entries())
        if (at === 0 || name === 'remote') reportRepository(call, field);
        else reportUnknown(call, field, false);
      return;
    }
    case 'grep': {
      const { positional, flags } = parseOptions(
        call,
        { ...GREP, unclear: '-O --open-files-in-pager --ext-grep', none: `${GREP.none} -e`, read: '-f' },
        args,
      );
      for (const field of positional.slice(flags.has('-e') ? 0 : 1)) reportUnknown(call, field, false);
      return;
    }
    default:
      break;
  }
  const { positional, flags } = parseOptions(
    call,
    name === 'commit' || name === 'tag' || name === 'merge'
      ? GIT_MESSAGE
      : name === 'clean' ||
          name === 'add' ||
          name === 'checkout' ||
          name === 'stash' ||
          name === 'reset' ||
          name === 'restore'
        ? GIT_EDIT
        : GIT_SUB,
    args,
  );
  if (name === 'merge' && flags.has('-s')) call.unclear('a merge strategy is a program');
  if (name === 'maintenance' && /^(start|register)$/.test(first?.value ?? ''))
    call.unclear('git maintenance changes settings of the machine');
  const isWriting = name === 'mv' || name === 'rm';
  for (const field of positional) {
    if (isWriting) {
      report(call, 'write', field, '');
      continue;
    }
    const colons = [...(field.value ?? '').matchAll(/:\/?/g)];
    if (colons.length > 0 && (name === 'show' || name === 'cat-file' || name === 'diff')) {
      // A stage of the index or a search for a message may stand before the path.
      for (const { index, 0: colon } of colons) {
        const shown = field.value?.slice(index + colon.length);
        if (shown) call.read(literalField(shown));
      }
    } else if (
      field.value === undefined &&
      /^(log|diff|show|rev-parse|rev-list|checkout|switch|branch|tag|merge|rebase|describe|cherry-pick|revert|reset)$/.test(
        name,
      ) &&
      field.start !== '' &&
      !/[.~/]$/.test(field.start)
    )
      continue;
    else reportUnknown(call, field, false);
  }
}

const GIT_FETCH: Options = {
  ...GIT_SUB,
  none: '--depth --deepen --shallow-since --shallow-exclude -j --jobs --negotiation-tip --refmap --filter -X --strategy-option --sort -t -m',
};
const GIT_MESSAGE: Options = {
  ...GIT_SUB,
  none: '-m --message --author --date -C -c --reuse-message --fixup --squash',
  read: `${GIT_SUB.read} -t`,
  write: '--output',
};
const GIT_CLONE: Options = {
  ...GIT_SUB,
  none: '--depth --branch -b -B --origin -o --jobs -j --initial-branch --shallow-since --shallow-exclude --filter --ref-format --revision',
  write: '--separate-git-dir',
  unclear: `${GIT_SUB.unclear} -c -u`,
};
const GIT_EDIT: Options = {
  ...GIT_SUB,
  none: '-m --message -e --exclude -b -B --conflict --source -s --chmod',
  write: '--output',
};

function reportRepository(call: Invocation, field: Field): void {
  if (field.value === undefined) {
    call.unclear('a repository is computed');
    return;
  }
  const host = remoteHost(field.value);
  if (/^\w+::/.test(field.value)) call.unclear(`the transport of ${field.value} runs a program`);
  else if (URL_FORM.test(field.value)) reportUrl(call, field);
  else if (host !== undefined) call.url(`ssh://${host}`);
  else reportUnknown(call, field, false);
}
