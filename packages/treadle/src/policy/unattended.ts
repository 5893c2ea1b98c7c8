import { isAbsolute, relative, resolve, sep } from 'node:path';
import type { AskVerdict, JudgeContext, JudgedCall, Touch, Verdict } from '@treadle/core';
import type { PolicyRules, RuleContext, RulePolicy } from '@treadle/core/policy';

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
  return `To allow it, set in [policy] of ${file}: ${lines.join(' and ')}`;
}

function withStop(sentence: string): string {
  return /[.!?]$/.test(sentence) ? sentence : `${sentence}.`;
}

/** The lines of [policy] that would allow a call, with the fewest changes; undefined if no line does. */
export async function allowingLines(
  { asking, folder }: { readonly asking: RulePolicy; readonly folder: string },
  call: JudgedCall,
  { autonomy, principal }: Pick<RuleContext, 'autonomy' | 'principal'> = {},
): Promise<readonly string[] | undefined> {
  const context = { ...(autonomy !== undefined && { autonomy }), ...(principal && { principal }) };
  const { rules } = asking;
  const lists = listing(rules, call.touches ?? [], folder);
  const entry = { tools: { [entryName(call)]: 'allow' } } as const;
  for (const changes of [lists, entry, { ...lists, ...entry }]) {
    const { verdict } = await asking.withRules(merged(rules, changes)).explain(call, context);
    if (verdict.type === 'allow') return linesOf(changes);
  }
  return undefined;
}

function entryName({ name, operation }: JudgedCall): string {
  return operation === undefined ? name : `${name}:${operation}`;
}

type Changes = Pick<PolicyRules, 'tools' | 'commands' | 'paths' | 'domains'>;

/** The lists, with everything that a call touches. */
function listing(
  { paths = {}, commands = {}, domains = {} }: PolicyRules,
  touches: readonly Touch[],
  folder: string,
): Changes {
  const pathsOf = (wanted: 'read' | 'write'): readonly string[] =>
    touches.flatMap((touch) => (touch.type === wanted ? pathEntry(touch.path, folder) : []));
  const words = touches.flatMap((touch) => (touch.type === 'command' ? [touch.command] : []));
  const hosts = touches.flatMap((touch) =>
    touch.type === 'url' && URL.canParse(touch.url) ? [new URL(touch.url).host] : [],
  );
  const [read, write] = [pathsOf('read'), pathsOf('write')];
  return {
    ...((read.length > 0 || write.length > 0) && {
      paths: {
        ...(read.length > 0 && { read: [...new Set([...(paths.read ?? ['**']), ...read])] }),
        ...(write.length > 0 && { write: [...new Set([...(paths.write ?? []), ...write])] }),
      },
    }),
    ...(words.length > 0 && { commands: { allow: [...new Set([...(commands.allow ?? []), ...words])] } }),
    ...(hosts.length > 0 && { domains: { allow: [...new Set([...(domains.allow ?? []), ...hosts])] } }),
  };
}

/** The entry for one path: relative inside the folder. None for a path with wildcards, because the entry would be a glob. */
function pathEntry(path: string, folder: string): readonly string[] {
  if (/[*?{}]/.test(path)) return [];
  if (path.startsWith('~/')) return [path];
  const absolute = resolve(folder, path);
  const entry = relative(folder, absolute).split(sep).join('/');
  return entry === '' || isAbsolute(entry) || /^(~|\.\.(\/|$))/.test(entry) ? [absolute] : [entry];
}

function merged(rules: PolicyRules, changes: Changes): PolicyRules {
  const parts = Object.entries(changes).map(([name, part]) => [name, { ...rules[name as keyof Changes], ...part }]);
  return { ...rules, ...Object.fromEntries(parts) };
}

/** As TOML, below [policy]: `paths.read = ["**", "/etc/hosts"]`. */
function linesOf(changes: Changes): readonly string[] {
  return Object.entries(changes).flatMap(([name, part]) =>
    Object.entries(part).map(([key, value]) => `${name}.${tomlKey(key)} = ${tomlValue(value)}`),
  );
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
