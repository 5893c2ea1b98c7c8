import { execFileSync } from 'node:child_process';
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { createServer as createHttpServer } from 'node:http';
import { createServer as createHttpsServer, type ServerOptions } from 'node:https';
import { connect, createServer, type AddressInfo, type Server, type Socket } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { manualClock } from '@treadle/core/testing';
import { afterEach, beforeAll, beforeEach, describe, expect, it, test } from 'vitest';
import { WebSocketServer } from 'ws';
import { BROKERS, hasMosquitto, mosquitto, type TestBroker } from './brokers.ts';
import { mqttClient, openBroker, type Message, type MqttClient, type MqttOptions, type TlsFiles } from '@treadle/edge';

const opened: { close(): Promise<unknown> }[] = [];
afterEach(async () => {
  for (const one of opened.splice(0).toReversed()) await one.close();
});

interface Followed extends MqttClient {
  readonly messages: Message[];
  readonly problems: string[];
  /** The next time that it is connected, or now. */
  connected(): Promise<void>;
  disconnected(): Promise<void>;
  received(count: number): Promise<readonly string[]>;
}

let lastId = 0;

function client(options: Partial<MqttOptions> & { readonly url: string }): Followed {
  const messages: Message[] = [];
  const problems: string[] = [];
  const wake: (() => void)[] = [];
  const changed = (): Promise<void> => new Promise((done) => wake.push(done));
  const change = (): void => wake.splice(0).forEach((done) => done());
  const until = async (isTrue: () => boolean): Promise<void> => {
    while (!isTrue()) await changed();
  };
  const made = mqttClient({
    clientId: `test-${process.pid}-${++lastId}`,
    random: () => 0,
    ...options,
    onMessage(message) {
      messages.push(message);
      change();
    },
    onConnect(connection) {
      options.onConnect?.(connection);
      change();
    },
    onDisconnect: change,
    onProblem(problem) {
      problems.push(problem);
      change();
    },
  });
  const followed = {
    get isConnected() {
      return made.isConnected;
    },
    get maxPayloadBytes() {
      return made.maxPayloadBytes;
    },
    publish: (publication: Parameters<MqttClient['publish']>[0]) => made.publish(publication),
    close: () => made.close(),
    messages,
    problems,
    connected: () => until(() => made.isConnected),
    disconnected: () => until(() => !made.isConnected),
    async received(count: number) {
      await until(() => messages.length >= count);
      return messages.map(({ topic, payload }) => `${topic} ${Buffer.from(payload).toString()}`);
    },
  };
  opened.push(followed);
  return followed;
}

describe.each(BROKERS)('with the $name broker', ({ open, protocol }) => {
  it('publishes and receives with QoS 0 and 1, and retained messages', async () => {
    const broker = await open();
    opened.push(broker);
    const spoken: number[] = [];
    const onConnect = (connection: { readonly protocol: number }): unknown => spoken.push(connection.protocol);
    const sender = client({ url: broker.url, onConnect });
    await sender.connected();
    expect(await sender.publish({ topic: 'a/kept', payload: 'before', qos: 1, retain: true })).toBe(true);
    const receiver = client({ url: broker.url, subscriptions: [{ topic: 'a/#', qos: 1 }] });
    await receiver.connected();
    const sent = await Promise.all(
      Array.from({ length: 50 }, (_, index) =>
        sender.publish({ topic: 'a/b', payload: String(index), qos: 1, expiresMs: 5_000, responseTopic: 'a/c' }),
      ),
    );
    expect(sent.every(Boolean)).toBe(true);
    await sender.publish({ topic: 'a/c', payload: new Uint8Array([120]), qos: 0 });
    const received = await receiver.received(52);
    expect(received[0]).toBe('a/kept before');
    expect(received).toContain('a/c x');
    expect(received.filter((one) => one.startsWith('a/b'))).toEqual(sent.map((_, index) => `a/b ${index}`));
    expect(receiver.messages.map(({ retained }) => retained).indexOf(false)).toBe(1);
    expect(spoken).toEqual([protocol]);
  });

  it('publishes the will of a client that is gone, and not of one that was closed', async () => {
    const broker = await open();
    opened.push(broker);
    const watcher = client({ url: broker.url, subscriptions: [{ topic: '+/will', qos: 1 }] });
    await watcher.connected();
    const will = (topic: string): Pick<MqttOptions, 'will'> => ({ will: { topic, payload: 'gone', qos: 1 } });
    const polite = client({ url: broker.url, ...will('polite/will') });
    await polite.connected();
    await polite.close();
    const clientId = 'twice';
    const first = client({ url: broker.url, clientId, ...will('first/will') });
    await first.connected();
    // The broker ends the connection of another client with the same id.
    await client({ url: broker.url, clientId }).connected();
    expect(await watcher.received(1)).toEqual(['first/will gone']);
    await first.close();
  });

  it('connects again after the broker was killed, and subscribes again', async () => {
    const broker = await open();
    opened.push(broker);
    const one = client({ url: broker.url, subscriptions: [{ topic: 'x', qos: 1 }] });
    await one.connected();
    await broker.kill();
    await one.disconnected();
    expect(await one.publish({ topic: 'x', payload: 'lost', qos: 1 })).toBe(false);
    await broker.restart();
    await one.connected();
    expect(await one.publish({ topic: 'x', payload: 'kept', qos: 1 })).toBe(true);
    expect(await one.received(1)).toEqual(['x kept']);
  });
});

