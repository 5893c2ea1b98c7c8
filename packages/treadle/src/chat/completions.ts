import { listFiles, local } from '@treadle/tools';
import type { Choice, Completion } from './prompt-panel.ts';
import type { Chat } from './slash-command.ts';
import { completeCommand } from './slash-commands.ts';

/** A list of this age is read again. */
const FRESH_MS = 5_000;
const MAX_CHOICES = 100;

/** What Tab offers: commands and their arguments after a slash, files after an @. */
export function chatCompletions(chat: () => Chat): (text: string, at: number) => Promise<Completion | undefined> {
  let files: { readonly at: number; readonly paths: Promise<readonly string[]> } | undefined;
  const paths = (): Promise<readonly string[]> => {
    const now = performance.now();
    if (!files || now - files.at > FRESH_MS) {
      const { folder } = chat().session.context;
      files = { at: now, paths: listFiles(local(folder), AbortSignal.timeout(FRESH_MS)) };
    }
    return files.paths;
  };
  return async (text, at) => {
    const before = text.slice(0, at);
    const command = await completeCommand(before, chat());
    if (command) return { ...command, to: at };
    const [, word] = /(?:^|\s)@([^\s@]*)$/.exec(before) ?? [];
    if (word === undefined) return undefined;
    return { from: at - word.length, to: at, choices: matching(word, await paths()) };
  };
}

/** The paths that have the characters of a word in its order, the best first. */
function matching(word: string, paths: readonly string[]): readonly Choice[] {
  const wanted = word.toLowerCase();
  return paths
    .flatMap((path) => {
      const rank = rankOf(wanted, path.toLowerCase());
      return rank === undefined ? [] : [{ path, rank }];
    })
    .sort((a, b) => a.rank - b.rank || a.path.length - b.path.length || (a.path < b.path ? -1 : 1))
    .slice(0, MAX_CHOICES)
    .map(({ path }) => ({ text: path }));
}

function rankOf(wanted: string, path: string): number | undefined {
  const name = path.slice(path.lastIndexOf('/') + 1);
  if (path.startsWith(wanted)) return 0;
  if (name.startsWith(wanted)) return 1;
  if (name.includes(wanted)) return 2;
  if (path.includes(wanted)) return 3;
  let from = 0;
  for (const char of wanted) {
    from = path.indexOf(char, from) + 1;
    if (from === 0) return undefined;
  }
  return 4;
}
