import { randomBytes } from 'node:crypto';
import { readdirSync, readlinkSync, realpathSync, statSync, type BigIntStats } from 'node:fs';
import path from 'node:path';
import type { DatabaseSync } from 'node:sqlite';
import { TreadleError } from '@treadle/core';

/*
 * Which files a store consists of, by what SQLite opens.
 *
 * 1. SQLite follows symbolic links once, when it opens a database. Its log is beside the file that it found, and it keeps to
 *    that file if a link is changed later.
 * 2. A file with several hard links would have one log for each name, and processes that use different names would not see
 *    each other's changes. So such a store is not opened.
 * 3. Nobody finds what is written to a file that was removed, moved or replaced, so nothing that a store has written since may
 *    be acknowledged.
 */

/** The files of an open store. */
export interface StoreFiles {
  /** The database, without links. */
  readonly database: string;
  readonly log: string;
  /** Throws if one of the files is not the one that was opened. Takes some microseconds. */
  readonly check: () => void;
}

/** `location` names the store in errors. The database is open and in WAL mode. */
export function filesOf(db: DatabaseSync, location: string): StoreFiles {
  const database = db.prepare('PRAGMA database_list').get()!['file'] as string;
  const log = `${database}-wal`;
  const opened = [database, log, `${database}-shm`].map((file) => [file, identityOf(file)] as const);

  function check(): void {
    for (const [file, identity] of opened) {
      const found = identityOf(file);
      if (!isSameFile(found, identity)) throw fileGone(file, location, found);
    }
  }

  return { database, log, check };
}

type Identity = Pick<BigIntStats, 'dev' | 'ino'>;

/** Undefined if there is no such file, or its folder cannot be read any more. */
function identityOf(file: string): Identity | undefined {
  try {
    return statSync(file, { bigint: true });
  } catch {
    return undefined;
  }
}

function isSameFile(one: Identity | undefined, other: Identity | undefined): boolean {
  return one !== undefined && one.ino === other?.ino && one.dev === other.dev;
}

const MOST_LINKS = 40;

/** The file that SQLite opens at a path, which may not exist yet. Links of its folders remain. */
export function fileBehind(file: string): string {
  let found = path.resolve(file);
  for (let links = 0; links < MOST_LINKS; links++) {
    const target = targetOf(found);
    if (target === undefined) return found;
    found = target;
  }
  return found;
}

function targetOf(link: string): string | undefined {
  try {
    return path.resolve(realpathSync(path.dirname(link)), readlinkSync(link));
  } catch {
    // It is not a link, or does not exist.
    return undefined;
  }
}

/** A name for a file that is not complete yet. */
export function temporaryName(file: string): string {
  return `${path.resolve(file)}.partial-${randomBytes(4).toString('hex')}`;
}

/** What follows the name of a store in those that a restore leaves behind if it is killed when the store has its name. */
const LEFT_NAME = /^(\.restore)?\.partial-[0-9a-f]{8}$/;

/** Throws if a store has several names. A backup may: it has no log. */
export function requireOneName(file: string): void {
  const names = countNames(file);
  if (names <= 1) return;
  throw new TreadleError(
    'store-failed',
    `The store ${path.resolve(file)} has ${names} names (hard links). SQLite keeps a log for each name, so processes that use different names would damage the store. Stop all processes that use it, then remove the other names ("find FOLDER -samefile FILE" lists them), or use a copy of the file.`,
  );
}

/** SQLite refuses a folder later. Names that nobody opens do not count. */
function countNames(file: string): number {
  const found = statSync(file);
  return found.isFile() && found.nlink > 1 ? found.nlink - countLeftNames(fileBehind(file)) : 1;
}

function countLeftNames(file: string): number {
  const folder = path.dirname(file);
  const others = readdirSync(folder).map((name) => path.join(folder, name));
  const identity = identityOf(file);
  return others.filter(
    (other) =>
      other.startsWith(file) && LEFT_NAME.test(other.slice(file.length)) && isSameFile(identityOf(other), identity),
  ).length;
}

function fileGone(file: string, location: string, found: Identity | undefined): TreadleError {
  return new TreadleError(
    'store-failed',
    `The file ${file} was removed, moved or replaced while the store ${location} was open, so nothing is stored any more. Stop all processes that use the store, put its files back or restore a backup, and start them again.`,
    { cause: new Error(`There is ${found === undefined ? 'no' : 'another'} file at this path.`) },
  );
}
