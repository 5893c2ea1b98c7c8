import { tool, type Tool, type ToolContext } from '@treadle/core';
import { didYouMean } from '@treadle/core/nearest';
import { privatePaths } from '@treadle/core/policy';
import type { Ops } from '../ops.ts';
import { timeoutFor, timeoutParameter } from '../call-limits.ts';
import { ToolError } from '../tool-error.ts';
import { JobError, runJob } from '../workers/run-job.ts';
import { findFiles } from './find-files.ts';
import { globPattern } from './glob-pattern.ts';
import { count, CUT_NOTE, listing, shownName, type Listing } from './listing.ts';
import type { FoundInFile, TextSearch } from './search-text.ts';
import { readBytes } from './text-file.ts';
import { quoted, workspaceOf, type Located, type Workspace } from './workspace.ts';

const MAX_MATCHES = 200;
const MAX_RESULTS = 1_000;
const MAX_CONTEXT = 10;
const MAX_PATTERN_CHARS = 1_000;
/** Larger files are not searched. */
const MAX_FILE_BYTES = 32 * 1024 * 1024;
/** For a search in a folder. The files are not counted: ripgrep does not tell. */
const NO_MATCH = 'no match; binary files, files over 32 MB and what .gitignore excludes were not searched';
/** What is searched in one job. */
const BATCH = { files: 64, bytes: 4 * 1024 * 1024, atOnce: 8 };

/** Names of files by language or format, for the argument `type` of grep. */
const FILE_TYPES: Readonly<Record<string, readonly string[]>> = {
  c: ['*.c', '*.h'],
  config: ['*.toml', '*.ini', '*.cfg', '*.conf', '*.env', '*.properties'],
  cpp: ['*.cpp', '*.cc', '*.cxx', '*.hpp', '*.hh', '*.hxx', '*.h'],
  cs: ['*.cs', '*.csx'],
  css: ['*.css', '*.scss', '*.sass', '*.less'],
  docker: ['Dockerfile', 'Dockerfile.*', '*.dockerfile', 'Containerfile', 'compose.yml', 'compose.yaml'],
  go: ['*.go', 'go.mod', 'go.sum'],
  html: ['*.html', '*.htm', '*.xhtml'],
  java: ['*.java'],
  js: ['*.js', '*.jsx', '*.mjs', '*.cjs'],
  json: ['*.json', '*.jsonc', '*.json5', '*.jsonl'],
  kotlin: ['*.kt', '*.kts'],
  lua: ['*.lua'],
  make: ['Makefile', 'makefile', 'GNUmakefile', '*.mk'],
  md: ['*.md', '*.mdx', '*.markdown'],
  php: ['*.php'],
  py: ['*.py', '*.pyi'],
  rb: ['*.rb', '*.rake', 'Gemfile', 'Rakefile'],
  rust: ['*.rs'],
  sh: ['*.sh', '*.bash', '*.zsh', '*.fish'],
  sql: ['*.sql'],
  swift: ['*.swift'],
  ts: ['*.ts', '*.tsx', '*.mts', '*.cts'],
  txt: ['*.txt', '*.log', '*.csv', '*.tsv'],
  vue: ['*.vue', '*.svelte'],
  xml: ['*.xml', '*.xsd', '*.xsl', '*.svg'],
  yaml: ['*.yaml', '*.yml'],
};

interface GrepInput {
  readonly pattern: string;
  readonly path?: string;
  readonly glob?: string;
  readonly type?: string;
  readonly ignore_case?: boolean;
  readonly output?: TextSearch['output'];
  readonly context?: number;
  readonly max_results?: number;
}

