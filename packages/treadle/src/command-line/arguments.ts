import { parseArgs } from 'node:util';
import { CommandError, type Command, type Flag, type Flags, type ParsedArguments } from './command.ts';
import { didYouMean } from '@treadle/core/nearest';

export const HELP_FLAG: Flag = { type: 'switch', short: 'h', help: 'Show this help' };

/** Parses the arguments of a command; `help` if help was requested. Throws for unknown flags and invalid values. */
export function parseArguments(command: Command, args: readonly string[]): ParsedArguments | 'help' {
  const flags: Flags = { ...command.flags, help: HELP_FLAG };
  const { tokens } = parseArgs({
    args: addBareValues(flags, args),
    // Not strict, because our errors suggest the nearest flag and list the allowed values.
    strict: false,
    allowPositionals: true,
    tokens: true,
    options: Object.fromEntries(
      Object.entries(flags).map(([name, flag]) => [
        name,
        {
          type: flag.type === 'switch' ? ('boolean' as const) : ('string' as const),
          ...(flag.short && { short: flag.short }),
        },
      ]),
    ),
  });

  const values: Record<string, Value | Value[]> = {};
  const rest: string[] = [];
  for (const token of tokens) {
    if (token.kind === 'positional') rest.push(token.value);
    if (token.kind !== 'option') continue;
    const flag = Object.hasOwn(flags, token.name) ? flags[token.name] : undefined;
    if (!flag) {
      const known = Object.keys(flags).map((name) => `--${name}`);
      throw new CommandError(
        `treadle ${command.name} has no flag ${token.rawName}.${didYouMean(token.rawName, known)} ` +
          `"treadle ${command.name} --help" lists the flags.`,
      );
    }
    const value = flagValue(flag, token);
    const earlier = values[token.name];
    values[token.name] = 'many' in flag ? [...((earlier as Value[] | undefined) ?? []), value] : value;
  }
  if (values['help']) return 'help';
  checkCount(command, rest);
  return { values: values as ParsedArguments['values'], arguments: rest };
}

type Value = string | number | boolean;

function checkCount(command: Command, actual: readonly string[]): void {
  const expected = command.arguments ?? [];
  const name = `treadle ${command.name}`;
  const missing = expected[actual.length];
  const unknown = actual.find((word) => command.argumentChoices?.includes(word) === false);
  if (unknown !== undefined) {
    const { argumentChoices: choices = [] } = command;
    throw new CommandError(
      `${name} cannot take ${JSON.stringify(unknown)}.${didYouMean(unknown, choices)} It takes ${choices.join(' or ')}.`,
    );
  }
  if (missing !== undefined && !missing.startsWith('[')) {
    throw new CommandError(`${name} needs ${missing.replace('…', '')}. Usage: ${usageOf(command)}`);
  }
  // Such as that of a variable of the shell that is not set.
  const empty = actual.map((word, i) => (word === '' ? (expected[i] ?? expected.at(-1)) : undefined)).find(Boolean);
  if (empty !== undefined && !empty.startsWith('[')) {
    throw new CommandError(`${name} got an empty text as ${empty.replace('…', '')}. Usage: ${usageOf(command)}`);
  }
  if (actual.length <= expected.length || expected.at(-1)?.endsWith('…')) return;
  const surplus = JSON.stringify(actual[expected.length]);
  if (expected.length === 0) throw new CommandError(`${name} takes no argument, but got ${surplus}.`);
  const most = expected.length === 1 ? 'one argument' : `${expected.length} arguments`;
  throw new CommandError(`${name} takes ${most}, but also got ${surplus}. Put text with spaces in quotes.`);
}

export function usageOf(command: Command): string {
  return ['treadle', command.name, ...(command.arguments ?? []), '[flags]'].join(' ');
}

/** `--ask` becomes `--ask=always`, because parseArgs does not support optional values. */
function addBareValues(flags: Flags, args: readonly string[]): string[] {
  const end = args.indexOf('--');
  return args.map((arg, i) => {
    const flag = arg.startsWith('--') && (end < 0 || i < end) ? flags[arg.slice(2)] : undefined;
    if (flag?.type !== 'choice' && flag?.type !== 'text') return arg;
    const next = args[i + 1];
    const isValue =
      flag.type === 'text' ? next !== undefined && !next.startsWith('-') : flag.choices.includes(next ?? '');
    if (flag.bare === undefined || isValue) return arg;
    return `${arg}=${flag.bare}`;
  });
}

function flagValue(
  flag: Flag,
  token: { readonly rawName: string; readonly value?: string | undefined; readonly inlineValue?: boolean | undefined },
): Value {
  const { rawName, value } = token;
  if (flag.type === 'switch') {
    if (value === undefined) return true;
    throw new CommandError(`${rawName} takes no value, but got ${JSON.stringify(value)}.`);
  }
  const expected = valueText(flag);
  if (value === undefined || value === '') throw new CommandError(`${rawName} needs a value: ${expected}.`);
  if (!token.inlineValue && /^--?[a-z]/i.test(value)) {
    throw new CommandError(
      `${rawName} needs a value: ${expected}. If the value is ${value}, write ${rawName}=${value}.`,
    );
  }
  if (flag.type === 'count') {
    const number = /^\d+$/.test(value) ? Number(value) : NaN;
    const { min, max = Number.MAX_SAFE_INTEGER } = flag;
    if (number >= min && number <= max) return number;
  } else if (flag.type === 'text' || flag.choices.includes(value)) return value;
  throw new CommandError(`${rawName} cannot be ${JSON.stringify(value)}. It takes ${expected}.`);
}

function valueText(flag: Exclude<Flag, { type: 'switch' }>): string {
  switch (flag.type) {
    case 'text':
      return flag.value;
    case 'count':
      return `a whole number from ${flag.min}${flag.max === undefined ? '' : ` to ${flag.max}`}`;
    case 'choice':
      return flag.choices.join(' or ');
  }
}
