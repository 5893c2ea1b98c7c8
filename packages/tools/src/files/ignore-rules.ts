import { globPattern, type GlobPattern } from './glob-pattern.ts';

/*
 * The rules of .gitignore files. The last rule of the nearest file that matches decides, as in git. As in ripgrep, they apply in
 * repositories inside the folder too, and `{a,b}` stands for either. Matching takes at most the length of the file times
 * the length of the path, whatever a repository has in it: a library that builds regular expressions of the rules could be
 * blocked by `*a*a*a*a*b`.
 */

interface Rule {
  readonly pattern: GlobPattern;
  /** `!pattern` */
  readonly keeps: boolean;
  readonly foldersOnly: boolean;
  /** It has a slash, so it is compared with the path below the folder of the file. Otherwise with the name. */
  readonly isPath: boolean;
}

/** The rules of a folder, and those of the folders above it. */
export interface IgnoreRules {
  /** The length of the path of the folder, with a slash at its end. */
  readonly baseLength: number;
  readonly rules: readonly Rule[];
  readonly above: IgnoreRules | undefined;
}

/** `folder`: its path, in the same form as the paths that are tested; the top is an empty text. */
export function ignoreRules(text: string, folder: string, above: IgnoreRules | undefined): IgnoreRules {
  const rules = text.split('\n').flatMap((line) => parseRule(line) ?? []);
  return { baseLength: folder === '' ? 0 : folder.length + 1, rules, above };
}

export function isIgnored(rules: IgnoreRules | undefined, path: string, isFolder: boolean): boolean {
  const name = path.slice(path.lastIndexOf('/') + 1);
  for (let nearest = rules; nearest; nearest = nearest.above) {
    const below = path.slice(nearest.baseLength);
    const decided = nearest.rules.findLast(
      ({ pattern, foldersOnly, isPath }) => (isFolder || !foldersOnly) && pattern.matches(isPath ? below : name),
    );
    if (decided) return !decided.keeps;
  }
  return false;
}

/** Undefined: not a rule, or one that cannot match. */
function parseRule(line: string): Rule | undefined {
  let text = line.replace(/\r$/, '').replace(/(?<!\\) +$/, '');
  if (text.startsWith('#')) return undefined;
  const keeps = text.startsWith('!');
  if (keeps) text = text.slice(1);
  const foldersOnly = text.endsWith('/');
  text = text.replace(/\/$/, '');
  const isPath = text.includes('/');
  text = text.replace(/^\//, '');
  // Git compares names, and no name is "." or empty.
  if (text.split('/').some((name) => name === '' || name === '.')) return undefined;
  // a/** is what is in a, not a itself.
  text = text.replace(/(^|\/)\*\*$/, '$1**/*');
  try {
    return { pattern: globPattern(text), keeps, foldersOnly, isPath };
  } catch {
    return undefined;
  }
}
