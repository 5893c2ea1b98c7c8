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
import {
  createsLinks,
  FORMS,
  KINDS,
  LAST_KINDS,
  RULES,
  touchNamed,
  type Call,
  type Kind,
  type Parsed,
} from './effects.ts';
import { hasForeignSettings, inFolder, mayEnterRepository, note, writesModules } from './scope.ts';
import { Unclear } from './words.ts';

const DIFF = `[pwbMRW] --stat --shortstat --numstat --name-only --name-status --patch --color= --no-color --word-diff= --summary --raw
  --check --no-patch --relative --no-renames --ignore-all-space --abbrev= --unified= -U0 -U1 -U2 -U3 -U5 -U10 -U20 --stat-width:text
  --diff-filter:text -S:text -G:text --pickaxe-regex`;
const LOG = `${DIFF} [iEgs] -NUMBER --oneline --graph --decorate= --all --follow --reverse --no-merges --merges --first-parent
  --abbrev-commit --branches --tags --remotes --pretty= --format:text --date:text --since:text --until:text --after:text --before:text
  --author:text --grep:text -n:number --max-count:number --skip:number`;
const REMOTE = '[qv] --all --prune --tags --no-tags --quiet --verbose --force --dry-run';
const SCRIPT = '--silent -s --if-present --workspaces -ws --workspace:name -w:name';
const PYTEST = `[xqvsl] --lf --ff --last-failed --failed-first --collect-only --cov= -k:text -m:text --tb:text --durations:number
  --maxfail:number -n:number free...`;

