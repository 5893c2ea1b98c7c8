/*
 * The programs that are known completely. Each line of the table is like a usage text. What is not in it is not known, and asks.
 *
 *   name,other:       programs with the same usage; further words choose a subcommand, and the longest match counts
 *   [la]              letters of options, which can stand together: -l, -a, -la
 *   --all             an option in exactly this spelling
 *   --color=          an option that may have a value after `=`, which means nothing
 *   -n:number         an option with a value of a kind; --arg:text:text has two
 *   -NUMBER           such as -20
 *   read write        the kinds of the operands, in order
 *   read...           any number of operands; a kind after it is the one of the last operand
 *   read...=.         what it acts on without an operand
 *   +links            it may create links; +changes: it may also write any file of the folder
 *
 * Add an option only if it does nothing but what its line says. When in doubt, leave it out.
 */
import { FORMS, KINDS, RULES, touchNamed, type Call, type Parsed } from './effects.ts';
import { mayEnterRepository } from './repositories.ts';
import { demandNoMatch, inFolder, note, Unclear } from './scope.ts';

const DIFF = `[pw] --stat --shortstat --numstat --name-only --name-status --color= --no-color --unified= --diff-filter:text -S:text -G:text
  --pickaxe-regex`;
const LOG = `${DIFF} -NUMBER --oneline --graph --decorate= --all --follow --reverse --no-merges --pretty= --format:text --date:text
  --since:text --until:text --author:text --grep:text -n:number`;
const SCRIPT = '--silent --if-present --workspace:name -w:name';
const PYTEST = '[xqvs] --lf -k:text -m:text --tb:text --maxfail:number free...';

const TABLE = `
true,false,whoami,nproc,pwd:
echo: [ne] text...
which,basename,dirname,seq: text...
sleep: number
date: [u] time
ps:
ps aux,-ef:

ls: [laAhtrRd1] --all --color= read...=.
tree: [ad] -L:number -I:text read...=.
du: [sh] -d:number read...=.
df: [h] read...
cat: [nA] read...
head: -NUMBER -n:number -c:number read...
tail: [f] -NUMBER -n:number -c:number read...
wc: [lwcm] read...
cut: -d:text -f:text -c:text read...
tr: [ds] text...
sort: [nruhV] -k:text -t:text -o:write --output:write read...
uniq: [cdu] read
diff: [uqw] --color= file file
stat: -c:text read...
file: [b] read...
sha256sum,md5sum: read...
egrep,fgrep,gawk,mawk,nohup,printf,sha1sum:
base64: [d] -w:number read...
hexdump: [C] -n:number read...
grep: [rnlLcivwxoEFPhHsq] -NUMBER --color= --line-buffered -e:text --include:text --exclude:text --exclude-dir:text -m:number
  -A:number -B:number -C:number text...
rg: [nilcvwoFSN] --files --hidden --no-heading -e:text -g:text -t:text -A:number -B:number -C:number text...
sed: [nE] -i --in-place -e:sed text...
awk: -F:text awk read...
jq: [rcnse] --arg:text:text jq read...

mkdir: [pv] --parents -m:mode write...
touch: [acm] -d:text -t:text write...
tee: [a] --append write...
rm: [rfRv] --recursive --force --verbose remove...
cp: [rRpfvnua] --recursive --archive --force --no-clobber read... write
mv: [fvnu] --force --no-clobber read... write
chmod: [v] mode write...
tar c: --exclude:text write tree...
tar x: -C:write --directory:write --strip-components:number read
tar t: read text...
unzip: [qol] -d:write zip

nice: -n:number command
timeout: number command
xargs: -n:number words...

node,python,python3 --version:
node: --check script=- free...
node --test: --test-name-pattern:text script free...
python,python3: [u] script=- free...
python,python3 -m venv: write +links
python,python3 -m unittest: [v] free...
python,python3 -m pytest: ${PYTEST}
pytest: ${PYTEST}
pip,pip3 install: -r:read package...
ruff check: python...=.
tsc: --noEmit --version -b -p:read
make: [n] -j -j1 -j2 -j3 -j4 -j6 -j8 -j16 -C:read target...
gofmt: [ld] go...
go build: -v -race -o:write local...
go test: -v -race -cover -run:text -count:number local...
go vet: local...
go run: local free...
go mod tidy:
cargo build,test,check,clippy,run: --release --all-targets --workspace --all-features -p:name free...
npm,pnpm,yarn: --version
npm,pnpm,yarn ci: --no-audit --no-fund --ignore-scripts +links
npm,pnpm,yarn outdated:
npm,pnpm,yarn install,i,add: [DE] --save-dev --save-exact --legacy-peer-deps --ignore-scripts --no-audit --no-fund --frozen-lockfile
  --workspace:name -w:name package... +links
npm,pnpm,yarn uninstall,remove: --workspace:name -w:name package... +links
npm,pnpm,yarn run: ${SCRIPT} name free...
npm,pnpm,yarn test,start,build,lint: ${SCRIPT} free...
npm,pnpm ls: --depth= --all --json package...
npm,pnpm view: package name
npm version: --no-git-tag-version name
curl: [sSfIi] -X:text -H:data -d:data -o:write --max-time:number url...

git status: [sb] --short --branch --porcelain= pathspec...
git diff: ${DIFF} --cached --staged revision...
git log,show: ${LOG} revision...
git blame: [w] -L:text revision... pathspec
git grep: [nilwEFc] text revision...
git ls-files: [mo] --others --exclude-standard --modified pathspec...
git rev-parse: --short= --abbrev-ref --show-toplevel revision...
git branch: [arvdm] -vv --show-current --list name...
git tag: [ald] --list -m:text name...
git remote: [v]
git worktree list:
git add: [Au] pathspec...
git commit: [aq] --amend --no-edit --allow-empty -m:text pathspec...
git rm: [rfqn] --cached --force --quiet remove...
git mv: [fkvn] read... write
git clean: [fdnq] --dry-run --force remove... +changes
git checkout -b: name
git checkout: [q] revision pathspec... +changes
git switch -c: name
git switch: [q] --detach name +changes
git restore --staged: pathspec...
git restore: --staged --worktree --source:name pathspec... +changes
git reset: [q] --soft --mixed revision...
git reset --hard: revision +changes
git stash: [u] +changes
git stash push: [u] -m:text pathspec... +changes
git stash pop,apply,drop: text +changes
git stash list:
git merge: --no-ff --ff-only --squash --abort --continue --no-edit --no-commit -m:text revision... +changes
git rebase: --continue --abort --skip revision... +changes
git cherry-pick,revert: [n] --no-edit --abort --continue revision... +changes
git fetch: [p] --all --prune --tags --depth:number repository name...
git pull: --rebase= --ff-only repository name... +changes
git push: [u] --tags --force-with-lease= repository name...
git init: [q] --quiet -b:name write=.
git clone: [q] --quiet --depth:number -b:name --branch:name repository write +links
`;

