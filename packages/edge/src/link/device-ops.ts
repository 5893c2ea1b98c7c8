import type { Place, PlaceAnalysers } from '@treadle/core/policy';
import type { CommandFacts, PathFacts } from '@treadle/core/policy';
import {
  DeniedError,
  type ExecOps,
  type ExecRequest,
  type Execution,
  type Exit,
  type FileOps,
  type FileStatus,
  type FolderEntry,
  type Ops,
  type OutputChunk,
  type Room,
} from '@treadle/tools';
import { MAX_PART_BYTES } from '../protocol/command.ts';
import type { Fields } from '../protocol/message.ts';
import { EdgeError, type EdgeLink } from './link.ts';

/*
 * The files and programs of a device, for tools that run here.
 *
 * 1. An operation is executed by one start of the device, once, or not at all.
 * 2. If the device goes away during an operation, it fails, and it is not known whether it took effect.
 * 3. The output of a program is pulled while somebody reads it, so the program waits for its reader.
 */

/** For a device that is away, if nothing else is configured. */
export const WAIT_MS = 3_600_000;
/** For one operation. Questions about programs wait on the device for up to 15 seconds. */
const OPERATION_MS = 30_000;

/** Throws if the device does not offer its files. `ops` of a device that is away fail. */
export function deviceOps(link: EdgeLink, device: string): Ops {
  const { capabilities } = link.device(device) ?? {};
  const { ops, folder } = capabilities ?? {};
  if (!ops || folder === undefined) throw new EdgeError('refused', `The device "${device}" does not offer its files.`);
  const operate = operating(link, device);
  return { files: deviceFiles(operate, folder), exec: deviceExec(operate, device, ops) };
}

type Operate = <T = Fields>(op: string, args?: object) => Promise<T>;

function operating(link: EdgeLink, device: string): Operate {
  return async <T>(op: string, args: object = {}): Promise<T> => {
    const { session } = link.device(device) ?? {};
    if (session === undefined) throw new EdgeError('offline', `The device "${device}" has not been seen.`);
    try {
      const payload = { op, args: args as Fields };
      return (await link.ask(device, { type: 'ops', payload, session }, { timeoutMs: OPERATION_MS })) as T;
    } catch (error) {
      throw operationError(error, device);
    }
  };
}

/** A call that waits for its device is judged when the device is back: without it, nobody knows what the call would touch. */
async function whenHere(link: EdgeLink, device: string): Promise<void> {
  const { onOffline = 'error', waitMs = WAIT_MS } = link.optionsOf(device);
  if (await link.whenReady(device, onOffline === 'wait' ? waitMs : 0)) return;
  const { reason } = link.device(device) ?? {};
  throw new EdgeError('offline', `The device "${device}" is offline${reason === undefined ? '' : ` (${reason})`}.`);
}

/** The error as it would be on this machine. */
function operationError(error: unknown, device: string): unknown {
  if (!(error instanceof EdgeError)) return error;
  if (error.code !== 'refused') {
    const unknown = `${error.message} It is not known whether the operation took effect.`;
    return Object.assign(new Error(unknown, { cause: error }), { code: 'EHOSTDOWN' });
  }
  const { result } = error as EdgeError & { readonly result?: Fields };
  if (result?.['name'] === 'DeniedError') return new DeniedError(error.message);
  const { code, path } = result ?? {};
  return Object.assign(new Error(error.message || `The device "${device}" refused the operation.`, { cause: error }), {
    ...(typeof code === 'string' && { code }),
    ...(typeof path === 'string' && { path }),
  });
}

function deviceFiles(operate: Operate, folder: string): FileOps {
  return {
    folder,
    stat: (path) => operate<FileStatus>('stat', { path }),
    async open(path) {
      const { file, ...status } = await operate<FileStatus & { readonly file: string }>('open', { path });
      let next = 0;
      return {
        ...status,
        handle: {
          async read(buffer, offset, length, position) {
            const start = position ?? next;
            let bytesRead = 0;
            while (bytesRead < length) {
              const asked = Math.min(length - bytesRead, MAX_PART_BYTES);
              const { data } = await operate<{ data: string }>('read', {
                file,
                offset: start + bytesRead,
                length: asked,
              });
              const bytes = Buffer.from(data, 'base64');
              buffer.set(bytes, offset + bytesRead);
              bytesRead += bytes.length;
              if (bytes.length < asked) break;
            }
            if (position === null) next = start + bytesRead;
            return { bytesRead };
          },
          async close() {
            await operate('close', { file });
          },
        },
      };
    },
    list: async (path) => (await operate<{ entries: readonly FolderEntry[] }>('list', { path })).entries,
    async write(path, content, options) {
      const bytes = Buffer.from(content as Uint8Array);
      const shared = { path, ...(options && { options }) };
      if (bytes.length <= MAX_PART_BYTES) {
        await operate('write', { ...shared, data: bytes.toString('base64') });
        return;
      }
      let upload: string | undefined;
      for (let at = 0; at < bytes.length; at += MAX_PART_BYTES) {
        const data = bytes.subarray(at, at + MAX_PART_BYTES).toString('base64');
        ({ upload } = await operate<{ upload: string }>('upload', { data, ...(upload !== undefined && { upload }) }));
      }
      await operate('write', { ...shared, upload });
    },
    async remove(path, options) {
      await operate('remove', { path, ...(options && { options }) });
    },
    async rename(from, to) {
      await operate('rename', { from, to });
    },
  };
}

