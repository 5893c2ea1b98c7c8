import type { PathFacts } from './facts.ts';
import { compileGlob, componentsOf, matchesGlob, type Glob } from './glob.ts';
import { ALLOWED, listed, jointOpinion, type Judge, type Opinion, type Rule, type TouchedPath } from './rule.ts';
import type { PolicyRules } from './rules.ts';

/*
 * Paths. A denial applies to reads and writes, at every level, and to a path as well as to where it leads through links. It is
 * compared without case, because some file systems ignore case. Both are compared in Unicode form C. An entry of `read` or `write` without wildcards is more
 * specific than a glob, so it allows one path that a glob denies. A path that is neither allowed nor denied is left to the
 * autonomy rule.
 */

/** Where relative globs start. */
export interface Place {
  readonly folder?: string;
  /** What `~/` stands for in globs. */
  readonly home?: string;
}

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
  { glob: '**/.treadle/**' },
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
      paths.length === 0 ? 'it touches no paths' : paths.map((path) => `${path.type} ${whereTo(path)}`).join(', '),
  };
}

interface Denial {
  readonly text: string;
  readonly glob: Glob;
  readonly type?: 'read' | 'write';
  readonly except?: Glob;
}

export function pathJudge({ paths = {} }: PolicyRules, place: Place): Judge<TouchedPath> {
  const globsOf = (texts: readonly string[]): readonly Glob[] =>
    texts.map((text) => compileGlob(placed(text, place).normalize('NFC')));
  const [read, write] = [globsOf(paths.read ?? EVERYTHING_INSIDE), globsOf(paths.write ?? [])];
  const denied: readonly Denial[] = [
    ...(paths.deny ?? []).map((text) => ({
      text,
      // One that starts with `**` applies everywhere, not only inside the folder.
      glob: compileGlob((text.startsWith('**') ? text : placed(text, place)).normalize('NFC').toLowerCase()),
    })),
    ...DEFAULT_DENIED.map(({ glob, except, ...rest }) => ({
      ...rest,
      text: glob,
      glob: compileGlob(glob),
      ...(except !== undefined && { except: compileGlob(except) }),
    })),
  ];
  const judgeOne = (type: TouchedPath['type'], path: string): Opinion | undefined => {
    const normal = path.normalize('NFC');
    const components = componentsOf(normal);
    const isAbsolute = path.startsWith('/');
    const lists = (type === 'read' ? read : write).filter(
      (glob) => glob.text.startsWith('/') === isAbsolute && matchesGlob(glob, components),
    );
    const lower = componentsOf(normal.toLowerCase());
    const denial = denied.find((one) => applies(one, type, lower) && (one.glob.isExact || !lists.some(isExact)));
    if (!denial) return lists.length > 0 ? ALLOWED : undefined;
    const allowed = paths[type] ?? (type === 'read' ? EVERYTHING_INSIDE : []);
    const others = allowed.length === 0 ? '' : ` Other paths that match ${listed(allowed)} are allowed.`;
    return { type: 'deny', reason: `${type}s of "${path}" are denied by "${denial.text}".${others}` };
  };
  return ({ type, given, facts: { path, target, unclear } }) => {
    if (unclear !== undefined) {
      return { type: 'deny', reason: `it is not known where the path ${JSON.stringify(given)} leads: ${unclear}` };
    }
    const here = judgeOne(type, path);
    if (target === undefined || here?.type === 'deny') return here;
    const there = judgeOne(type, target);
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
function placed(text: string, { folder, home }: Place): string {
  if (text === '~' || text.startsWith('~/')) {
    if (home === undefined) throw new Error('it starts with "~", and the policy was given no "home"');
    return `${escapeFolder(home)}${text.slice(1)}`;
  }
  if (text.startsWith('/') || folder === undefined) return text;
  return `${escapeFolder(folder)}/${text}`;
}

/** Wildcards in the name of a folder cannot be told from those of a glob, so each stands for one character. */
function escapeFolder(folder: string): string {
  return folder.replace(/\/+$/, '').replace(/[*?{}]/g, '?');
}

export function whereTo({ given, facts }: { readonly given: string; readonly facts: PathFacts }): string {
  const { path, target, unclear } = facts;
  if (unclear !== undefined) return `${JSON.stringify(given)} (unclear: ${unclear})`;
  return target === undefined ? JSON.stringify(path) : `${JSON.stringify(path)}, a link to ${JSON.stringify(target)}`;
}
