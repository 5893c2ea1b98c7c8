import type { Program } from './facts.ts';
import { onText } from './places.ts';
import { ALLOWED, listed, jointOpinion, type Judge, type Opinion, type Rule, type TouchedCommand } from './rule.ts';
import { levelOf } from './autonomy.ts';
import { isConfined } from './sandbox.ts';
import type { Lists, PolicyRules } from './rules.ts';

/*
 * Commands. An entry is the first words of a command; `*` stands for any one word. Every program that a command would run is
 * judged by the most specific entry that matches it: by the number of words, then by the number of words that are not `*`; of
 * equals by the strictest. A program that no entry matches is left to the autonomy rule.
 *
 * An `allow` entry matches only what is certain: the program by its exact name, and each word at its place. `ask` and `deny`
 * entries also match the program under any path, and skip options (with a value) before a word. A program that the analyser
 * does not know needs an entry that says more than its name.
 */

export function commandsRule(judgeCommand: Judge<TouchedCommand>, rules: PolicyRules): Rule {
  return {
    name: 'commands',
    judge(facts, { autonomy }) {
      const opinions = facts.commands.map(judgeCommand);
      // A sandbox does not depend on what a command says.
      const isWaived = levelOf(rules, autonomy) >= 2 && isConfined(rules, facts);
      return jointOpinion(isWaived ? opinions.map((one) => (isUnclear(one) ? undefined : one)) : opinions);
    },
    saw({ commands }) {
      if (commands.length === 0) return 'it runs no commands';
      const programs = commands.flatMap(({ facts, on }) => facts.programs.map((one) => `${textOf(one)}${onText(on)}`));
      const unclear = commands.flatMap(({ facts }) => facts.unclear ?? []);
      const found = programs.length === 0 ? 'no programs' : listed(programs);
      return unclear.length === 0 ? found : `${found}; unclear: ${unclear.join('; ')}`;
    },
  };
}

function isUnclear(opinion: Opinion | undefined): boolean {
  return opinion?.type === 'ask' && opinion.unclear === true;
}

type Verdict = 'allow' | 'ask' | 'deny';

interface Entry {
  readonly text: string;
  readonly words: readonly string[];
  readonly verdict: Verdict;
  readonly rank: number;
}

/** Paths and URLs of a command are judged by their own rules. */
export function commandJudge({ commands = {} }: PolicyRules): Judge<TouchedCommand> {
  const entries = (['deny', 'ask', 'allow'] as const)
    .flatMap((verdict) => (commands[verdict] ?? []).map((text) => entryFrom(text, verdict)))
    // Stable, so that of equals the strictest comes first.
    .toSorted((a, b) => b.rank - a.rank);
  const coversAll = entries.some(({ text, verdict }) => text === '*' && verdict !== 'allow');
  const allowed = commands.allow ?? [];
  const instead =
    allowed.length === 0 ? 'Do it without a command.' : `These commands are allowed: ${listed(allowed, 10)}.`;
  return ({ command, facts: { programs, unclear, unchecked, destructive } }) => {
    if (destructive !== undefined) {
      return {
        type: 'deny',
        reason: `the command is destructive: ${destructive}. Name exactly what has to be removed.`,
      };
    }
    if (unchecked !== undefined) {
      return {
        type: 'deny',
        reason: `the command cannot be checked: ${unchecked}. Run smaller commands, and write long data to a file first.`,
      };
    }
    const opinion = jointOpinion(programs.map((program) => judgeProgram(program, entries, instead)));
    if (opinion?.type === 'deny' || unclear === undefined)
      return opinion ?? (programs.length === 0 ? ALLOWED : undefined);
    const text = JSON.stringify(command.length > 200 ? `${command.slice(0, 200)}…` : command);
    const asked = { type: 'ask', reason: `the command ${text} cannot be analysed: ${unclear}` } as const;
    // What an entry asks about is asked in a sandbox too, and an entry for every program is about those that are not known.
    return opinion?.type === 'ask' || coversAll ? asked : { ...asked, unclear: true };
  };
}

function wordsOf(text: string): readonly string[] {
  return text.trim().split(/\s+/);
}

function entryFrom(text: string, verdict: Verdict): Entry {
  const words = wordsOf(text);
  return {
    text,
    words,
    verdict,
    rank: words.reduce((rank, word) => rank + (word === '*' ? 2 : 3), words.length * 1000),
  };
}

function judgeProgram(program: Program, entries: readonly Entry[], instead: string): Opinion | undefined {
  for (const { text, words, verdict } of entries) {
    if (verdict === 'allow') {
      if (matchesExactly(words, program) && covers(words, program)) return ALLOWED;
      continue;
    }
    const match = matchesAnyForm(words, program);
    if (match === 'no') continue;
    const found = JSON.stringify(textOf(program));
    if (match === 'maybe') return { type: 'ask', reason: `${found} has a computed argument, and may be "${text}"` };
    if (verdict === 'ask') return { type: 'ask', reason: `the entry "${text}" asks about ${found}` };
    return { type: 'deny', reason: `the entry "${text}" denies ${found}. ${instead}` };
  }
  return undefined;
}

/** A computed word may be any, so only `*` matches it. */
function matchesExactly(words: readonly string[], { name, args }: Program): boolean {
  if (words.length > args.length + 1) return false;
  return words.every((word, index) => word === '*' || word === (index === 0 ? name : args[index - 1]));
}

/** Whoever allows a program that is not known says which form of it: with a second word, or without any argument. */
function covers(words: readonly string[], { args, unknown }: Program): boolean {
  return !unknown || (words[0] !== '*' && (words.length > 1 || args.length === 0));
}

type Match = 'yes' | 'no' | 'maybe';

function matchesAnyForm([first, ...rest]: readonly string[], { name, args }: Program): Match {
  if (first !== '*' && first !== name && first !== name.slice(name.lastIndexOf('/') + 1)) return 'no';
  let at = 0;
  let certain = true;
  for (const word of rest) {
    // Options stand before the word, each with a value or without.
    let value = false;
    while (at < args.length && word !== '*' && args[at] !== word) {
      const arg = args[at];
      if (arg === undefined) break;
      if (!arg.startsWith('-') && !value) return 'no';
      value = arg.startsWith('-');
      at++;
    }
    if (at >= args.length) return 'no';
    if (args[at] === undefined && word !== '*') certain = false;
    at++;
  }
  return certain ? 'yes' : 'maybe';
}

function textOf({ name, args }: Program): string {
  return [name, ...args.map((arg) => arg ?? '…')].join(' ');
}

/** Entries that the other lists make superfluous, and those that no program matches. */
export function uselessCommands(lists: Lists): readonly (readonly [text: string, why: string])[] {
  const isSame = (text: string) => (other: string) => wordsOf(text).join(' ') === wordsOf(other).join(' ');
  const verdicts = ['deny', 'ask', 'allow'] as const;
  return verdicts.flatMap((verdict, index) =>
    (lists[verdict] ?? []).flatMap((text): (readonly [string, string])[] => {
      const stricter = verdicts.slice(0, index).find((other) => lists[other]?.some(isSame(text)));
      if (stricter) return [[text, `"${stricter}" has the same entry, and the strictest applies`]];
      if (!/[|&;<>()$`"'\\\n]/.test(text)) return [];
      return [[text, 'it has shell syntax. Entries are compared with the words of one program: list each program']];
    }),
  );
}
