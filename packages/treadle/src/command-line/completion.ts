import { HELP_FLAG } from './arguments.ts';
import { defineCommand, EXIT, SUMMARIES, type Command, type CommandGroup, type Flag } from './command.ts';

const SHELLS = ['bash', 'zsh', 'fish'] as const;
type Shell = (typeof SHELLS)[number];

/** `load` returns all commands, as they are in the help. */
export function completionCommand(load: () => Promise<readonly (Command | CommandGroup)[]>): Command {
  return defineCommand({
    name: 'completion',
    summary: SUMMARIES.completion,
    arguments: ['SHELL'],
    argumentChoices: SHELLS,
    flags: {},
    notes: [
      'SHELL is bash, zsh or fish. The script completes commands, flags, the values of flags that have a fixed set, and the\n' +
        'names of files, also after an @.',
      'Load it in each shell, with a line in ~/.bashrc or ~/.zshrc:\n' +
        '  source <(treadle completion bash)\n' +
        '  source <(treadle completion zsh)      # after compinit\n' +
        'fish loads it from a file:\n' +
        '  treadle completion fish > ~/.config/fish/completions/treadle.fish',
    ],
    examples: [
      'source <(treadle completion bash)',
      'treadle completion fish > ~/.config/fish/completions/treadle.fish',
    ],
    async run({ arguments: [shell] }, io) {
      io.stdout.write(SCRIPTS[shell as Shell](await load()));
      return EXIT.completed;
    },
  });
}

const SCRIPTS: Readonly<Record<Shell, (table: readonly (Command | CommandGroup)[]) => string>> = {
  bash: bashScript,
  zsh: zshScript,
  fish: fishScript,
};

function commandsIn(table: readonly (Command | CommandGroup)[]): readonly Command[] {
  return table.flatMap((one) => ('commands' in one ? one.commands : one));
}

function groupsIn(table: readonly (Command | CommandGroup)[]): readonly CommandGroup[] {
  return table.filter((one) => 'commands' in one);
}

function lastWord(name: string): string {
  return name.slice(name.lastIndexOf(' ') + 1);
}

function flagsOf(command: Command): readonly (readonly [name: string, flag: Flag])[] {
  return Object.entries({ ...command.flags, help: HELP_FLAG });
}

/** `--model`, and `-m` if it has a short form. */
function wordsFor(name: string, { short }: Flag): readonly string[] {
  return short === undefined ? [`--${name}`] : [`--${name}`, `-${short}`];
}

/** What the word after a flag is: one of a set, a file, a text or a file after an @, a folder, or something else. */
type Operand =
  | { readonly type: 'choice'; readonly choices: readonly string[] }
  | { readonly type: 'file' | 'at-file' | 'folder' | 'other' };

function operandOf(flag: Flag): Operand | undefined {
  if (flag.type === 'switch') return undefined;
  if (flag.type === 'choice') return { type: 'choice', choices: flag.choices };
  if (flag.value === 'FILE') return { type: 'file' };
  if (flag.value.includes('@FILE')) return { type: 'at-file' };
  return { type: flag.value === 'FOLDER' ? 'folder' : 'other' };
}

/** Commands that take files after an @ beside other arguments. */
function atFileCommands(commands: readonly Command[]): readonly Command[] {
  return commands.filter((command) => command.arguments?.some((word) => word.includes('@file')));
}

function quoted(text: string): string {
  return `'${text.replaceAll("'", `'\\''`)}'`;
}

/** One branch of `case` per flag with a value, for the pattern `NAME:FLAG`. */
function operandCases(commands: readonly Command[], offer: (operand: Operand) => string): string {
  const cases = new Map<string, string[]>();
  for (const command of commands) {
    for (const [name, flag] of flagsOf(command)) {
      const operand = operandOf(flag);
      // The value of a flag that can be without one follows after "=".
      if (operand === undefined || (flag.type === 'choice' && flag.bare !== undefined)) continue;
      const patterns = wordsFor(name, flag).map((word) => quoted(`${command.name}:${word}`));
      const action = offer(operand);
      cases.set(action, [...(cases.get(action) ?? []), ...patterns]);
    }
  }
  return [...cases]
    .map(([action, patterns]) => `    ${patterns.join('|')})\n      ${action}\n      return ;;`)
    .join('\n');
}

function bashScript(table: readonly (Command | CommandGroup)[]): string {
  const commands = commandsIn(table);
  const reply = (words: readonly string[]): string => `COMPREPLY=($(compgen -W ${quoted(words.join(' '))} -- "$cur"))`;
  const offer = (operand: Operand): string => {
    if (operand.type === 'choice') return reply(operand.choices);
    if (operand.type === 'at-file') return '_treadle_at_file';
    // Without a reply, bash completes the names of files. Old versions do not have compopt.
    return operand.type === 'other' ? 'compopt +o default 2>/dev/null' : ':';
  };
  return `# Completion of treadle for bash: source <(treadle completion bash)
