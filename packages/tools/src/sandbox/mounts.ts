import { readFileSync } from 'node:fs';
import { isWithin, realOf } from './lookups.ts';

/*
 * What a program in a sandbox really sees. An engine finds what it mounts by names, and a program that runs already may replace a
 * folder with a link just then. The kernel says what was mounted: it is compared with what should have been.
 */

/** By their places: what is shown there, both absolute. */
export type Expected = ReadonlyMap<string, { readonly from: string; readonly isWritable: boolean }>;

interface Mount {
  readonly device: string;
  /** Where in its file system the mounted folder or file is. */
  readonly root: string;
  readonly at: string;
  readonly isWritable: boolean;
}

/**
 * Says what is mounted that should not be, or nothing. It gets a function that finds a process in the sandbox, and what the host has
 * is read before: while the sandbox starts there is time. `changing`: the folders whose content other programs may replace.
 */
export function mountCheck(
  expected: Expected,
  changing: readonly string[],
): (pidInside: () => number) => string | undefined {
  const orMessage = <T>(read: () => T): T | string => {
    try {
      return read();
    } catch (error) {
      return (error as Error).message;
    }
  };
  const find = orMessage(() => wrongFinder(mountsOf(process.pid), expected, changing));
  return (pidInside) => (typeof find === 'string' ? find : orMessage(() => find(mountsOf(pidInside()))));
}

function mountsOf(pid: number): readonly Mount[] {
  return mountsIn(readFileSync(`/proc/${pid}/mountinfo`, 'utf8'));
}

/** The only process that a process has started, as the host sees it. */
export function onlyChildOf(pid: number): number {
  const [child, ...others] = readFileSync(`/proc/${pid}/task/${pid}/children`, 'utf8').trim().split(' ');
  if (!child || others.length > 0) throw new Error('the first process of the sandbox is not known');
  return Number(child);
}

export function mountsIn(table: string): readonly Mount[] {
  return table.split('\n').flatMap((line) => {
    const [, , device = '', root = '', at = '', options] = line.split(' ');
    return options === undefined
      ? []
      : [{ device, root: named(root), at: named(at), isWritable: /^rw\b/.test(options) }];
  });
}

/** Blanks and some other characters are written as octal numbers. */
function named(text: string): string {
  return text.replaceAll(/\\([0-7]{3})/g, (_, digits: string) => String.fromCharCode(Number.parseInt(digits, 8)));
}

/** Finds the place of the first of the mounts that should not be there. */
export function wrongFinder(
  host: readonly Mount[],
  expected: Expected,
  changing: readonly string[],
): (shown: readonly Mount[]) => string | undefined {
  const devices = new Set(host.map(({ device }) => device));
  const places = new Map([...expected.values()].map(({ from }) => [from, placeOf(from, host)]));
  const isFrom = (mount: Mount, source: string | undefined): boolean => {
    const place = source === undefined ? undefined : (places.get(source) ?? placeOf(source, host));
    return place?.device === mount.device && place.root === mount.root;
  };
  const isExpected = (mount: Mount): boolean => {
    const { at } = mount;
    // A file system of its own, such as /proc.
    if (!devices.has(mount.device)) return true;
    if (/^\/dev\/\w+$/.test(at)) return isFrom(mount, at);
    // What contains other file systems shows them too.
    for (let top = at; top !== ''; top = top.slice(0, top.lastIndexOf('/'))) {
      const source = expected.get(top);
      if (!source || (mount.isWritable && !source.isWritable)) continue;
      const from = source.from + at.slice(top.length);
      if (isFrom(mount, from)) return true;
      const isFixed = !changing.some((one) => isWithin(one, from));
      if (isFixed && isFrom(mount, realOf(from))) return true;
    }
    return false;
  };
  return (shown) => shown.find((mount) => !isExpected(mount))?.at;
}

/** Where a path is in its file system, if no link is on the way. */
function placeOf(path: string, host: readonly Mount[]): Pick<Mount, 'device' | 'root'> | undefined {
  let mount: Mount | undefined;
  // The last one covers those before it.
  for (const one of host) if (isWithin(one.at, path) && one.at.length >= (mount?.at.length ?? 0)) mount = one;
  if (!mount) return undefined;
  const rest = path.slice(mount.at === '/' ? 0 : mount.at.length);
  return { device: mount.device, root: mount.root === '/' ? rest || '/' : mount.root + rest };
}
