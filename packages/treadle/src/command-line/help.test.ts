import { expect, test } from 'vitest';
import { loadCommands } from '../cli.ts';
import { parseArguments } from './arguments.ts';
import { commandHelp } from './help.ts';

const commands = (await loadCommands()).flatMap((one) => ('commands' in one ? one.commands : one));

test.each(commands.map((command) => [command.name, command] as const))(
  'the examples of %s are valid',
  (name, command) => {
    expect(commandHelp(command)).toContain(`\n  ${command.examples[0]}`);
    for (const example of command.examples) {
      expect(`  ${example}`.length).toBeLessThanOrEqual(120);
      // A chat starts without the name of its command, too.
      const named = name === 'chat' ? `treadle(?: ${name}\\b|(?= -)|$)` : `treadle ${name}\\b`;
      const [, line] = new RegExp(`${named}([^|<>)]*)`).exec(example) ?? [];
      expect(line, example).toBeDefined();
      expect(() => parseArguments(command, wordsIn(line!)), example).not.toThrow();
    }
  },
);

/** The words of a shell command without pipes. */
function wordsIn(line: string): string[] {
  const words = line.match(/(?:[^\s'"]|'[^']*'|"[^"]*")+/g) ?? [];
  return words.map((word) => word.replace(/'([^']*)'|"([^"]*)"/g, '$1$2'));
}
