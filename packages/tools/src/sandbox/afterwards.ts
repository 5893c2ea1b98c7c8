import { chmodSync, renameSync, statSync, symlinkSync } from 'node:fs';
import { basename, dirname, join } from 'node:path';
import type { Execution, OutputChunk } from '../ops.ts';
import { hold, type Held } from '../paths/guarded-files.ts';
import { exists, isLink, isWithin, linkOf } from './lookups.ts';
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
    // A program may have put a link there that leads elsewhere.
    ![...scan.pinned, ...scan.protected, ...scan.masked.map(({ path }) => path)].some(isLink) &&
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

/** How often it is looked at what a lasting program has created. Longer if that takes long. */
const CHECK_MS = 1_000;
const CHECK_FACTOR = 10;

/**
 * After the program, and again and again while a lasting one runs, renames what it must not have created, and puts links back. The
 * output says so when it ends.
 */
export function checkedAfterwards(execution: Execution, scan: Scan, options: AfterOptions): Execution {
  const meanwhile = options.isLasting ? checkedMeanwhile(execution, scan, options) : Promise.resolve([]);
  // Also if nobody reads the output to its end.
  const problems = execution.exit.then(async () => [...(await meanwhile), ...(await setRight(scan, options))]);
  problems.catch(() => {});
  async function* output(): AsyncGenerator<OutputChunk> {
    yield* execution.output;
    const texts = await problems;
    if (texts.length === 0) return;
    yield { stream: 'stderr', bytes: Buffer.from(`[sandbox: commands may not ${texts.join('; nor ')}]\n`) };
  }
  return { ...execution, process: execution.process, output: output() };
}

async function checkedMeanwhile({ exit }: Execution, scan: Scan, options: AfterOptions): Promise<readonly string[]> {
  const texts: string[] = [];
  let wake = (): void => {};
  let hasEnded = false;
  void exit.then(() => {
    hasEnded = true;
    wake();
  });
  for (let pauseMs = CHECK_MS; !hasEnded;) {
    await new Promise<void>((done) => {
      wake = done;
      setTimeout(done, pauseMs).unref();
    });
    if (hasEnded) break;
    const startedAt = performance.now();
    texts.push(...(await setRight(scan, options).catch(() => [])));
    pauseMs = Math.max(CHECK_MS, (performance.now() - startedAt) * CHECK_FACTOR);
  }
  return texts;
}

async function setRight(scan: Scan, { isLasting, isOwn, scanAgain }: AfterOptions): Promise<readonly string[]> {
  const { absent, absentInstructions, links, trusted, tops } = scan;
  const replaced = links.filter(({ path, to }) => linkOf(path) !== to).map((link) => restoreLink(link, scan));
  const moved: string[] = [];
  const { repositories } = await openedScan(scan, scanAgain, moved);
  const created = new Set([
    ...absent,
    ...(isLasting ? [] : absentInstructions),
    ...repositories.flatMap((git) => untrustedFiles(git, tops[0]!)).filter((path) => !trusted.has(path)),
  ]);
  const renamed = [...created].filter((path) => exists(path) && !isOwn(path)).map((path) => setAside(path, scan));
  // What was renamed may come into existence again.
  if (renamed.length + replaced.length > 0) await scanAgain();
  return [
    ...(moved.length === 0
      ? []
      : [`create folders with names that are too long or no text, so they were moved: ${named(moved)}`]),
    ...(renamed.length === 0 ? [] : [`create ${named(renamed)}, so it was renamed: ".blocked" was added`]),
    ...(replaced.length === 0 ? [] : [`replace the link ${named(replaced)}, so it was put back`]),
  ];
}

/** Opens folders that a program has closed, and moves those that cannot be named, so that nothing in them is overlooked. */
async function openedScan(
  { closed, unnamed, tops }: Scan,
  scanAgain: () => Promise<Scan>,
  moved: string[],
): Promise<Scan> {
  const known = new Set([...closed, ...unnamed]);
  for (;;) {
    const again = await scanAgain();
    const open = [...again.closed, ...again.unnamed].filter((path) => !known.has(path));
    if (open.length === 0) return again;
    for (const path of open) {
      known.add(path);
      try {
        if (again.unnamed.includes(path)) moved.push(movedToTop(path, tops));
        else inFolder(path, tops, ({ way }) => openUp(way));
      } catch {
        // It is gone, or that of another user.
      }
    }
  }
}

function movedToTop(path: string, tops: readonly string[]): string {
  const place = freeName(join(tops[0]!, 'folder.blocked'));
  inFolder(dirname(path), tops, ({ way }) =>
    renameSync(Buffer.concat([Buffer.from(`${way}/`), Buffer.from(basename(path), 'latin1')]), place),
  );
  return basename(place);
}

function openUp(folder: string): void {
  chmodSync(folder, statSync(folder).mode | 0o700);
}

function named(texts: readonly string[]): string {
  return [...new Set(texts)].join(', ');
}

function setAside(path: string, scan: Scan): string {
  try {
    return atPlaceOf(path, scan, (place) => renameSync(place, freeName(`${place}.blocked`)));
  } catch {
    return `${basename(path)} (which could not be renamed)`;
  }
}

/**
 * Changes what is at a path, in a folder that is held, so that other programs cannot lead the way elsewhere meanwhile. A link that a
 * program has put on the way would lead to something else: then it is the link that is changed. Throws if the path leads out of what
 * programs can write nevertheless. Returns the name of what was changed.
 */
function atPlaceOf(path: string, { tops, links }: Scan, change: (place: string) => void): string {
  const isKnown = (at: string): boolean => links.some((link) => link.path === at);
  const link = wayTo(dirname(path), tops).findLast((at) => isLink(at) && !isKnown(at));
  const place = link ?? path;
  inFolder(dirname(place), tops, ({ way }) => {
    try {
      change(join(way, basename(place)));
    } catch {
      // The program may have taken the permission to write.
      openUp(way);
      change(join(way, basename(place)));
    }
  });
  return basename(place);
}

/** Holds a folder while it is used. Throws if it is not in one of the folders that programs can write. */
function inFolder(path: string, tops: readonly string[], use: (folder: Held) => void): void {
  const folder = hold(path);
  try {
    if (!tops.some((top) => isWithin(top, folder.real))) throw new Error(`${path} is elsewhere`);
    folder.confirm();
    use(folder);
  } finally {
    folder.close();
  }
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
    return atPlaceOf(path, scan, (place) => symlinkSync(to, place));
  } catch {
    return `${basename(path)} (which failed)`;
  }
}
