import { existsSync, readdirSync, readlinkSync, statSync, watch, type FSWatcher } from 'node:fs';
import path from 'node:path';
import { isDeepStrictEqual } from 'node:util';
import type { Config } from '../config/config.ts';
import type { ServerConfig } from '../config/server.ts';

/* What a server takes over of a configuration that has changed while it runs. */

type When = 'reload' | 'restart';

/** The compiler demands a decision for each key. */
const SERVER: { readonly [Name in keyof Required<ServerConfig>]: When } = {
  keys: 'reload',
  tools: 'reload',
  default_tools: 'reload',
  instructions: 'reload',
  model_aliases: 'reload',
  wait_for_answers: 'reload',
  record_unstored: 'reload',
  max_duration_ms: 'reload',
  budgets: 'reload',
  tenants: 'reload',
  host: 'restart',
  port: 'restart',
  cors_origins: 'restart',
  requests_per_minute: 'restart',
  max_concurrent_runs: 'restart',
  max_concurrent_runs_per_tenant: 'restart',
  max_open_streams: 'restart',
  requires_action_status: 'restart',
  chat_titles: 'restart',
  max_body_bytes: 'restart',
  max_bytes_in_progress: 'restart',
  heartbeat_ms: 'restart',
  send_timeout_ms: 'restart',
  shutdown_grace_ms: 'restart',
  retention_days: 'restart',
  log_level: 'restart',
  log_file: 'restart',
  log_file_max_bytes: 'restart',
  log_files: 'restart',
  webhooks: 'restart',
  reload: 'restart',
};

const SECTIONS: { readonly [Name in keyof Required<Config>]: When | typeof SERVER | 'unused' } = {
  models: 'reload',
  orchestrator: 'reload',
  policy: 'reload',
  budgets: 'reload',
  agents: 'reload',
  workflows: 'reload',
  schedules: 'reload',
  triggers: 'reload',
  hooks: 'reload',
  telemetry: 'reload',
  server: SERVER,
  store: 'restart',
  mcp: 'restart',
  edge: 'restart',
  memory: 'restart',
  chat: 'unused',
};

/** Paths of a configuration, such as `models.main` or `server.keys`. */
export interface ConfigChanges {
  /** What differs from the configuration that was applied last. */
  readonly reload: readonly string[];
  /** What differs from the configuration that the server was started with, and needs a restart. */
  readonly restart: readonly string[];
}

export function configChanges(started: Config, applied: Config, now: Config): ConfigChanges {
  return {
    reload: changedPaths(applied, now).filter((changed) => whenOf(changed) === 'reload'),
    restart: changedPaths(started, now).filter((changed) => whenOf(changed) === 'restart'),
  };
}

function whenOf(changed: string): When | 'unused' {
  const [section = '', name = ''] = changed.split('.');
  const when = SECTIONS[section as keyof Config];
  return typeof when === 'object' ? when[name as keyof ServerConfig] : when;
}

/** To the second level. */
function changedPaths(before: Config, after: Config): readonly string[] {
  return differences(before, after).flatMap((section) => {
    const [old = {}, now = {}] = [before, after].map((config) => config[section as keyof Config] as object | undefined);
    return differences(old, now).map((name) => `${section}.${name}`);
  });
}

function differences(before: object, after: object): readonly string[] {
  const names = new Set([...Object.keys(before), ...Object.keys(after)]);
  const valueOf = (values: object, name: string): unknown => (values as Readonly<Record<string, unknown>>)[name];
  return [...names].filter((name) => !isDeepStrictEqual(valueOf(before, name), valueOf(after, name)));
}

/** An editor writes a file in several steps. */
const SETTLE_MS = 100;

/**
 * Calls `listener` after the file has changed, also if another one takes its place, or a link on its way leads elsewhere. Returns a
 * function that ends that.
 */
function watchFile(file: string, listener: () => void): () => void {
  const settled = settling(listener);
  const watchers = new Map<string, FSWatcher>();
  let known = versionOf(file);

  function look(): void {
    const found = versionOf(file);
    if (found === known) return;
    known = found;
    follow();
    settled.start();
  }

  // Folders, because editors replace the file.
  function follow(): void {
    const folders = foldersOn(file);
    for (const [folder, watcher] of watchers) {
      if (folders.has(folder)) continue;
      watcher.close();
      watchers.delete(folder);
    }
    for (const folder of folders) if (!watchers.has(folder)) add(folder);
  }

  function add(folder: string): void {
    try {
      watchers.set(folder, watchFolder(folder, look));
    } catch {
      // It does not exist at the moment. The links that lead to it are watched.
    }
  }

  follow();
  return () => {
    settled.stop();
    for (const watcher of watchers.values()) watcher.close();
  };
}