_treadle_at_file() {
  compopt +o default 2>/dev/null
  case "$cur" in
    @*) ;;
    *) return ;;
  esac
  local IFS=$'\\n' file
  for file in $(compgen -f -- "\${cur#@}"); do
    if [ -d "$file" ]; then
      file="$file/"
      compopt -o nospace 2>/dev/null
    fi
    # Not "compopt -o filenames": bash would quote the @ too.
    COMPREPLY+=("@$(printf %q "$file")")
  done
}
_treadle() {
  local cur="\${COMP_WORDS[COMP_CWORD]}" prev="\${COMP_WORDS[COMP_CWORD-1]}" name="\${COMP_WORDS[1]}"
  COMPREPLY=()
  # Bash makes the @ before a word a word of its own, but passes both as one.
  case "$2" in
    @?*) [ "$prev" = @ ] && cur="$2" prev="\${COMP_WORDS[COMP_CWORD-2]}" ;;
  esac
  if [ "$COMP_CWORD" -eq 1 ]; then
    ${reply([...table.map(({ name }) => name), 'help', '--help', '--version'])}
    return
  fi
  case "$name" in
${groupsIn(table)
  .map(
    (group) => `    ${group.name})
      if [ "$COMP_CWORD" -eq 2 ]; then
        ${reply(group.commands.map(({ name }) => lastWord(name)))}
        return
      fi
      name="$name \${COMP_WORDS[2]}" ;;`,
  )
  .join('\n')}
  esac
  case "$name:$prev" in
${operandCases(commands, offer)}
  esac
  case "$cur" in
    -*)
      case "$name" in
${commands
  .map((command) => {
    const words = flagsOf(command).flatMap(([name, flag]) => wordsFor(name, flag));
    return `        ${quoted(command.name)}) ${reply(words)} ;;`;
  })
  .join('\n')}
      esac ;;
    @*)
      case "$name" in
${atFileCommands(commands)
  .map(({ name }) => `        ${quoted(name)}) _treadle_at_file ;;`)
  .join('\n')}
      esac ;;
    *)
      case "$name" in
${choiceArguments(commands)
  .map(([name, choices]) => `        ${quoted(name)}) ${reply(choices)} ;;`)
  .join('\n')}
      esac ;;
  esac
}
complete -o default -F _treadle treadle
`;
}

/** Commands whose argument is one of a set. */
function choiceArguments(
  commands: readonly Command[],
): readonly (readonly [name: string, choices: readonly string[]])[] {
  return commands.flatMap(({ name, argumentChoices }) => (argumentChoices ? [[name, argumentChoices] as const] : []));
}

function zshScript(table: readonly (Command | CommandGroup)[]): string {
  const commands = commandsIn(table);
  const describe = (what: string, items: readonly (readonly [word: string, help: string])[]): string =>
    `items=(${items.map(([word, help]) => quoted(`${word}:${help}`)).join(' ')}); _describe ${what} items`;
  const offer = (operand: Operand): string => {
    if (operand.type === 'choice') return `compadd -- ${operand.choices.join(' ')}`;
    if (operand.type === 'other') return "_message 'a value'";
    if (operand.type === 'at-file') return "if compset -P @; then _files; else _message 'a text, or @ and a file'; fi";
    return operand.type === 'file' ? '_files' : '_files -/';
  };
  return `#compdef treadle
