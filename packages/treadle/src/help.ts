import { HELP_FLAG } from './arguments.ts';
import type { Command, Flag, Flags } from './command.ts';

export function commandHelp(command: Command): string {
  const argument = command.argument === undefined ? '' : ` ${command.argument}`;
  return [
    `Usage: treadle ${command.name}${argument} [flags]`,
    `${command.summary}.`,
    `Flags:\n${flagLines({ ...command.flags, help: HELP_FLAG })}`,
    ...command.notes,
  ].join('\n\n');
}

export function globalHelp(commands: readonly Command[]): string {
  return [
    'Usage: treadle <command> [flags]',
    'Treadle runs the agentic tool loop: a model is asked, it calls tools, their results go back, until the work is done.',
    `Commands:\n${columns(commands.map((command) => [command.name, command.summary]))}`,
    `Flags:\n${flagLines({ help: HELP_FLAG, version: { type: 'switch', help: 'Show the version' } })}`,
    '"treadle <command> --help" says more about a command.',
  ].join('\n\n');
}

/** Two columns, as wide as the left one needs. */
export function columns(rows: readonly (readonly [left: string, right: string])[]): string {
  const width = Math.max(...rows.map(([left]) => left.length));
  return rows.map(([left, right]) => `  ${left.padEnd(width)}  ${right}`).join('\n');
}

function flagLines(flags: Flags): string {
  return columns(
    Object.entries(flags).map(([name, flag]) => [
      `${flag.short ? `-${flag.short}, ` : '    '}--${name}${valueForm(flag)}`,
      flag.help,
    ]),
  );
}

function valueForm(flag: Flag): string {
  switch (flag.type) {
    case 'switch':
      return '';
    case 'text':
    case 'count':
      return ` ${flag.value}`;
    case 'choice': {
      const choices = flag.choices.join('|');
      return flag.bare === undefined ? ` ${choices}` : `[=${choices}]`;
    }
  }
}
