import { renameSync, symlinkSync } from 'node:fs';
import { basename } from 'node:path';
import type { Execution, OutputChunk } from '../ops.ts';
import { exists, linkOf } from './lookups.ts';
import { untrustedFiles } from './repositories.ts';
import type { Scan } from './visible.ts';

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
    for (const path of created) if (exists(path) && !isOwn(path)) renamed.add(setAside(path));
    for (const link of links) if (linkOf(link.path) !== link.to) replaced.add(restoreLink(link));
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

function setAside(path: string): string {
  try {
    renameSync(path, freeName(`${path}.blocked`));
    return basename(path);
  } catch {
    return `${basename(path)} (which could not be renamed)`;
  }
}

/** A folder cannot be renamed to one that has files. */
function freeName(path: string): string {
  let name = path;
  for (let count = 2; exists(name); count++) name = `${path}-${count}`;
  return name;
}

function restoreLink({ path, to }: Scan['links'][number]): string {
  try {
    if (exists(path)) renameSync(path, freeName(`${path}.blocked`));
    symlinkSync(to, path);
    return basename(path);
  } catch {
    return `${basename(path)} (which failed)`;
  }
}