/** Differs after each change. Undefined: there is no such file. */
function versionOf(file: string): string | undefined {
  try {
    const { dev, ino, size, ctimeMs } = statSync(file);
    return [dev, ino, size, ctimeMs].join(' ');
  } catch {
    return undefined;
  }
}

const MOST_LINKS = 40;

/** The folders that decide what a path leads to: its own, and those that contain a link on the way. */
function foldersOn(file: string): ReadonlySet<string> {
  const folders = new Set([path.dirname(file)]);
  let at = path.parse(file).root;
  let names = path.relative(at, file).split(path.sep);
  for (let links = 0; names.length > 0 && links < MOST_LINKS;) {
    const next = path.join(at, names.shift()!);
    const target = linkAt(next);
    if (names.length === 0 || target !== undefined) folders.add(at);
    if (target === undefined) at = next;
    else {
      links++;
      const found = path.resolve(at, target, ...names);
      at = path.parse(found).root;
      names = path.relative(at, found).split(path.sep);
    }
  }
  return folders;
}

function linkAt(file: string): string | undefined {
  try {
    return readlinkSync(file);
  } catch {
    return undefined;
  }
}

/** Calls `listener` after one of the files that are followed has changed. */
export function watchFiles(listener: () => void): PlaceWatch {
  let followed: readonly string[] = [];
  let stops: readonly (() => void)[] = [];
  function stop(): void {
    for (const one of stops) one();
    [followed, stops] = [[], []];
  }
  return {
    follow(files) {
      // A change that was just noticed must not be forgotten.
      if (isDeepStrictEqual(files, followed)) return;
      stop();
      followed = files;
      stops = files.map((file) => watchFile(file, listener));
    },
    stop,
  };
}

export interface PlaceWatch {
  /** Watches these places as they are now. */
  follow(places: readonly string[]): void;
  stop(): void;
}

/** Folders of skills and packages that are watched. Each costs a watch of the system. */
const MAX_WATCHED = 1_000;
/** What is loaded of a folder in a place. */
const LOADED_FILES = ['SKILL.md', 'skill.toml'];

interface Watched {
  readonly watcher: FSWatcher;
  /** Another folder may take its place. */
  readonly id: string;
  /** Names whose changes count. Absent: all. */
  readonly names: Set<string> | undefined;
}

/** Calls `listener` after skills, packages of tools or agents were added, removed or changed. */
export function watchPlaces(listener: () => void): PlaceWatch {
  const watched = new Map<string, Watched>();
  let followed: readonly string[] = [];
  const settled = settling(() => {
    // Before anything is loaded, so that no change of a new folder is missed.
    follow(followed);
    listener();
  });
  const add = (folder: string, names?: readonly string[]): void => {
    const { dev, ino } = statSync(folder);
    const id = `${dev} ${ino}`;
    const known = watched.get(folder);
    if (known?.id === id) return names?.forEach((name) => known.names?.add(name));
    known?.watcher.close();
    const meant = names && new Set(names);
    const watcher = watchFolder(folder, (name) => {
      if (name === null || (meant?.has(name) ?? true)) settled.start();
    });
    const entry = { watcher, id, names: meant };
    watcher.on('close', () => void (watched.get(folder) === entry && watched.delete(folder)));
    watched.set(folder, entry);
  };
  const followPlace = (place: string): void => {
    let at = place;
    // A place that does not exist comes into being in the nearest folder above it that does.
    while (!existsSync(at)) {
      const above = path.dirname(at);
      if (existsSync(above)) return add(above, [path.basename(at)]);
      at = above;
    }
    add(place);
    for (const name of readdirSync(place).slice(0, MAX_WATCHED)) {
      const folder = path.join(place, name);
      if (statSync(folder, { throwIfNoEntry: false })?.isDirectory()) add(folder, LOADED_FILES);
    }
  };
  function follow(places: readonly string[]): void {
    followed = places;
    for (const place of places) {
      try {
        followPlace(place);
      } catch {
        // It was removed meanwhile, or is not a folder.
      }
    }
  }
  return {
    follow,
    stop() {
      settled.stop();
      for (const { watcher } of watched.values()) watcher.close();
    },
  };
}

/** If the folder is gone, it is not watched any more. SIGHUP still works. */
function watchFolder(folder: string, onChange: (name: string | null) => void): FSWatcher {
  const watcher = watch(folder, { persistent: false }, (_, name) => onChange(name));
  return watcher.on('error', () => watcher.close());
}

/** Calls `listener` when `start` was not called for a while. */
function settling(listener: () => void): { start(): void; stop(): void } {
  let timer: NodeJS.Timeout | undefined;
  return {
    start() {
      clearTimeout(timer);
      timer = setTimeout(listener, SETTLE_MS).unref();
    },
    stop: () => clearTimeout(timer),
  };
}