/** The parts of each line, by the name of the program with its subcommand. */
const USAGES: ReadonlyMap<string, readonly string[]> = new Map(
  [...TABLE.replaceAll(/\n {2}/g, ' ').matchAll(/^(.+?):(?: (.*))?$/gm)].flatMap(([, names = '', parts = '']) =>
    names
      .split(' ')
      .map((part) => part.split(','))
      .reduce((before, words) => before.flatMap((one) => words.map((word) => `${one} ${word}`)))
      .map((name) => [name, parts.split(' ')] as const),
  ),
);

/** Of these, only what the table says is known. */
const KNOWN: ReadonlySet<string> = new Set([...USAGES.keys()].map((name) => name.split(' ')[0]!));

/** The kinds of an operand, or of the values of an option. */
function kindsIn(part: string): readonly string[] {
  return part.startsWith('-') ? part.split(':').slice(1) : (/^[a-z]+/.exec(part) ?? []);
}

for (const kind of [...USAGES.values()].flat().flatMap(kindsIn))
  if (!Object.hasOwn(KINDS, kind)) throw new TypeError(`${kind} is not a kind`);

/** Reports what a program does with its arguments. Returns false if it is not known. */
export function analyseProgram(call: Call): boolean {
  const { name, args } = call;
  const form = FORMS.get(name);
  if (form) form(call);
  else if (name === 'git') analyseGit(call);
  else if (name === 'tar') {
    // `tar czf a.tgz dist`, `tar -xzf a.tgz -C vendor`, `tar tf a.tgz`.
    const verb = /^-?(?=[zjJv]*([cxt])[zjJv]*f$)/.exec(args[0] ?? '')?.[1];
    if (verb === undefined || /^-|:/.test(args[1] ?? '')) throw new Unclear('the options of tar are not known');
    applyUsage(call, [verb, ...args.slice(1)]);
  } else if (KNOWN.has(name)) applyUsage(call, args);
  else {
    for (const arg of args) touchNamed(arg, call);
    return false;
  }
  return true;
}

const GIT_SETTINGS =
  /^(color\.\w+|core\.quotepath|user\.(name|email)|advice\.\w+|log\.(date|decorate)|init\.defaultbranch)=[\w.@ -]*$/i;

/** Hooks, fsmonitor and pagers are off by the environment of commands. */
function analyseGit(call: Call): void {
  const { args } = call;
  if (args.some((text) => text.includes('%G'))) throw new Unclear('git may run a program that checks signatures');
  let { scope } = call;
  let at = 0;
  for (; args[at]?.startsWith('-'); at++) {
    if (args[at] === '--no-pager' || (args[at] === '--version' && args.length === 1)) continue;
    const [option, value = ''] = [args[at], args[++at]];
    if (option === '-C') scope = inFolder(value, scope);
    else if (option !== '-c' || !GIT_SETTINGS.test(value)) throw new Unclear(`git ${option} ${value} is not known`);
  }
  const verb = args[at];
  if (verb === undefined) return;
  const isChange = applyUsage({ ...call, scope }, args.slice(at)) === '+changes';
  if (mayEnterRepository(verb, isChange, scope))
    throw new Unclear('a repository inside may have settings that run programs');
  if (isChange || /^(add|mv|reset|rm)$/.test(verb)) scope.found.newRepositories ??= 'named';
}

