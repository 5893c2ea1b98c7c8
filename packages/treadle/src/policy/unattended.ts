import { homedir } from 'node:os';
import { isAbsolute, relative, sep } from 'node:path';
import type { AskVerdict, JudgeContext, JudgedCall, Touch, Verdict } from '@treadle/core';
import { checkRules, type PolicyRules, type RuleContext, type RulePolicy } from '@treadle/core/policy';
import { pathFacts, urlFacts } from '@treadle/tools';

export interface UnattendedOptions {
  /** The folder of the policy. */
  readonly folder: string;
  /** The file with [policy], for messages; default: treadle.toml. */
  readonly file?: string | undefined;
  /** Gets each denial, for the people who can change the rules. */
  readonly onDenied?: ((denial: UnattendedDenial) => void) | undefined;
}

export interface UnattendedDenial {
  readonly tool: string;
  /** The rule that asked. */
  readonly rule: string | undefined;
  /** How to allow the call. */
  readonly remedy: string;
}

/** For places where nobody can be asked: what the policy asks about is denied, with the lines that would allow it. */
export function unattended(asking: RulePolicy, options: UnattendedOptions): RulePolicy {
  const { folder, file, onDenied } = options;
  const denied = async (call: JudgedCall, ask: AskVerdict, context: JudgeContext): Promise<Verdict> => {
    const { reason = 'it needs an approval', rule } = ask;
    const remedy = remedyText(await allowingLines({ asking, folder }, call, context), file);
    onDenied?.({ tool: call.name, rule, remedy });
    return {
      type: 'deny',
      reason: `${withStop(reason)} Nobody can be asked here. ${remedy}`,
      ...(rule !== undefined && { rule }),
    };
  };
  return {
    ...asking,
    async judge(calls, context) {
      const verdicts = await asking.judge(calls, context);
      return Promise.all(
        verdicts.map((verdict, index) => (verdict.type === 'ask' ? denied(calls[index]!, verdict, context) : verdict)),
      );
    },
    withRules: (rules) => unattended(asking.withRules(rules), options),
  };
}

/** What to tell people about the lines that would allow a call. */
export function remedyText(lines: readonly string[] | undefined, file = 'treadle.toml'): string {
  if (!lines) return 'No rule can allow it: it has to be approved in a terminal.';
  const entry = lines.find((line) => line.startsWith(TOOLS));
  const what = entry === undefined ? 'it' : 'every call of the tool';
  return `To allow ${what}, set in [policy] of ${file}: ${lines.join(' and ')}`;
}

function withStop(sentence: string): string {
  return /[.!?]$/.test(sentence) ? sentence : `${sentence}.`;
}

/**
 * The lines of [policy] that would allow a call, and as little else as possible; undefined if no line does. Entries of lists name
 * exactly what the call touches. Below level 2 lists do not allow writes, commands and requests, so the level may have to be
 * raised. An entry for the tool allows all its calls, so it is last.
 */
export async function allowingLines(
  { asking, folder }: { readonly asking: RulePolicy; readonly folder: string },
  call: JudgedCall,
  {
    autonomy,
    narrowedBy,
    principal,
    exposure,
  }: Pick<RuleContext, 'autonomy' | 'narrowedBy' | 'principal' | 'exposure'> = {},
): Promise<readonly string[] | undefined> {
  const { rules } = asking;
  const context = {
    ...(autonomy !== undefined && { autonomy }),
    ...(narrowedBy && { narrowedBy }),
    ...(principal && { principal }),
    ...(exposure && { exposure }),
  };
  const allows = async (changes: Changes): Promise<boolean> => {
    const changed = { ...rules, ...nested(rules, changes) };
    if (checkRules(changed).problems.length > 0) return false;
    const { verdict } = await asking.withRules(changed).explain(call, context);
    return verdict.type === 'allow';
  };
  const entries = await listEntries(call.touches ?? [], folder);
  const level: Changes = (rules.autonomy ?? 1) < 2 ? { autonomy: 2 } : {};
  const tool: Changes = { tools: { [entryName(call)]: 'allow' } };
  const attempts = [
    { entries, others: {} },
    { entries, others: level },
    { entries: [], others: tool },
    { entries, others: tool },
  ];
  for (const { entries: tried, others } of attempts) {
    const changes = (some: readonly ListEntry[]): Changes => ({ ...others, ...withEntries(rules, some) });
    if (!(await allows(changes(tried)))) continue;
    let needed: readonly ListEntry[] = tried;
    for (const entry of tried) {
      const fewer = needed.filter((one) => one !== entry);
      if (await allows(changes(fewer))) needed = fewer;
    }
    return linesOf(changes(needed));
  }
  return undefined;
}

function entryName({ name, operation }: JudgedCall): string {
  return operation === undefined ? name : `${name}:${operation}`;
}

type Changes = Pick<PolicyRules, 'autonomy' | 'tools' | 'commands' | 'paths' | 'domains' | 'devices' | 'sessions'>;

interface ListEntry {
  readonly list: 'paths.read' | 'paths.write' | 'commands.allow' | 'domains.allow' | 'devices.allow' | 'sessions.allow';
  readonly text: string;
}