const TABLE = `
true,false,whoami,nproc,pwd:
echo: [ne] text...
printf: format text...
which,basename,dirname,seq: text...
sleep: number
date: [uR] -d:text --date:text time
uname: [amnrspvo]
ps:
ps aux,ax,-e,-ef,-A:

ls: [laAhtrSRd1F] --all --color= --human-readable --recursive read...=.
tree: [adfhi] -L:number -I:text read...=.
du: [shack] --summarize -d:number --max-depth:number read...=.
df: [hTki] read...
cat: [nbsAeEtTuv] read...
head: [qv] -NUMBER -n:number --lines:number -c:number --bytes:number read...
tail: [qvfF] -NUMBER -n:number --lines:number -c:number --bytes:number read...
wc: [lwcmL] --lines --words read...
cut: [s] -d:text --delimiter:text -f:text --fields:text -c:text read...
tr: [dscC] text...
sort: [nrufbdghMVzsc] --numeric-sort --reverse --unique -k:text --key:text -t:text -o:write --output:write read...
uniq: [cdiu] --count read
diff: [uqswbBi] --color= --brief -U:number file file
stat: [L] -c:text --format:text read...
file: [biL] --brief --mime-type read...
sha256sum,sha1sum,md5sum: [b] read...
base64: [d] --decode -w:number read...
hexdump: [C] -n:number -s:number read...
readlink,realpath: [fe] read...
grep,egrep,fgrep: [rnlLciIvwxoEFPhHsqa] -NUMBER --recursive --line-number --ignore-case --count --invert-match --only-matching --color=
  --line-buffered --files-with-matches --extended-regexp --fixed-strings --quiet -e:text --regexp:text --include:text --exclude:text
  --exclude-dir:text -m:number --max-count:number -A:number -B:number -C:number --context:number text...
rg: [niIlcvwxoFSsPNHqU] --files --hidden --line-number --ignore-case --count --files-with-matches --fixed-strings --no-heading --json
  -e:text --regexp:text -g:text --glob:text -t:text --type:text --color:text -m:number -A:number -B:number -C:number --max-depth:number text...
sed: [nErs] -i --in-place --quiet --regexp-extended -e:sed --expression:sed text...
awk,gawk,mawk: -F:text -v:text awk read...
jq: [rcnsSe] --raw-output --compact-output --tab --indent:number --arg:text:text --argjson:text:text jq read...

mkdir: [pv] --parents -m:text write...
touch: [acm] -d:text -t:text write...
tee: [a] --append write...
rm: [rfRv] --recursive --force --verbose remove...
cp: [rRpfvnua] --recursive --archive --force --no-clobber read... write
mv: [fvnu] --force --no-clobber read... write
chmod: [Rv] mode write...
tar c: --exclude:text new-archive tree...
tar x: -C:write --directory:write --strip-components:number archive
tar t: archive text...
unzip: [qol] -d:write read

nohup: command
nice: -n:number command
timeout: --foreground --preserve-status -k:text -s:text number command
xargs: [0rt] --null --no-run-if-empty -n:number --max-args:number -P:number words...

node: --test --check --version -v --enable-source-maps --test-only --test-name-pattern:text --test-timeout:number script free...
python,python3: [uBO] --version -V script free...
python,python3 -m venv: write
python,python3 -m unittest: [vqbf] free...
python,python3 -m pytest: ${PYTEST}
pytest: ${PYTEST}
pip,pip3: --version
pip,pip3 install: [qU] --upgrade --quiet -r:read --requirement:read package...
pip,pip3 list,freeze: --outdated
ruff: --version
ruff check: --diff --statistics free...
tsc: --noEmit --watch -w --pretty --version -v --build -b -p:read --project:read
make: [ksBn] -j --jobs --silent --dry-run -j:number -C:read --directory:read target...
gofmt: [lds] read...
go:
go build: -v -race -o:write local...
go test: -v -race -cover -short -failfast -json -run:text -bench:text -timeout:text -count:number local...
go vet,list: -v local...
go run: -race local free...
go mod tidy,download,verify: -v
go version:
cargo: --version
cargo build,test,check,clippy,run,doc: [rqv] --release --all-targets --workspace --all-features --no-default-features --verbose --quiet
  --no-run --locked --offline --lib --bins --tests -p:name --package:name --features:name --bin:name --test:name -j:number free...
npm,pnpm,yarn: --version -v
npm,pnpm,yarn ci,outdated,audit,prune: --no-audit --no-fund --ignore-scripts --prefer-offline --json --omit=
npm,pnpm,yarn install,i,add: [DE] --save-dev --save-exact --save --no-save --dev --exact --legacy-peer-deps --ignore-scripts --no-audit
  --no-fund --prefer-offline --production --omit= --frozen-lockfile --immutable --workspace:name -w:name package...
npm,pnpm,yarn uninstall,remove,rm,update: [D] --save-dev --workspace:name -w:name package...
npm,pnpm,yarn run,run-script: ${SCRIPT} name free...
npm,pnpm,yarn test,t,start,build,lint: ${SCRIPT} free...
npm,pnpm ls,list: --depth= --all --json --prod -a package...
npm,pnpm view,info: --json package name
npm version: --no-git-tag-version name
curl: [sSfIivg] --silent --show-error --fail --head --include --verbose --compressed -X:text --request:text -A:text -H:data --header:data
  -d:data --data:data --json:data --data-raw:text -m:number --max-time:number --connect-timeout:number --retry:number -o:write --output:write
  url...

git status: [sbuvz] --short --branch --porcelain= --untracked-files= --ignored --show-stash pathspec...
git diff: ${DIFF} --cached --staged --merge-base revision...
git log,show: ${LOG} revision...
git reflog: ${LOG}
git blame: [wslc] -L:text revision... pathspec
git grep: [nilwEFPchHvI] --line-number --ignore-case --files-with-matches --count --cached -A:number -B:number -C:number text revision...
git ls-files: [cmosdtz] --others --exclude-standard --modified --cached --deleted --stage pathspec...
git ls-tree: [rtl] --name-only revision pathspec...
git rev-parse: --short= --abbrev-ref --show-toplevel --git-dir --verify --is-inside-work-tree --quiet revision...
git rev-list: --count --all -n:number --max-count:number revision...
git merge-base: --is-ancestor revision...
git cat-file: [pte] revision...
git branch: [arvdDmM] -vv --show-current --list --all --remotes --merged --no-merged --delete --move name...
git tag: [aldnf] --list --annotate --delete -m:text --message:text --sort:text name...
git remote: [v]
git remote get-url: name
git worktree list:
git add: [Auv] --all --update --verbose -N pathspec...
git commit: [aqvsn] --all --amend --no-edit --allow-empty --no-verify --quiet --signoff -m:text --message:text --author:text --date:text
  -F:read --file:read pathspec...
git rm: [rfqn] --cached --force --quiet remove...
git mv: [fkvn] read... write
git clean: [fdnq] --dry-run --force remove... +changes
git checkout -b,-B: name
git checkout: [q] --quiet --detach --ours --theirs revision pathspec... +changes
git switch -c,-C,--create: name
git switch: [q] --quiet --detach name +changes
git restore --staged: [q] pathspec...
git restore: [SWq] --staged --worktree --source:name -s:name pathspec... +changes
git reset: [q] --soft --mixed --quiet revision...
git reset --hard,--keep: [q] revision +changes
git stash: [u] --include-untracked +changes
git stash push: [uqk] --include-untracked --keep-index --staged -m:text --message:text pathspec... +changes
git stash pop,apply,drop: [q] --index --quiet text +changes
git stash list:
git stash show: [pu] --stat --patch text
git merge: [q] --no-ff --ff-only --squash --abort --continue --no-edit --no-commit -m:text revision... +changes
git rebase: [q] --continue --abort --skip --autostash --onto:name revision... +changes
git cherry-pick,revert: [xn] --no-edit --abort --continue --skip --no-commit revision... +changes
git bisect start,good,bad,skip,reset: revision... +changes
git bisect log:
git bisect run: command
git fetch: [pt] ${REMOTE} --depth:number repository name...
git pull: ${REMOTE} --rebase= --no-rebase --ff-only --autostash repository name... +changes
git push: [ufdn] ${REMOTE} --set-upstream --force-with-lease= --delete --no-verify repository name...
git clone: [q] --quiet --single-branch --no-tags --depth:number -b:name --branch:name repository write +links
git init: [q] --quiet -b:name --initial-branch:name write=.
`;