/** Returns the effect that the table names. */
function applyUsage(given: Call, args: readonly string[]): string | undefined {
  // The line with the most words.
  const names = [2, 1, 0].map((count) => [given.name, ...args.slice(0, count)]);
  const words = names.find((one) => USAGES.has(one.join(' ')) && !one.some((word) => /\s/.test(word)));
  if (!words) throw new Unclear(`${given.name} ${args[0] ?? ''} is not known`);
  const call = { ...given, name: words.join(' ') };
  const usage = USAGES.get(call.name)!;
  const parsed = readArguments(call.name, usage, args.slice(words.length - 1));
  const { operands, values, before } = parsed;
  for (const { value, kind } of values) {
    if (/^(sed|awk|jq)$/.test(kind)) demandNoMatch(value, call.scope);
    KINDS[kind]!(value, call);
  }
  for (const [at, operand] of operands.entries()) {
    const [kind] = kindsIn(operandAt(usage, at, operands.length));
    if (kind === undefined) throw new Unclear(`the argument ${operand} of ${call.name} is not known`);
    if (/^(awk|jq)$/.test(kind)) demandNoMatch(operand, call.scope);
    KINDS[kind === 'revision' && at >= before ? 'pathspec' : kind]!(operand, call);
    if (kind !== 'command') continue;
    call.run(operands.slice(at));
    break;
  }
  const first = operandAt(usage, 0, 1);
  if (operands.length === 0 && first.includes('=')) KINDS[kindsIn(first)[0]!]!(first.replace(/.*=/, ''), call);
  RULES[call.name]?.(call, parsed);
  const effect = usage.find((part) => part.startsWith('+'));
  if (effect === '+changes') note('write', '.', { ...call.scope, folders: [''] });
  if (effect !== undefined) call.scope.found.linker = call.name;
  return effect;
}

/** What the line says about an operand of so many, empty if nothing. One after a repeated one is the last. */
function operandAt(usage: readonly string[], at: number, count: number): string {
  const parts = usage.filter((part) => /^[a-z]/.test(part));
  const repeated = parts.findIndex((part) => part.includes('...'));
  const index = repeated === -1 || at < repeated ? at : at > 0 && at === count - 1 ? parts.length - 1 : repeated;
  return parts[index] ?? '';
}

/** An option is known by its exact spelling: neither beginnings of long options nor unknown letters are accepted. */
function readArguments(program: string, usage: readonly string[], args: readonly string[]): Parsed {
  const operands: string[] = [];
  const options = new Set<string>();
  const values: Parsed['values'][number][] = [];
  const kindsOf = new Map(
    usage.filter((part) => part.startsWith('-')).map((part) => [part.split(':')[0]!, kindsIn(part)]),
  );
  const letters = usage.find((part) => part.startsWith('['))?.slice(1, -1) ?? '';
  let before: number | undefined;
  const open = [...args];
  for (let text = open.shift(); text !== undefined; text = open.shift()) {
    const [name = '', attached] = /^(--[^=]*)=([^]*)$/.exec(text)?.slice(1) ?? [text];
    if (before !== undefined || !text.startsWith('-') || text === '-') {
      operands.push(text);
      // What follows is for that program.
      if (/^(command|words|script|awk)\b/.test(operandAt(usage, operands.length - 1, Infinity)))
        before ??= operands.push(...open.splice(0));
    } else if (text === '--') before = operands.length;
    else if (kindsOf.has('-NUMBER') && /^-\d+$/.test(text)) options.add(text);
    else if (kindsOf.has(`${name}=`)) options.add(name);
    else if (attached === undefined && kindsOf.get(text)?.length === 0) options.add(text);
    else if (kindsOf.has(name) || text.startsWith('--')) take(name, attached);
    else {
      // `-la`, `-n5`, `-rn5`.
      let at = 1;
      for (; at < text.length && letters.includes(text[at]!); at++) options.add(`-${text[at]}`);
      if (at < text.length) take(`-${text[at]}`, text.slice(at + 1) || undefined);
    }
  }
  return { operands, options, values, before: before ?? operands.length };

  function take(option: string, attached: string | undefined): void {
    const kinds = kindsOf.get(option) ?? [];
    if (kinds.length === 0) throw new Unclear(`the option ${option} of ${program} is not known`);
    options.add(option);
    if (attached !== undefined) open.unshift(attached);
    for (const kind of kinds) {
      const value = open.shift();
      if (value === undefined) throw new Unclear(`the option ${option} of ${program} has no value`);
      values.push({ option, value, kind });
    }
  }
}
