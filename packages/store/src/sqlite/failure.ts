import { messageOf, TreadleError } from '@treadle/core';

/** Converts an error of SQLite or the file system, whose transaction was rolled back, into one that says what to do. */
export function storeError(error: unknown, file: string): TreadleError {
  if (error instanceof TreadleError) return error;
  const [code, problem] = describeFailure(error as ReportedError);
  return new TreadleError(code, `The store ${file} ${problem}`, { cause: error });
}

/** SQLite errors have `errcode`, Node errors have `code`. */
interface ReportedError {
  readonly errcode?: number;
  readonly code?: string;
}

/** Whether a page of the file is damaged. */
export function isCorrupt(error: unknown): boolean {
  return codeOf(error as ReportedError) === SQLITE.corrupt;
}

export function isConstraint(error: unknown): boolean {
  return codeOf(error as ReportedError) === SQLITE.constraint;
}

export function isBusy(error: unknown): boolean {
  return codeOf(error as ReportedError) === SQLITE.busy;
}

function codeOf({ errcode, code }: ReportedError = {}): number | string | undefined {
  return errcode === undefined ? code : errcode & 0xff;
}

type StoreCode = 'store-full' | 'store-read-only' | 'store-locked' | 'store-failed';

function describeFailure(error: ReportedError): readonly [StoreCode, string] {
  switch (codeOf(error)) {
    case SQLITE.full:
    case 'ENOSPC':
    case 'EDQUOT':
      return [
        'store-full',
        'cannot grow: the disk is full. Free some space and retry; everything stored before is intact.',
      ];
    case SQLITE.readOnly:
    case 'EROFS':
    case 'EACCES':
    case 'EPERM':
      return [
        'store-read-only',
        'cannot be written. Give this user write permission for the file and its folder, or choose another path.',
      ];
    case 'ENOENT':
    case 'ENOTDIR':
    case 'EEXIST':
      return [
        'store-failed',
        'cannot be written: its folder does not exist and cannot be created. Choose another path.',
      ];
    case SQLITE.cannotOpen:
      return [
        'store-failed',
        'cannot be opened. Check that it is a file and not a folder, and that this user may read and write it and its folder.',
      ];
    case SQLITE.busy:
    case SQLITE.locked:
      return ['store-locked', 'is locked by another program. Stop the program that holds the lock, and retry.'];
    case SQLITE.corrupt:
      return [
        'store-failed',
        `is damaged (${messageOf(error)}). Copy the file, then restore a backup or recover its content with "sqlite3 FILE .recover".`,
      ];
    case SQLITE.notADatabase:
      return ['store-failed', 'is not an SQLite database. Choose another path for the store, or move this file away.'];
    case 'ERR_INVALID_STATE':
      return ['store-failed', 'is closed. Open it again.'];
    default:
      return [
        'store-failed',
        `failed: ${messageOf(error)}. Check the disk and the permissions of the file and its folder.`,
      ];
  }
}

/** Result codes (https://sqlite.org/rescode.html): the low byte of an extended code is the primary code. */
const SQLITE = {
  busy: 5,
  locked: 6,
  readOnly: 8,
  corrupt: 11,
  constraint: 19,
  full: 13,
  cannotOpen: 14,
  notADatabase: 26,
} as const;