describe('keys and certificates', () => {
  let tls: { readonly ca: string; readonly cert: string; readonly key: string };
  /** Another certificate. */
  let other: string;
  let folder: string;
  beforeAll(() => {
    folder = mkdtempSync(join(tmpdir(), 'treadle-mqtt-'));
    const make = (name: string): { readonly cert: string; readonly key: string } => {
      const [key, cert] = [join(folder, `${name}-key.pem`), join(folder, `${name}.pem`)];
      const names = '-subj /CN=localhost -addext subjectAltName=IP:127.0.0.1';
      const kind = 'ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 2';
      const args = `req -x509 -newkey ${kind} ${names} -keyout ${key} -out ${cert}`;
      execFileSync('openssl', args.split(' '), { stdio: 'ignore' });
      return { cert: readFileSync(cert, 'utf8'), key: readFileSync(key, 'utf8') };
    };
    const own = make('own');
    tls = { ca: own.cert, ...own };
    other = make('other').cert;
    return () => rmSync(folder, { recursive: true });
  });

  it('the embedded broker listens elsewhere only with users and a certificate', async () => {
    const prefix = 'treadle';
    await expect(openBroker({ prefix, host: '0.0.0.0' })).rejects.toThrow('everybody could use the devices');
    const users = { a: { password: 'b' } };
    await expect(openBroker({ prefix, host: '0.0.0.0', users })).rejects.toThrow('Configure users and a certificate');
    opened.push(await openBroker({ prefix, host: '0.0.0.0', users, tls: { cert: tls.cert, key: tls.key } }));
  });

  it('a device may use only its own topics', async () => {
    const users = { boss: { password: 'p' }, pi: { password: 'q', device: 'pi' } };
    const broker = await openBroker({ prefix: 'treadle', users, tls: { cert: tls.cert, key: tls.key } });
    opened.push(broker);
    const shared = { url: broker.url, tls: { ca: tls.ca } };
    const wrong = client({ ...shared, username: 'pi', password: 'p' });
    const boss = client({
      ...shared,
      username: 'boss',
      password: 'p',
      subscriptions: [{ topic: 'treadle/#', qos: 1 }],
    });
    const topics = ['treadle/agents/pi/commands', 'treadle/broadcast'].map((topic) => ({ topic, qos: 1 }) as const);
    const device = client({ ...shared, username: 'pi', password: 'q', subscriptions: topics });
    await Promise.all([boss.connected(), device.connected()]);
    await device.publish({ topic: 'treadle/agents/pi/reports', payload: 'mine', qos: 1 });
    expect(await boss.received(1)).toEqual(['treadle/agents/pi/reports mine']);
    await boss.publish({ topic: 'treadle/agents/pi/commands', payload: 'do', qos: 1 });
    expect(await device.received(1)).toEqual(['treadle/agents/pi/commands do']);

    const spy = client({ ...shared, username: 'pi', password: 'q', subscriptions: [{ topic: 'treadle/#', qos: 1 }] });
    const forger = client({ ...shared, username: 'pi', password: 'q' });
    await forger.connected();
    // The broker ends the connection of a client that publishes what it may not.
    expect(await forger.publish({ topic: 'treadle/agents/pi/commands', payload: 'forged', qos: 1 })).toBe(false);
    while (spy.problems.length === 0 || wrong.problems.length === 0) await new Promise((done) => setImmediate(done));
    expect(spy.problems[0]).toBe('the broker does not allow a subscription to treadle/#');
    expect(wrong.problems[0]).toContain('the broker refused the connection');
    expect(device.messages).toHaveLength(1);
  });

  it('a device cannot take the connection of another one, nor speak for it', async () => {
    const users = {
      boss: { password: 'p' },
      pi: { password: 'q', device: 'pi' },
      desk: { password: 'r', device: 'desk' },
    };
    const broker = await openBroker({ prefix: 'treadle', users });
    opened.push(broker);
    const { url } = broker;
    const subscriptions = [{ topic: 'treadle/agents/+/status', qos: 1 }] as const;
    const boss = client({ url, username: 'boss', password: 'p', subscriptions });
    const pi = client({ url, username: 'pi', password: 'q', clientId: 'treadle-edge-pi' });
    await Promise.all([boss.connected(), pi.connected()]);
    const will = { topic: 'treadle/agents/pi/status', payload: 'forged', qos: 1 } as const;
    const asPi = { url, username: 'desk', password: 'r', clientId: 'treadle-edge-pi', will };
    const first = client(asPi);
    await first.connected();
    // It takes the connection of the first one, which is of the same user. The broker publishes the will of that.
    const second = client(asPi);
    await Promise.all([second.connected(), first.disconnected()]);
    await first.close();
    await pi.publish({ topic: 'treadle/agents/pi/status', payload: 'mine', qos: 1 });
    expect(await boss.received(1)).toEqual(['treadle/agents/pi/status mine']);
    expect(pi.problems).toEqual([]);
  });

  it('a packet that is too large ends the connection of its sender only, and is not kept', async () => {
    const { url, close } = await openBroker({ prefix: 'treadle' });
    opened.push({ close });
    const boss = client({ url, subscriptions: [{ topic: 'x', qos: 1 }] });
    const pi = client({ url });
    await Promise.all([boss.connected(), pi.connected()]);
    const large = 'x'.repeat(9_000_000);
    expect(await pi.publish({ topic: 'x', payload: large, qos: 1, retain: true })).toBe(false);
    await pi.connected();
    const later = client({ url, subscriptions: [{ topic: 'x', qos: 1 }] });
    await later.connected();
    await pi.publish({ topic: 'x', payload: 'small', qos: 1 });
    expect([await boss.received(1), await later.received(1)]).toEqual([['x small'], ['x small']]);
    expect([...boss.problems, ...later.problems]).toEqual([]);
  });

  it('does not connect to a broker with a certificate that nobody has signed', async () => {
    const broker = await openBroker({ prefix: 'treadle', tls: { cert: tls.cert, key: tls.key } });
    opened.push(broker);
    const one = client({ url: broker.url });
    while (one.problems.length === 0) await new Promise((done) => setImmediate(done));
    expect(one.problems[0]).toContain('self-signed certificate');
  });

  test.runIf(hasMosquitto)('keeps to the limits of mosquitto', async () => {
    const broker = await mosquitto('max_packet_size 20000\nmax_inflight_messages 3\nmax_keepalive 10\n');
    opened.push(broker);
    const one = client({ url: broker.url, keepAliveMs: 60_000, subscriptions: [{ topic: 'x', qos: 1 }] });
    await one.connected();
    expect(one.maxPayloadBytes).toBe(20_000 - 1_024);
    expect(await one.publish({ topic: 'x', payload: 'x'.repeat(20_000), qos: 1 })).toBe(false);
    const sent = Array.from({ length: 200 }, (_, index) =>
      one.publish({ topic: 'x', payload: `${index}`.padEnd(1_000), qos: 1 }),
    );
    expect((await Promise.all(sent)).every(Boolean)).toBe(true);
    await one.received(200);
    expect(one.problems).toHaveLength(1);
  });

  test.runIf(hasMosquitto)('uses TLS with a client certificate', async () => {
    const files = Object.entries(tls).map(([name, text]) => {
      const file = join(folder, `${name}.of-broker.pem`);
      writeFileSync(file, text);
      return file;
    });
    const [ca, cert, key] = files;
    const broker = await mosquitto(
      `listener PORT 127.0.0.1\ncafile ${ca}\ncertfile ${cert}\nkeyfile ${key}\nrequire_certificate true\nuse_identity_as_username true`,
    );
    opened.push(broker);
    const one = client({ url: broker.url.replace('mqtt:', 'mqtts:'), tls, subscriptions: [{ topic: 'x', qos: 1 }] });
    await one.connected();
    await one.publish({ topic: 'x', payload: 'private', qos: 1 });
    expect(await one.received(1)).toEqual(['x private']);
  });

  /** What stands before a broker that has no WebSockets of its own. */
  async function webBroker(broker: TestBroker, https?: ServerOptions): Promise<string> {
    const server = https ? createHttpsServer(https) : createHttpServer();
    const web = new WebSocketServer({ server, handleProtocols: (offered) => offered.has('mqtt') && 'mqtt' });
    web.on('connection', (socket) => {
      const tcp = connect(broker.port, '127.0.0.1');
      // A broker that is killed resets its connections.
      for (const one of [tcp, socket]) one.on('error', () => {});
      tcp.on('data', (bytes) => socket.send(bytes)).on('close', () => socket.close());
      socket.on('message', (bytes: Buffer) => tcp.write(bytes)).on('close', () => tcp.end());
    });
    await new Promise<void>((done) => server.listen(0, '127.0.0.1', done));
    opened.push({
      async close() {
        for (const socket of web.clients) socket.terminate();
        await new Promise((done) => server.close(done));
      },
    });
    return `${https ? 'wss' : 'ws'}://127.0.0.1:${(server.address() as AddressInfo).port}/mqtt`;
  }

  describe.each(BROKERS)('a WebSocket before the $name broker', ({ open }) => {
    let broker: TestBroker;
    beforeEach(async () => {
      broker = await open();
      opened.push(broker);
    });

    async function exchange(options: Pick<MqttOptions, 'url' | 'tls'>): Promise<void> {
      const one = client({ ...options, subscriptions: [{ topic: 'x', qos: 1 }] });
      await one.connected();
      const large = 'framed '.repeat(100_000);
      await one.publish({ topic: 'x', payload: large, qos: 1 });
      expect(await one.received(1)).toEqual([`x ${large}`]);
      await one.close();
      expect(one.problems).toEqual([]);
    }

    it('carries MQTT', async () => {
      await exchange({ url: await webBroker(broker) });
    });

    it('uses TLS with own certificates', async () => {
      const { ca, cert, key } = tls;
      await exchange({ url: await webBroker(broker, { cert, key }), tls: { ca } });
      const url = await webBroker(broker, { cert, key, ca, requestCert: true, rejectUnauthorized: true });
      await exchange({ url, tls: { ca, cert, key } });
      await exchange({ url, tls: { pin: cert, cert, key } });
      const refused = async (files?: TlsFiles): Promise<string> => {
        const one = client({ url, ...(files && { tls: files }) });
        while (one.problems.length === 0) await new Promise((done) => setImmediate(done));
        return one.problems[0]!;
      };
      expect(await refused()).toContain('self-signed certificate');
      expect(await refused({ ca })).toMatch(/certificate required|ECONNRESET|socket hang up/);
      expect(await refused({ pin: other, cert, key })).toBe('the broker has another certificate than edge.cert');
    });
  });
});

