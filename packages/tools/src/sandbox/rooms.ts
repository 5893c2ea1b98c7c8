import { spawn } from 'node:child_process';
import { randomBytes } from 'node:crypto';
import { chmodSync, mkdirSync, mkdtempSync, realpathSync, writeFileSync } from 'node:fs';
import { rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import type { ExecOps, Execution, Room } from '../ops.ts';
import type { Box, Engine, Keeper } from './engine.ts';
import { openProcessGroup } from './process-group.ts';
import { systemCallFilter } from './seccomp.ts';

/*
 * The folders behind /tmp and the home folder of sandboxes, and the processes that hold their networks.
 *
 * 1. All are below one folder of this process. A small process removes it when this one ends, however that happens, and kills
 *    what still runs with the mark.
 * 2. A room is removed when it is closed. Programs that run without a room get one that ends with them.
 */

export interface Rooms {
  /** A variable that all programs have. */
  readonly mark: Readonly<Record<string, string>>;
  readonly blank: { readonly file: string; readonly folder: string };
  readonly filter: string | undefined;
  /** A thread that writes 0 to it is counted with all other programs. Undefined if there is no such group. */
  readonly group: string | undefined;
  readonly gitConfig: string;
  /** Where the proxy may listen. */
  readonly proxySocket: string;
  open(): OpenRoom;
  /** The room with this id, if it is open. */
  get(id: string): OpenRoom | undefined;
}

export interface OpenRoom extends Room {
  readonly tmp: string;
  readonly home: string;
  /** A new folder for files of the engine. */
  readonly scratch: string;
  /** The room is busy until the program has ended. */
  uses(execution: Execution): void;
  /** The process that holds the network. Undefined if the engine has none. */
  keeper(box: Box): Promise<Keeper | undefined>;
}

const MARK = 'TREADLE_BOX';

export interface RoomOptions {
  /** The settings of the user that git needs inside. */
  readonly gitConfig: string;
  /** How many processes all programs may have. */
  readonly processes: number;
}

export function openRooms(exec: ExecOps, engine: Engine, { gitConfig, processes }: RoomOptions): Rooms {
  const base = realpathSync(mkdtempSync(join(tmpdir(), 'treadle-box-')));
  const mark = randomBytes(16).toString('hex');
  const group = openProcessGroup(`treadle-${mark}`, processes);
  removeAtEnd(base, mark, group?.folder);
  const blank = { file: join(base, 'file'), folder: join(base, 'folder') };
  writeFileSync(blank.file, '');
  chmodSync(blank.file, 0);
  mkdirSync(blank.folder, { mode: 0o555 });
  const bytes = systemCallFilter();
  const filter = bytes && join(base, 'filter');
  if (filter !== undefined) writeFileSync(filter, bytes!);
  const config = join(base, 'gitconfig');
  writeFileSync(config, gitConfig, { mode: 0o444 });
  const open = new Map<string, OpenRoom>();
  let count = 0;
  return {
    mark: { [MARK]: mark },
    blank,
    filter,
    group: group?.file,
    gitConfig: config,
    proxySocket: join(base, 'proxy'),
    open() {
      const id = `${mark}-${++count}`;
      const folder = join(base, String(count));
      const room = openRoom({ id, folder, exec, engine, onClosed: () => open.delete(id) });
      open.set(id, room);
      return room;
    },
    get: (id) => open.get(id),
  };
}

function openRoom({
  id,
  folder,
  exec,
  engine,
  onClosed,
}: {
  readonly id: string;
  readonly folder: string;
  readonly exec: ExecOps;
  readonly engine: Engine;
  readonly onClosed: () => void;
}): OpenRoom {
  const [tmp, home] = [join(folder, 'tmp'), join(folder, 'home')];
  mkdirSync(tmp, { recursive: true });
  mkdirSync(home);
  let running = 0;
  let keeper: Promise<Keeper & { readonly execution: Execution }> | undefined;
  return {
    id,
    tmp,
    home,
    get scratch() {
      return mkdtempSync(join(folder, 'engine-'));
    },
    isBusy: () => running > 0,
    uses({ exit }) {
      running++;
      void exit.then(() => running--);
    },
    async keeper(box) {
      if (!engine.keeper) return undefined;
      keeper ??= startKeeper(exec, engine.keeper(box)).then((started) => {
        // Without it a program would join nothing, or the network of another process with its pid.
        void started.execution.exit.then(() => (keeper = undefined));
        return { ...started, box };
      });
      return keeper;
    },
    async close() {
      onClosed();
      const kept = await keeper?.catch(() => undefined);
      await kept?.execution.kill();
      await removeFolder(folder);
    },
  };
}

async function startKeeper(
  exec: ExecOps,
  request: Parameters<ExecOps['start']>[0],
): Promise<{ readonly execution: Execution; readonly pid: number }> {
  const execution = await exec.start({ ...request, baseEnv: { PATH: process.env.PATH ?? '/usr/bin:/bin' } });
  let text = '';
  for await (const { bytes } of untilBroken(execution)) {
    text += Buffer.from(bytes).toString();
    const pid = /^(\d+)\n/.exec(text)?.[1];
    if (pid !== undefined) return { execution, pid: Number(pid) };
  }
  await execution.kill();
  throw new Error(`The network of the sandbox could not be made: ${text.trim()}`);
}

/** Leaves the output open: `for await` would close it. */
async function* untilBroken(execution: Execution): AsyncGenerator<{ readonly bytes: Uint8Array }> {
  const chunks = execution.output[Symbol.asyncIterator]();
  for (let next = await chunks.next(); !next.done; next = await chunks.next()) yield next.value;
}

/** A program may have taken its own folders' permissions away. */
async function removeFolder(folder: string): Promise<void> {
  try {
    await rm(folder, { recursive: true, force: true, maxRetries: 3 });
  } catch {
    const child = spawn('/bin/sh', ['-c', REMOVE, folder], { stdio: 'ignore' });
    await new Promise((done) => child.once('close', done).once('error', done));
  }
}

const REMOVE = `for i in 1 2 3 4 5 6 7 8 9 10; do
  chmod -R u+rwX -- "$0" 2>/dev/null; rm -rf -- "$0" 2>/dev/null && exit; sleep 0.1
done`;

/** The process gets no input before this one has ended. */
function removeAtEnd(base: string, mark: string, group = ''): void {
  const script = `cat >/dev/null
for file in $(grep -alzx "${MARK}=$1" /proc/[0-9]*/environ 2>/dev/null); do
  pid=\${file#/proc/}; kill -9 "\${pid%/environ}" 2>/dev/null
done
for i in 1 2 3 4 5 6 7 8 9 10; do [ -n "$2" ] && ! rmdir -- "$2" 2>/dev/null && sleep 0.1 || break; done
${REMOVE}`;
  const child = spawn('/bin/sh', ['-c', script, base, mark, group], {
    stdio: ['pipe', 'ignore', 'ignore'],
    detached: true,
    env: { PATH: '/usr/bin:/bin' },
    cwd: '/',
  });
  child.on('error', () => {});
  child.unref();
  (child.stdin as unknown as { unref(): void }).unref();
}
