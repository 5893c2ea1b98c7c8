import { stat } from 'node:fs/promises';
import { dirname, resolve } from 'node:path';
import { CommandError } from '../command-line/command.ts';
import type { Io } from '../terminal/io.ts';
import type { PlaceValues } from '../command-line/flags.ts';
import { loadConfig, type LoadedConfig } from './load.ts';
import { DEFAULT_STORE, storePlace, type StorePlace } from './store.ts';

/** Where a command works: the folder, the configuration that holds there, and where its runs are kept. */
export interface Place {
  readonly folder: string;
  readonly loaded: LoadedConfig;
  readonly store: StorePlace;
}

export async function findPlace(values: PlaceValues, io: Io): Promise<Place> {
  const folder = await workingFolder(values.cwd, io);
  const loaded = await loadConfig({ cwd: io.cwd, folder, ...(values.config !== undefined && { file: values.config }) });
  return { folder, loaded, store: storeOf(values, { io, folder, loaded }) };
}

/** A path is relative to whoever names it: the flag to where the command was typed, the configuration to its file. */
function storeOf(
  values: PlaceValues,
  { io, folder, loaded }: { io: Io; folder: string; loaded: LoadedConfig },
): StorePlace {
  if (values.store !== undefined) return storePlace(values.store, { from: '--store', folder: io.cwd });
  const { url } = loaded.config.store ?? {};
  if (url === undefined) return storePlace(DEFAULT_STORE, { from: 'The store', folder });
  const beside = values.config === undefined ? folder : dirname(resolve(io.cwd, values.config));
  return storePlace(url, { from: `store.url in ${loaded.file}`, folder: beside });
}

async function workingFolder(given: string | undefined, io: Io): Promise<string> {
  if (given === undefined) return io.cwd;
  const folder = resolve(io.cwd, given);
  const isFolder = await stat(folder).then(
    (found) => found.isDirectory(),
    () => false,
  );
  if (!isFolder) throw new CommandError(`--cwd ${given} is not a folder.`);
  return folder;
}
