/**
 * Measures the chat in a terminal, with the built package on a pseudoterminal: `npm run bench:terminal`. The model is a server on
 * loopback that streams.
 *
 * - start to prompt: from the start of the process until the prompt is on the terminal, beside `node -e 0`.
 * - a delta: CPU of the chat for each streamed delta, beside a chat that writes into a pipe. The difference is the screen.
 * - a key: from a key to its echo, while deltas arrive.
 */
import { spawn, spawnSync } from 'node:child_process';
import { once } from 'node:events';
import { mkdtempSync, readFileSync, rmSync } from 'node:fs';
import { createServer, type ServerResponse } from 'node:http';
import type { AddressInfo } from 'node:net';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { fileURLToPath } from 'node:url';
import { inPty, type CommandInPty } from '../../test/terminal/emulated-screen.ts';

const MAIN = fileURLToPath(new URL('../../packages/treadle/dist/main.js', import.meta.url));
const STARTS = 15;
const DELTAS = 20_000;
const KEYS = 300;
/** Deltas a second while keys are pressed: more than any provider sends. */
const RATE = 1_000;
const TEXT = 'Some **bold** words and `code` in a line of text, as models write them.\n\n- a point\n- another one\n\n';

const folder = mkdtempSync(path.join(tmpdir(), 'treadle-bench-terminal-'));
let answer: (response: ServerResponse) => void | Promise<void>;
const server = createServer((request, response) => {
  request.resume();
  request.on('end', () => {
    response.writeHead(200, { 'content-type': 'text/event-stream' });
    void answer(response);
  });
}).listen(0, '127.0.0.1');
await once(server, 'listening');
const args = ['chat', '--model', 'm', '--base-url', `http://127.0.0.1:${(server.address() as AddressInfo).port}/v1`];

function frame(delta: object, finish: string | null = null): string {
  const choices = [{ index: 0, delta, finish_reason: finish }];
  return `data: ${JSON.stringify({ id: 'c', object: 'chat.completion.chunk', model: 'm', choices })}\n\n`;
}

function end(response: ServerResponse): void {
  response.end(`${frame({ content: '\n\nTHE END' })}${frame({}, 'stop')}data: [DONE]\n\n`);
}

/** The piece of the text at a place, of 4 characters. */
const piece = (index: number): string => {
  const at = (index * 4) % TEXT.length;
  return TEXT.slice(at, at + 4);
};

async function sendAll(response: ServerResponse): Promise<void> {
  for (let index = 0; index < DELTAS; index++) {
    if (!response.write(frame({ content: piece(index) }))) await once(response, 'drain');
  }
  end(response);
}

function chat(): CommandInPty {
  return inPty(args, folder, { program: [MAIN], size: { columns: 100, rows: 30 } });
}

const sorted = (values: readonly number[]): readonly number[] => values.toSorted((a, b) => a - b);
const at = (values: readonly number[], share: number): number =>
  sorted(values)[Math.min(values.length - 1, Math.floor(values.length * share))]!;
const row = (name: string, value: string): void => console.log(`${name.padEnd(44)} ${value}`);

async function measureStart(): Promise<void> {
  const times: number[] = [];
  const bare: number[] = [];
  for (let index = 0; index < STARTS; index++) {
    const before = performance.now();
    spawnSync(process.execPath, ['-e', '0']);
    bare.push(performance.now() - before);
    const since = performance.now();
    const shown = chat();
    await shown.shows(/^> *$/m);
    times.push(performance.now() - since);
    shown.type('\u0004');
    await shown.exit;
  }
  row('start to prompt, best / median ms', `${at(times, 0).toFixed(0)} / ${at(times, 0.5).toFixed(0)}`);
  row('node -e 0, best / median ms', `${at(bare, 0).toFixed(0)} / ${at(bare, 0.5).toFixed(0)}`);
}

/** User and system time of a process so far, in ms. A tick is 10 ms. */
function cpuOf(pid: number): number {
  const fields = readFileSync(`/proc/${pid}/stat`, 'utf8').split(') ')[1]!.split(' ');
  return (Number(fields[11]) + Number(fields[12])) * 10;
}

async function measureDeltas(): Promise<void> {
  answer = sendAll;
  const shown = chat();
  await shown.shows(/^> *$/m);
  const before = cpuOf(shown.pid);
  shown.type('go\r');
  await shown.shows('THE END');
  const onScreen = cpuOf(shown.pid) - before;
  shown.type('\u0004');
  await shown.exit;

  const piped = spawn(process.execPath, [MAIN, ...args], { cwd: folder, stdio: ['pipe', 'pipe', 'pipe'] });
  piped.stderr.resume();
  await once(piped.stdout, 'data');
  const start = cpuOf(piped.pid!);
  piped.stdin.write('go\n');
  let text = '';
  for await (const bytes of piped.stdout) if ((text = (text + String(bytes)).slice(-100)).includes('THE END')) break;
  const inPipe = cpuOf(piped.pid!) - start;
  piped.kill('SIGKILL');
  const each = (ms: number): string => ((ms * 1_000) / DELTAS).toFixed(0);
  row('CPU of a delta on the screen, us', each(onScreen));
  row('CPU of a delta in a pipe, us', each(inPipe));
}

async function measureKeys(): Promise<void> {
  let isOver = false;
  answer = async (response) => {
    let sent = 0;
    const since = performance.now();
    while (!isOver) {
      const due = ((performance.now() - since) / 1_000) * RATE;
      for (; sent < due; sent++) response.write(frame({ content: piece(sent) }));
      await new Promise((resolve) => setTimeout(resolve, 2));
    }
    end(response);
  };
  const shown = chat();
  await shown.shows(/^> *$/m);
  shown.type('go\r');
  await shown.shows('Some bold');
  const times: number[] = [];
  let typed = '';
  for (let index = 0; index < KEYS; index++) {
    if (typed.length === 50) {
      // What was typed is removed, without a message.
      shown.type('\u0015');
      typed = '';
      await new Promise((resolve) => setTimeout(resolve, 50));
    }
    typed += String.fromCharCode(65 + (index % 26));
    const echo = shown.writes(typed);
    const since = performance.now();
    shown.type(typed.at(-1)!);
    await echo;
    times.push(performance.now() - since);
    await new Promise((resolve) => setTimeout(resolve, 20 + (index % 7)));
  }
  isOver = true;
  await shown.shows('THE END');
  shown.kill('SIGKILL');
  await shown.exit;
  row(
    `key to echo at ${RATE} deltas a second, p50 / p99 ms`,
    `${at(times, 0.5).toFixed(1)} / ${at(times, 0.99).toFixed(1)}`,
  );
}

try {
  await measureStart();
  await measureDeltas();
  await measureKeys();
} finally {
  server.close();
  server.closeAllConnections();
  rmSync(folder, { recursive: true, force: true });
}
