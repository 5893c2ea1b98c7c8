import { isPlain } from '../plain.ts';
import { uselessCommands } from './commands.ts';
import { domainEntry } from './domains.ts';
import { compileGlob, componentsOf } from './glob.ts';
import { coveringDenial } from './paths.ts';
import { isNameEntry } from './places.ts';
import type { Lists, PolicyRules } from './rules.ts';

/** Something in rules that is wrong, or that has no effect. */
export interface RuleProblem {
  /** Where it is: the keys, and the positions in lists. */
  readonly path: readonly (string | number)[];
  /** Names the key, what was found, and what would be right. */
  readonly message: string;
}

export interface CheckedRules {
  /** With any of them, the rules are refused. */
  readonly problems: readonly RuleProblem[];
  /** Entries that can never apply. */
  readonly warnings: readonly RuleProblem[];
}

/** Checks rules from a file or a journal. Never throws. */
export function checkRules(value: unknown): CheckedRules {
  const problems: RuleProblem[] = [];
  const unbounded = unboundedNumbers([], value);
  if (unbounded.length > 0) return { problems: unbounded, warnings: [] };
  if (!isRecord(value) || !isPlain(value)) {
    return { problems: [problemAt([], 'the policy', value, 'a table of rules, as plain JSON')], warnings: [] };
  }
  for (const [key, part] of Object.entries(value)) {
    if (part === undefined) continue;
    const check = Object.hasOwn(CHECKS, key) ? CHECKS[key as keyof PolicyRules] : undefined;
    if (check) problems.push(...check([key], part));
    else
      problems.push(
        problemAt([key], keyText([key]), part, `one of ${choices(Object.keys(CHECKS))} instead of "${key}"`),
      );
  }
  return { problems, warnings: problems.length > 0 ? [] : warningsFor(value as PolicyRules) };
}

/** The keys of numbers such as `inf` in TOML, which JSON does not have. No rule is deeper than two keys. */
function unboundedNumbers(path: Path, value: unknown): readonly RuleProblem[] {
  if (typeof value === 'number' && !Number.isFinite(value)) {
    return [{ path, message: `${keyText(path) || 'the policy'} is ${value}. It must be a finite number.` }];
  }
  if (!isRecord(value) || path.length === 2) return [];
  return Object.entries(value).flatMap(([key, part]) => unboundedNumbers([...path, key], part));
}

type Path = readonly (string | number)[];
type Check = (path: Path, value: unknown) => readonly RuleProblem[];

function isRecord(value: unknown): value is Readonly<Record<string, unknown>> {
  return typeof value === 'object' && value !== null && !Array.isArray(value);
}

/** `tools."a.b"`, `commands.allow[2]` */
function keyText(path: Path): string {
  return path.reduce<string>((text, key) => {
    if (typeof key === 'number') return `${text}[${key}]`;
    const name = /^[\w*:-]+$/.test(key) ? key : JSON.stringify(key);
    return text === '' ? name : `${text}.${name}`;
  }, '');
}

function problemAt(path: Path, key: string, found: unknown, right: string): RuleProblem {
  const text = JSON.stringify(found) ?? typeof found;
  return { path, message: `${key} is ${text.length > 80 ? `${text.slice(0, 80)}…` : text}. It must be ${right}.` };
}

function choices(values: readonly unknown[]): string {
  return values.map((value) => JSON.stringify(value)).join(', ');
}

function that(isRight: (value: unknown) => boolean, right: string): Check {
  return (path, value) => (isRight(value) ? [] : [problemAt(path, keyText(path), value, right)]);
}

function oneOf(...values: readonly unknown[]): Check {
  return that((value) => values.includes(value), `one of ${choices(values)}`);
}

function wholeNumber(least: number): Check {
  return that(
    (value) => Number.isSafeInteger(value) && (value as number) >= least,
    `a whole number of at least ${least}`,
  );
}

function listOf(check: Check): Check {
  return (path, value) =>
    Array.isArray(value)
      ? value.flatMap((one, index) => check([...path, index], one))
      : [problemAt(path, keyText(path), value, 'a list of texts')];
}

function table(checks: Readonly<Record<string, Check>>): Check {
  return (path, value) => {
    if (!isRecord(value))
      return [problemAt(path, keyText(path), value, `a table with the keys ${choices(Object.keys(checks))}`)];
    return Object.entries(value).flatMap(([key, part]) => {
      if (part === undefined) return [];
      if (Object.hasOwn(checks, key)) return checks[key]!([...path, key], part);
      const right = `one of ${choices(Object.keys(checks))} instead of "${key}"`;
      return [problemAt([...path, key], keyText([...path, key]), part, right)];
    });
  };
}

const VERDICT: Check = oneOf('allow', 'ask', 'deny');
const BOOLEAN: Check = oneOf(true, false);
const TEXT: Check = that((value) => typeof value === 'string' && value.trim() !== '', 'a text that is not empty');

const tools: Check = (path, value) => {
  if (!isRecord(value))
    return [problemAt(path, keyText(path), value, 'a table of tools, each "allow", "ask" or "deny"')];
  return Object.entries(value).flatMap(([entry, verdict]) => {
    const isEntry = /^(\*|[^:*\s]([^*\s]*[^:*\s])?(:\*)?)$/.test(entry);
    if (isEntry) return VERDICT([...path, entry], verdict);
    const right = 'an entry for "tool:operation", "tool:*", "tool" or "*"';
    return [problemAt([...path, entry], `the entry ${JSON.stringify(entry)} of tools`, verdict, right)];
  });
};