interface OfferedExec {
  readonly exec?: boolean;
  readonly sandbox?: { readonly engine: string; readonly promises: readonly string[] };
}

/** The device kills a program that nobody asks about for a minute. */
const KEEP_MS = 20_000;

function deviceExec(operate: Operate, device: string, { exec: hasExec, sandbox }: OfferedExec): ExecOps {
  const busy = new Map<string, number>();
  /** Programs that are not known to be gone with all that they have started, and their marks. */
  const kept = new Map<string, string | undefined>();
  let keeping: NodeJS.Timeout | undefined;

  function keep(execution: string, mark: string | undefined): void {
    kept.set(execution, mark);
    keeping ??= setInterval(() => void operate('keep', { executions: [...kept.keys()] }).catch(() => {}), KEEP_MS);
    keeping.unref();
  }

  function forget(isGone: (execution: string, mark: string | undefined) => boolean): void {
    for (const [execution, mark] of kept) if (isGone(execution, mark)) kept.delete(execution);
    if (kept.size > 0) return;
    clearInterval(keeping);
    keeping = undefined;
  }

  async function start({ room, ...request }: ExecRequest): Promise<Execution> {
    if (!hasExec) throw new DeniedError(`The device "${device}" does not offer its programs.`);
    const sent = { ...request, env: definedOnly(request.env), ...(room && { room: room.id }) };
    const { execution, process } = await operate<{ execution: string; process: Execution['process'] }>('start', {
      request: sent,
    });
    keep(execution, request.mark);
    const onKilled = (): void => forget((id) => id === execution);
    const made = deviceExecution(operate, { execution, process: { ...process, host: `device:${device}` }, onKilled });
    if (room) {
      busy.set(room.id, (busy.get(room.id) ?? 0) + 1);
      void made.exit.then(() => busy.set(room.id, busy.get(room.id)! - 1));
    }
    return made;
  }

  async function openRoom(): Promise<Room> {
    const { room: id } = await operate<{ room: string }>('open-room');
    return {
      id,
      isBusy: () => (busy.get(id) ?? 0) > 0,
      async close() {
        busy.delete(id);
        await operate('close-room', { room: id });
      },
    };
  }

  const killMarked = async (mark: string): Promise<void> => {
    await operate('kill-marked', { mark });
    forget((_, of) => of === mark);
  };
  const outside: ExecOps = {
    start: () => Promise.reject(new DeniedError(`The device "${device}" runs programs only in its sandbox.`)),
    killMarked,
  };
  return {
    start,
    killMarked,
    ...(sandbox && { sandbox: { ...sandbox, outside, openRoom, blocked: () => undefined } }),
  };
}

/** JSON has no undefined: a variable that is removed is null there. */
function definedOnly(env: ExecRequest['env']): Readonly<Record<string, string | null>> | undefined {
  return env && Object.fromEntries(Object.entries(env).map(([name, value]) => [name, value ?? null]));
}

interface StartedExecution {
  readonly execution: string;
  readonly process: Execution['process'];
  readonly onKilled: () => void;
}

function deviceExecution(operate: Operate, { execution, process, onKilled }: StartedExecution): Execution {
  async function exited(): Promise<Exit> {
    for (;;) {
      const { exit } = await operate<{ exit?: Exit }>('wait', { execution });
      if (exit) return { exitCode: exit.exitCode, signal: exit.signal };
    }
  }
  // A program of a device that went away is killed there.
  const exit = exited().catch((): Exit => ({ exitCode: undefined, signal: 'SIGKILL' }));
  async function* output(): AsyncGenerator<OutputChunk> {
    for (let isOver = false; !isOver;) {
      const pulled = await operate<Pulled>('pull', { execution, bytes: MAX_PART_BYTES });
      isOver = pulled.ended === true;
      for (const { stream, data } of pulled.chunks) yield { stream, bytes: Buffer.from(data, 'base64') };
    }
  }
  return {
    process,
    output: output(),
    exit,
    async write(text) {
      await operate('input', { execution, text });
    },
    endInput: () => void operate('end-input', { execution }).catch(() => {}),
    async kill() {
      try {
        await operate('kill', { execution });
      } catch (error) {
        // It is not open there any more, so it was killed.
        if ((error as NodeJS.ErrnoException).code !== 'EBADF') throw error;
      }
      onKilled();
      await exit;
    },
  };
}

interface Pulled {
  readonly chunks: readonly { readonly stream: OutputChunk['stream']; readonly data: string }[];
  readonly ended?: boolean;
}

/**
 * What a policy can find out at a device, for `place` of its analysers: where its folder is, and, if it offers its files, where
 * paths lead and what commands would do there. Undefined: nothing is known about the place.
 */
export function devicePlaces(link: EdgeLink): (place: Place) => PlaceAnalysers | undefined {
  return ({ type, name }) => {
    const capabilities = type === 'device' ? link.device(name)?.capabilities : undefined;
    if (capabilities?.folder === undefined) return undefined;
    const { folder, home, ops } = capabilities;
    const operate = async <T>(op: string, args: object): Promise<T> => {
      await whenHere(link, name);
      return operating(link, name)<T>(op, args);
    };
    return {
      folder,
      ...(home !== undefined && { home }),
      ...(ops && {
        path: (path) => operate<PathFacts>('path-facts', { path }),
        command: (command) => operate<CommandFacts>('command-facts', { command }),
      }),
    };
  };
}
