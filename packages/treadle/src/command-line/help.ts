import { HELP_FLAG, usageOf } from './arguments.ts';
import type { Command, CommandGroup, Flag, Flags } from './command.ts';

export function commandHelp(command: Command): string {
  return [
    `Usage: ${usageOf(command)}`,
    `${command.summary}.`,
    `Flags:\n${flagLines({ ...command.flags, help: HELP_FLAG })}`,
    ...command.notes,
    `${command.examples.length === 1 ? 'Example' : 'Examples'}:\n${command.examples.map((line) => `  ${line}`).join('\n')}`,
  ].join('\n\n');
}

export function groupHelp(group: CommandGroup): string {
  return [
    `Usage: treadle ${group.name} <command> [flags]`,
    `${group.summary}.`,
    `Commands:\n${columns(group.commands.map((command) => [usageOf(command).slice('treadle '.length, -' [flags]'.length), command.summary]))}`,
    ...group.notes,
    `"treadle ${group.name} <command> --help" shows the flags of a command.`,
  ].join('\n\n');
}

export function globalHelp(commands: readonly Pick<CommandGroup, 'name' | 'summary'>[]): string {
  return [
    'Usage: treadle <command> [flags]',
    'Treadle runs the agentic tool loop: it calls a model, executes the tools that the model calls, and returns their\n' +
      'results to the model, until the task is done.',
    `Commands:\n${columns(commands.map((command) => [command.name, command.summary]))}`,
    `Flags:\n${flagLines({ help: HELP_FLAG, version: { type: 'switch', help: 'Show the version' } })}`,
    '"treadle" alone starts a chat, on a terminal. "treadle <command> --help" shows the flags of a command.',
  ].join('\n\n');
}

/** Two columns. `width`: where the right one is wrapped, if there is room for it. */
export function columns(rows: readonly (readonly [left: string, right: string])[], width: number = Infinity): string {
  const widest = Math.max(...rows.map(([left]) => left.length));
  const room = width - widest - 4;
  if (room >= 20) {
    const margin = ' '.repeat(widest + 4);
    return rows
      .map(([left, right]) => `  ${left.padEnd(widest)}  ${wrapped(right, room).join(`\n${margin}`)}`)
      .join('\n');
  }
  return rows
    .map(
      ([left, right]) =>
        `  ${left}\n${wrapped(right, width - 4)
          .map((line: string) => `    ${line}`)
          .join('\n')}`,
    )
    .join('\n');
}

function wrapped(text: string, width: number): readonly string[] {
  const lines = [''];
  for (const word of text.split(' ')) {
    const line = lines.at(-1)!;
    if (line === '') lines[lines.length - 1] = word;
    else if (line.length + 1 + word.length <= width) lines[lines.length - 1] = `${line} ${word}`;
    else lines.push(word);
  }
  return lines;
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
      const choices = flag.value ?? flag.choices.join('|');
      return flag.bare === undefined ? ` ${choices}` : `[=${choices}]`;
    }
  }
}