const glob: Check = (path, value) => {
  const [problem] = TEXT(path, value);
  if (problem) return [problem];
  try {
    compileGlob(value as string);
    return [];
  } catch (error) {
    return [problemAt(path, keyText(path), value, `a glob, and ${(error as Error).message}`)];
  }
};

const domain: Check = that(
  (value) => typeof value === 'string' && domainEntry(value) !== undefined,
  'a host ("example.com"), hosts below one ("*.example.com"), an address or a range ("10.0.0.0/8"), or "*", without a scheme or a path',
);

const name: Check = that(
  (value) => typeof value === 'string' && isNameEntry(value),
  'a name ("pi"), the start of names ("pi-*"), or "*"',
);

const lists = (check: Check): Check => table({ allow: listOf(check), ask: listOf(check), deny: listOf(check) });

const approvals: Check = (path, value) => {
  const known = table({
    minutes: that((one) => typeof one === 'number' && one > 0, 'a number above 0'),
    required: wholeNumber(1),
    approvers: listOf(TEXT),
  })(path, value);
  if (known.length > 0) return known;
  const { required = 1, approvers } = value as NonNullable<PolicyRules['approvals']>;
  if (!approvers || new Set(approvers).size >= required) return [];
  const key = keyText([...path, 'required']);
  return [problemAt([...path, 'required'], key, required, `at most the number of different approvers`)];
};

const CHECKS: Readonly<Record<keyof PolicyRules, Check>> = {
  autonomy: oneOf(0, 1, 2, 3),
  tools,
  permissions: table({
    file_read: BOOLEAN,
    file_write: BOOLEAN,
    shell: BOOLEAN,
    network: BOOLEAN,
    git: BOOLEAN,
    session: BOOLEAN,
  }),
  commands: lists(TEXT),
  paths: table({ read: listOf(glob), write: listOf(glob), deny: listOf(glob), only: listOf(oneOf('read', 'write')) }),
  private: table({ paths: listOf(glob), except: listOf(glob) }),
  domains: lists(domain),
  devices: lists(name),
  sessions: lists(name),
  sandbox: table({ require: listOf(TEXT), expose: listOf(glob), network: BOOLEAN }),
  exposure: oneOf('ask', 'strict'),
  rate: table({ minute: wholeNumber(0), second: wholeNumber(0) }),
  approvals,
};

/* Entries that can never apply */

function warningsFor(rules: PolicyRules): readonly RuleProblem[] {
  const { autonomy, permissions = {}, commands = {}, paths = {}, domains = {}, devices, sessions, rate = {} } = rules;
  const warnings: RuleProblem[] = [];
  const warn = (path: Path, entry: string, why: string): void => {
    const place = entry === '' ? keyText(path) : `${JSON.stringify(entry)} in ${keyText(path)}`;
    warnings.push({ path, message: `${place} never applies: ${why}.` });
  };
  const unusable = (
    path: Path,
    entries: readonly string[] | undefined,
    needs: 'file_write' | 'shell' | 'network' | 'file_read' | 'session' | undefined,
  ) => {
    if (!entries || entries.length === 0) return;
    if (needs && permissions[needs] === false) warn(path, '', `permissions.${needs} is false`);
    else if (autonomy === 0 && needs !== 'file_read') warn(path, '', 'at level 0 only reads are allowed');
  };
  for (const verdict of ['allow', 'ask'] as const) {
    unusable(['commands', verdict], commands[verdict], 'shell');
    unusable(['domains', verdict], domains[verdict], 'network');
    unusable(['devices', verdict], devices?.[verdict], undefined);
    unusable(['sessions', verdict], sessions?.[verdict], 'session');
  }
  unusable(['paths', 'write'], paths.write, 'file_write');
  unusable(['paths', 'read'], paths.read, 'file_read');
  for (const [text, why] of uselessCommands(commands)) warn(['commands'], text, why);
  for (const [key, given = {}] of Object.entries({ domains, devices, sessions })) {
    for (const [text, stricter] of repeatedEntries(given)) warn([key], text, `"${stricter}" has the same entry`);
  }
  const warnIfDenied = (key: 'read' | 'write', text: string): void => {
    const denial = coveringDenial(key, text);
    if (denial === undefined) return;
    warn(['paths', key], text, `"${denial}" is always denied. To allow a path of it, name it without wildcards`);
  };
  for (const key of ['read', 'write', 'deny'] as const) {
    for (const text of paths[key] ?? []) {
      if (componentsOf(text).includes('..')) warn(['paths', key], text, 'paths are compared without ".."');
      else if (key === 'deny') continue;
      else if (paths.deny?.includes(text)) warn(['paths', key], text, '"deny" has the same glob');
      else warnIfDenied(key, text);
    }
  }
  if (rate.second !== undefined && rate.second > (rate.minute ?? 60)) {
    warn(['rate', 'second'], '', `rate.minute allows only ${rate.minute ?? 60} calls`);
  }
  return warnings;
}

function repeatedEntries(given: Lists): readonly (readonly [string, string])[] {
  const verdicts = ['deny', 'ask', 'allow'] as const;
  return verdicts.flatMap((verdict, index) =>
    (given[verdict] ?? []).flatMap((text): (readonly [string, string])[] => {
      const stricter = verdicts
        .slice(0, index)
        .find((other) => given[other]?.some((one) => one.toLowerCase() === text.toLowerCase()));
      return stricter ? [[text, stricter]] : [];
    }),
  );
}
