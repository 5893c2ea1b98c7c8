import type { Autonomy } from '@treadle/core';
import { withoutHidden } from '@treadle/core/describe';
import { didYouMean } from '@treadle/core/nearest';
import type { Skill } from '@treadle/core/skills';
import { isScalar, type Node } from 'yaml';
import { frontMatter, yamlTable } from '../yaml-table.ts';

/*
 * SKILL.md: a front matter in YAML between lines `---`, and a text. What is wrong is reported with its line and key, and the
 * file is then not used. Keys of other clients are ignored. Texts lose hidden characters, and long ones are cut.
 */

/** What is wrong with a file. */
export interface SkillProblem {
  readonly file: string;
  /** From 1 on. */
  readonly line?: number;
  readonly key?: string;
  readonly message: string;
}

export type ParsedSkill =
  | {
      readonly type: 'skill';
      readonly skill: Skill;
      /** Keys that have no effect. */ readonly ignored: readonly string[];
    }
  | { readonly type: 'invalid'; readonly problems: readonly SkillProblem[] };

export const MAX_SKILL_BYTES = 100_000;
/** Longer ones are not parsed. */
export const MAX_FRONT_MATTER = 20_000;
const MAX_DESCRIPTION = 1_024;
const MAX_VALUE = 500;
const MAX_ENTRIES = 100;
const MAX_DEFAULTS = 10_000;

const NAME = /^[a-z0-9]+(-[a-z0-9]+)*$/;

/** `folder`: the absolute path of the folder. `folderName`: the name of the skill, if the file has none. */
export function parseSkill(
  source: string,
  place: {
    readonly file: string;
    readonly folder: string;
    readonly folderName: string;
    readonly files?: readonly string[];
  },
): ParsedSkill {
  const { file, folder, folderName, files = [] } = place;
  const invalid = (...problems: readonly Omit<SkillProblem, 'file'>[]): ParsedSkill => ({
    type: 'invalid',
    problems: problems.map((problem) => ({ file, ...problem })),
  });
  const text = source.replace(/^\uFEFF/, '').replaceAll('\r\n', '\n');
  const parts = frontMatter(text);
  if (!parts) {
    return invalid({ line: 1, message: 'It has no front matter. Begin it with a line "---", keys, and a line "---".' });
  }
  const { front, body } = parts;
  if (front.length > MAX_FRONT_MATTER) {
    return invalid({ line: 1, message: `Its front matter has more than ${MAX_FRONT_MATTER} characters.` });
  }
  const yaml = yamlTable(front, { what: 'Its front matter', linesBefore: 1 });
  if (yaml.type === 'problem') return invalid({ line: yaml.line, message: yaml.message });
  const { keys, lineOf } = yaml;
  const problems: Omit<SkillProblem, 'file'>[] = [];
  const found: { -readonly [Key in keyof Skill]?: Skill[Key] } = {};
  /** The keys that gave the fields. Of two keys for one field, neither may win. */
  const givenBy = new Map<string, string>();
  const ignored: string[] = [];
  for (const { key, value } of keys.items) {
    const given = isScalar(key) ? String(key.value) : '';
    const name = given.replaceAll('_', '-');
    const reader = Object.hasOwn(KEYS, name) ? KEYS[name] : undefined;
    if (!reader) {
      if (ignored.length < MAX_ENTRIES) ignored.push(shortText(given, 60));
      continue;
    }
    try {
      const read = reader(plainValue(value));
      for (const field of Object.keys(read)) {
        const before = givenBy.get(field);
        if (before !== undefined) throw new Error(`It contradicts "${before}". Keep one of them.`);
        givenBy.set(field, given);
      }
      Object.assign(found, read);
    } catch (error) {
      const [at] = value?.range ?? key.range;
      problems.push({ line: lineOf(at), key: given, message: (error as Error).message });
    }
  }
  const name = found.name ?? folderName;
  if (found.name === undefined && !problems.some(({ key }) => key === 'name') && !isSkillName(name)) {
    problems.push({ line: 1, key: 'name', message: `It is missing, and the folder has no name for a skill. ${NAMES}` });
  }
  if (found.description === undefined && !problems.some(({ key }) => key === 'description')) {
    problems.push({
      line: 1,
      key: 'description',
      message: 'It is missing. Say what the skill does and when to use it.',
    });
  }
  if (problems.length > 0) return invalid(...problems);
  const skill: Skill = {
    invocation: 'both',
    execution: 'inline',
    dependencies: [],
    status: 'active',
    ...found,
    name,
    description: found.description!,
    text: withoutHidden(body).trim(),
    folder,
    files,
  };
  return { type: 'skill', skill, ignored };
}

export function isSkillName(name: string): boolean {
  return name.length <= 64 && NAME.test(name);
}

const NAMES = 'Use up to 64 lower-case letters, digits and single hyphens.';

function plainValue(value: unknown): unknown {
  return isScalar(value) ? value.value : ((value as Node | null)?.toJSON() ?? null);
}

type Reader = (value: unknown) => Partial<Skill>;

