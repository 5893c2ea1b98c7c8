import { spawn, type ChildProcess } from 'node:child_process';
import { once } from 'node:events';
import {
  chmodSync,
  existsSync,
  mkdirSync,
  mkdtempSync,
  readFileSync,
  realpathSync,
  rmSync,
  writeFileSync,
} from 'node:fs';
import { connect, createServer, type AddressInfo, type Server, type Socket } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { expect } from 'vitest';
import { PROCESS_ENV } from '../../process-env.ts';
import { freePort, startMosquitto } from '../brokers.ts';

/*
 * A device, an orchestrator and a broker, each a process, with a proxy in front of the broker for either side. The proxies see every
 * packet, and kill one of the three before or after a packet of a given kind is passed on. It is started again at once. The program of
 * the device's tool appends the key of its call to a file: a ledger that knows how often each call has run.
 */

export const TARGETS = ['device', 'orchestrator', 'broker'] as const;
export type Target = (typeof TARGETS)[number];

export type BrokerName = 'embedded' | 'mosquitto';

/** Where in the protocol the target is killed: a packet of one side, before or after it is passed on; or while the tool runs. */
export const STEPS = [
  'command sent, before',
  'command sent, after',
  'command delivered, before',
  'command delivered, after',
  'tool runs',
  'report sent, before',
  'report sent, after',
  'report delivered, before',
  'report delivered, after',
  'ack sent, before',
  'ack delivered, after',
] as const;
export type Step = (typeof STEPS)[number];

interface Moment {
  readonly side: 'orchestrator' | 'device';
  /** From the client to the broker. */
  readonly up: boolean;
  readonly marks: readonly string[];
  readonly when: 'before' | 'after';
}

const TOOL = ['/commands', '"command":"tool"'];
const RESULT = ['/reports', '"tool":"mark"'];
const ACK = ['/commands', '"command":"ack"'];

const MOMENTS: Readonly<Record<Exclude<Step, 'tool runs'>, Moment>> = {
  'command sent, before': { side: 'orchestrator', up: true, marks: TOOL, when: 'before' },
  'command sent, after': { side: 'orchestrator', up: true, marks: TOOL, when: 'after' },
  'command delivered, before': { side: 'device', up: false, marks: TOOL, when: 'before' },
  'command delivered, after': { side: 'device', up: false, marks: TOOL, when: 'after' },
  'report sent, before': { side: 'device', up: true, marks: RESULT, when: 'before' },
  'report sent, after': { side: 'device', up: true, marks: RESULT, when: 'after' },
  'report delivered, before': { side: 'orchestrator', up: false, marks: RESULT, when: 'before' },
  'report delivered, after': { side: 'orchestrator', up: false, marks: RESULT, when: 'after' },
  'ack sent, before': { side: 'orchestrator', up: true, marks: ACK, when: 'before' },
  'ack delivered, after': { side: 'device', up: false, marks: ACK, when: 'after' },
};

const here = (name: string): string => fileURLToPath(new URL(name, import.meta.url));
const DEVICE = fileURLToPath(new URL('../../../packages/edge/src/device/main.ts', import.meta.url));
const NODE = ['--conditions=treadle-source', '--disable-warning=ExperimentalWarning'];

interface Role {
  process: ChildProcess;
  start(): Promise<ChildProcess>;
}

export interface KilledCalls {
  /** The moment came, so something was killed. */
  readonly wasKilled: boolean;
  readonly outcome: string;
  /** Calls that have a result. */
  readonly done: number;
  /** Calls of which nobody knows whether they took effect. */
  readonly unknown: number;
}

export interface KillOptions {
  readonly kind?: BrokerName;
  /** A device is started again without its store. */
  readonly losesStore?: boolean;
}