interface Usage {
  readonly name: string;
  letters: string;
  /** Options without a value. */
  readonly words: Set<string>;
  readonly values: Map<string, readonly Kind[]>;
  readonly operands: Kind[];
  /** The kind of all further operands, and of the last one. */
  repeated?: Kind;
  last?: Kind;
  /** What it acts on without an operand. */
  alone?: string;
  effect?: 'links' | 'changes';
}

const USAGES: ReadonlyMap<string, Usage> = new Map(
  TABLE.replaceAll(/\n {2}/g, ' ')
    .split('\n')
    .filter(Boolean)
    .flatMap((line) => {
      const [, names = '', rest = ''] = /^(.*?):(?: (.*))?$/.exec(line) ?? [];
      const all = names
        .split(' ')
        .reduce<string[]>(
          (before, part) => before.flatMap((one) => part.split(',').map((next) => `${one} ${next}`.trim())),
          [''],
        );
      return all.map((name) => [name, usageFrom(name, rest.split(' ').filter(Boolean))] as const);
    }),
);

function usageFrom(name: string, parts: readonly string[]): Usage {
  const usage: Usage = { name, letters: '', words: new Set(), values: new Map(), operands: [] };
  const kind = (text: string | undefined): Kind => {
    if (text === undefined || !Object.hasOwn(KINDS, text)) throw new TypeError(`${name}: ${text} is not a kind`);
    return text as Kind;
  };
  for (const part of parts) {
    const [option = '', ...kinds] = part.split(':');
    const [, operand, dots, alone] = /^([a-z-]+)(\.\.\.)?(?:=(.+))?$/.exec(part) ?? [];
    if (part.startsWith('[')) usage.letters += part.slice(1, -1);
    else if (part.startsWith('+')) usage.effect = part === '+links' ? 'links' : 'changes';
    else if (part.startsWith('-') && kinds.length > 0) usage.values.set(option, kinds.map(kind));
    else if (part.startsWith('-')) usage.words.add(part);
    else {
      if (dots !== undefined) usage.repeated = kind(operand);
      else if (usage.repeated !== undefined) usage.last = kind(operand);
      else usage.operands.push(kind(operand));
      if (alone !== undefined) usage.alone = alone;
    }
  }
  return usage;
}

/** Reports what a program does with its arguments. Returns false if it is not known. */
export function analyseProgram(call: Call): boolean {
  const { name, args } = call;
  const form = FORMS.get(name);
  if (form) form(call);
  else if (name === 'git') analyseGit(call);
  else if (name === 'tar') {
    // `tar czf a.tgz dist`, `tar -xzf a.tgz -C vendor`, `tar tf a.tgz`.
    const verb = /^-?(?=[zjJv]*([cxt])[zjJv]*f$)/.exec(args[0] ?? '')?.[1];
    if (verb === undefined) throw new Unclear('the options of tar are not known');
    applyUsage(call, [verb, ...args.slice(1)]);
  } else if (USAGES.has(name)) applyUsage(call, args);
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
  if (at >= args.length) return;
  const verb = args[at]!;
  const isForeign = hasForeignSettings(scope, /^(status|diff|log|show)$/.test(verb));
  const { effect } = applyUsage({ ...call, scope }, args.slice(at));
  if (isForeign || writesModules(scope) || mayEnterRepository(verb, effect === 'changes', scope))
    throw new Unclear('a repository inside may have settings that run programs');
  if (effect === 'changes' || /^(add|mv|reset|rm)$/.test(verb)) scope.found.hasNewIndex = true;
}

