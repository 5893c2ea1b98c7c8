import { homedir } from 'node:os';
import { dirname, join, resolve } from 'node:path';
import type { LoadedConfig } from './load.ts';

/** A working folder and its configuration. */
export interface ConfiguredPlace {
  readonly folder: string;
  readonly loaded: LoadedConfig;
  /** The fingerprint of what the project brings that is trusted for now. */
  readonly trusted?: string;
}

/** The user's own folder for skills and packages of tools. */
export function userSkillsFolder(): string {
  return join(homedir(), '.treadle', 'skills');
}

/** `skills_path` as an absolute path: from the home folder, or relative to the configuration. */
export function configuredSkillsFolder({ folder, loaded }: ConfiguredPlace): string | undefined {
  const { skills_path: given } = loaded.config.orchestrator?.tools ?? {};
  if (given === undefined) return undefined;
  if (/^~($|[/\\])/.test(given)) return join(homedir(), given.slice(1));
  return resolve(loaded.path === undefined ? folder : dirname(loaded.path), given);
}

/** Where packages of tools are, and skills that do not belong to a project. */
export function packagePlaces(place: ConfiguredPlace): readonly string[] {
  return [...new Set([userSkillsFolder(), configuredSkillsFolder(place) ?? userSkillsFolder()])];
}
