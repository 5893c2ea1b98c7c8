import { constants } from 'node:fs';
import { access, realpath, stat } from 'node:fs/promises';
import { isAbsolute, resolve, sep } from 'node:path';
import { folderDigest } from '../skills/folder-files.ts';
import { ToolError } from '../tool-error.ts';
import type { SkillPackage } from './packaged-tool.ts';

/*
 * The file of a program. It is a file of its package: one that a link or ".." leads out to, or that is named by an absolute
 * path, has to be allowed by its real path. What was found is used without links, so that nothing can redirect it later.
 */

/** The other names of platforms and processors. */
const ALIASES: Readonly<Record<string, string>> = {
  macos: 'darwin',
  windows: 'win32',
  amd64: 'x64',
  x86_64: 'x64',
  aarch64: 'arm64',
};

export function hostPlatform(): string {
  return `${process.platform}-${process.arch}`;
}

/** The file for a platform: that of `linux-arm64`, else that of `linux`, else the one for all others. */
export function fileFor(
  { binary, platforms }: { readonly binary?: string; readonly platforms: Readonly<Record<string, string>> },
  platform: string,
): string | undefined {
  const plain = (name: string): string =>
    name
      .split('-')
      .map((part) => ALIASES[part] ?? part)
      .join('-');
  const byName = new Map(Object.entries(platforms).map(([name, file]) => [plain(name), file]));
  return byName.get(platform) ?? byName.get(platform.split('-')[0]!) ?? binary;
}

/** The real path of a program. Throws an `Error` that says why it cannot be used. */
export async function findProgram(
  file: string,
  { folder, allowed }: { readonly folder: string; readonly allowed: readonly string[] },
): Promise<string> {
  const path = resolve(folder, file);
  const real = await realpath(path).catch(() => undefined);
  if (real === undefined) throw new Error(`there is no file ${JSON.stringify(file)}`);
  if (isAbsolute(file) || !real.startsWith(folder + sep)) {
    const known = await Promise.all(allowed.map((one) => realpath(one).catch(() => one)));
    if (!known.includes(real)) {
      throw new Error(`${JSON.stringify(file)} is ${real}, which is outside of the package and not allowed`);
    }
  }
  if (!(await stat(real)).isFile()) throw new Error(`${JSON.stringify(file)} is not a file`);
  await access(real, constants.X_OK).catch(() => {
    throw new Error(`${JSON.stringify(file)} is not executable: chmod +x ${real}`);
  });
  return real;
}

/** Rejects if a link has taken the place of a program, or of a folder above it, since it was found. */
export async function checkUnmoved(program: string): Promise<void> {
  if ((await realpath(program)) === program) return;
  throw new ToolError(
    `${program} leads to another file than when its package was loaded, so it was not run. Tell the user.`,
    'permission_denied',
  );
}

/** Rejects if a package that is pinned has other files than when it was loaded. */
export async function checkUnchanged({ name, folder, digest }: SkillPackage): Promise<void> {
  if (digest === undefined || (await folderDigest(folder).catch(() => undefined)) === digest) return;
  throw new ToolError(
    `The package "${name}" has changed since it was loaded, so it was not run. Tell the user to trust it again.`,
    'permission_denied',
  );
}
