import { readFileSync, readdirSync } from 'node:fs';

/** The recorded answers of a folder in `fixtures/`, by name. */
export function fixtures(folder = ''): (name: string) => Buffer<ArrayBuffer> {
  return (name) => readFileSync(new URL(name, urlOf(folder)));
}

/** The names of a folder's recorded answers that end so. */
export function fixtureNames(folder: string, ...endings: string[]): string[] {
  return readdirSync(urlOf(folder))
    .filter((name) => endings.some((ending) => name.endsWith(ending)))
    .sort();
}

const urlOf = (folder: string): URL => new URL(`../fixtures/${folder === '' ? '' : `${folder}/`}`, import.meta.url);