describe('a broker that misbehaves', () => {
  async function fakeBroker(onSocket: (socket: Socket) => void): Promise<{ readonly url: string; server: Server }> {
    const sockets = new Set<Socket>();
    const server = createServer((socket) => {
      sockets.add(socket);
      socket.on('error', () => {});
      onSocket(socket);
    });
    await new Promise<void>((done) => server.listen(0, '127.0.0.1', done));
    opened.push({
      close: () =>
        new Promise((done) => {
          server.close(done);
          for (const socket of sockets) socket.destroy();
        }),
    });
    return { url: `mqtt://127.0.0.1:${(server.address() as AddressInfo).port}`, server };
  }

  const CONNACK_5 = Buffer.from([0x20, 3, 0, 0, 0]);

  it('is disconnected if it is silent, by the clock', async () => {
    const { url } = await fakeBroker((socket) => socket.once('data', () => socket.write(CONNACK_5)));
    const clock = manualClock(1);
    const one = client({ url, clock, keepAliveMs: 1_000 });
    await one.connected();
    await clock.advance(1_499);
    expect(one.isConnected).toBe(true);
    await clock.advance(1);
    expect(one.problems).toEqual(['the broker does not answer']);
    await one.close();
    expect(clock.pending).toBe(0);
  });

  it('gets no more than it says that it takes', async () => {
    const received: { readonly kind: number; readonly flags: number; readonly body: Buffer }[] = [];
    let socket: Socket;
    const { url } = await fakeBroker((opened) => {
      socket = opened;
      let bytes = Buffer.alloc(0);
      opened.on('data', (part: Buffer) => {
        bytes = Buffer.concat([bytes, part]);
        // Packets here are shorter than 128 bytes.
        for (; bytes.length >= 2 && bytes.length >= 2 + bytes[1]!; bytes = bytes.subarray(2 + bytes[1]!)) {
          received.push({ kind: bytes[0]! >> 4, flags: bytes[0]! & 15, body: bytes.subarray(2, 2 + bytes[1]!) });
        }
        if (received.length === 1) opened.write(CONNACK_LIMITS);
      });
    });
    // Receive maximum 2, packets of 1,100 bytes, keep-alive 10 s, no retained messages, and the id `own`.
    const limits = [0x21, 0, 2, 0x27, 0, 0, 0x04, 0x4c, 0x13, 0, 10, 0x25, 0, 0x12, 0, 3, ...Buffer.from('own')];
    const CONNACK_LIMITS = Buffer.from([0x20, limits.length + 3, 0, 0, limits.length, ...limits]);
    const clock = manualClock(1);
    const one = client({ url, clock, protocol: 5, keepAliveMs: 60_000, clientId: '' });
    await one.connected();
    const publish = (payload: string, retain = false): Promise<boolean> =>
      one.publish({ topic: 't', payload, qos: 1, retain });
    const sent = ['a', 'b', 'c'].map((payload) => publish(payload, true));
    expect(await publish('x'.repeat(77))).toBe(false);
    expect(one.problems).toEqual(['a message of 77 bytes to t is too large for the broker']);
    const published = (): readonly string[] =>
      received.flatMap(({ kind, flags, body }) => (kind === 3 ? `${flags} ${body.subarray(6).toString()}` : []));
    await expect.poll(published).toEqual(['2 a', '2 b']);
    const id = received.find(({ kind }) => kind === 3)!.body.subarray(3, 5);
    socket!.write(Buffer.from([0x40, 2, ...id]));
    expect(await sent[0]).toBe(true);
    await expect.poll(published).toEqual(['2 a', '2 b', '2 c']);
    // Half of its keep-alive.
    await clock.advance(5_000);
    await expect.poll(() => received.some(({ kind }) => kind === 12)).toBe(true);
    socket!.destroy();
    expect(await Promise.all(sent)).toEqual([true, false, false]);
    await clock.advance(500);
    await expect.poll(() => received.filter(({ kind }) => kind === 1).length).toBe(2);
    const [introduced] = received.filter(({ kind }) => kind === 1).slice(-1);
    expect(introduced!.body.subarray(-5)).toEqual(Buffer.from([0, 3, ...Buffer.from('own')]));
  });

  it('is tried again after 0.5 to 1 times of a time that doubles, up to a minute', async () => {
    const { url, server } = await fakeBroker((socket) => socket.destroy());
    await new Promise((done) => server.close(done));
    const waited: number[] = [];
    let fire: (() => void) | undefined;
    const one = client({
      url,
      random: () => 1,
      clock: {
        now: () => 0,
        timer(ms, then) {
          // The time for an attempt is not waited for.
          if (ms === 10_000) return () => {};
          waited.push(ms);
          fire = then;
          return () => {};
        },
      },
    });
    while (waited.length < 9) {
      await new Promise((done) => setImmediate(done));
      fire?.();
      fire = undefined;
    }
    expect(waited).toEqual([500, 1_000, 2_000, 4_000, 8_000, 16_000, 32_000, 60_000, 60_000]);
    expect(one.problems.every((problem) => problem.includes('ECONNREFUSED'))).toBe(true);
  });

  it.each([
    ['no MQTT', Buffer.from('HTTP/1.1 400 Bad Request\r\n\r\n'), /wrong packet|does not belong here/],
    [
      'a packet that is too large',
      Buffer.concat([CONNACK_5, Buffer.from([0x30, 0xff, 0xff, 0xff, 0x7f]), Buffer.alloc(2_000)]),
      /more than 1000 bytes/,
    ],
    ['a refusal', Buffer.from([0x20, 3, 0, 0x87, 0]), /refused the connection: this client is not authorized/],
    [
      'that its id is taken',
      Buffer.concat([CONNACK_5, Buffer.from([0xe0, 1, 0x8e])]),
      /another client with the same id/,
    ],
  ])('is disconnected if it sends %s', async (_, bytes, problem) => {
    const { url } = await fakeBroker((socket) => socket.once('data', () => socket.write(bytes)));
    const one = client({ url, protocol: 5, maxPacketBytes: 1_000 });
    while (one.problems.length === 0) await new Promise((done) => setImmediate(done));
    expect(one.problems[0]).toMatch(problem);
  });

  it.each(['http://x', 'mqtt://', 'x', ''])('does not accept the address %j', (url) => {
    expect(() => client({ url })).toThrow('must begin with mqtt://');
  });
});
