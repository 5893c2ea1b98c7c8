import { spawn, type ChildProcess } from 'node:child_process';
import { once } from 'node:events';
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { text } from 'node:stream/consumers';

/** A folder of its own for each client: its home, and where it works. */
export interface ClaudeFolder extends Disposable {
  readonly home: string;
  readonly work: string;
}

export function claudeFolder(): ClaudeFolder {
  const folder = mkdtempSync(path.join(tmpdir(), 'treadle-claude-'));
  const work = mkdtempSync(path.join(folder, 'work-'));
  return { home: folder, work, [Symbol.dispose]: () => rmSync(folder, { recursive: true, force: true }) };
}

export interface ClaudeOptions {
  readonly binary: string;
  readonly url: string;
  readonly folder: ClaudeFolder;
  readonly env?: Readonly<Record<string, string>>;
  /** What the client reads from its standard input; default: nothing. */
  readonly input?: string;
}

export interface ClaudeEnd {
  readonly code: number | null;
  readonly stdout: string;
  readonly stderr: string;
}

/** Starts Claude Code. What it sends elsewhere is refused, and its settings are those of this folder. */
export function startClaude(
  args: readonly string[],
  options: ClaudeOptions,
): { readonly child: ChildProcess; readonly ended: Promise<ClaudeEnd> } {
  const { binary, url, folder, env = {}, input } = options;
  const child = spawn(binary, args, {
    cwd: folder.work,
    env: {
      PATH: process.env['PATH'] ?? '',
      HOME: folder.home,
      ANTHROPIC_BASE_URL: url,
      ANTHROPIC_API_KEY: 'any',
      CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC: '1',
      CLAUDE_CODE_MAX_RETRIES: '2',
      DISABLE_AUTOUPDATER: '1',
      ...env,
    },
    stdio: [input === undefined ? 'ignore' : 'pipe', 'pipe', 'pipe'],
  });
  child.stdin?.end(input);
  const ended = Promise.all([text(child.stdout!), text(child.stderr!), once(child, 'close')]).then(
    ([stdout, stderr, [code]]): ClaudeEnd => ({ stdout, stderr, code: code as number | null }),
  );
  return { child, ended };
}

/** The end of `claude -p … --output-format json`. */
export interface ClaudeResult {
  readonly result?: string;
  readonly is_error: boolean;
  readonly session_id: string;
  readonly num_turns: number;
  readonly usage: Readonly<Record<string, unknown>>;
  readonly structured_output?: unknown;
}
