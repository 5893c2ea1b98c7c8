import { compileGlob, componentsOf, matchesGlob, type Glob } from './glob.ts';
import { amountText, onText } from './places.ts';
import {
  ALLOWED,
  jointOpinion,
  listed,
  type Folders,
  type Judge,
  type Opinion,
  type Rule,
  type TouchedPath,
} from './rule.ts';
import type { PolicyRules } from './rules.ts';

/*
 * Paths. A denial applies to reads and writes, at every level, and to a path as well as to where it leads through links. It is
 * compared without case, because some file systems ignore case. Both are compared in Unicode form C. An entry of `read` or `write` without wildcards is more
 * specific than a glob, so it allows one path that a glob denies. A path that is neither allowed nor denied is left to the
 * autonomy rule, unless `only` denies the rest.
 */

/** Journals, secrets, settings and skills of Treadle itself. */
export const OWN_FOLDER = '**/.treadle/**';

/** Denied without being named in the rules. */
export const DEFAULT_DENIED: readonly DefaultDenial[] = [
  { glob: '**/.env*', except: '**/.env.example' },
  { glob: '**/.git/**', type: 'write' },
  { glob: '**/.git/config', type: 'read' },
  { glob: '**/.git-credentials' },
  { glob: '**/.netrc' },
  { glob: '**/id_{rsa,dsa,ecdsa,ed25519}*' },
  { glob: '**/*.pem' },
  { glob: '**/.aws/{credentials,config}' },
  { glob: '**/.azure/**' },
  { glob: '**/.config/gcloud/**' },
  { glob: '**/.docker/config.json' },
  { glob: '**/.kube/config' },
  { glob: OWN_FOLDER, isOwn: true },
  { glob: '**/treadle.toml' },
  // The keys of this process are in its environment and its memory.
  { glob: '/proc/*/{environ,mem}' },
  { glob: '/proc/*/task/*/{environ,mem}' },
];

interface DefaultDenial {
  readonly glob: string;
  /** Absent: reads and writes. */
  readonly type?: 'read' | 'write';
  /** Paths that it does not apply to. */
  readonly except?: string;
  /** Inside a folder that the run may read, it is compared with the path below that. */
  readonly isOwn?: true;
}

/** The default denial that covers all paths of a glob of `read` or `write`; undefined if none does. */
export function coveringDenial(type: 'read' | 'write', text: string): string | undefined {
  const { isExact: namesOnePath, patterns } = compileGlob(text.toLowerCase());
  if (namesOnePath) return undefined; // it is more specific than the denial
  const denial = DEFAULT_DENIED.find(
    (one) => (one.type ?? type) === type && patterns.every((each) => covers(one, each)),
  );
  return denial?.glob;
}

/** A wildcard of the pattern is compared like any text. Only a wildcard of the denial matches it, so it covers all of it. */
function covers({ glob, except }: DefaultDenial, pattern: readonly string[]): boolean {
  const name = except && componentsOf(except).at(-1)!;
  if (name !== undefined && matchesGlob({ ...ANY, patterns: [pattern.slice(-1)] }, [name])) return false;
  return matchesGlob(compileGlob(glob), pattern);
}

const ANY = { text: '', isExact: false };

export function pathsRule(judgePath: Judge<TouchedPath>): Rule {
  return {
    name: 'paths',
    judge: ({ paths }) => jointOpinion(paths.map(judgePath)),
    saw: ({ paths }) =>
      paths.length === 0
        ? 'it touches no paths'
        : paths.map((path) => `${path.type} ${whereTo(path)}${amountText(path.lines, 'line')}`).join(', '),
  };
}

interface Denial {
  readonly text: string;
  readonly glob: Glob;
  readonly type?: 'read' | 'write';
  readonly except?: Glob;
  readonly isOwn?: true;
}

/** Whether `OWN_FOLDER` means a path. In a folder that the run may read, only what is in such a folder below that. */
export function isOwnPath(path: string, readable: string | undefined): boolean {
  own ??= compileGlob(OWN_FOLDER);
  const judged = readable === undefined ? path : path.slice(readable.length);
  return matchesGlob(own, componentsOf(judged.toLowerCase()));
}

let own: Glob | undefined;

export function pathJudge(rules: PolicyRules, here: Folders): Judge<TouchedPath> {
  const judgeAt = atEachPlace(rules, here, pathJudgeAt);
  return (touched) => judgeAt(touched)(touched);
}

/** What is made of the rules for the place where a path is: relative globs start at its folder. */
export function atEachPlace<T>(
  rules: PolicyRules,
  here: Folders,
  make: (rules: PolicyRules, folders: Folders) => T,
): (touched: TouchedPath) => T {
  const madeHere = make(rules, here);
  // Most calls at other places are at the same one as the call before.
  let last: { readonly key: string; readonly made: T } | undefined;
  return ({ on, folders = {} }) => {
    if (!on) return madeHere;
    const key = JSON.stringify(folders);
    if (last?.key !== key) last = { key, made: make(withoutHome(rules, folders), folders) };
    return last.made;
  };
}

