import type { Clock } from '@treadle/core';
import mqttPacket, { type IConnackPacket, type IPublishPacket, type Packet } from 'mqtt-packet';
import { openTransport, type Transport, type TransportOptions } from './transport.ts';

/*
 * A small MQTT client, for devices and orchestrators.
 *
 * 1. It connects again for ever, with back-off and jitter. Sessions are clean: after each connection it subscribes again, and
 *    then `onConnect` is called.
 * 2. A publication with QoS 1 resolves to true when the broker has it, and to false if the connection was lost before. It is
 *    not repeated: those who depend on it send it again when they are connected again.
 * 3. It speaks MQTT 5 if the broker does, and 3.1.1 otherwise.
 * 4. A broker that is silent for longer than the keep-alive, or sends more than it may, is disconnected.
 * 5. What a broker with MQTT 5 says that it takes is honoured: how many publications at the same time, how large, with which QoS,
 *    retained or not, and its keep-alive. Aliases of topics are not used. It may give a client without an id one.
 */

export interface MqttOptions extends TransportOptions {
  readonly clientId: string;
  readonly username?: string | undefined;
  readonly password?: string | undefined;
  readonly subscriptions?: readonly Subscription[];
  /** Published by the broker if the connection is lost without `close`. */
  readonly will?: Publication;
  /** Default 30 seconds. */
  readonly keepAliveMs?: number;
  /** For a connection until it can be used; default 10 seconds. */
  readonly connectTimeoutMs?: number;
  /** Default: 5, and 4 (which is MQTT 3.1.1) if the broker does not accept it. */
  readonly protocol?: 4 | 5;
  /** Bytes of one packet that the broker may send; default 8 MB. */
  readonly maxPacketBytes?: number;
  readonly clock?: Clock;
  /** From 0 to 1, for the jitter. */
  readonly random?: () => number;
  readonly onMessage: (message: Message) => void;
  /** All subscriptions are made. */
  readonly onConnect?: (connection: { readonly protocol: 4 | 5 }) => void;
  readonly onDisconnect?: (why: string) => void;
  /** Why an attempt to connect failed, or why a connection was lost; for logs. */
  readonly onProblem?: (problem: string) => void;
}

export interface Subscription {
  readonly topic: string;
  readonly qos: 0 | 1;
}

export interface Publication {
  readonly topic: string;
  readonly payload: string | Uint8Array;
  readonly qos: 0 | 1;
  readonly retain?: boolean;
  /** With MQTT 5 the broker drops it after this time. */
  readonly expiresMs?: number;
  /** With MQTT 5 the receiver is told where the answer is expected. */
  readonly responseTopic?: string;
}

export interface Message {
  readonly topic: string;
  readonly payload: Uint8Array;
  /** The broker had it before the subscription. */
  readonly retained: boolean;
}

export interface MqttClient {
  readonly isConnected: boolean;
  /** Of one publication, as the broker has said; Infinity if it has not. What is larger is not sent. */
  readonly maxPayloadBytes: number;
  /** False: the broker may not have it. Never rejects. */
  publish(publication: Publication): Promise<boolean>;
  /** Ends the connection, or the attempts. The will is not published. */
  close(): Promise<void>;
}

const KEEP_ALIVE_MS = 30_000;
const CONNECT_MS = 10_000;
/** Of one packet. */
export const MAX_PACKET_BYTES: number = 8 * 1024 * 1024;
const FIRST_BACKOFF_MS = 500;
const MAX_BACKOFF_MS = 60_000;
/** A connection that has lasted as long was no failure. */
const STABLE_MS = 10_000;
/** One id is left for a subscription. */
const MAX_UNACKNOWLEDGED = 65_534;
const MAX_PACKET_ID = 65_535;
const MAX_KEEP_ALIVE_S = 65_535;
/** What a publication has beside its payload, unless its topics are very long. */
const ENVELOPE_BYTES = 1_024;
/** Unsupported protocol version: MQTT 3.1.1, and 5. */
const OTHER_VERSION: readonly number[] = [1, 0x84];

// The cache of numbers takes 5 MB.
mqttPacket.writeToStream.cacheNumbers = false;

/** That of the core would load more of it. */
export const SYSTEM_CLOCK: Clock = {
  now: () => Date.now(),
  timer(ms, fire) {
    const timer = setTimeout(fire, ms);
    return () => clearTimeout(timer);
  },
};

