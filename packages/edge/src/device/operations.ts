import { randomUUID } from 'node:crypto';
import { homedir } from 'node:os';
import type { Policy, Touch } from '@treadle/core';
import type { CommandFacts, PolicyRules } from '@treadle/core/policy';
import {
  DeniedError,
  pathFacts,
  type ExecRequest,
  type Execution,
  type Exit,
  type OpenFile,
  type Ops,
  type OutputChunk,
  type Room,
  type WriteOptions,
} from '@treadle/tools';
import type { Fields } from '../protocol/message.ts';
import type { ToolSettings } from './runner.ts';

/*
 * Files and programs of a device for tools that run elsewhere.
 *
 * 1. The device's own policy and capabilities decide, here as for its tools.
 * 2. What is open is given back: files that nobody reads, and programs that nobody asks about, for IDLE_MS.
 * 3. A program waits while nobody pulls its output.
 */

const IDLE_MS = 60_000;
/** Files, programs, uploads and rooms that are open at the same time. */
const MAX_OPEN = 256;
/** How long a question about a program waits for something to happen. */
const POLL_MS = 15_000;
const MAX_UPLOAD_BYTES = 64 * 1024 * 1024;
/** Of one answer, before base64. */
const MAX_BYTES = 256 * 1024;
const SHELL = /^(.*\/)?[a-z]*sh$/;

interface Opened {
  /** When somebody last asked about it. */
  usedAt: number;
  close(): Promise<unknown>;
}

interface OpenedFile extends Opened {
  readonly file: OpenFile;
}

interface Upload extends Opened {
  readonly parts: Uint8Array[];
  bytes: number;
}

interface Program extends Opened {
  readonly execution: Execution;
  readonly output: AsyncIterator<OutputChunk>;
  /** What it reads may be commands. */
  readonly isShell: boolean;
  /** Asked for, and not delivered yet. */
  next?: Promise<IteratorResult<OutputChunk>> | undefined;
}

interface OpenedRoom extends Opened {
  readonly room: Room;
}

export interface Operations {
  operate(op: string, args: Fields): Promise<Fields>;
  /** Something is open. */
  isBusy(): boolean;
  close(): Promise<void>;
}

type Handler = (args: never) => Promise<Fields>;

/** A request as JSON: a variable that is removed is null. */
type StartRequest = Pick<ExecRequest, 'argv' | 'workdir' | 'writable' | 'mark'> & {
  readonly env?: Readonly<Record<string, string | null>>;
  readonly room?: string;
};

