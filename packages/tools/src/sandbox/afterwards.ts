import { renameSync, symlinkSync } from 'node:fs';
import { basename, dirname, join } from 'node:path';
import type { Execution, OutputChunk } from '../ops.ts';
import { exists, isLink, isWithin, linkOf, realOf } from './lookups.ts';
import { startingSteps, untrustedFiles } from './repositories.ts';
import { wayTo, type Scan } from './visible.ts';

/*
 * What does not exist cannot be made read-only. It is looked for when a program has ended, and renamed.
 */

/** Whether nothing was created, replaced or removed since the scan that a program must not create or replace. */
export function isUntouched({
  tops,
  absent,
  absentInstructions,
  links,
  repositories,
  trusted,
  ...scan
}: Scan): boolean {
  const own = join(tops[0]!, '.git');
  return (
    ![...absent, ...absentInstructions, ...(repositories.includes(own) ? [] : [own])].some(exists) &&
    [...repositories, ...scan.protected].every(exists) &&
    repositories.flatMap(startingSteps).every((path) => trusted.has(path)) &&
    links.every(({ path, to }) => linkOf(path) === to)
  );
}

export interface AfterOptions {
  /** It runs for as long as people work. */
  readonly isLasting: boolean;
  /** Whether a tool has written a path meanwhile. */
  readonly isOwn: (path: string) => boolean;
  /** Looks through the folder again. */
  readonly scanAgain: () => Promise<Scan>;
}

/** After the program, renames what it must not have created, and puts links back. The output says so. */
export function checkedAfterwards(execution: Execution, scan: Scan, options: AfterOptions): Execution {
  // Also if nobody reads the output to its end.
  const problems = execution.exit.then(() => setRight(scan, options));
  problems.catch(() => {});
  async function* output(): AsyncGenerator<OutputChunk> {
    yield* execution.output;
    const texts = await problems;
    if (texts.length === 0) return;
    yield { stream: 'stderr', bytes: Buffer.from(`[sandbox: commands may not ${texts.join('; nor ')}]\n`) };
  }
  return { ...execution, process: execution.process, output: output() };
}

async function setRight(scan: Scan, { isLasting, isOwn, scanAgain }: AfterOptions): Promise<readonly string[]> {
  const { absent, absentInstructions, links, trusted, tops } = scan;
  const replaced = links.filter(({ path, to }) => linkOf(path) !== to).map((link) => restoreLink(link, scan));
  const { repositories } = await scanAgain();
  const created = new Set([
    ...absent,
    ...(isLasting ? [] : absentInstructions),
    ...repositories.flatMap((git) => untrustedFiles(git, tops[0]!)).filter((path) => !trusted.has(path)),
  ]);
  const renamed = [...created].filter((path) => exists(path) && !isOwn(path)).map((path) => setAside(path, scan));
  // What was renamed may come into existence again.
  if (renamed.length + replaced.length > 0) await scanAgain();
  return [
    ...(renamed.length === 0 ? [] : [`create ${named(renamed)}, so it was renamed: ".blocked" was added`]),
    ...(replaced.length === 0 ? [] : [`replace the link ${named(replaced)}, so it was put back`]),
  ];
}

function named(texts: readonly string[]): string {
  return [...new Set(texts)].join(', ');
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
