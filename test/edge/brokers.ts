import { spawn, type ChildProcess } from 'node:child_process';
import { existsSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { createServer, type AddressInfo } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { needs } from '../needs.ts';
import { openBroker } from '@treadle/edge';

/** A broker that a test has started. Its port stays the same when it is started again. */
export interface TestBroker {
  readonly url: string;
  readonly port: number;
  /** Ends it as a crash would: nothing is said to its clients, and nothing is kept. */
  kill(): Promise<void>;
  restart(): Promise<void>;
  close(): Promise<void>;
}

export interface BrokerKind {
  readonly name: string;
  /** The version of MQTT that it speaks. */
  readonly protocol: 4 | 5;
  open(options?: { readonly prefix?: string; readonly port?: number }): Promise<TestBroker>;
}

const MOSQUITTO = ['/usr/sbin/mosquitto', '/usr/local/sbin/mosquitto', '/opt/homebrew/sbin/mosquitto'].find((file) =>
  existsSync(file),
);

export const hasMosquitto: boolean = needs('the MQTT broker mosquitto', MOSQUITTO !== undefined);

/** Those that tests can use here. */
export const BROKERS: readonly BrokerKind[] = [
  { name: 'embedded', protocol: 4, open: embedded },
  ...(hasMosquitto
    ? [
        {
          name: 'mosquitto',
          protocol: 5,
          open: (options: { readonly port?: number } = {}) => mosquitto('', options),
        } as const,
      ]
    : []),
];

async function embedded({
  prefix = 'treadle',
  port: wanted = 0,
}: { readonly prefix?: string; readonly port?: number } = {}): Promise<TestBroker> {
  let broker = await openBroker({ prefix, port: wanted });
  const { url } = broker;
  const port = Number(new URL(url).port);
  return {
    url,
    port,
    kill: () => broker.close(),
    async restart() {
      broker = await openBroker({ prefix, port });
    },
    close: () => broker.close(),
  };
}

/** `settings`: more lines of its configuration; `listener` lines replace the default one, and have `PORT` as the port. */
export async function mosquitto(settings = '', options: { readonly port?: number } = {}): Promise<TestBroker> {
  const port = options.port ?? (await freePort());
  const folder = mkdtempSync(join(tmpdir(), 'treadle-mosquitto-'));
  const config = join(folder, 'mosquitto.conf');
  const text = settings.includes('listener ') ? settings : `listener PORT 127.0.0.1\nallow_anonymous true\n${settings}`;
  writeFileSync(config, `${text.replaceAll('PORT', String(port))}\nset_tcp_nodelay true\nuser root\n`);
  let child = await startMosquitto(config);
  const stop = async (): Promise<void> => {
    if (child.exitCode !== null || child.signalCode !== null) return;
    const exit = new Promise((done) => child.once('exit', done));
    child.kill('SIGKILL');
    await exit;
  };
  return {
    url: `mqtt://127.0.0.1:${port}`,
    port,
    kill: stop,
    async restart() {
      child = await startMosquitto(config);
    },
    async close() {
      await stop();
      rmSync(folder, { recursive: true });
    },
  };
}

export async function startMosquitto(config: string): Promise<ChildProcess> {
  const child = spawn(MOSQUITTO!, ['-c', config, '-v'], { stdio: ['ignore', 'ignore', 'pipe'] });
  await new Promise<void>((done, fail) => {
    let said = '';
    child.stderr!.on('data', (bytes: Buffer) => {
      said += bytes.toString();
      if (/ running\b/.test(said)) done();
    });
    child.once('error', fail);
    child.once('exit', (code) => fail(new Error(`mosquitto ended with ${code}: ${said}`)));
  });
  return child;
}

export async function freePort(): Promise<number> {
  const server = createServer();
  await new Promise<void>((done) => server.listen(0, '127.0.0.1', done));
  const { port } = server.address() as AddressInfo;
  await new Promise((done) => server.close(done));
  return port;
}