export function operations(settings: ToolSettings, { files, exec }: Ops, judging: Policy): Operations {
  const { capabilities, folder } = settings;
  const rules = settings.rules as PolicyRules;
  const open = new Map<string, Opened>();
  let analyse: ((command: string) => CommandFacts | Promise<CommandFacts>) | undefined;
  const sweep = setInterval(() => {
    for (const [id, one] of open) if (Date.now() - one.usedAt > IDLE_MS) void closeOne(id);
  }, IDLE_MS / 4);
  sweep.unref();

  function add(one: Opened): string {
    if (open.size >= MAX_OPEN) {
      void one.close();
      throw coded('EMFILE', `More than ${MAX_OPEN} files and programs are open on the device.`);
    }
    const id = randomUUID();
    open.set(id, one);
    return id;
  }

  function find<T extends Opened>(id: unknown, what: string): T {
    const one = open.get(String(id)) as T | undefined;
    if (!one) throw coded('EBADF', `The ${what} is not open on the device any more.`);
    one.usedAt = Date.now();
    return one;
  }

  async function closeOne(id: string): Promise<void> {
    const one = open.get(id);
    open.delete(id);
    await one?.close();
  }

  /** Throws if the policy does not allow a call of a tool of the device that would touch the same. */
  async function judge(tool: 'read' | 'write' | 'bash', ...touches: readonly Touch[]): Promise<void> {
    const { effect, permission } = AS_TOOL[tool];
    const call = {
      id: '',
      name: tool,
      input: {},
      effect,
      client: false,
      touches,
      permissions: [permission],
      operation: undefined,
      ...(tool === 'bash' && exec.sandbox && { sandbox: exec.sandbox.promises }),
    } as const;
    const context = { runId: 'ops', turn: 1, context: undefined, signal: new AbortController().signal };
    const [verdict] = await judging.judge([call], context);
    if (verdict?.type !== 'allow') throw new DeniedError(verdict?.reason ?? 'The device does not allow it.');
  }

  /** What is denied is denied by `files`, too. They know nothing of what is asked about. */
  async function judgePath(tool: 'read' | 'write', path: string): Promise<void> {
    if (settings.onAsk === 'deny') await judge(tool, { type: tool, path });
  }

  const handlers: Readonly<Record<string, Handler>> = {
    stat: async ({ path }: { readonly path: string }) => ({ ...(await files.stat(path)) }),
    async list({ path }: { readonly path: string }) {
      await judgePath('read', path);
      return { entries: await files.list(path) };
    },
    async open({ path }: { readonly path: string }) {
      await judgePath('read', path);
      const file = await files.open(path);
      const { handle, ...status } = file;
      return { file: add({ usedAt: Date.now(), close: () => handle.close(), file } as OpenedFile), ...status };
    },
    async read({
      file: id,
      offset,
      length,
    }: {
      readonly file: string;
      readonly offset: number;
      readonly length: number;
    }) {
      const { file } = find<OpenedFile>(id, 'file');
      const buffer = Buffer.alloc(Math.min(length, MAX_BYTES));
      const { bytesRead } = await file.handle.read(buffer, 0, buffer.length, offset);
      return { data: buffer.toString('base64', 0, bytesRead) };
    },
    async close({ file }: { readonly file: string }) {
      await closeOne(file);
      return {};
    },
    async upload({ upload: id, data }: { readonly upload?: string; readonly data: string }) {
      const upload = id === undefined ? newUpload() : find<Upload>(id, 'upload');
      const bytes = Buffer.from(data, 'base64');
      if ((upload.bytes += bytes.length) > MAX_UPLOAD_BYTES) throw coded('EFBIG', 'The file is too large.');
      upload.parts.push(bytes);
      return { upload: id ?? add(upload) };
    },
    async write(args: {
      readonly path: string;
      readonly data?: string;
      readonly upload?: string;
      readonly options?: WriteOptions;
    }) {
      const { path, data = '', upload, options } = args;
      const content =
        upload === undefined ? Buffer.from(data, 'base64') : Buffer.concat(find<Upload>(upload, 'upload').parts);
      if (upload !== undefined) open.delete(upload);
      await judgePath('write', path);
      await files.write(path, content, options);
      return {};
    },
    async remove({ path, options }: { readonly path: string; readonly options?: WriteOptions }) {
      await judgePath('write', path);
      await files.remove(path, options);
      return {};
    },
    async rename({ from, to }: { readonly from: string; readonly to: string }) {
      for (const path of [from, to]) await judgePath('write', path);
      await files.rename(from, to);
      return {};
    },
    'path-facts': async ({ path }: { readonly path: string }) => ({
      ...(await pathFacts(path, { folder, home: homedir() })),
    }),
    async 'command-facts'({ command }: { readonly command: string }) {
      const { commandAnalyser } = await import('@treadle/tools/commands');
      analyse ??= commandAnalyser({ folder, ...(rules.private?.paths && { private: rules.private.paths }) });
      return { ...(await analyse(command)) };
    },
    async start({ request }: { readonly request: StartRequest }) {
      const { room, env, argv, workdir, writable, mark } = request;
      // Files that are opened for a program, and another environment, are for sandboxes of the device itself.
      const rest: ExecRequest = {
        argv,
        ...(workdir !== undefined && { workdir }),
        ...(writable !== undefined && { writable }),
        ...(mark !== undefined && { mark }),
        ...(env && { env: Object.fromEntries(Object.entries(env).map(([name, value]) => [name, value ?? undefined])) }),
      };
      await judge('bash', { type: 'command', command: argv.map(quoted).join(' ') });
      const inRoom = room === undefined ? {} : { room: find<OpenedRoom>(room, 'room').room };
      const execution = await exec.start({ ...rest, ...inRoom });
      const output = execution.output[Symbol.asyncIterator]();
      const isShell = SHELL.test(argv[0] ?? '');
      const program: Program = { usedAt: Date.now(), execution, output, isShell, close: () => execution.kill() };
      return { execution: add(program), process: execution.process as unknown as Fields };
    },
    async pull({ execution: id, bytes }: { readonly execution: string; readonly bytes: number }) {
      const program = find<Program>(id, 'program');
      return { ...(await pullOutput(program, Math.min(bytes, MAX_BYTES))) };
    },
    async wait({ execution: id }: { readonly execution: string }) {
      const { execution } = find<Program>(id, 'program');
      const exit = await within(POLL_MS, execution.exit);
      return exit === 'later' ? {} : { exit: exitFields(exit) };
    },
    async input({ execution: id, text }: { readonly execution: string; readonly text: string }) {
      const { execution, isShell } = find<Program>(id, 'program');
      // A session of the tool bash gets its commands so.
      if (isShell) await judge('bash', { type: 'command', command: text });
      await execution.write(text);
      return {};
    },
    async 'end-input'({ execution: id }: { readonly execution: string }) {
      find<Program>(id, 'program').execution.endInput();
      return {};
    },
    async kill({ execution: id }: { readonly execution: string }) {
      await find<Program>(id, 'program').execution.kill();
      open.delete(id);
      return {};
    },
    /** Nobody may ask about a program for long, such as one that has left others behind. */
    async keep({ executions }: { readonly executions: readonly string[] }) {
      for (const id of executions) {
        const one = open.get(id);
        if (one) one.usedAt = Date.now();
      }
      return {};
    },
    async 'kill-marked'({ mark }: { readonly mark: string }) {
      await exec.killMarked(mark);
      return {};
    },
    async 'open-room'() {
      if (!exec.sandbox) throw coded('ENOTSUP', 'The device has no sandbox.');
      const room = await exec.sandbox.openRoom();
      return { room: add({ usedAt: Infinity, close: () => room.close(), room } as OpenedRoom) };
    },
    async 'close-room'({ room }: { readonly room: string }) {
      await closeOne(room);
      return {};
    },
  };

  return {
    async operate(op, args) {
      const handler = Object.hasOwn(handlers, op) ? handlers[op] : undefined;
      if (!handler) throw coded('ENOSYS', `The device knows no operation ${JSON.stringify(op)}.`);
      const needed = NEEDS[op] ?? 'file_read';
      if (!capabilities.includes(needed)) throw new DeniedError(`The device does not have the capability ${needed}.`);
      return handler(args as never);
    },
    isBusy: () => open.size > 0,
    async close() {
      clearInterval(sweep);
      await Promise.allSettled([...open.keys()].map(closeOne));
    },
  };
}