/** The keys by their names with hyphens. Those of AGENT-33 have underscores. */
const KEYS: Readonly<Record<string, Reader>> = {
  name(value) {
    const name = textFrom(value);
    if (isSkillName(name)) return { name };
    throw new Error(`It is ${JSON.stringify(shortText(name, 80))}. ${NAMES}`);
  },
  description: (value) => ({ description: shortText(filled(textFrom(value)), MAX_DESCRIPTION) }),
  license: (value) => ({ license: shortText(textFrom(value), MAX_VALUE) }),
  compatibility: (value) => ({ compatibility: shortText(textFrom(value), MAX_VALUE) }),
  metadata(value) {
    const entries = Object.entries(tableFrom(value)).slice(0, MAX_ENTRIES);
    const metadata = entries.map(([key, one]) => [shortText(key, 100), shortText(flat(one), MAX_VALUE)]);
    return { metadata: Object.fromEntries(metadata) };
  },
  'allowed-tools': (value) => ({ allowedTools: entriesFrom(value) }),
  'disallowed-tools': (value) => ({ disallowedTools: entriesFrom(value) }),
  approvals: (value) => ({ approvals: entriesFrom(value) }),
  autonomy: (value) => ({ autonomy: autonomyFrom(value) }),
  'invocation-mode': (value) => ({ invocation: choice(value, INVOCATION) }),
  'disable-model-invocation': (value) => (switchFrom(value) ? { invocation: 'user' } : {}),
  'user-invocable': (value) => (switchFrom(value) ? {} : { invocation: 'model' }),
  'execution-context': (value) => ({ execution: choice(value, EXECUTION) }),
  context: (value) => ({ execution: choice(value, EXECUTION) }),
  'tool-parameter-defaults': (value) => ({ defaults: defaultsFrom(value) }),
  dependencies: (value) => ({ dependencies: entriesFrom(value).map((name) => name.toLowerCase()) }),
  status: (value) => ({ status: choice(value, STATUS) }),
};

const INVOCATION: Readonly<Record<string, Skill['invocation']>> = {
  user: 'user',
  'user-only': 'user',
  model: 'model',
  'model-only': 'model',
  llm: 'model',
  'llm-only': 'model',
  both: 'both',
};
const EXECUTION: Readonly<Record<string, Skill['execution']>> = { inline: 'inline', inherit: 'inline', fork: 'fork' };
const STATUS: Readonly<Record<string, Skill['status']>> = {
  active: 'active',
  experimental: 'experimental',
  draft: 'experimental',
  deprecated: 'deprecated',
  disabled: 'disabled',
};
const LEVELS: Readonly<Record<string, Autonomy>> = { 'read-only': 0, supervised: 1, bounded: 2, full: 3 };

function choice<T>(value: unknown, choices: Readonly<Record<string, T>>): T {
  const text = textFrom(value).toLowerCase().replaceAll('_', '-');
  if (Object.hasOwn(choices, text)) return choices[text]!;
  const names = Object.keys(choices);
  const hint = didYouMean(text, names);
  throw new Error(`It is ${JSON.stringify(shortText(text, 80))}.${hint} Use one of ${names.join(', ')}.`);
}

function autonomyFrom(value: unknown): Autonomy {
  if (value === 0 || value === 1 || value === 2 || value === 3) return value;
  if (typeof value === 'string') return choice(value, LEVELS);
  throw new Error(`It is ${JSON.stringify(value)}. Use 0 to 3, or one of ${Object.keys(LEVELS).join(', ')}.`);
}

function switchFrom(value: unknown): boolean {
  if (typeof value === 'boolean') return value;
  throw new Error('Use true or false.');
}

function textFrom(value: unknown): string {
  if (typeof value === 'string') return value;
  throw new Error('It is not a text. Put it in quotes.');
}

function filled(text: string): string {
  if (text.trim() !== '') return text;
  throw new Error('It is empty.');
}

function tableFrom(value: unknown): Readonly<Record<string, unknown>> {
  if (typeof value === 'object' && value !== null && !Array.isArray(value)) return value as Record<string, unknown>;
  throw new Error('It is not a table of keys and values.');
}

const ENTRIES = /(?:\([^)]*\)|[^\s,(])+/g;
const ENTRY = /^[^()]+(\([^()]*\))?$/;
const MAX_ENTRY = 200;

/** A list, or a text with commas or spaces between the entries, except inside of parentheses. */
function entriesFrom(value: unknown): readonly string[] {
  const given = typeof value === 'string' ? (value.match(ENTRIES) ?? []) : value;
  const entries = given === null ? [] : given;
  if (!Array.isArray(entries) || !entries.every((one) => typeof one === 'string')) {
    throw new Error('It is neither a list of names nor a text with names.');
  }
  if (entries.length > MAX_ENTRIES) throw new Error(`It has more than ${MAX_ENTRIES} entries.`);
  const isLost = typeof value === 'string' && value.replace(ENTRIES, '').includes('(');
  // Otherwise `Bash(git` and `Bash (git:*)` would allow all of Bash, or block nothing.
  if (isLost || !entries.every((one) => ENTRY.test(filled(one).trim()))) {
    throw new Error(
      'A parenthesis is not closed, is inside of another, or has no name before it. Write entries such as Bash(git log:*).',
    );
  }
  if (entries.some((one) => one.length > MAX_ENTRY)) throw new Error(`An entry has more than ${MAX_ENTRY} characters.`);
  return entries.map((one) => shortText(one, MAX_ENTRY));
}

function defaultsFrom(value: unknown): NonNullable<Skill['defaults']> {
  const tools = Object.entries(tableFrom(value)).map(([name, given]) => [name, tableFrom(given)]);
  const defaults = JSON.parse(JSON.stringify(Object.fromEntries(tools))) as NonNullable<Skill['defaults']>;
  if (JSON.stringify(defaults).length <= MAX_DEFAULTS) return defaults;
  throw new Error(`It has more than ${MAX_DEFAULTS} characters.`);
}

function flat(value: unknown): string {
  return typeof value === 'string' ? value : (JSON.stringify(value) ?? '');
}

/** One line without hidden characters. */
export function shortText(text: string, max: number): string {
  const line = withoutHidden(text.slice(0, max * 8).replaceAll(/\s+/g, ' ')).trim();
  return line.length <= max && text.length <= max * 8 ? line : `${line.slice(0, max - 1).toWellFormed()}…`;
}
