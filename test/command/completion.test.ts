import { spawnSync } from 'node:child_process';
import { tmpdir } from 'node:os';
import { describe, expect, test } from 'vitest';
import { needs } from '../needs.ts';
import { PROCESS_ENV } from '../process-env.ts';
import { command } from './in-process.ts';
import { playground } from './playground.ts';

async function script(shell: string): Promise<string> {
  const { code, stdout } = await command(['completion', shell], tmpdir());
  expect(code).toBe(0);
  return stdout;
}

/** Prints what a shell completes for the words of a line, of which the last one may be empty. */
const COMPLETE: Readonly<Record<string, readonly [args: readonly string[], after: string]>> = {
  bash: [
    ['--norc', '-s', '--'],
    // Bash makes an @ before a word a word of its own, but passes both as the second argument.
    `COMP_WORDS=(); for word in "$@"; do
  case "$word" in @?*) COMP_WORDS+=(@ "\${word#@}") ;; *) COMP_WORDS+=("$word") ;; esac
done
COMP_CWORD=$((\${#COMP_WORDS[@]} - 1)); _treadle treadle "$word" "\${COMP_WORDS[COMP_CWORD-1]}"
printf "%s\\n" "\${COMPREPLY[@]}"`,
  ],
  // The functions of its completion system need a terminal.
  zsh: [
    ['-f', '-s', '--'],
    `_describe() { print -l -- "\${(@)items%%:*}" }; compadd() { shift; print -l -- "$@" }; _files() { print -l -- $prefix*(N) }
compset() { [[ "$words[CURRENT]" == @* ]] && prefix="\${words[CURRENT]#@}" }; _message() {}; words=("$@"); CURRENT=$#; _treadle`,
  ],
  fish: [[], 'complete -C "$argv" | string split -f 1 \\t'],
};

function complete(shell: string, loaded: string, words: readonly string[], cwd = tmpdir()): string[] {
  const [args, after] = COMPLETE[shell]!;
  const options = { encoding: 'utf8', cwd, env: { ...PROCESS_ENV, TERM: 'dumb', HOME: tmpdir() } } as const;
  const { stdout, stderr } =
    shell === 'fish'
      ? spawnSync(shell, ['--no-config', '-c', `${loaded}\n${after}`, words.join(' ')], options)
      : spawnSync(shell, [...args, ...words], { ...options, input: `compdef() { :; }\n${loaded}\n${after}\n` });
  expect(stderr).toBe('');
  const last = words.at(-1)!;
  // zsh keeps the @ itself.
  const found = stdout.split('\n').map((word) => (shell === 'zsh' && last.startsWith('@') && word ? `@${word}` : word));
  return found.filter((word) => word !== '' && word.startsWith(last));
}

describe.each(Object.keys(COMPLETE))('%s', (shell) => {
  const isHere = spawnSync(shell, ['--version']).status === 0;

  test.runIf(needs(shell, isHere))('completes commands, flags and values', async () => {
    const loaded = await script(shell);
    const first = complete(shell, loaded, ['treadle', 'ru']);
    expect(first.toSorted()).toEqual(['run', 'runs']);
    expect(complete(shell, loaded, ['treadle', 'runs', 're']).toSorted()).toEqual(['release', 'replay', 'resume']);
    expect(complete(shell, loaded, ['treadle', 'run', '--fin'])).toEqual(['--finish']);
    expect(complete(shell, loaded, ['treadle', 'run', '--finish', 'c'])).toEqual(['confirm']);
    expect(complete(shell, loaded, ['treadle', 'runs', 'list', '--status', 'int'])).toEqual(['interrupted']);
    expect(complete(shell, loaded, ['treadle', 'completion', 'z'])).toEqual(['zsh']);
    expect(complete(shell, loaded, ['treadle', 'chat', '--output-sch'])).toEqual([]);
  });

  test.runIf(needs(shell, isHere))('completes files after an @ where they are accepted', async () => {
    const loaded = await script(shell);
    const play = await playground();
    await play.write('notes/a.txt', '');
    const found = (...words: string[]): string[] =>
      complete(shell, loaded, ['treadle', ...words], play.folder).map((word) => word.replace(/\/$/, ''));
    try {
      expect(found('run', '@no').toSorted()).toEqual(['@notes', '@notes.txt']);
      expect(found('run', 'hi', '@notes.')).toEqual(['@notes.txt']);
      expect(found('run', '--system', '@notes.')).toEqual(['@notes.txt']);
      expect(found('run', '--system', 'notes.')).toEqual([]);
      expect(found('chat', '--system', '@notes/')).toEqual(['@notes/a.txt']);
    } finally {
      await play.remove();
    }
  });
});

test('the scripts have every command and every flag of the help', async () => {
  const { stdout: help } = await command(['--help'], tmpdir());
  const names = [...help.matchAll(/^ {2}([a-z]+) {2}/gm)].map(([, name]) => name!);
  expect(names).toContain('completion');
  const { stdout: runHelp } = await command(['run', '--help'], tmpdir());
  const flags = [...runHelp.matchAll(/^ +(?:-\w, )?--([a-z-]+)/gm)].map(([, flag]) => flag!);
  for (const shell of Object.keys(COMPLETE)) {
    const text = await script(shell);
    for (const name of names) expect(text).toMatch(new RegExp(`\\b${name}\\b`));
    for (const flag of flags) expect(text).toMatch(shell === 'fish' ? `-l ${flag} ` : `--${flag}`);
  }
});

test('rejects another shell', async () => {
  const { code, stderr } = await command(['completion', 'powershell'], tmpdir());
  expect([code, stderr]).toEqual([2, expect.stringContaining('It takes bash or zsh or fish.')]);
});
