import { parseArgs } from 'node:util';
import { CommandError, type Command, type Flag, type Flags, type Given } from './command.ts';
import { didYouMean } from './nearest.ts';

export const HELP_FLAG: Flag = { type: 'switch', short: 'h', help: 'Show this text' };

/** What was given, or that help was asked for. Throws with what is wrong and what there is instead. */
export function parseArguments(command: Command, args: readonly string[]): Given | 'help' {
  const flags: Flags = { ...command.flags, help: HELP_FLAG };
  const { tokens } = parseArgs({
    args: giveBareFlagsTheirValue(flags, args),
    // Not strict: its errors know neither the nearest name nor what is allowed.
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
          `"treadle ${command.name} --help" lists all.`,
      );
    }
    const value = flagValue(flag, token);
    const given = values[token.name];
    values[token.name] = 'many' in flag ? [...((given as Value[] | undefined) ?? []), value] : value;
  }
  if (values['help']) return 'help';
  checkCount(command, rest);
  return { values: values as Given['values'], arguments: rest };
}

type Value = string | number | boolean;

function checkCount(command: Command, given: readonly string[]): void {
  const wanted = command.arguments ?? [];
  const name = `treadle ${command.name}`;
  const missing = wanted[given.length];
  if (missing !== undefined && !missing.startsWith('[')) {
    throw new CommandError(`${name} needs ${missing.replace('…', '')}. Usage: ${usageOf(command)}`);
  }
  if (given.length <= wanted.length || wanted.at(-1)?.endsWith('…')) return;
  const surplus = JSON.stringify(given[wanted.length]);
  if (wanted.length === 0) throw new CommandError(`${name} takes no argument, and got ${surplus}.`);
  const most = wanted.length === 1 ? 'one argument' : `${wanted.length} arguments`;
  throw new CommandError(`${name} takes ${most}, and ${surplus} is one more. Put a text of several words in quotes.`);
}

export function usageOf(command: Command): string {
  return ['treadle', command.name, ...(command.arguments ?? []), '[flags]'].join(' ');
}

/** `--ask` alone becomes `--ask=always`; parseArgs knows no flag whose value may be left out. */
function giveBareFlagsTheirValue(flags: Flags, args: readonly string[]): string[] {
  const end = args.indexOf('--');
  return args.map((arg, i) => {
    const flag = arg.startsWith('--') && (end < 0 || i < end) ? flags[arg.slice(2)] : undefined;
    if (flag?.type !== 'choice' || flag.bare === undefined || flag.choices.includes(args[i + 1] ?? '')) return arg;
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
    throw new CommandError(`${rawName} takes no value, and got ${JSON.stringify(value)}.`);
  }
  const wanted = wantedValue(flag);
  if (value === undefined || value === '') throw new CommandError(`${rawName} needs a value: ${wanted}.`);
  if (!token.inlineValue && /^--?[a-z]/i.test(value)) {
    throw new CommandError(`${rawName} needs a value: ${wanted}. If it really is ${value}, write ${rawName}=${value}.`);
  }
  if (flag.type === 'count') {
    const number = /^\d+$/.test(value) ? Number(value) : NaN;
    const { min, max = Number.MAX_SAFE_INTEGER } = flag;
    if (number >= min && number <= max) return number;
  } else if (flag.type === 'text' || flag.choices.includes(value)) return value;
  throw new CommandError(`${rawName} cannot be ${JSON.stringify(value)}. It takes ${wanted}.`);
}

function wantedValue(flag: Exclude<Flag, { type: 'switch' }>): string {
  switch (flag.type) {
    case 'text':
      return flag.value;
    case 'count':
      return `a whole number from ${flag.min}${flag.max === undefined ? '' : ` to ${flag.max}`}`;
    case 'choice':
      return flag.choices.join(' or ');
  }
}