/** What a broker with MQTT 5 says when it accepts a connection. */
type BrokerLimits = NonNullable<IConnackPacket['properties']>;

/** Throws for a URL that cannot be used. Everything else that goes wrong is tried again. */
export function mqttClient(options: MqttOptions): MqttClient {
  return new Connection(options);
}

class Connection implements MqttClient {
  readonly #options: MqttOptions;
  readonly #clock: Clock;
  readonly #random: () => number;
  readonly #unacknowledged = new Map<number, (isSent: boolean) => void>();
  /** Publications that wait until the broker takes more. */
  readonly #waiting: { readonly packet: IPublishPacket; readonly settle: (isSent: boolean) => void }[] = [];
  #limits: BrokerLimits = {};
  #transport: Transport | undefined;
  #protocol: 4 | 5;
  /** The broker has accepted the connection, and all subscriptions are made. */
  #isReady = false;
  #isClosed = false;
  #failures = 0;
  #connectedAt = 0;
  #lastId = 0;
  #lastSent = 0;
  #lastHeard = 0;
  #cancelTimer: () => void = ignore;

  constructor(options: MqttOptions) {
    this.#options = options;
    this.#clock = options.clock ?? SYSTEM_CLOCK;
    this.#random = options.random ?? Math.random;
    this.#protocol = options.protocol ?? 5;
    this.#connect();
  }

  get isConnected(): boolean {
    return this.#isReady;
  }

