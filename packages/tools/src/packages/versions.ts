import type { PackagedTool } from './packaged-tool.ts';

/* Names for tools of which there are several versions. */

/**
 * The newest version of a tool has its name, the others `name_v1` or as much of the version as tells them apart. A taken name is
 * not given: the tool is left out. Of two that are the same version, the first stays.
 */
export function versionedNames(
  tools: readonly PackagedTool[],
  taken: ReadonlySet<string>,
): { readonly tools: readonly PackagedTool[]; readonly problems: readonly string[] } {
  const problems: string[] = [];
  const kept: PackagedTool[] = [];
  const replaced = Map.groupBy(
    tools.filter(({ name }) => taken.has(name)),
    ({ package: { folder } }) => folder,
  );
  for (const [folder, some] of replaced) {
    problems.push(`${folder}: the built-in tools are used instead of those of the package: ${namesOf(some)}.`);
  }
  const names = new Set([...taken, ...tools.map(({ name }) => name)]);
  for (const [name, some] of Map.groupBy(tools, (one) => one.name)) {
    if (taken.has(name)) continue;
    const newestFirst = some.toSorted((a, b) => compareVersions(b.version, a.version));
    for (const [index, one] of newestFirst.entries()) {
      const same = newestFirst.slice(0, index).find(({ version }) => version === one.version);
      if (same) {
        problems.push(
          `${one.package.folder}: ${name} ${one.version} is also in ${same.package.folder}, which is used.`,
        );
        continue;
      }
      const free = index === 0 ? name : versionNames(name, one.version).find((other) => !names.has(other));
      if (free === undefined) {
        problems.push(`${one.package.folder}: ${name} ${one.version} is left out, because its names are taken.`);
        continue;
      }
      names.add(free);
      kept.push({ ...one, name: free });
    }
  }
  return { tools: kept, problems };
}

function namesOf(tools: readonly PackagedTool[]): string {
  return [...new Set(tools.map(({ name }) => name))].join(', ');
}

/** `name_v1`, `name_v1_2`, `name_v1_2_0`. */
function versionNames(name: string, version: string): readonly string[] {
  const parts = version.replaceAll(/[^\w]/g, '.').split('.');
  return parts.map((_, index) => `${name}_v${parts.slice(0, index + 1).join('_')}`).filter((one) => one.length <= 64);
}

/** Below zero if the first is older. A version with a suffix is older than the same without. */
function compareVersions(a: string, b: string): number {
  const [numbersA, suffixA] = partsOf(a);
  const [numbersB, suffixB] = partsOf(b);
  for (let index = 0; index < 3; index++) {
    const difference = (numbersA[index] ?? 0) - (numbersB[index] ?? 0);
    if (difference !== 0) return difference;
  }
  if (suffixA === '' || suffixB === '') return Number(suffixA === '') - Number(suffixB === '');
  return suffixA.localeCompare(suffixB, 'en', { numeric: true });
}

function partsOf(version: string): readonly [numbers: readonly number[], suffix: string] {
  const [numbers = '', ...suffix] = version.split('-');
  return [numbers.split('.').map(Number), suffix.join('-')];
}
