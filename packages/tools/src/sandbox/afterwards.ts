import { renameSync, symlinkSync } from 'node:fs';
import { basename, dirname } from 'node:path';
import type { Execution, OutputChunk } from '../ops.ts';
import { exists, isLink, isWithin, linkOf, realOf } from './lookups.ts';
import { untrustedFiles } from './repositories.ts';
import { wayTo, type Scan } from './visible.ts';

/*
 * What does not exist cannot be made read-only. It is looked for when a program has ended, and renamed.
 */

/** Whether nothing was created or replaced since the scan that a program must not create or replace. */
export function isUntouched({ absent, absentInstructions, links, newRepository = '' }: Scan): boolean {
  return (
    ![...absent, ...absentInstructions, newRepository].some((path) => path !== '' && exists(path)) &&
    links.every(({ path, to }) => linkOf(path) === to)
  );
}

/**
 * After the program, renames what it must not have created, and puts links back. The output says so. `isLasting`: it runs for as
 * long as people work. `isOwn`: whether a tool has written a path meanwhile.
 */
export function checkedAfterwards(
  execution: Execution,
  scan: Scan,
  { isLasting, isOwn }: { readonly isLasting: boolean; readonly isOwn: (path: string) => boolean },
): Execution {
  const { absent, absentInstructions, links, newRepository } = scan;
  const [renamed, replaced]: [Set<string>, Set<string>] = [new Set(), new Set()];
  const check = (): void => {
    const created = [
      ...absent,
      ...(isLasting ? [] : absentInstructions),
      ...(newRepository === undefined ? [] : untrustedFiles(newRepository)),
    ];
    for (const link of links) if (linkOf(link.path) !== link.to) replaced.add(restoreLink(link, scan));
    for (const path of created) if (exists(path) && !isOwn(path)) renamed.add(setAside(path, scan));
  };
  // Also if nobody reads the output to its end.
  void execution.exit.then(check);
  async function* output(): AsyncGenerator<OutputChunk> {
    yield* execution.output;
    await execution.exit;
    check();
    if (renamed.size + replaced.size === 0) return;
    const texts = [
      ...(renamed.size === 0 ? [] : [`create ${[...renamed].join(', ')}, so it was renamed: ".blocked" was added`]),
      ...(replaced.size === 0 ? [] : [`replace the link ${[...replaced].join(', ')}, so it was put back`]),
    ];
    yield { stream: 'stderr', bytes: Buffer.from(`[sandbox: commands may not ${texts.join('; nor ')}]\n`) };
  }
  return { ...execution, process: execution.process, output: output() };
}

function setAside(path: string, scan: Scan): string {
  try {
    const place = placeOf(path, scan);
    renameSync(place, freeName(`${place}.blocked`));
    return basename(place);
  } catch {
    return `${basename(path)} (which could not be renamed)`;
  }
}

/**
 * What is renamed instead of a path. A link that a program has put on the way would lead to something else, which may not even be
 * in a folder that the program could write. Throws if the path leads there nevertheless.
 */
function placeOf(path: string, { tops, links }: Scan): string {
  const isKnown = (at: string): boolean => links.some((link) => link.path === at);
  const link = wayTo(dirname(path), tops).findLast((at) => isLink(at) && !isKnown(at));
  const place = link ?? path;
  const parent = realOf(dirname(place));
  if (parent === undefined || !tops.some((top) => isWithin(top, parent))) throw new Error(`${path} is elsewhere`);
  return place;
}

/** A folder cannot be renamed to one that has files. */
function freeName(path: string): string {
  let name = path;
  for (let count = 2; exists(name); count++) name = `${path}-${count}`;
  return name;
}

function restoreLink({ path, to }: Scan['links'][number], scan: Scan): string {
  try {
    if (exists(path)) setAside(path, scan);
    symlinkSync(to, placeOf(path, scan));
    return basename(path);
  } catch {
    return `${basename(path)} (which failed)`;
  }
}