/** Nobody reads more, and each is tried. */
const MAX_ENTRIES = 20;

/** The narrowest entries for everything that a call touches. Empty if there are too many, or if one of them cannot be named. */
async function listEntries(touches: readonly Touch[], folder: string): Promise<readonly ListEntry[]> {
  const entries = new Map<string, ListEntry>();
  const add = (list: ListEntry['list'], text: string): unknown => entries.set(`${list} ${text}`, { list, text });
  const addPath = (type: 'read' | 'write', given: string): void => {
    const { path, target } = pathFacts(given, { folder, home: homedir() });
    add(`paths.${type}`, given.startsWith('~/') ? exactGlob(given) : pathEntry(path, folder));
    if (target !== undefined) add(`paths.${type}`, pathEntry(target, folder));
  };
  const addUrl = (given: string): void => {
    const { host, port } = urlFacts(given);
    add('domains.allow', `${host.includes(':') ? `[${host}]` : host}:${port}`);
  };
  for (const touch of touches) {
    if (touch.type === 'session') add('sessions.allow', touch.session);
    const place = placeEntry(touch);
    if (place !== undefined) {
      add('devices.allow', place);
      continue; // nothing is known here about what is there
    }
    if (touch.type === 'read' || touch.type === 'write') addPath(touch.type, touch.path);
    if (touch.type === 'url') addUrl(touch.url);
    if (touch.type !== 'command') continue;
    const { commandAnalyser } = await import('@treadle/tools/commands');
    const facts = await commandAnalyser({ folder })(touch.command);
    if (facts.touches.length > MAX_ENTRIES || facts.programs.some(({ name }) => name === '*' || !isWord(name)))
      return [];
    for (const { name, args } of facts.programs) {
      add('commands.allow', [name, ...args.map((arg) => (arg !== undefined && isWord(arg) ? arg : '*'))].join(' '));
    }
    for (const { type, path } of facts.touches) addPath(type, path);
    for (const url of facts.urls) addUrl(url);
  }
  return entries.size > MAX_ENTRIES ? [] : [...entries.values()];
}

/** The entry for the place that a touch uses; undefined for this machine. */
function placeEntry(touch: Touch): string | undefined {
  if (touch.type === 'device') return `device:${touch.device}`;
  return 'on' in touch && touch.on ? `${touch.on.type}:${touch.on.name}` : undefined;
}

/** Whether an entry for commands can contain the text: its words have neither spaces nor shell syntax. */
function isWord(text: string): boolean {
  return /^[^\s|&;<>()$`"'\\]+$/.test(text);
}

/** The entry for one path: relative inside the folder. */
function pathEntry(path: string, folder: string): string {
  const entry = relative(folder, path).split(sep).join('/');
  return exactGlob(entry === '' || isAbsolute(entry) || /^(~|\.\.(\/|$))/.test(entry) ? path : entry);
}

/** Wildcards in a path cannot be escaped, so each stands for one character. */
export function exactGlob(path: string): string {
  return path.replace(/[*?{}]/g, '?');
}

/** The lists with more entries. */
function withEntries(rules: PolicyRules, entries: readonly ListEntry[]): Changes {
  const lists: Record<string, Record<string, readonly string[]>> = {};
  for (const { list, text } of entries) {
    const [name, key] = list.split('.') as ['paths' | 'commands' | 'domains', string];
    const current = rules[name] as Readonly<Record<string, readonly string[]>> | undefined;
    const before = lists[name]?.[key] ?? current?.[key] ?? (list === 'paths.read' ? ['**'] : []);
    lists[name] = { ...lists[name], [key]: [...new Set([...before, text])] };
  }
  return lists;
}

/** What the changed tables are with the keys that the rules have. */
function nested(rules: PolicyRules, changes: Changes): PolicyRules {
  const parts = Object.entries(changes).map(([name, part]) => {
    const current = rules[name as keyof Changes];
    return [name, typeof part === 'object' ? { ...(current as object | undefined), ...part } : part];
  });
  return Object.fromEntries(parts) as PolicyRules;
}

const TOOLS = 'tools.';

/** As TOML, below [policy]: `paths.read = ["**", "/etc/hosts"]`. */
function linesOf(changes: Changes): readonly string[] {
  const { autonomy, ...tables } = changes;
  return [
    ...(autonomy === undefined ? [] : [`autonomy = ${autonomy}`]),
    ...Object.entries(tables).flatMap(([name, part]) =>
      Object.entries(part).map(([key, value]) => `${name}.${tomlKey(key)} = ${tomlValue(value)}`),
    ),
  ];
}

function tomlKey(key: string): string {
  return /^[\w-]+$/.test(key) ? key : JSON.stringify(key);
}

/** Strings and lists of strings have the same form in JSON and TOML, apart from DEL. */
function tomlValue(value: string | readonly string[]): string {
  const items = typeof value === 'string' ? value : value.map((item) => JSON.stringify(item)).join(', ');
  const text = typeof value === 'string' ? JSON.stringify(items) : `[${items}]`;
  return text.replaceAll('\u007f', '\\u007f');
}
