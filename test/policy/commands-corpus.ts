import { existsSync, readFileSync } from 'node:fs';
import path from 'node:path';
import { memoryJournal, runLoop } from '@treadle/core';
import type { Policy } from '@treadle/core/policy';
import { scriptedModel } from '@treadle/core/testing';
import { CANARY, shellTool, type Place } from './shell-fixture.ts';

/* The collections of commands: attacks, and those of an ordinary day. */

const linesOf = (file: string): string[] =>
  readFileSync(new URL(file, import.meta.url), 'utf8')
    .split('\n')
    .filter((line) => line !== '' && !line.startsWith('#'));

export interface Attack {
  readonly verdict: string;
  readonly how: string;
  readonly effect: string;
  readonly text: string;
  readonly trick: string;
}

export const ATTACKS: readonly Attack[] = linesOf('commands.tsv').map((line) => {
  const [verdict = '', how = '', effect = '', text = '', trick = ''] = line.split('\t');
  return { verdict, how, effect, text, trick };
});

export const withControls = (text: string): string =>
  text.replaceAll('␤', '\n').replaceAll('␍', '\r').replaceAll('␀', '\0');

/** Lines of somebody who has not written the analysis. */
export function outsiderLines(): { readonly verdict: string; readonly text: string; readonly what: string }[] {
  return linesOf('outsider-commands.tsv').map((line) => {
    const [verdict = '', text = '', what = ''] = line.split('\t');
    return { verdict, text, what };
  });
}

export const ORDINARY: readonly { readonly command: string; readonly isAsked: boolean }[] = linesOf(
  'ordinary-commands.txt',
).map((line) => ({ command: withControls(line.replace(/^\? /, '')), isAsked: line.startsWith('? ') }));

export function commandIn(place: Place, { text, how }: Attack): string {
  return withControls(text)
    .replaceAll('@OUT@', path.join(place.root, 'out'))
    .replaceAll('@BIN@', how === 'stubs' ? place.stubs : place.tools);
}

/** A model that sends the command and then gives up. Returns what the journal has recorded about the call. */
export async function attempt(
  place: Place,
  attack: Attack,
  policy?: Policy,
): Promise<{ verdicts: string[]; paused: boolean }> {
  const journal = memoryJournal();
  const { waiting } = await runLoop({
    model: scriptedModel([
      { calls: [{ name: 'shell', arguments: { command: commandIn(place, attack) } }] },
      'I give up.',
    ]),
    tools: [shellTool(place, attack.how === 'stubs' ? 'stubs' : 'tools')],
    input: 'go',
    journal,
    runId: 'r',
    ...(policy && { policy }),
  });
  const verdicts = (await journal.read('r')).flatMap(({ event }) =>
    event.type === 'calls-judged' ? event.verdicts.map(({ type }) => type) : [],
  );
  return { verdicts, paused: waiting.length > 0 };
}

/** What shows that an attack got through. */
export function effects({ ran, root }: Place, { effect }: Attack): boolean {
  const [kind, what = ''] = effect.split(' ');
  const output = path.join(root, 'output');
  if (kind === 'ran') return ran().includes(what);
  if (kind === 'wrote') return existsSync(path.join(root, what));
  return existsSync(output) && readFileSync(output, 'utf8').includes(CANARY);
}
