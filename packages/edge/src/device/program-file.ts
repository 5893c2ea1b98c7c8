/** This package: its `src`, or its `dist`, where this module is part of a file whose place depends on who uses it. */
const isSource: boolean = import.meta.url.endsWith('.ts');
const TOP: URL = isSource
  ? new URL('../', import.meta.url)
  : new URL(import.meta.url.slice(0, import.meta.url.lastIndexOf('/dist/') + '/dist/'.length));

/** A program of this package that is started as a process. */
export function deviceProgram(name: 'main' | 'worker'): URL {
  return new URL(`device/${name}.${isSource ? 'ts' : 'js'}`, TOP);
}

/** From sources, other packages of the workspace are found by their sources too. */
export const DEVICE_EXEC_ARGV: readonly string[] = isSource
  ? ['--conditions=treadle-source', '--disable-warning=ExperimentalWarning']
  : [];

/** Where the packages of tools may be: in this package, or in the repository. */
export const SKILL_FOLDERS: readonly URL[] = ['../skills/', '../../../skills/'].map((path) => new URL(path, TOP));