export function grepTool(ops: Ops): Tool {
  return tool({
    name: 'grep',
    description:
      'Search the text of files, line by line, with a regular expression. Returns "file:line: text" for each line that ' +
      'matches, sorted by file; or only the files, or counts. Left out: what .gitignore excludes, node_modules, .git and ' +
      '.treadle (but you may give such a folder or file as path), symbolic links, binary files, files over 32 MB, and what ' +
      'may not be read. Use glob to find files by name, and read to see more of a file.',
    input: {
      type: 'object',
      properties: {
        pattern: {
          type: 'string',
          description:
            'Regular expression in RE2 syntax, such as "function \\w+"; no lookaround and backreferences. Line ends, LF or ' +
            'CRLF, are not part of a line',
        },
        path: { type: 'string', description: 'File or folder to search; default: the working folder' },
        glob: { type: 'string', description: 'Only files that match, such as "*.ts" or "src/**/*.json"' },
        type: {
          type: 'string',
          description: `Only files of a type: ${Object.keys(FILE_TYPES).join(', ')}`,
        },
        ignore_case: { type: 'boolean', description: 'Upper and lower case are the same' },
        output: {
          type: 'string',
          enum: ['content', 'files', 'count'],
          description: 'The lines (default), the files with matches, or the number of lines that match per file',
        },
        context: {
          type: 'integer',
          minimum: 0,
          maximum: MAX_CONTEXT,
          description: 'Lines to show before and after each match; default 0',
        },
        max_results: {
          type: 'integer',
          minimum: 1,
          maximum: MAX_RESULTS,
          description: `Matches or files to return at most; default ${MAX_MATCHES}`,
        },
        timeout_ms: timeoutParameter('files'),
      },
      required: ['pattern'],
      additionalProperties: false,
    },
    effect: 'pure',
    touches: ({ path = '.' }) => [{ type: 'read', path: String(path) }],
    permissions: ['file_read'],
    timeoutMs: timeoutFor('files'),
    execute: (input, context) => grep(ops, workspaceOf(ops.files, context), input as unknown as GrepInput, context),
  });
}

async function grep(ops: Ops, space: Workspace, input: GrepInput, { signal, report }: ToolContext): Promise<string> {
  signal.throwIfAborted();
  const { output = 'content', max_results: maxResults = MAX_MATCHES, ignore_case: ignoreCase = false } = input;
  if (input.pattern === '' || input.pattern.length > MAX_PATTERN_CHARS) {
    throw invalid(`The pattern has to have 1 to ${MAX_PATTERN_CHARS} characters. Give a shorter one.`);
  }
  const pattern = input.glob === undefined || input.glob.includes('/') ? input.glob : `**/${input.glob}`;
  if (pattern !== undefined) globPattern(pattern);
  const names = input.type === undefined ? undefined : namesOf(input.type);
  const search = {
    pattern: input.pattern,
    ignoreCase,
    output,
    context: input.context ?? 0,
    maxMatches: maxResults + 1,
  };
  const from = await space.locate(input.path ?? '.');
  const results = resultList(output, maxResults);
  // Also says whether the expression is valid, before files are looked for.
  await searchBatch(search, [], signal);

  if (from.kind !== 'folder') {
    const bytes = await readFile(space, input.path ?? '.', signal);
    if (bytes === undefined) {
      throw new ToolError(
        `${quoted(from)} is larger than ${MAX_FILE_BYTES} bytes, so it cannot be searched. Use read for parts of it.`,
      );
    }
    const [found] = await searchBatch(search, [bytes], signal);
    if (found!.isBinary) throw new ToolError(`${quoted(from)} is a binary file, so it cannot be searched.`);
    results.add(from.shown, found!);
    return results.text('no match', []);
  }

  const request = { pattern: input.pattern, ignoreCase, maxFileBytes: MAX_FILE_BYTES };
  const { paths, isCut } = await findFiles(ops, space, { from, pattern, names, search: request }, signal);
  let searched = 0;
  for await (const batch of batches(space, from, paths, signal)) {
    const found = await searchBatch(
      search,
      batch.map(({ bytes }) => bytes),
      signal,
    );
    searched += batch.length;
    report(`searched ${count(searched, 'file')}`);
    if (!found.every((one, i) => results.add(batch[i]!.shown, one))) break;
  }
  return results.text(NO_MATCH, isCut ? [CUT_NOTE] : []);
}

function namesOf(type: string): readonly string[] {
  const names = Object.hasOwn(FILE_TYPES, type) ? FILE_TYPES[type] : undefined;
  if (names) return names;
  const known = Object.keys(FILE_TYPES);
  throw invalid(
    `There is no file type ${JSON.stringify(type.slice(0, 50))}.${didYouMean(type.slice(0, 50), known)} Known types: ` +
      `${known.join(', ')}. For others use glob.`,
  );
}

const privateGlob = privatePaths({}, {});

interface ReadFile {
  readonly shown: string;
  readonly bytes: Uint8Array;
}

