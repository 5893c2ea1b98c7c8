import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { mkdirSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { text } from 'node:stream/consumers';

/** A folder of its own for each client: its home, and where it works. */
export interface CodexFolder extends Disposable {
  readonly home: string;
  readonly work: string;
}

/** `settings`: further lines of its configuration. */
export function codexFolder(url: string, settings = ''): CodexFolder {
  const home = mkdtempSync(path.join(tmpdir(), 'treadle-codex-'));
  const work = path.join(home, 'work');
  mkdirSync(work);
  const provider = `[model_providers.treadle]\nname = "Treadle"\nbase_url = "${url}/v1"\nwire_api = "responses"\n`;
  const config = `model = "main"\nmodel_provider = "treadle"\n${provider}${settings}\n`;
  writeFileSync(path.join(home, 'config.toml'), config);
  return { home, work, [Symbol.dispose]: () => rmSync(home, { recursive: true, force: true }) };
}

export interface CodexEnd {
  readonly code: number | null;
  readonly stderr: string;
  /** The events that it prints, one in each line. */
  readonly events: readonly CodexEvent[];
}

export interface CodexEvent {
  readonly type: string;
  readonly thread_id?: string;
  readonly message?: string;
  readonly item?: { readonly type: string; readonly text?: string };
}

/** Runs `codex exec --json` in its folder. Its commands are not sandboxed. */
export async function runCodex(binary: string, folder: CodexFolder, args: readonly string[]): Promise<CodexEnd> {
  const fixed = ['exec', '--json', '--skip-git-repo-check', '--dangerously-bypass-approvals-and-sandbox'];
  const child = spawn(binary, [...fixed, ...args], {
    cwd: folder.work,
    env: { PATH: process.env['PATH'] ?? '', HOME: folder.home, CODEX_HOME: folder.home },
    stdio: ['ignore', 'pipe', 'pipe'],
  });
  const [stdout, stderr, [code]] = await Promise.all([text(child.stdout), text(child.stderr), once(child, 'close')]);
  const lines = stdout.split('\n').filter((line) => line.startsWith('{'));
  return { code: code as number | null, stderr, events: lines.map((line) => JSON.parse(line) as CodexEvent) };
}

/** The last message of the model. */
export function answerIn({ events, stderr }: CodexEnd): string {
  const said = events.flatMap(({ item }) => (item?.type === 'agent_message' ? (item.text ?? '') : []));
  return said.at(-1) ?? `no answer: ${JSON.stringify(events)} ${stderr}`;
}