/** At a place whose home folder is not known, globs that start there allow nothing, and deny what they would in any folder. */
function withoutHome(rules: PolicyRules, { home }: Folders): PolicyRules {
  if (home !== undefined) return rules;
  const { read, write, deny } = rules.paths ?? {};
  const { paths, except } = rules.private ?? {};
  const elsewhere = (texts: readonly string[]): readonly string[] => texts.filter((text) => !isInHome(text));
  const inAnyFolder = (texts: readonly string[]): readonly string[] =>
    texts.map((text) => (isInHome(text) ? `**${text.slice(1)}` : text));
  return {
    ...rules,
    paths: {
      ...(read && { read: elsewhere(read) }),
      ...(write && { write: elsewhere(write) }),
      ...(deny && { deny: inAnyFolder(deny) }),
    },
    private: { ...(paths && { paths: inAnyFolder(paths) }), ...(except && { except: elsewhere(except) }) },
  };
}

function pathJudgeAt({ paths = {} }: PolicyRules, folders: Folders): Judge<TouchedPath> {
  const globsOf = (texts: readonly string[]): readonly Glob[] =>
    texts.map((text) => compileGlob(placed(text, folders).normalize('NFC')));
  const [read, write] = [globsOf(paths.read ?? EVERYTHING_INSIDE), globsOf(paths.write ?? [])];
  const denied: readonly Denial[] = [
    ...(paths.deny ?? []).map((text) => ({
      text,
      // One that starts with `**` applies everywhere, not only inside the folder.
      glob: compileGlob((text.startsWith('**') ? text : placed(text, folders)).normalize('NFC').toLowerCase()),
    })),
    ...DEFAULT_DENIED.map(({ glob, except, ...rest }) => ({
      ...rest,
      text: glob,
      glob: compileGlob(glob),
      ...(except !== undefined && { except: compileGlob(except) }),
    })),
  ];
  const judgeOne = (type: TouchedPath['type'], path: string, readable: string | undefined): Opinion | undefined => {
    const normal = path.normalize('NFC');
    const components = componentsOf(normal);
    const isAbsolute = path.startsWith('/');
    const lists = (type === 'read' ? read : write).filter(
      (glob) => glob.text.startsWith('/') === isAbsolute && matchesGlob(glob, components),
    );
    const lower = componentsOf(normal.toLowerCase());
    const denial = denied.find(
      (one) =>
        applies(one, type, lower) &&
        (one.glob.isExact || !lists.some(isExact)) &&
        !(one.isOwn && !isOwnPath(normal, readable)),
    );
    const allowed = paths[type] ?? (type === 'read' ? EVERYTHING_INSIDE : []);
    if (!denial) {
      if (lists.length > 0 || readable !== undefined) return ALLOWED;
      if (!paths.only?.includes(type)) return undefined;
      const these = allowed.length === 0 ? `No ${type}s are` : `Only ${type}s of ${listed(allowed)} are`;
      return { type: 'deny', reason: `${type}s of "${path}" are denied. ${these} allowed.` };
    }
    const others = allowed.length === 0 ? '' : ` Other paths that match ${listed(allowed)} are allowed.`;
    return { type: 'deny', reason: `${type}s of "${path}" are denied by "${denial.text}".${others}` };
  };
  return ({ type, given, facts: { path, target, unclear }, readable }) => {
    if (unclear !== undefined) {
      return { type: 'deny', reason: `it is not known where the path ${JSON.stringify(given)} leads: ${unclear}` };
    }
    const here = judgeOne(type, path, readable);
    if (target === undefined || here?.type === 'deny') return here;
    const there = judgeOne(type, target, readable);
    return there?.type === 'deny' || (here && there) ? there : undefined;
  };
}

/** Reads are allowed inside the folder unless the rules say otherwise. */
const EVERYTHING_INSIDE: readonly string[] = ['**'];

function isExact(glob: Glob): boolean {
  return glob.isExact;
}

function applies({ glob, type, except }: Denial, touched: TouchedPath['type'], components: readonly string[]): boolean {
  if (type !== undefined && type !== touched) return false;
  return matchesGlob(glob, components) && !(except && matchesGlob(except, components));
}

/** A relative glob starts at the folder. */
export function placed(text: string, { folder, home }: Folders): string {
  if (isInHome(text)) {
    if (home === undefined) throw new Error('it starts with "~", and the policy was given no "home"');
    return `${escapeFolder(home)}${text.slice(1)}`;
  }
  if (text.startsWith('/') || folder === undefined) return text;
  return `${escapeFolder(folder)}/${text}`;
}

function isInHome(text: string): boolean {
  return text === '~' || text.startsWith('~/');
}

/** Wildcards in the name of a folder cannot be told from those of a glob, so each stands for one character. */
function escapeFolder(folder: string): string {
  return folder.replace(/\/+$/, '').replace(/[*?{}]/g, '?');
}

export function whereTo({ given, facts, on }: Pick<TouchedPath, 'given' | 'facts' | 'on'>): string {
  const { path, target, unclear } = facts;
  if (unclear !== undefined) return `${JSON.stringify(given)} (unclear: ${unclear})${onText(on)}`;
  const link = target === undefined ? '' : `, a link to ${JSON.stringify(target)}`;
  return `${JSON.stringify(path)}${link}${onText(on)}`;
}
