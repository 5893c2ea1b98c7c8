import { CommandError } from '../command-line/command.ts';

/** `EFFECT=TEXT`, of a flag that may be given more than once. The text may hold anything, also `=` and nothing. */
export function pairsOf(flag: string, given: readonly string[]): readonly (readonly [effect: string, text: string])[] {
  return given.map((pair) => {
    const at = pair.indexOf('=');
    if (at > 0) return [pair.slice(0, at), pair.slice(at + 1)];
    throw new CommandError(`${flag} cannot be ${JSON.stringify(pair)}. It takes EFFECT=TEXT, such as t1.tool.0=hello.`);
  });
}