/** Reads files, some at a time. What cannot be read, or not any more, is left out. */
async function* batches(
  space: Workspace,
  from: Located,
  paths: AsyncIterable<string>,
  signal: AbortSignal,
): AsyncGenerator<readonly ReadFile[]> {
  let batch: ReadFile[] = [];
  let bytes = 0;
  let ahead: Promise<ReadFile | undefined>[] = [];
  const take = async (): Promise<void> => {
    for (const read of await Promise.all(ahead)) {
      if (!read) continue;
      batch.push(read);
      bytes += read.bytes.length;
    }
    ahead = [];
    signal.throwIfAborted();
  };
  const start = async (path: string): Promise<ReadFile | undefined> => {
    const content = await readFile(space, `${from.real}/${path}`, signal).catch(() => undefined);
    return content && { shown: from.shown === '.' ? path : `${from.shown}/${path}`, bytes: content };
  };
  const named = privateGlob({ path: from.real });
  for await (const path of paths) {
    // A private file is searched only if what the call names is private for the same reason, so that it was judged so.
    const glob = privateGlob({ path: `${from.real}/${path}` });
    if (glob !== undefined && glob !== named) continue;
    if (ahead.push(start(path)) < BATCH.atOnce) continue;
    await take();
    if (batch.length < BATCH.files && bytes < BATCH.bytes) continue;
    yield batch;
    [batch, bytes] = [[], 0];
  }
  await take();
  if (batch.length > 0) yield batch;
}

/** Undefined: it is too large. */
async function readFile(space: Workspace, path: string, signal: AbortSignal): Promise<Uint8Array | undefined> {
  const file = await space.open(path);
  try {
    return file.size > MAX_FILE_BYTES ? undefined : await readBytes(file, signal, MAX_FILE_BYTES);
  } finally {
    await file.handle.close();
  }
}

async function searchBatch(
  search: Omit<TextSearch, 'files'>,
  files: readonly Uint8Array[],
  signal: AbortSignal,
): Promise<readonly FoundInFile[]> {
  try {
    const found = await runJob('searchTexts', { ...search, files }, signal);
    if (found.type === 'searched') return found.files;
    throw invalid(
      `The pattern is not valid: ${found.problem}. Use RE2 syntax, which has no lookaround and backreferences, and put "\\" ` +
        `before a literal character such as ( or [.`,
    );
  } catch (error) {
    if (!(error instanceof JobError)) throw error;
    throw new ToolError(`The search failed: ${error.message} Use a simpler pattern.`, 'execution_failed', {
      cause: error,
    });
  }
}

interface ResultList {
  /** Returns false if the list is full. */
  add(shown: string, found: FoundInFile): boolean;
  /** `nothing`: the first note if there are no results. */
  text(nothing: string, notes: readonly string[]): string;
}

function resultList(output: TextSearch['output'], maxResults: number): ResultList {
  const found: Listing = listing(Infinity);
  let results = 0;
  let isFull = false;
  let last: { readonly shown: string; readonly number: number } | undefined;

  function addLines(shown: string, { lines }: FoundInFile): void {
    const name = shownName(shown);
    const hasContext = lines.some(({ isMatch }) => !isMatch);
    for (const { number, isMatch, text } of lines) {
      if (isMatch && results === maxResults) {
        isFull = true;
        return;
      }
      const isNext = last?.shown === shown && last.number === number - 1;
      if (hasContext && last && !isNext) found.add('--');
      isFull = !found.add(isMatch ? `${name}:${number}: ${text}` : `${name}-${number}- ${text}`);
      if (isFull) return;
      last = { shown, number };
      if (isMatch) results++;
    }
  }

  return {
    add(shown, one) {
      if (one.matches === 0 || isFull) return !isFull;
      if (output === 'content') addLines(shown, one);
      else {
        isFull =
          results === maxResults ||
          !found.add(output === 'count' ? `${shownName(shown)}: ${one.matches}` : shownName(shown));
        if (!isFull) results++;
      }
      return !isFull;
    },
    text(nothing, notes) {
      if (results === 0) return found.text([nothing, ...notes]);
      const what = output === 'content' ? 'matches' : 'files';
      const more = `only the first ${results} ${what} are shown: narrow the pattern, or give a path, glob or type`;
      return found.text([...(isFull ? [more] : []), ...notes]);
    },
  };
}

function invalid(message: string): ToolError {
  return new ToolError(message, 'invalid_params');
}
