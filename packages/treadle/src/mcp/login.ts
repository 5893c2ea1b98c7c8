import { spawn } from 'node:child_process';
import { createServer } from 'node:http';
import type { AddressInfo } from 'node:net';
import { messageOf } from '@treadle/core';
import type { SignInBrowser } from '@treadle/tools/mcp';
import { CommandError, defineCommand, EXIT, type Command } from '../command-line/command.ts';
import { LOCATION_FLAGS } from '../command-line/flags.ts';
import { resolveContext } from '../config/context.ts';
import { createStoreFolder, rejectMemoryStore } from '../config/store.ts';
import { exactLine } from '../terminal/printable.ts';
import { catchInterrupt } from '../terminal/signals.ts';
import { dirname } from 'node:path';
import { findEntry, loadMcpPackage, openSecrets, signInOptions, type ServerPlace } from './servers.ts';

const SECRETS_NOTE =
  'The tokens are beside the store, in files that only you can read: .treadle/treadle.db.secrets. They are not in the\n' +
  'store, and so not in its backups.';

export const loginCommand: Command = defineCommand({
  name: 'mcp login',
  summary: 'Sign in to an MCP server in the browser',
  arguments: ['NAME'],
  flags: { 'no-browser': { type: 'switch', help: 'Only print the address' }, ...LOCATION_FLAGS },
  notes: [
    'Prints the address of a page where you sign in, and opens it in the browser. The page then returns to this command, on\n' +
      'a free port of this machine. If the browser runs on another machine, forward the port that redirect_port in\n' +
      '[mcp.servers.NAME.oauth] sets.',
    SECRETS_NOTE,
    'Exit codes:\n  0    signed in\n  1    the sign-in failed\n  2    the command or its configuration is invalid\n  130  stopped with Ctrl-C',
  ],
  examples: ['treadle mcp login linear', 'treadle mcp login linear --no-browser'],
  async run({ values, arguments: [name = ''] }, io) {
    const context = await resolveContext(values, io);
    const entry = findEntry(context, name);
    rejectMemoryStore(context.store);
    await createStoreFolder(dirname(context.store.file));
    const place: ServerPlace = { context, env: io.env, secrets: await openSecrets(context) };
    const options = signInOptions(name, entry, place);
    if (!options) {
      const why =
        entry.url === undefined
          ? 'is a program, and programs get their credentials from env'
          : 'gets a token from headers_env';
      throw new CommandError(`The MCP server "${name}" ${why}. There is nothing to sign in to.`);
    }
    const interrupt = catchInterrupt(io);
    const browser = await loopbackBrowser({
      signal: interrupt.signal,
      port: entry.oauth?.redirect_port ?? 0,
      show(url) {
        io.stderr.write(`Sign in to ${name} at this address:\n${exactLine(url.href)}\n`);
        if (!values['no-browser']) openBrowser(url);
      },
    });
    try {
      const { signIn } = await loadMcpPackage();
      await signIn({ ...options, browser });
      io.stderr.write(`Signed in to ${name}.\n`);
      return EXIT.completed;
    } catch (error) {
      if (interrupt.signal.aborted) return EXIT.cancelled;
      io.stderr.write(`treadle: ${exactLine(messageOf(error))}\n`);
      return EXIT.failed;
    } finally {
      browser.close();
      interrupt.release();
    }
  },
});

export const logoutCommand: Command = defineCommand({
  name: 'mcp logout',
  summary: 'Delete the tokens of an MCP server',
  arguments: ['NAME'],
  flags: LOCATION_FLAGS,
  notes: ['The server may accept the tokens until they expire. Revoke the access of Treadle there, if it offers that.'],
  examples: ['treadle mcp logout linear'],
  async run({ values, arguments: [name = ''] }, io) {
    const context = await resolveContext(values, io);
    const { url } = findEntry(context, name);
    const secrets = await openSecrets(context);
    const { signOut } = await loadMcpPackage();
    const had = url !== undefined && (await signOut({ name, url, secrets }));
    io.stderr.write(had ? `Signed out of ${name}.\n` : `You were not signed in to ${name}.\n`);
    return EXIT.completed;
  },
});

/**
 * A browser on this machine, which returns to a port of it. Requests that do not belong to the sign-in are answered with an
 * error and ignored, so that a web page cannot end it.
 */
async function loopbackBrowser(options: {
  readonly signal: AbortSignal;
  readonly port: number;
  readonly show: (url: URL) => void;
}): Promise<SignInBrowser & { close(): void }> {
  const { signal, port, show } = options;
  let expected: { readonly state: string; readonly done: (query: URLSearchParams) => void } | undefined;
  const server = createServer((request, response) => {
    const url = URL.parse(request.url ?? '', 'http://127.0.0.1');
    const isCallback = request.method === 'GET' && url?.pathname === '/callback';
    const isExpected = isCallback && expected !== undefined && url.searchParams.get('state') === expected.state;
    response.writeHead(isExpected ? 200 : 400, {
      'content-type': 'text/plain; charset=utf-8',
      'cache-control': 'no-store',
      connection: 'close',
    });
    response.end(isExpected ? 'Treadle has got the answer. Return to the terminal.\n' : 'Nobody waits for this.\n');
    if (isExpected) expected!.done(url.searchParams);
  });
  await new Promise<void>((resolve, reject) => {
    server.once('error', (error) => reject(new CommandError(`Port ${port} cannot be used: ${messageOf(error)}.`)));
    server.listen(port, '127.0.0.1', resolve);
  });
  return {
    redirectUrl: `http://127.0.0.1:${(server.address() as AddressInfo).port}/callback`,
    authorize(url) {
      if (!/^https?:$/.test(url.protocol))
        throw new Error(`the address of the page is not a web address: ${url.protocol}`);
      return new Promise((resolve, reject) => {
        expected = { state: url.searchParams.get('state')!, done: resolve };
        signal.addEventListener('abort', () => reject(new Error('it was stopped')));
        if (signal.aborted) reject(new Error('it was stopped'));
        show(url);
      });
    },
    close() {
      server.close();
      server.closeAllConnections();
    },
  };
}

/** Errors are ignored: the address was printed. */
function openBrowser({ href }: URL): void {
  const [command, ...args] =
    process.platform === 'darwin'
      ? ['open', href]
      : process.platform === 'win32'
        ? ['rundll32', 'url.dll,FileProtocolHandler', href]
        : ['xdg-open', href];
  spawn(command!, args, { stdio: 'ignore', detached: true })
    .on('error', () => {})
    .unref();
}
