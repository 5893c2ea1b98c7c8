import { levelOf } from './autonomy.ts';
import type { PathFacts } from './facts.ts';
import { compileGlob, componentsOf, matchesGlob, type Glob } from './glob.ts';
import { atEachPlace, isOwnPath, OWN_FOLDER, placed, whereTo } from './paths.ts';
import type { Folders, Rule, TouchedPath } from './rule.ts';
import type { PolicyRules } from './rules.ts';

/*
 * Private paths: what a person would not show to a stranger. Each read is asked about at every level below 3, whatever the
 * lists say, and what is denied stays denied. An entry of `paths.read` without wildcards allows one path.
 */

/** Private without being named in the rules. `.git/config` is only denied: git needs it wherever private paths are hidden. */
export const DEFAULT_PRIVATE: readonly string[] = [
  '**/.env*',
  '**/*.env',
  '**/.git-credentials',
  '**/.netrc',
  '**/.npmrc',
  '**/.pypirc',
  '**/.pgpass',
  '**/id_{rsa,dsa,ecdsa,ed25519}*',
  '**/*.{key,p12,pem}',
  '**/secrets.*',
  '**/terraform.tfstate',
  '**/.ssh/**',
  '**/.aws/**',
  '**/.azure/**',
  '**/.config/gcloud/**',
  '**/.docker/config.json',
  '**/.kube/**',
  OWN_FOLDER,
  '**/treadle.toml',
  '/proc/*/{environ,mem}',
  '/proc/*/task/*/{environ,mem}',
];

/** Paths that the defaults do not mean. */
export const DEFAULT_PUBLIC: readonly string[] = ['**/.env.example'];

/**
 * Returns a function that says which glob makes a path private, by its name or by where it leads; undefined if none does.
 * `readable`: the folder that it is in, which a run may read.
 */
export function privatePaths(
  { private: own = {}, paths = {} }: Pick<PolicyRules, 'private' | 'paths'>,
  folders: Folders,
): (facts: Pick<PathFacts, 'path' | 'target'> & Pick<TouchedPath, 'readable'>) => string | undefined {
  const globsOf = (texts: readonly string[]): readonly Glob[] =>
    texts.map((text) => lowerGlob(text.startsWith('**') ? text : placed(text, folders)));
  defaults ??= { globs: DEFAULT_PRIVATE.map(lowerGlob), open: DEFAULT_PUBLIC.map(lowerGlob) };
  const { globs: usual } = defaults;
  const globs = [...globsOf(own.paths ?? []), ...usual];
  const open = [...globsOf(own.except ?? []), ...defaults.open];
  const exact = (paths.read ?? [])
    .filter((text) => compileGlob(text).isExact)
    .map((text) => compileGlob(placed(text, folders).normalize('NFC')));
  const matching = (path: string, readable: string | undefined): string | undefined => {
    const normal = path.normalize('NFC');
    const lower = componentsOf(normal.toLowerCase());
    const isMeant = (glob: Glob): boolean =>
      glob.text !== OWN_FOLDER || !usual.includes(glob) || isOwnPath(normal, readable);
    const found = globs.find((glob) => matchesGlob(glob, lower) && isMeant(glob));
    if (!found || open.some((glob) => matchesGlob(glob, lower))) return undefined;
    return exact.some((glob) => matchesGlob(glob, componentsOf(normal))) ? undefined : found.text;
  };
  return ({ path, target, readable }) =>
    matching(path, readable) ?? (target === undefined ? undefined : matching(target, readable));
}

/** Compiled once: policies are made for each resume. */
let defaults: { readonly globs: readonly Glob[]; readonly open: readonly Glob[] } | undefined;

function lowerGlob(text: string): Glob {
  return compileGlob(text.normalize('NFC').toLowerCase());
}

/** Returns a function that says which glob makes a path private that is read, at the place where it is. */
export function privateReads(
  rules: Pick<PolicyRules, 'private' | 'paths'>,
  here: Folders,
): (path: TouchedPath) => string | undefined {
  const globAt = atEachPlace(rules, here, privatePaths);
  return (path) => {
    if (path.type !== 'read') return undefined;
    const { facts, readable } = path;
    return globAt(path)(readable === undefined ? facts : { ...facts, readable });
  };
}

export function privateRule(rules: PolicyRules, here: Folders): Rule {
  const privateGlob = privateReads(rules, here);
  return {
    name: 'private',
    judge({ paths }, { autonomy }) {
      if (levelOf(rules, autonomy) === 3) return undefined;
      for (const path of paths) {
        const glob = path.facts.unclear === undefined ? privateGlob(path) : undefined;
        if (glob !== undefined)
          return { type: 'ask', reason: `it would read ${whereTo(path)}, which is private ("${glob}")` };
      }
      return undefined;
    },
    saw({ paths }) {
      const found = paths.flatMap((path) => (privateGlob(path) === undefined ? [] : whereTo(path)));
      return found.length === 0 ? 'it reads no private paths' : `it reads ${found.join(', ')}`;
    },
  };
}
