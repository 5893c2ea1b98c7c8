import { setTimeout as sleep } from 'node:timers/promises';
import type { JSONRPCMessage, Transport } from '@modelcontextprotocol/client';
import type { HeldProcess } from '@treadle/core';
import { startProgram } from '../local/exec.ts';
import type { ExecRequest, Execution, Exit } from '../ops.ts';
import { cleanText } from './describe.ts';
import { McpError, type StdioServer } from './options.ts';

/*
 * A server that is a process of this machine: one JSON message per line.
 *
 * 1. It gets the variables of `INHERITED` and those that are given, no others: this process has the keys of models.
 * 2. It is started by `startProgram`: it leads a process group, and is killed with all its descendants when the connection
 *    is closed and when this process exits.
 * 3. At most one line of `maxMessageBytes` is in memory. A longer one ends the connection.
 * 4. A server that sends many messages in a short time, or does not read the answers to its requests, has to wait: its output
 *    is not read meanwhile.
 */

/** Variables that programs need to find their files and to show texts. None of them usually holds a secret. */
const INHERITED = (
  'HOME LOGNAME USER SHELL PATH TERM TMPDIR TZ LANG LANGUAGE LC_ALL LC_CTYPE ' +
  'XDG_CACHE_HOME XDG_CONFIG_HOME XDG_DATA_HOME XDG_RUNTIME_DIR NODE_EXTRA_CA_CERTS SSL_CERT_FILE ' +
  'APPDATA COMSPEC HOMEDRIVE HOMEPATH LOCALAPPDATA PATHEXT PROCESSOR_ARCHITECTURE PROGRAMFILES ' +
  'SYSTEMDRIVE SYSTEMROOT TEMP TMP USERNAME USERPROFILE'
).split(' ');

/** How long a server may take to end by itself after its input has ended. */
const GRACE_MS = 1_000;
/** The end of what it wrote to its standard error, for messages about failures. */
const STDERR_CHARS = 2_000;

/** So many messages are read in this time. */
const WINDOW_MS = 50;
const MAX_MESSAGES = 250;
/** Answers that the server has not read yet. */
const MAX_UNREAD = 100;

export interface StdioTransport extends Transport {
  /** The SDK recognizes a process by these two: silence and an end during the negotiation then mean an older version. */
  readonly pid: number | null;
  readonly stderr: null;
  /** For `hold`. Undefined before it has started. */
  readonly process: HeldProcess | undefined;
  /** How it ended, if it has, and the end of its standard error. */
  describeEnd(): string | undefined;
  /** Why this side ended the connection, if it did. */
  readonly failure: McpError | undefined;
}

export function stdioTransport(
  server: StdioServer & { readonly name: string },
  maxMessageBytes: number,
): StdioTransport {
  let execution: Execution | undefined;
  let exit: Exit | undefined;
  let stderr = '';
  let failure: McpError | undefined;
  let closing: Promise<void> | undefined;
  let isClosed = false;
  let unread = 0;
  /** Resolves when all output has been read, which may be after the exit. */
  const drained = Promise.withResolvers<void>();

  const transport: StdioTransport & { onclose?: () => void } = {
    stderr: null,
    get pid() {
      return execution?.process.pid ?? null;
    },
    get process() {
      return execution?.process;
    },
    get failure() {
      return failure;
    },
    describeEnd() {
      if (!exit) return undefined;
      const how = exit.signal === undefined ? `exit code ${exit.exitCode}` : `signal ${exit.signal}`;
      const tail = cleanText(stderr).trim();
      return tail === '' ? how : `${how}; its last output: ${tail}`;
    },
    async start() {
      const { command, args = [], env, cwd = process.cwd(), name, exec } = server;
      const request: ExecRequest = { argv: [command, ...args], ...(env && { env }), writable: true };
      try {
        const started = exec
          ? await exec.start({ ...request, workdir: cwd })
          : await startProgram(request, cwd, base());
        execution = started;
        void started.exit.then((ended) => (exit = ended));
        void read(started);
      } catch (cause) {
        const { code, message } = cause as NodeJS.ErrnoException;
        const why =
          code === 'ENOENT' && !message.startsWith('There is no folder')
            ? `There is no program "${command}".`
            : message;
        throw new McpError('cannot-start', `MCP server "${name}" cannot be started: ${why} Check "command" and PATH.`, {
          cause,
        });
      }
    },
    async send(message) {
      if (!execution || isClosed) throw new McpError('ended', `MCP server "${server.name}" is not running.`);
      const isAnswer = !('method' in message);
      if (isAnswer) unread++;
      try {
        await execution.write(`${JSON.stringify(message)}\n`);
      } finally {
        if (isAnswer) unread--;
      }
    },
    close() {
      closing ??= end();
      return closing;
    },
  };

  async function read({ output, exit: ended }: Execution): Promise<void> {
    let line: Uint8Array[] = [];
    let length = 0;
    let messages = 0;
    let since = Date.now();
    const errors = new TextDecoder();
    try {
      for await (const { stream, bytes } of output) {
        if (stream === 'stderr') {
          stderr = (stderr + errors.decode(bytes, { stream: true })).slice(-STDERR_CHARS);
          continue;
        }
        let from = 0;
        for (let at = bytes.indexOf(10); at >= 0; at = bytes.indexOf(10, from)) {
          receive(Buffer.concat([...line, bytes.subarray(from, at)]).toString());
          line = [];
          length = 0;
          from = at + 1;
          if (++messages < MAX_MESSAGES) continue;
          await sleep(Math.max(0, since + WINDOW_MS - Date.now()));
          while (unread > MAX_UNREAD && !isClosed) await sleep(WINDOW_MS);
          messages = 0;
          since = Date.now();
        }
        if (from === bytes.length) continue;
        line.push(bytes.slice(from));
        length += bytes.length - from;
        if (length > maxMessageBytes) {
          failure = new McpError(
            'too-large',
            `MCP server "${server.name}" sent a message of more than ${maxMessageBytes} bytes. It was stopped.`,
          );
          break;
        }
      }
    } catch (error) {
      transport.onerror?.(error as Error);
    }
    drained.resolve();
    if (failure) await transport.close();
    else {
      exit = await Promise.race([
        ended,
        new Promise<undefined>((done) => void setTimeout(done, GRACE_MS, undefined).unref()),
      ]);
      await transport.close();
    }
  }

  function receive(line: string): void {
    if (isClosed || line.trim() === '') return;
    let message: JSONRPCMessage;
    try {
      message = JSON.parse(line) as JSONRPCMessage;
    } catch {
      // Some servers print other texts before they start. A missing answer is found by the time limit.
      transport.onerror?.(new Error(`MCP server "${server.name}" printed a line that is not JSON.`));
      return;
    }
    transport.onmessage?.(message);
  }

  async function end(): Promise<void> {
    isClosed = true;
    if (execution) {
      execution.endInput();
      if (!exit && !failure) {
        const timer = Promise.withResolvers<void>();
        const timeout = setTimeout(timer.resolve, GRACE_MS);
        await Promise.race([execution.exit, timer.promise]);
        clearTimeout(timeout);
      }
      await execution.kill();
      // A descendant that has escaped may keep the pipe open.
      await Promise.race([drained.promise, new Promise((done) => setTimeout(done, GRACE_MS).unref())]);
    }
    transport.onclose?.();
  }

  return transport;
}

function base(): Record<string, string> {
  return Object.fromEntries(
    INHERITED.flatMap((name) => (process.env[name] === undefined ? [] : [[name, process.env[name]]])),
  );
}