function applyUsage(given: Call, args: readonly string[]): Usage {
  const usage = usageOf(given.name, args);
  const call = { ...given, name: usage.name };
  const parsed = readArguments(usage, args.slice(usage.name.split(' ').length - 1));
  const { operands, values, before } = parsed;
  for (const { value, kind } of values) KINDS[kind](value, call);
  for (const [at, operand] of operands.entries()) {
    const kind = kindAt(usage, at, operands.length);
    if (kind === undefined) throw new Unclear(`the argument ${operand} of ${usage.name} is not known`);
    KINDS[kind === 'revision' && at >= before ? 'pathspec' : kind](operand, call);
    if (kind !== 'command') continue;
    call.run(operands.slice(at));
    break;
  }
  if (operands.length === 0 && usage.alone !== undefined) KINDS[kindAt(usage, 0, 1)!](usage.alone, call);
  RULES[usage.name]?.(call, parsed);
  if (usage.effect === 'changes') note('write', '.', { ...call.scope, folders: [''] });
  if (usage.effect) createsLinks(call);
  return usage;
}

/** The entry with the most words. */
function usageOf(program: string, args: readonly string[]): Usage {
  for (const count of [2, 1, 0]) {
    const words = args.slice(0, count);
    const usage = words.some((word) => /\s/.test(word)) ? undefined : USAGES.get([program, ...words].join(' '));
    if (usage) return usage;
  }
  throw new Unclear(`${program} ${args[0] ?? ''} is not known`);
}

function kindAt({ operands, repeated, last }: Usage, at: number, count: number): Kind | undefined {
  return operands[at] ?? (last !== undefined && at > 0 && at === count - 1 ? last : repeated);
}

/** An option is known by its exact spelling: neither beginnings of long options nor unknown letters are accepted. */
function readArguments(usage: Usage, args: readonly string[]): Parsed {
  const operands: string[] = [];
  const options = new Set<string>();
  const values: { option: string; value: string; kind: Kind }[] = [];
  let before: number | undefined;
  const open = [...args];
  for (let text = open.shift(); text !== undefined; text = open.shift()) {
    const [name = '', attached] = /^(--[^=]*)=([^]*)$/.exec(text)?.slice(1) ?? [text];
    if (before !== undefined || !text.startsWith('-') || text === '-') {
      operands.push(text);
      if (LAST_KINDS.has(kindAt(usage, operands.length - 1, Infinity)!)) before ??= operands.push(...open.splice(0));
    } else if (text === '--') before = operands.length;
    else if (usage.words.has(text) || (usage.words.has('-NUMBER') && /^-\d+$/.test(text))) options.add(text);
    else if (usage.words.has(`${name}=`)) options.add(name);
    else if (usage.values.has(name)) takeValues(name, attached);
    else if (text.startsWith('--')) throw new Unclear(`the option ${name} of ${usage.name} is not known`);
    else readLetters(text);
  }
  return { operands, options, values, before: before ?? operands.length };

  function takeValues(option: string, attached: string | undefined): void {
    options.add(option);
    for (const [at, kind] of usage.values.get(option)!.entries()) {
      const value = at === 0 && attached !== undefined ? attached : open.shift();
      if (value === undefined) throw new Unclear(`the option ${option} of ${usage.name} has no value`);
      values.push({ option, value, kind });
    }
  }

  /** `-la`, `-n5`, `-rn5`. */
  function readLetters(text: string): void {
    for (let at = 1; at < text.length; at++) {
      const option = `-${text[at]}`;
      if (usage.letters.includes(text[at]!)) options.add(option);
      else if (usage.values.has(option)) return takeValues(option, text.slice(at + 1) || undefined);
      else throw new Unclear(`the option ${option} of ${usage.name} is not known`);
    }
  }
}
