/*
 * Globs over paths with `/` between components. `**` stands for any number of whole components, also none; `*` for any
 * characters of one component, `?` for one character, `{a,b}` for either. Everything else is literal, in the case given.
 * Matching takes at most the length of the pattern times the length of the path.
 */

/** Matches a path that has been split at `/`. */
export interface Glob {
  readonly text: string;
  /** It contains no wildcard, so it names one path. */
  readonly isExact: boolean;
  /** One per choice of the alternatives in braces. */
  readonly patterns: readonly (readonly string[])[];
}

/** More alternatives than this are refused, because each is matched on its own. */
const MAX_PATTERNS = 64;

/** Throws an error if the text is not a glob. */
export function compileGlob(text: string): Glob {
  const patterns = expandBraces(text).map((one) => componentsOf(one));
  return { text, isExact: !/[*?{]/.test(text), patterns };
}

/** The components of a path, without empty ones and `.`; the first is empty if the path is absolute. */
export function componentsOf(path: string): string[] {
  const parts = path.split('/').filter((part) => part !== '' && part !== '.');
  return path.startsWith('/') ? ['', ...parts] : parts;
}

export function matchesGlob({ patterns }: Glob, components: readonly string[]): boolean {
  return patterns.some((pattern) => matchesComponents(pattern, components));
}

function expandBraces(text: string): string[] {
  const [complete, open] = [[] as string[], [text]];
  while (open.length > 0) {
    if (complete.length + open.length > MAX_PATTERNS) throw new Error(`it has more than ${MAX_PATTERNS} alternatives`);
    const one = open.pop()!;
    const group = /^([^{}]*)\{([^{}]*)\}(.*)$/s.exec(one);
    if (group) open.push(...group[2]!.split(',').map((choice) => `${group[1]}${choice}${group[3]}`));
    else if (/[{}]/.test(one)) throw new Error('its braces are not closed, or are nested');
    else complete.push(one);
  }
  return complete;
}

function matchesComponents(pattern: readonly string[], components: readonly string[]): boolean {
  return matchesWithStars(pattern, components, '**', matchesComponent);
}

function matchesComponent(pattern: string, component: string): boolean {
  return matchesWithStars(pattern, component, '*', (one, character) => one === '?' || one === character);
}

/** Remembers only the last star: an earlier one never has to take more, because a later one can take the rest. */
function matchesWithStars(
  pattern: ArrayLike<string>,
  given: ArrayLike<string>,
  any: string,
  matchesOne: (pattern: string, given: string) => boolean,
): boolean {
  let [at, next, star, resume] = [0, 0, -1, 0];
  while (at < given.length) {
    if (pattern[next] === any) {
      star = next++;
      resume = at;
    } else if (next < pattern.length && matchesOne(pattern[next]!, given[at]!)) {
      at++;
      next++;
    } else if (star >= 0) {
      next = star + 1;
      at = ++resume;
    } else {
      return false;
    }
  }
  while (pattern[next] === any) next++;
  return next === pattern.length;
}
