import { levelOf } from './autonomy.ts';
import type { PathFacts } from './facts.ts';
import { compileGlob, componentsOf, matchesGlob, type Glob } from './glob.ts';
import { atEachPlace, OWN_FOLDER, OWN_SKILLS, placed, whereTo } from './paths.ts';
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

/** Returns a function that says which glob makes a path private, by its name or by where it leads; undefined if none does. */
export function privatePaths(
  { private: own = {}, paths = {} }: Pick<PolicyRules, 'private' | 'paths'>,
  folders: Folders,
): (facts: Pick<PathFacts, 'path' | 'target'>) => string | undefined {
  const globsOf = (texts: readonly string[]): readonly Glob[] =>
    texts.map((text) => lowerGlob(text.startsWith('**') ? text : placed(text, folders)));
  defaults ??= { globs: DEFAULT_PRIVATE.map(lowerGlob), open: DEFAULT_PUBLIC.map(lowerGlob) };
  const globs = [...globsOf(own.paths ?? []), ...defaults.globs];
  const open = [...globsOf(own.except ?? []), ...defaults.open];
  const exact = (paths.read ?? [])
    .filter((text) => compileGlob(text).isExact)
    .map((text) => compileGlob(placed(text, folders).normalize('NFC')));
  const matching = (path: string): string | undefined => {
    const normal = path.normalize('NFC');
    const lower = componentsOf(normal.toLowerCase());
    const isOwn = ({ text }: Glob): boolean => text === OWN_FOLDER && matchesGlob(compileGlob(OWN_SKILLS), lower);
    const found = globs.find((glob) => matchesGlob(glob, lower) && !isOwn(glob));
    if (!found || open.some((glob) => matchesGlob(glob, lower))) return undefined;
    return exact.some((glob) => matchesGlob(glob, componentsOf(normal))) ? undefined : found.text;
  };
  return ({ path, target }) => matching(path) ?? (target === undefined ? undefined : matching(target));
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
  return (path) => (path.type === 'read' ? globAt(path)(path.facts) : undefined);
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
