import { execFileSync } from 'node:child_process';
import { accessSync, constants, existsSync, statSync } from 'node:fs';
import { release } from 'node:os';
import { delimiter, isAbsolute, join, resolve, sep } from 'node:path';
import { bubblewrap } from './bubblewrap.ts';
import type { Engine, EngineName } from './engine.ts';
import { firejail } from './firejail.ts';
import { isWithin } from './lookups.ts';
import { podman } from './podman.ts';
import { seatbelt } from './seatbelt.ts';

/** The engine with this name; undefined if its program is not installed. */
export function installedEngine(name: EngineName): Engine | undefined {
  if (process.platform !== (name === 'seatbelt' ? 'darwin' : 'linux')) return undefined;
  switch (name) {
    case 'bubblewrap': {
      const program = programOf('bwrap');
      if (program === undefined) return undefined;
      const disablesNamespaces = printed(program, '--help').includes('--disable-userns');
      const [nsenter, socat, unshare, mount] = ['nsenter', 'socat', 'unshare', 'mount'].map(programOf);
      return bubblewrap({ program, version: versionOf(program), disablesNamespaces, nsenter, socat, unshare, mount });
    }
    case 'firejail': {
      const program = programOf('firejail');
      return program === undefined ? undefined : firejail({ program, version: versionOf(program) });
    }
    case 'seatbelt': {
      const program = programOf('sandbox-exec');
      return program === undefined ? undefined : seatbelt({ program, version: `macOS, Darwin ${release()}` });
    }
    case 'podman': {
      const program = programOf('podman');
      return program === undefined
        ? undefined
        : podman({ program, version: versionOf(program), options: groupOptions() });
    }
  }
}

/** Control groups of the first version need a runtime and a manager that podman does not take by default. */
function groupOptions(): readonly string[] {
  return existsSync('/sys/fs/cgroup/cgroup.controllers') ? [] : ['--runtime=runc', '--cgroup-manager=cgroupfs'];
}

/**
 * Where programs are looked for that run outside, as this process: never where commands of a sandbox can
 * put one. npm and npx put the folder `node_modules/.bin` of the project first in PATH.
 */
export function trustedFolders(): readonly string[] {
  const given = (process.env.PATH ?? '').split(delimiter);
  const isTrusted = (folder: string): boolean =>
    isAbsolute(folder) && !folder.split(sep).includes('node_modules') && !isWithin(process.cwd(), resolve(folder));
  return [...given, '/usr/local/bin', '/usr/bin', '/bin'].filter(isTrusted);
}

function programOf(name: string): string | undefined {
  return trustedFolders()
    .map((folder) => join(folder, name))
    .find((path) => {
      try {
        accessSync(path, constants.X_OK);
        return true;
      } catch {
        return false;
      }
    });
}

function versionOf(program: string): string {
  return printed(program, '--version').split('\n')[0]!;
}

/** What programs have printed since they were installed, because a process takes long to start. */
const knownOutputs = new Map<string, string>();

function printed(program: string, option: string): string {
  const key = `${program} ${option} ${statSync(program, { throwIfNoEntry: false })?.mtimeMs}`;
  const text = knownOutputs.get(key) ?? outputOf(program, option);
  if (text !== '') knownOutputs.set(key, text);
  return text;
}

function outputOf(program: string, option: string): string {
  try {
    return execFileSync(program, [option], { encoding: 'utf8', stdio: 'pipe' })
      .trim()
      .split('\n')
      .slice(0, 200)
      .join('\n');
  } catch {
    return '';
  }
}
