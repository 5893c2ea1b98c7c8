/*
 * What a shell command would do, found without running anything. A command is clear only if it is in the grammar of
 * grammar.ts. Everything else is unclear, and has only guesses, which make a verdict stricter.
 */
import { privatePaths, type Analysers, type CommandFacts } from '@treadle/core/policy';
import { MAX_COMMAND_LENGTH } from '../call-limits.ts';
import { runJob } from '../workers/run-job.ts';
import { guessCommand, type Guesses } from './advice.ts';
import { analyseCode } from './grammar.ts';
import { factsOf, NeedsFiles, newFindings, Unclear } from './scope.ts';

export interface CommandOptions {
  /** The folder that the command runs in, absolute. Without it, what depends on files is unclear. */
  readonly folder?: string;
  /** The shell that runs the command. Some text means different things in `sh`; that is unclear. Default: `bash`. */
  readonly shell?: 'bash' | 'sh';
  /** Globs of paths that are private in addition to the default ones, as in `private.paths` of the rules. */
  readonly private?: readonly string[];
  /** Folders that the run may read. What is in them is not private for where they are. */
  readonly readable?: readonly string[];
}

/** Parentheses and braces that are open at the same time. The parser needs long for more. */
const MAX_OPEN = 128;
/** What a command may cost. */
const MAX_STEPS = 10_000;
/** Longer commands are analysed in a worker, and so are those for which folders have to be listed. */
const MAX_SHORT = 4000;
const MAX_MS = 3000;
/** With the time until a thread is free and has started, which a busy machine needs. */
const MAX_WAIT_MS = 30_000;

/** Finds out what a command would do, in this thread. Prefer `commandAnalyser` where others would have to wait. */
export function commandFacts(command: string, options: CommandOptions = {}): CommandFacts {
  return analyse(command, options, { mayList: true });
}

/** Finds out what commands would do, without blocking this thread for long. */
export function commandAnalyser(given: CommandOptions): NonNullable<Analysers['command']> {
  return (command, about) => {
    const options = about ? { ...given, ...about } : given;
    if (command.length > MAX_SHORT) return inWorker(command, options);
    try {
      return analyse(command, options, { mayList: false });
    } catch (error) {
      if (error instanceof NeedsFiles) return inWorker(command, options);
      throw error;
    }
  };
}

async function inWorker(command: string, options: CommandOptions): Promise<CommandFacts> {
  try {
    return await runJob('commandFacts', { command, options }, AbortSignal.timeout(MAX_WAIT_MS), MAX_MS);
  } catch {
    return uncheckedFacts('its analysis takes too long');
  }
}

/** Throws `NeedsFiles` if folders have to be listed and must not be. */
function analyse(command: string, options: CommandOptions, { mayList }: { readonly mayList: boolean }): CommandFacts {
  const { folder: root, shell } = options;
  const budget = { steps: MAX_STEPS };
  let guesses: Guesses;
  try {
    checkLength(command);
    guesses = guessCommand(command, root, budget);
  } catch (error) {
    if (!(error instanceof Unclear)) throw error;
    return uncheckedFacts(error.message);
  }
  // It is denied at every level, so nobody has to look at all files that it destroys.
  if (guesses.destructive !== undefined) return guesses;
  let readsPrivate: string | undefined;
  let privateGlob: ReturnType<typeof privatePaths> | undefined;
  const isPrivate = (path: string): boolean => {
    const rules = { private: { paths: options.private ?? [] } };
    privateGlob ??= privatePaths(rules, root === undefined ? {} : { folder: root });
    const readable = options.readable?.find((one) => path.startsWith(`${one}/`));
    if (privateGlob({ path, ...(readable !== undefined && { readable }) }) === undefined) return false;
    readsPrivate ??= path;
    return true;
  };
  const found = newFindings();
  const surroundings = { root, budget, mayList, isPrivate, found, posix: shell === 'sh' };
  try {
    analyseCode(command, { ...surroundings, folders: [''], hasInput: false, depth: 0 });
    return factsOf(found);
  } catch (error) {
    if (!(error instanceof Unclear)) throw error;
    return { ...guesses, unclear: error.message, ...(readsPrivate !== undefined && { readsPrivate }) };
  }
}

function uncheckedFacts(unchecked: string): CommandFacts {
  return { programs: [], touches: [], urls: [], unchecked };
}

function checkLength(command: string): void {
  if (command.length > MAX_COMMAND_LENGTH)
    throw new Unclear(`it has ${command.length} characters, and at most ${MAX_COMMAND_LENGTH} are analysed`);
  let open = 0;
  for (const [sign] of command.matchAll(/[(){}]/g)) {
    open = Math.max(0, open + (/[({]/.test(sign) ? 1 : -1));
    if (open > MAX_OPEN) throw new Unclear('it is nested too deeply');
  }
}
