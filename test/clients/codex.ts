import { spawn, type ChildProcess } from 'node:child_process';
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

export interface CodexSettings {
  readonly url: string;
  /** Default: "main", which it does not know. Null: the one that it has itself. */
  readonly model?: string | null;
  readonly transport?: 'HTTP' | 'WebSocket';
  /** Further lines for the model provider, and at the beginning and at the end of its configuration. */
  readonly provider?: string;
  readonly first?: string;
  readonly last?: string;
}

export function codexFolder({ url, model = 'main', transport = 'HTTP', ...lines }: CodexSettings): CodexFolder {
  const { provider = '', first = '', last = '' } = lines;
  const home = mkdtempSync(path.join(tmpdir(), 'treadle-codex-'));
  const work = path.join(home, 'work');
  mkdirSync(work);
  const config = [
    ...(model === null ? [] : [`model = "${model}"`]),
    'model_provider = "treadle"',
    first,
    '[model_providers.treadle]',
    'name = "Treadle"',
    `base_url = "${url}/v1"`,
    'wire_api = "responses"',
    `supports_websockets = ${transport === 'WebSocket'}`,
    provider,
    last,
  ];
  writeFileSync(path.join(home, 'config.toml'), `${config.join('\n')}\n`);
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
  readonly usage?: Readonly<Record<string, number>>;
  readonly item?: { readonly type: string; readonly text?: string; readonly [field: string]: unknown };
}

/** Starts `codex exec --json` in its folder. Its commands are not sandboxed. */
export function startCodex(
  binary: string,
  folder: CodexFolder,
  args: readonly string[],
): { readonly child: ChildProcess; readonly ended: Promise<CodexEnd> } {
  const fixed = ['exec', '--json', '--skip-git-repo-check', '--dangerously-bypass-approvals-and-sandbox'];
  const child = spawn(binary, [...fixed, ...args], {
    cwd: folder.work,
    env: { PATH: process.env['PATH'] ?? '', HOME: folder.home, CODEX_HOME: folder.home, TREADLE_KEY: 'secret-key' },
    stdio: ['ignore', 'pipe', 'pipe'],
  });
  const ended = Promise.all([text(child.stdout), text(child.stderr), once(child, 'close')]).then(
    ([stdout, stderr, [code]]): CodexEnd => {
      const lines = stdout.split('\n').filter((line) => line.startsWith('{'));
      return { code: code as number | null, stderr, events: lines.map((line) => JSON.parse(line) as CodexEvent) };
    },
  );
  return { child, ended };
}

/** The last message of the model. */
export function answerIn({ events, stderr }: CodexEnd): string {
  const said = events.flatMap(({ item }) => (item?.type === 'agent_message' ? (item.text ?? '') : []));
  return said.at(-1) ?? `no answer: ${JSON.stringify(events)} ${stderr}`;
}

export function sessionIn({ events, stderr }: CodexEnd): string {
  const session = events.find(({ thread_id: id }) => id !== undefined)?.thread_id;
  if (session === undefined) throw new Error(`Codex has no session: ${stderr}`);
  return session;
}

/** What it says about its failure. */
export function failureIn({ events }: CodexEnd): string {
  return events.flatMap(({ type, message }) => (type === 'error' ? (message ?? '') : [])).at(-1) ?? '';
}