  get maxPayloadBytes(): number {
    return (this.#limits.maximumPacketSize ?? Infinity) - ENVELOPE_BYTES;
  }

  publish(publication: Publication): Promise<boolean> {
    if (!this.#isReady) return Promise.resolve(false);
    const packet = this.#publishPacket(publication);
    const bytes = Buffer.byteLength(packet.payload);
    if (bytes > this.maxPayloadBytes) {
      // The broker would end the connection.
      this.#options.onProblem?.(`a message of ${bytes} bytes to ${packet.topic} is too large for the broker`);
      return Promise.resolve(false);
    }
    if (packet.qos === 0) return Promise.resolve(this.#send(packet));
    const { promise, resolve } = Promise.withResolvers<boolean>();
    this.#waiting.push({ packet, settle: resolve });
    this.#sendWaiting();
    return promise;
  }

  #sendWaiting(): void {
    const most = Math.min(this.#limits.receiveMaximum ?? MAX_UNACKNOWLEDGED, MAX_UNACKNOWLEDGED);
    while (this.#waiting.length > 0 && this.#unacknowledged.size < most) {
      const { packet, settle } = this.#waiting.shift()!;
      const messageId = this.#nextId();
      this.#unacknowledged.set(messageId, settle);
      if (!this.#send({ ...packet, messageId })) this.#acknowledge(messageId, false);
    }
  }

  async close(): Promise<void> {
    this.#isClosed = true;
    this.#cancelTimer();
    const transport = this.#transport;
    if (transport && this.#isReady) this.#send({ cmd: 'disconnect' });
    this.#lost('the client was closed');
    await transport?.end();
  }

  #connect(): void {
    const { connectTimeoutMs = CONNECT_MS, maxPacketBytes = MAX_PACKET_BYTES } = this.#options;
    const parser = mqttPacket.parser({ protocolVersion: this.#protocol });
    const isCurrent = (): boolean => this.#transport === transport;
    const transport: Transport = openTransport(this.#options, {
      onOpen: () => isCurrent() && this.#introduce(),
      onData: (bytes) => {
        if (!isCurrent()) return;
        this.#lastHeard = this.#clock.now();
        const unparsed = parser.parse(bytes as Buffer);
        if (unparsed > maxPacketBytes) this.#fail(`the broker sent a packet of more than ${maxPacketBytes} bytes`);
      },
      onClose: (why) => isCurrent() && this.#fail(why ?? 'the broker closed the connection'),
    });
    this.#transport = transport;
    parser.on('packet', (packet) => isCurrent() && this.#receive(packet));
    parser.on('error', (error: Error) => isCurrent() && this.#fail(`the broker sent a wrong packet: ${error.message}`));
    this.#setTimer(connectTimeoutMs, () => this.#fail(`no connection within ${connectTimeoutMs} ms`));
  }

  #introduce(): void {
    const { username, password, will, keepAliveMs = KEEP_ALIVE_MS, maxPacketBytes } = this.#options;
    const { assignedClientIdentifier: clientId = this.#options.clientId } = this.#limits;
    this.#send({
      cmd: 'connect',
      protocolId: 'MQTT',
      protocolVersion: this.#protocol,
      clean: true,
      clientId,
      keepalive: Math.min(Math.ceil(keepAliveMs / 1000), MAX_KEEP_ALIVE_S),
      ...(username !== undefined && { username }),
      ...(password !== undefined && { password: Buffer.from(password) }),
      ...(will && {
        will: { topic: will.topic, payload: Buffer.from(will.payload), qos: will.qos, retain: will.retain ?? false },
      }),
      ...(this.#protocol === 5 && { properties: { maximumPacketSize: maxPacketBytes ?? MAX_PACKET_BYTES } }),
    });
  }

  #receive(packet: Packet): void {
    switch (packet.cmd) {
      case 'connack': {
        const code = packet.reasonCode ?? packet.returnCode ?? 0;
        if (code !== 0)
          return this.#fail(refusalText(code), OTHER_VERSION.includes(code) ? 'other-version' : 'refused');
        const { assignedClientIdentifier } = this.#limits;
        this.#limits = {
          ...(assignedClientIdentifier !== undefined && { assignedClientIdentifier }),
          ...packet.properties,
        };
        return this.#subscribe();
      }
      case 'suback': {
        const refused = (packet.granted as readonly number[]).findIndex((code) => Number(code) >= 0x80);
        if (refused < 0) return this.#ready();
        const { topic } = this.#options.subscriptions![refused]!;
        return this.#fail(`the broker does not allow a subscription to ${topic}`, 'refused');
      }
      case 'publish':
        return this.#deliver(packet);
      case 'puback':
        // With MQTT 5, a code from 0x80 on is a refusal.
        return this.#acknowledge(packet.messageId!, (packet.reasonCode ?? 0) < 0x80);
      case 'disconnect':
        return this.#fail(
          `the broker ended the connection: ${ENDINGS[packet.reasonCode ?? 0] ?? `code ${packet.reasonCode}`}`,
        );
      case 'pingresp':
        return undefined;
      default:
        return this.#fail(`the broker sent a packet that does not belong here: ${packet.cmd}`);
    }
  }

  #subscribe(): void {
    const { subscriptions = [] } = this.#options;
    if (subscriptions.length === 0) return this.#ready();
    this.#send({
      cmd: 'subscribe',
      messageId: this.#nextId(),
      subscriptions: subscriptions.map(({ topic, qos }) => ({ topic, qos })),
    });
    return undefined;
  }

  #ready(): void {
    if (this.#isReady) return;
    this.#isReady = true;
    this.#connectedAt = this.#clock.now();
    this.#keepAlive();
    this.#options.onConnect?.({ protocol: this.#protocol });
  }

