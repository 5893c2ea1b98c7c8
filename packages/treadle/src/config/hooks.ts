import { stat } from 'node:fs/promises';
import { dirname, resolve } from 'node:path';
import { pathToFileURL } from 'node:url';
import { checkOptions, messageOf, type LoopOptions } from '@treadle/core';
import { didYouMean } from '@treadle/core/nearest';
import type { Shape } from '@treadle/tools/toml';
import { CommandError } from '../command-line/command.ts';
import type { LoadedConfig } from './load.ts';
import { configuredTracing } from './telemetry.ts';

/** [hooks] of treadle.toml. */
export interface HooksConfig {
  /** A file with code, relative to the configuration. */
  readonly module?: string;
}

/** What the module of [hooks] may export. All runs of the command and of the server use it. */
export interface Hooks extends Pick<
  LoopOptions,
  'guardrails' | 'resultFilters' | 'verifyAnswer' | 'audit' | 'tracing'
> {}

export const HOOKS_SHAPE: Shape = {
  type: 'table',
  fields: {
    module: {
      type: 'text',
      form: { matches: (path) => /\.m?[jt]s$/.test(path), means: 'the path of a file such as "treadle.hooks.ts"' },
    },
  } satisfies Record<keyof HooksConfig, Shape>,
};

const EXPORTS = {
  guardrails: 'object',
  resultFilters: 'array',
  verifyAnswer: 'function',
  audit: '.rejectedAnswer',
  tracing: '.follow',
} satisfies Record<keyof Hooks, string>;

export function pickHooks(options: Hooks): Hooks {
  return Object.fromEntries(Object.entries(options).filter(([name]) => Object.hasOwn(EXPORTS, name)));
}

/** The absolute path of the module; undefined if the configuration names none. */
export function hooksModule({ config, path }: LoadedConfig): string | undefined {
  const { module } = config.hooks ?? {};
  return module === undefined ? undefined : resolve(path === undefined ? '.' : dirname(path), module);
}

/** Runs the code of the module, and starts what [telemetry] needs. A file that has changed since is loaded again. */
export async function loadHooks(loaded: LoadedConfig): Promise<Hooks> {
  const path = hooksModule(loaded);
  const tracing = await configuredTracing(loaded);
  const configured: Hooks = tracing ? { tracing } : {};
  if (path === undefined) return configured;
  const what = `${loaded.file}: hooks.module`;
  const found = await stat(path).catch(() => undefined);
  if (!found?.isFile()) throw new CommandError(`${what} names ${path}, which is not a file.`);
  let exports: object;
  try {
    exports = await import(/* @vite-ignore */ `${pathToFileURL(path).href}?changed=${found.mtimeMs}`);
  } catch (error) {
    throw new CommandError(`${what} cannot be loaded: ${messageOf(error)}`);
  }
  // CommonJS modules have one. Node would not load them again when they have changed.
  if ('default' in exports) {
    throw new CommandError(
      `${what} has a default export. Write "export const guardrails = …" and the like, in an ES module.`,
    );
  }
  const unknown = Object.keys(exports).find((name) => !Object.hasOwn(EXPORTS, name));
  if (unknown !== undefined) {
    const names = Object.keys(EXPORTS);
    const hint = `${didYouMean(unknown, names)} Hooks: ${names.join(', ')}.`;
    throw new CommandError(`${what} exports ${JSON.stringify(unknown)}, which is not a hook.${hint}`);
  }
  const hooks = { ...configured, ...exports };
  try {
    checkOptions(what, hooks, { names: EXPORTS });
  } catch (error) {
    throw new CommandError(messageOf(error));
  }
  return hooks;
}