# Completion of treadle for zsh: source <(treadle completion zsh)
_treadle() {
  local -a items
  local name="$words[2]"
  if (( CURRENT == 2 )); then
    ${describe('command', [...table.map(({ name, summary }) => [name, summary] as const), ['help', 'Show help']])}
    return
  fi
  case "$name" in
${groupsIn(table)
  .map(
    (group) => `    ${group.name})
      if (( CURRENT == 3 )); then
        ${describe(
          'command',
          group.commands.map(({ name, summary }) => [lastWord(name), summary]),
        )}
        return
      fi
      name="$name $words[3]" ;;`,
  )
  .join('\n')}
  esac
  case "$name:$words[CURRENT-1]" in
${operandCases(commands, offer)}
  esac
  if [[ "$words[CURRENT]" == -* ]]; then
    case "$name" in
${commands
  .map((command) => {
    const items = flagsOf(command).flatMap(([name, flag]) =>
      wordsFor(name, flag).map((word) => [word, flag.help] as const),
    );
    return `      ${quoted(command.name)}) ${describe('-o flag', items)} ;;`;
  })
  .join('\n')}
    esac
    return
  fi
  case "$name" in
${atFileCommands(commands)
  .map(({ name }) => `    ${quoted(name)}) compset -P @; _files ;;`)
  .join('\n')}
${choiceArguments(commands)
  .map(([name, choices]) => `    ${quoted(name)}) compadd -- ${choices.join(' ')} ;;`)
  .join('\n')}
    *) _files ;;
  esac
}
if [ "$funcstack[1]" = "_treadle" ]; then
  _treadle "$@"
else
  compdef _treadle treadle
fi
`;
}

function fishScript(table: readonly (Command | CommandGroup)[]): string {
  const groups = groupsIn(table);
  const seen = (...words: readonly string[]): string => `__fish_seen_subcommand_from ${words.join(' ')}`;
  const complete = (...words: readonly string[]): string => ['complete -c treadle', ...words].join(' ');
  /** Fish escapes a quote with a backslash. */
  const text = (value: string): string => `'${value.replaceAll('\\', '\\\\').replaceAll("'", "\\'")}'`;
  const operandWords = (operand: Operand): readonly string[] => {
    if (operand.type === 'choice') return ['-x', '-a', text(operand.choices.join(' '))];
    if (operand.type === 'file') return ['-r', '-F'];
    if (operand.type === 'at-file') return ['-x', '-a', `'(__treadle_at_file)'`];
    return operand.type === 'folder' ? ['-x', '-a', `'(__fish_complete_directories)'`] : ['-x'];
  };
  const isIn = (name: string): string => {
    const [group, word] = name.split(' ');
    return text(word === undefined ? seen(group!) : `${seen(group!)}; and ${seen(word)}`);
  };
  return [
    '# Completion of treadle for fish: treadle completion fish > ~/.config/fish/completions/treadle.fish',
    `function __treadle_at_file
  set -l word (commandline -ct | string replace -r '^--[a-z-]+=' '')
  string match -q -- '@*' $word; or return
  __fish_complete_path (string sub -s 2 -- $word) | string replace -r '^' '@'
end`,
    ...table.map(({ name, summary }) => complete('-n', '__fish_use_subcommand', '-f', '-a', name, '-d', text(summary))),
    ...groups.flatMap(({ name: group, commands }) => {
      const words = commands.map(({ name }) => lastWord(name));
      const condition = text(`${seen(group)}; and not ${seen(...words)}`);
      return commands.map(({ name, summary }) =>
        complete('-n', condition, '-f', '-a', lastWord(name), '-d', text(summary)),
      );
    }),
    ...commandsIn(table).flatMap((command) => [
      ...atFileCommands([command]).map(({ name }) => complete('-n', isIn(name), '-a', `'(__treadle_at_file)'`)),
      ...choiceArguments([command]).map(([name, choices]) =>
        complete('-n', isIn(name), '-f', '-a', text(choices.join(' '))),
      ),
      ...flagsOf(command).map(([name, flag]) => {
        const operand = operandOf(flag);
        const isOptional = flag.type === 'choice' && flag.bare !== undefined;
        return complete(
          '-n',
          isIn(command.name),
          '-l',
          name,
          ...(flag.short === undefined ? [] : ['-s', flag.short]),
          ...(operand === undefined || isOptional ? [] : operandWords(operand)),
          '-d',
          text(flag.help),
        );
      }),
    ]),
    '',
  ].join('\n');
}