  #deliver({ topic, payload, retain, qos, messageId }: IPublishPacket): void {
    this.#options.onMessage({ topic, payload: payload as Buffer, retained: retain });
    if (qos === 1 && messageId !== undefined) this.#send({ cmd: 'puback', messageId, reasonCode: 0 });
  }

  #keepAlive(): void {
    const { serverKeepAlive = 0 } = this.#limits;
    const keepAliveMs = serverKeepAlive > 0 ? serverKeepAlive * 1000 : (this.#options.keepAliveMs ?? KEEP_ALIVE_MS);
    const half = keepAliveMs / 2;
    this.#setTimer(half, () => {
      const now = this.#clock.now();
      if (now - this.#lastHeard >= keepAliveMs * 1.5) return this.#fail('the broker does not answer');
      // A broker says something only if it is asked.
      if (now - this.#lastSent >= half || now - this.#lastHeard >= half) this.#send({ cmd: 'pingreq' });
      return this.#keepAlive();
    });
  }

  #publishPacket({ topic, payload, qos, retain = false, expiresMs, responseTopic }: Publication): IPublishPacket {
    const { maximumQoS = 1, retainAvailable = true } = this.#limits;
    const packet: IPublishPacket = {
      cmd: 'publish',
      topic,
      payload: typeof payload === 'string' ? payload : Buffer.from(payload),
      qos: maximumQoS === 0 ? 0 : qos,
      retain: retain && retainAvailable,
      dup: false,
    };
    if (this.#protocol === 4 || (expiresMs === undefined && responseTopic === undefined)) return packet;
    const properties = {
      ...(expiresMs !== undefined && { messageExpiryInterval: Math.max(1, Math.ceil(expiresMs / 1000)) }),
      ...(responseTopic !== undefined && { responseTopic }),
    };
    return { ...packet, properties };
  }

  #send(packet: Packet): boolean {
    this.#lastSent = this.#clock.now();
    try {
      this.#transport?.write(mqttPacket.generate(packet, { protocolVersion: this.#protocol }));
      return this.#transport !== undefined;
    } catch (error) {
      this.#fail(`a packet could not be sent: ${(error as Error).message}`);
      return false;
    }
  }

  /** There is always one: fewer publications than ids are unacknowledged. */
  #nextId(): number {
    do this.#lastId = (this.#lastId % MAX_PACKET_ID) + 1;
    while (this.#unacknowledged.has(this.#lastId));
    return this.#lastId;
  }

  #acknowledge(messageId: number, isSent: boolean): void {
    this.#unacknowledged.get(messageId)?.(isSent);
    if (this.#unacknowledged.delete(messageId)) this.#sendWaiting();
  }

  /** Ends the connection, and tries again after a time. */
  #fail(why: string, kind: 'lost' | 'refused' | 'other-version' = 'lost'): void {
    const wasReady = this.#isReady;
    const transport = this.#transport;
    if (!transport || this.#isClosed) return;
    const { hasOpened } = transport;
    this.#lost(why);
    transport.destroy();
    if (wasReady && this.#clock.now() - this.#connectedAt >= STABLE_MS) this.#failures = 0;
    // A broker that knows only 3.1.1 refuses the other version, or ends the connection without a word.
    const isOtherVersion = kind === 'other-version' || (kind === 'lost' && !wasReady && hasOpened);
    if (isOtherVersion && this.#options.protocol === undefined && !wasReady) {
      this.#protocol = this.#protocol === 5 ? 4 : 5;
      if (this.#protocol === 4) return this.#connect();
    }
    this.#options.onProblem?.(why);
    const most = Math.min(MAX_BACKOFF_MS, FIRST_BACKOFF_MS * 2 ** this.#failures++);
    this.#setTimer(most * (0.5 + this.#random() / 2), () => this.#connect());
    return undefined;
  }

  #lost(why: string): void {
    this.#cancelTimer();
    this.#transport = undefined;
    const wasReady = this.#isReady;
    this.#isReady = false;
    const open = [...this.#unacknowledged.values(), ...this.#waiting.splice(0).map(({ settle }) => settle)];
    this.#unacknowledged.clear();
    for (const resolve of open) resolve(false);
    if (wasReady) this.#options.onDisconnect?.(why);
  }

  #setTimer(ms: number, fire: () => void): void {
    this.#cancelTimer();
    this.#cancelTimer = this.#clock.timer(ms, fire);
  }
}

const REFUSALS: Readonly<Record<number, string>> = {
  1: 'it does not know this version of MQTT',
  2: 'it does not accept the client id',
  3: 'it is not available',
  4: 'the user name or the password is wrong',
  5: 'this client is not authorized',
  0x84: 'it does not know this version of MQTT',
  0x85: 'it does not accept the client id',
  0x86: 'the user name or the password is wrong',
  0x87: 'this client is not authorized',
  0x88: 'it is not available',
  0x97: 'it has too many clients',
  0x9a: 'it does not keep messages, and the will is one',
  0x9b: 'it does not support QoS 1',
};

const ENDINGS: Readonly<Record<number, string>> = {
  0: 'it did not say why',
  0x8b: 'it is shutting down',
  0x8d: 'it has heard nothing for too long',
  0x8e: 'another client with the same id has connected. Give each device a name of its own',
  0x93: 'too much was sent at the same time',
  0x95: 'a packet was too large',
};

function refusalText(code: number): string {
  return `the broker refused the connection: ${REFUSALS[code] ?? `code ${code}`}`;
}

function ignore(): void {}
