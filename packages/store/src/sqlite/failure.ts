import { messageOf, TreadleError } from '@treadle/core';

/** What SQLite or the file system reports, as an error that says what to do. The transaction it befell did not happen. */
export function failureOf(error: unknown, file: string): TreadleError {
  if (error instanceof TreadleError) return error;
  const [code, words] = explained(error as Reported);
  return new TreadleError(code, `The store ${file} ${words}`, { cause: error });
}

/** By SQLite with `errcode`, by Node with `code`. */
interface Reported {
  readonly errcode?: number;
  readonly code?: string;
}

/** A page of the file that should hold this is damaged. */
export function isCorrupt(error: unknown): boolean {
  return primaryOf(error as Reported) === SQLITE.corrupt;
}

export function isBusy(error: unknown): boolean {
  return primaryOf(error as Reported) === SQLITE.busy;
}

function primaryOf({ errcode, code }: Reported): number | string | undefined {
  return errcode === undefined ? code : errcode & 0xff;
}

type StoreCode = 'store-full' | 'store-read-only' | 'store-locked' | 'store-failed';

function explained(error: Reported): readonly [StoreCode, string] {
  switch (primaryOf(error)) {
    case SQLITE.full:
    case 'ENOSPC':
      return [
        'store-full',
        'cannot grow: the disk is full. Free some space and try again; all that was stored is there.',
      ];
    case SQLITE.readOnly:
    case 'EROFS':
    case 'EACCES':
    case 'EPERM':
      return [
        'store-read-only',
        'cannot be written. Give this user the right to write the file and its folder, or choose another place.',
      ];
    case SQLITE.busy:
    case SQLITE.locked:
      return ['store-locked', 'is locked by another program. End what writes to it for so long, and try again.'];
    case SQLITE.corrupt:
      return [
        'store-failed',
        `is damaged (${messageOf(error)}). Keep a copy, and bring back a backup, or save what can be read with "sqlite3 FILE .recover".`,
      ];
    case SQLITE.notADatabase:
      return ['store-failed', 'is not an SQLite database. Choose another place for the store, or move this file away.'];
    case 'ERR_INVALID_STATE':
      return ['store-failed', 'is closed. Open it again.'];
    default:
      return ['store-failed', `failed: ${messageOf(error)}. Check the disk and the rights to the file and its folder.`];
  }
}

/** Result codes, https://sqlite.org/rescode.html; the low byte of an extended one is the code. */
const SQLITE = { busy: 5, locked: 6, readOnly: 8, corrupt: 11, full: 13, notADatabase: 26 } as const;
