import { guardedFiles, type PathCheck } from '../paths/guarded-files.ts';
import type { Ops } from '../ops.ts';
import { localExec, type ExecOptions } from './exec.ts';

export interface LocalOptions extends ExecOptions {
  /** Says why a file may not be used, or nothing. Default: it has to be inside the folder. See `policyCheck`. */
  readonly check?: PathCheck;
}

/** The files and programs of this machine, with a working folder. */
export function local(folder: string, options: LocalOptions = {}): Ops {
  const { check, ...exec } = options;
  const files = guardedFiles({ folder, ...(check && { check }) });
  return { files, exec: localExec(files, exec) };
}
