import type { Touch } from '@treadle/core';
import type { TouchTemplate } from './packaged-tool.ts';

const PLACEHOLDER = /\{([A-Za-z0-9][\w.-]*)(?:\|([^{}]*))?\}/g;

/** The parameters that a text names. */
export function placeholdersIn(text: string): readonly string[] {
  return Array.from(text.matchAll(PLACEHOLDER), ([, name]) => name!);
}

/** What a call touches. A list stands for one touch per item. Throws if an argument that is named is absent or an object. */
export function touchesFrom(
  templates: readonly TouchTemplate[],
  input: Readonly<Record<string, unknown>>,
): readonly Touch[] {
  return templates.flatMap(({ type, ...fields }) => {
    const [[field, template] = ['', '']] = Object.entries(fields);
    return textsFrom(template, input).map((text) => ({ type, [field]: text }) as unknown as Touch);
  });
}

function textsFrom(template: string, input: Readonly<Record<string, unknown>>): readonly string[] {
  const names = [...new Set(placeholdersIn(template))];
  const lists = names.filter((name) => Array.isArray(input[name]));
  if (lists.length > 1) throw new Error(`{${lists.join('} and {')}} are lists`);
  const [list] = lists;
  const items = list === undefined ? [undefined] : (input[list] as readonly unknown[]);
  return items.map((item) =>
    template.replace(PLACEHOLDER, (_, name: string, otherwise: string | undefined) =>
      textOf(name, name === list ? item : (input[name] ?? otherwise)),
    ),
  );
}

function textOf(name: string, value: unknown): string {
  if (typeof value === 'string' || typeof value === 'number' || typeof value === 'boolean') return String(value);
  throw new Error(`{${name}} has no text`);
}
