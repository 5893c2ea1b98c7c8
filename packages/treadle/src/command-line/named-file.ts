import { messageOf } from '@treadle/core';

/** Reasons of the system for files that the user named, in words. */
const REASONS: Readonly<Record<string, string>> = {
  ENOENT: 'there is no such file',
  EISDIR: 'it is a folder, not a file',
  ENOTDIR: 'a part of its path is a file, not a folder',
  EACCES: 'this user does not have the permission',
  EPERM: 'this user does not have the permission',
  EROFS: 'the disk is read-only',
  ENOSPC: 'the disk is full',
  ELOOP: 'its links lead in a circle',
  ENAMETOOLONG: 'its name is too long',
  ERR_ENCODING_INVALID_ENCODED_DATA: 'it is not a text in UTF-8',
};

/** Why a file cannot be read. */
export function readProblem(error: unknown): string {
  return REASONS[(error as NodeJS.ErrnoException).code ?? ''] ?? messageOf(error);
}

/** Why a file cannot be written. */
export function writeProblem(error: unknown): string {
  return (error as NodeJS.ErrnoException).code === 'ENOENT' ? 'its folder does not exist' : readProblem(error);
}

/** The content of a file as a text, without a byte order mark. Throws if it is not a text in UTF-8. */
export function decodeText(bytes: Uint8Array): string {
  if (bytes.includes(0)) throw new Error(REASONS['ERR_ENCODING_INVALID_ENCODED_DATA']);
  return new TextDecoder('utf-8', { fatal: true }).decode(bytes);
}