const AS_TOOL = {
  read: { effect: 'pure', permission: 'file_read' },
  write: { effect: 'idempotent', permission: 'file_write' },
  bash: { effect: 'once', permission: 'shell' },
} as const;

/** The capability of an operation. Others read files. */
const NEEDS: Readonly<Record<string, string>> = {
  write: 'file_write',
  upload: 'file_write',
  remove: 'file_write',
  rename: 'file_write',
  ...Object.fromEntries(
    ['start', 'pull', 'wait', 'input', 'end-input', 'kill', 'keep', 'kill-marked', 'open-room', 'close-room'].map(
      (op) => [op, 'shell'],
    ),
  ),
};

function newUpload(): Upload {
  return { usedAt: Date.now(), parts: [], bytes: 0, close: async () => {} };
}

/** Waits for some output, and takes what there is, up to the given number of bytes and one chunk more. */
async function pullOutput(program: Program, bytes: number): Promise<Fields> {
  const chunks: Fields[] = [];
  let taken = 0;
  while (taken < bytes) {
    program.next ??= program.output.next();
    const next = await within(chunks.length === 0 ? POLL_MS : 0, program.next);
    if (next === 'later') break;
    program.next = undefined;
    if (next.done) return { chunks, ended: true };
    const { stream, bytes: data } = next.value;
    taken += data.length;
    chunks.push({ stream, data: Buffer.from(data).toString('base64') });
  }
  return { chunks };
}

function exitFields({ exitCode, signal }: Exit): Fields {
  return { ...(exitCode !== undefined && { exitCode }), ...(signal !== undefined && { signal }) };
}

async function within<T>(ms: number, promise: Promise<T>): Promise<T | 'later'> {
  const { promise: later, resolve } = Promise.withResolvers<'later'>();
  const timer = setTimeout(resolve, ms, 'later');
  try {
    return await Promise.race([promise, later]);
  } finally {
    clearTimeout(timer);
  }
}

function coded(code: string, message: string): Error {
  return Object.assign(new Error(message), { code });
}

function quoted(word: string): string {
  return /^[\w./:@%+,=-]+$/.test(word) ? word : `'${word.replaceAll("'", `'\\''`)}'`;
}