/** Runs the calls with one kill. Throws if a call ran twice, or has a result that is not true. */
export async function killedCalls(
  target: Target,
  step: Step,
  { kind = 'embedded', losesStore = false }: KillOptions = {},
): Promise<KilledCalls> {
  const folder = realpathSync(mkdtempSync(join(tmpdir(), 'treadle-edge-kill-')));
  const ledger = join(folder, 'ledger.txt');
  const running = new Set<ChildProcess>();
  const closing: (() => void)[] = [];
  const launch = (file: string, args: readonly string[]): ChildProcess => {
    const child = spawn(process.execPath, [...NODE, file, ...args], {
      cwd: folder,
      env: PROCESS_ENV,
      stdio: ['ignore', 'pipe', 'ignore'],
    });
    running.add(child);
    child.once('exit', () => running.delete(child));
    return child;
  };
  try {
    const port = await freePort();
    const roles = {} as Record<Target, Role>;
    let isArmed = true;
    const kill = (): void => {
      if (!isArmed) return;
      isArmed = false;
      const role = roles[target];
      // A broker that is still there has the port.
      role.process.once('exit', () => {
        if (losesStore) rmSync(join(folder, 'store'), { recursive: true });
        void role.start().then((next) => (role.process = next));
      });
      role.process.kill('SIGKILL');
    };
    const moment = step === 'tool runs' ? undefined : MOMENTS[step];
    const proxies = await Promise.all(
      (['orchestrator', 'device'] as const).map((side) => killingProxy(port, side, moment, () => isArmed, kill)),
    );
    closing.push(...proxies.map(({ close }) => close));
    writeDevice(folder, ledger, proxies[1]!.port);

    roles.broker = await role(async () => {
      if (kind === 'mosquitto') {
        const child = await startMosquitto(mosquittoConfig(folder, port));
        running.add(child);
        child.once('exit', () => running.delete(child));
        return child;
      }
      const child = launch(here('broker.ts'), [String(port)]);
      await once(child.stdout!, 'data');
      return child;
    });
    roles.device = await role(async () => launch(DEVICE, []));
    let finish: (line: string) => void = () => {};
    const finished = new Promise<string>((done) => (finish = done));
    roles.orchestrator = await role(async () => {
      const child = launch(here('orchestrator.ts'), [`mqtt://127.0.0.1:${proxies[0]!.port}`, join(folder, 'runs.db')]);
      let text = '';
      child.stdout!.setEncoding('utf8').on('data', (piece: string) => {
        text += piece;
        if (text.includes('\n')) finish(text);
      });
      return child;
    });
    const watching = step === 'tool runs' ? setInterval(() => existsSync(ledger) && kill(), 2) : undefined;
    closing.push(() => clearInterval(watching));
    const line = await finished;
    return checked(JSON.parse(line) as Printed, existsSync(ledger) ? readFileSync(ledger, 'utf8') : '', !isArmed);
  } finally {
    for (const close of closing) close();
    for (const child of running) {
      const exit = once(child, 'exit');
      child.kill('SIGKILL');
      await exit;
    }
    rmSync(folder, { recursive: true, force: true });
  }
}

/** Nothing is kept when it ends. */
function mosquittoConfig(folder: string, port: number): string {
  const file = join(folder, 'mosquitto.conf');
  writeFileSync(file, `listener ${port} 127.0.0.1\nallow_anonymous true\nset_tcp_nodelay true\nuser root\n`);
  return file;
}

async function role(start: () => Promise<ChildProcess>): Promise<Role> {
  return { process: await start(), start };
}

interface Printed {
  readonly outcome: string;
  readonly results: readonly { readonly isError: boolean; readonly text: string }[];
}

function checked({ outcome, results }: Printed, ledger: string, wasKilled: boolean): KilledCalls {
  const keys = ledger.split('\n').filter((line) => line !== '');
  const ran = (index: number): number => keys.filter((key) => key.endsWith(`/t${index + 1}.tool.0`)).length;
  let unknown = 0;
  for (const [index, { isError, text }] of results.entries()) {
    const where = `call ${index} of ${JSON.stringify({ results, keys })}`;
    expect(ran(index), where).toBeLessThanOrEqual(1);
    if (!isError) {
      expect([ran(index), text.trim()], where).toEqual([1, `marked ${index}`]);
      continue;
    }
    // Whatever is said about a call that failed must not be wrong.
    expect(text, where).toMatch(/not known whether it took effect|interrupted/i);
    unknown++;
  }
  expect(results).toHaveLength(4);
  return { wasKilled, outcome, done: results.length - unknown, unknown };
}

