import { readFileSync, readdirSync } from 'node:fs';

/** The recorded answers of a folder in `fixtures/`, by name. */
export function fixtures(folder = ''): (name: string) => Buffer<ArrayBuffer> {
  return (name) => readFileSync(new URL(name, urlOf(folder)));
}

/** The names of the recorded answers of a folder that have one of these endings. */
export function fixtureNames(folder: string, ...endings: string[]): string[] {
  return readdirSync(urlOf(folder))
    .filter((name) => endings.some((ending) => name.endsWith(ending)))
    .sort();
}

const urlOf = (folder: string): URL => new URL(`../fixtures/${folder === '' ? '' : `${folder}/`}`, import.meta.url);
