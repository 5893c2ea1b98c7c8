import { stat } from 'node:fs/promises';
import { dirname, resolve } from 'node:path';
import { CommandError } from '../command-line/command.ts';
import type { LocationValues } from '../command-line/flags.ts';
import type { Io } from '../terminal/io.ts';
import { loadConfig, type LoadedConfig } from './load.ts';
import { loadPackages, type CommandPackages } from './packages.ts';
import type { ConfiguredPlace } from './skill-folders.ts';
import { DEFAULT_STORE, parseStoreUrl, type StoreLocation } from './store.ts';

/** The working folder of a command, the configuration that applies there, and the store. */
export interface CommandContext extends ConfiguredPlace {
  readonly store: StoreLocation;
  /** The packages of tools. */
  readonly packages: CommandPackages;
  /** The folders of skills that runs may read while these sources narrow them. Absent: none. */
  readonly readable?: (narrowedBy: readonly string[]) => readonly string[];
}

export async function resolveContext(values: LocationValues, io: Io): Promise<CommandContext> {
  const folder = await workingFolder(values.cwd, io);
  const loaded = await loadConfig({ cwd: io.cwd, folder, ...(values.config !== undefined && { file: values.config }) });
  const store = storeLocation(values, { io, folder, loaded });
  return { folder, loaded, store, packages: await loadPackages({ folder, loaded }) };
}

/** A path in --store is relative to the current folder, a path in the configuration is relative to that file. */
function storeLocation(
  values: LocationValues,
  { io, folder, loaded }: { io: Io; folder: string; loaded: LoadedConfig },
): StoreLocation {
  if (values.store !== undefined) return parseStoreUrl(values.store, { from: '--store', folder: io.cwd });
  const { url } = loaded.config.store ?? {};
  if (url === undefined) return parseStoreUrl(DEFAULT_STORE, { from: 'The store', folder });
  const configFolder = values.config === undefined ? folder : dirname(resolve(io.cwd, values.config));
  return parseStoreUrl(url, { from: `store.url in ${loaded.file}`, folder: configFolder });
}

export async function workingFolder(cwd: string | undefined, io: Io): Promise<string> {
  if (cwd === undefined) return io.cwd;
  const folder = resolve(io.cwd, cwd);
  const isFolder = await stat(folder).then(
    (found) => found.isDirectory(),
    () => false,
  );
  if (!isFolder) throw new CommandError(`--cwd ${cwd} is not a folder.`);
  return folder;
}