/** A device whose tool `mark` appends the key of its call to the ledger. */
function writeDevice(folder: string, ledger: string, port: number): void {
  const skill = join(folder, 'skills', 'marks');
  mkdirSync(join(skill, 'bin'), { recursive: true });
  mkdirSync(join(folder, 'work'));
  writeFileSync(
    join(skill, 'skill.toml'),
    `[skill]
name = "marks"
version = "1.0.0"
description = "x"
[[tools]]
name = "mark"
description = "Marks a number"
binary = "bin/mark"
permissions = ["shell"]
touches = []
parameters = { type = "object", properties = { number = { type = "integer" } }, required = ["number"] }
`,
  );
  const program = join(skill, 'bin', 'mark');
  writeFileSync(program, `#!/bin/sh\necho "$TREADLE_CALL_KEY" >> ${ledger}\nsleep 0.1\necho "marked $2"\n`);
  chmodSync(program, 0o755);
  writeFileSync(
    join(folder, 'edge.toml'),
    `[agent]
id = "pi"
capabilities = ["shell"]
[tools]
folder = "work"
offer = ["packages"]
skills_path = "skills"
sandboxing = "none"
ops = false
[edge]
broker = "mqtt://127.0.0.1:${port}"
store = "store"
`,
  );
}

interface Proxy {
  readonly port: number;
  readonly close: () => void;
}

/** Passes packets on between a client and the broker, and kills at the moment. */
async function killingProxy(
  port: number,
  side: Moment['side'],
  moment: Moment | undefined,
  isArmed: () => boolean,
  kill: () => void,
): Promise<Proxy> {
  const sockets = new Set<Socket>();
  const server: Server = createServer((client) => {
    const broker = connect({ port, host: '127.0.0.1', noDelay: true });
    client.setNoDelay(true);
    for (const socket of [client, broker]) {
      sockets.add(socket);
      socket.on('error', () => {});
      socket.once('close', () => {
        client.destroy();
        broker.destroy();
        sockets.delete(socket);
      });
    }
    forward(client, broker, true);
    forward(broker, client, false);
  });

  function forward(from: Socket, to: Socket, up: boolean): void {
    let rest: Buffer = Buffer.alloc(0);
    from.on('data', (bytes: Buffer) => {
      rest = Buffer.concat([rest, bytes]);
      for (let size = packetSize(rest); size !== undefined; size = packetSize(rest)) {
        const packet = rest.subarray(0, size);
        rest = rest.subarray(size);
        const isMoment =
          moment?.side === side && moment.up === up && isArmed() && moment.marks.every((mark) => packet.includes(mark));
        if (isMoment && moment.when === 'before') {
          kill();
          // What was not sent before its sender died, and what its receiver could not take, is lost.
          from.destroy();
          to.destroy();
          return;
        }
        to.write(packet);
        if (isMoment) setImmediate(kill);
      }
    });
  }

  server.listen(0, '127.0.0.1');
  await once(server, 'listening');
  return {
    port: (server.address() as AddressInfo).port,
    close() {
      server.close();
      for (const socket of sockets) socket.destroy();
    },
  };
}

/** Of the first packet, if all of it is there. */
function packetSize(bytes: Buffer): number | undefined {
  let size = 0;
  for (let at = 1; at < bytes.length && at < 5; at++) {
    size += (bytes[at]! & 127) << (7 * (at - 1));
    if (bytes[at]! < 128) return bytes.length >= at + 1 + size ? at + 1 + size : undefined;
  }
  return undefined;
}
