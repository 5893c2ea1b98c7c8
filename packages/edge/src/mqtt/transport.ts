import { X509Certificate } from 'node:crypto';
import { connect, isIP, type Socket } from 'node:net';
import type * as tls from 'node:tls';
import type { ConnectionOptions, TLSSocket } from 'node:tls';

/** A connection to a broker, whatever it is made of. */
export interface Transport {
  /** It was open at some time. */
  readonly hasOpened: boolean;
  write(bytes: Uint8Array): void;
  /** Sends what was written, and ends. */
  end(): Promise<void>;
  destroy(): void;
}

type TlsModule = typeof tls;

export interface TransportOptions {
  /** `mqtt://host:1883`, `mqtts://`, `ws://` or `wss://`. */
  readonly url: string;
  /** For `mqtts` and `wss`. All in PEM. */
  readonly tls?: TlsFiles | undefined;
}

export interface TlsFiles {
  /** The certificates that the broker's has to be signed by. Default: those that Node knows. */
  readonly ca?: string;
  /** The certificate of the client, with its key. */
  readonly cert?: string;
  readonly key?: string;
  /** The broker has exactly this certificate, whoever has signed it and whatever names it has. */
  readonly pin?: string;
}

interface TransportEvents {
  readonly onOpen: () => void;
  readonly onData: (bytes: Uint8Array) => void;
  /** Once, also if it was never open. Not after `end` or `destroy`. */
  readonly onClose: (why?: string) => void;
}

const PORTS: Readonly<Record<string, number>> = { 'mqtt:': 1883, 'mqtts:': 8883, 'ws:': 80, 'wss:': 443 };
/** Of a connection that ends. */
const END_MS = 1_000;
/** Of a WebSocket. A frame may have several packets. */
const MAX_FRAME_BYTES = 16 * 1024 * 1024;

/** Throws for a URL that cannot be used. */
export function openTransport({ url, tls }: TransportOptions, events: TransportEvents): Transport {
  const { protocol, hostname, port } = brokerUrl(url);
  const address = { host: hostname.replace(/^\[(.*)\]$/, '$1'), port: port === '' ? PORTS[protocol]! : Number(port) };
  switch (protocol) {
    case 'mqtt:':
      return socketTransport(connect({ ...address, noDelay: true }), 'connect', events);
    case 'mqtts:':
      return loadedTransport(events, async () => {
        const socket = tlsSocket(await import('node:tls'), { ...address, ...tls });
        return socketTransport(socket, 'secureConnect', events);
      });
    default:
      return loadedTransport(events, () => webSocketTransport(url, tls && { ...address, ...tls }, events));
  }
}

/** Throws for a URL that is not one of a broker. Never quotes it, because it may contain a password. */
export function brokerUrl(url: string): URL {
  const parsed = URL.parse(url);
  if (!parsed || !/^(mqtts?|wss?):$/.test(parsed.protocol) || parsed.hostname === '') {
    throw new TypeError(
      'The address of the broker must begin with mqtt://, mqtts://, ws:// or wss://, and name a host.',
    );
  }
  if (parsed.username !== '' || parsed.password !== '') {
    throw new TypeError('The address of the broker must not contain a user or a password. Give them apart from it.');
  }
  return parsed;
}

/** Throws if others could read what is sent to a broker, or send commands. */
export function checkedBroker(url: string, { hasCredentials }: { readonly hasCredentials: boolean }): URL {
  const parsed = brokerUrl(url);
  const { protocol, hostname: host } = parsed;
  if (host === 'localhost' || host === '[::1]' || /^127\.\d+\.\d+\.\d+$/.test(host)) return parsed;
  if (protocol !== 'mqtts:' && protocol !== 'wss:') {
    throw new TypeError(`The broker ${host} is not on this machine, so it needs TLS: use mqtts:// or wss://.`);
  }
  if (hasCredentials) return parsed;
  throw new TypeError(
    `The broker ${host} is not on this machine, so it needs credentials: a user with a password, or a certificate.`,
  );
}

function socketTransport(socket: Socket, opened: 'connect' | 'secureConnect', events: TransportEvents): Transport {
  let hasOpened = false;
  let isOver = false;
  let why: string | undefined;
  socket.once(opened, () => {
    hasOpened = true;
    events.onOpen();
  });
  socket.on('data', (bytes: Buffer) => isOver || events.onData(bytes));
  socket.on('error', (error: NodeJS.ErrnoException) => (why = error.message || error.code));
  socket.once('close', () => {
    if (isOver) return;
    isOver = true;
    events.onClose(why);
  });
  return {
    get hasOpened() {
      return hasOpened;
    },
    write: (bytes) => void socket.write(bytes),
    async end() {
      isOver = true;
      if (socket.destroyed) return;
      await new Promise<void>((done) => {
        const timer = setTimeout(() => socket.destroy(), END_MS);
        socket.once('close', () => {
          clearTimeout(timer);
          done();
        });
        socket.end();
      });
    },
    destroy() {
      isOver = true;
      socket.destroy();
    },
  };
}

/** TLS and WebSockets are loaded when they are needed: they take several megabytes. */
function loadedTransport(events: TransportEvents, open: () => Promise<Transport>): Transport {
  let inner: Transport | undefined;
  let isOver = false;
  void open().then(
    (opened) => {
      inner = opened;
      if (isOver) opened.destroy();
    },
    (error: Error) => isOver || events.onClose(error.message),
  );
  return {
    get hasOpened() {
      return inner?.hasOpened ?? false;
    },
    write: (bytes) => inner?.write(bytes),
    async end() {
      isOver = true;
      await inner?.end();
    },
    destroy() {
      isOver = true;
      inner?.destroy();
    },
  };
}

function tlsSocket({ connect: open }: TlsModule, options: ConnectionOptions & TlsFiles): TLSSocket {
  const { pin, host, ...others } = options;
  const socket = open({
    ...others,
    host: host!,
    ...(isIP(host!) === 0 && { servername: host! }),
    ...(pin !== undefined && { rejectUnauthorized: false }),
  });
  socket.setNoDelay(true);
  // Before anything is sent.
  socket.once('secureConnect', () => {
    const isOther = pin !== undefined && socket.getPeerX509Certificate()?.fingerprint256 !== fingerprintOf(pin);
    if (isOther) socket.destroy(new Error('the broker has another certificate than edge.cert'));
  });
  return socket;
}

function fingerprintOf(certificate: string): string {
  return new X509Certificate(certificate).fingerprint256;
}

async function webSocketTransport(
  url: string,
  secure: (ConnectionOptions & TlsFiles) | undefined,
  events: TransportEvents,
): Promise<Transport> {
  const [{ WebSocket }, tls] = await Promise.all([import('ws'), secure && import('node:tls')]);
  const socket = new WebSocket(url, 'mqtt', {
    perMessageDeflate: false,
    maxPayload: MAX_FRAME_BYTES,
    ...(tls && { createConnection: () => tlsSocket(tls, secure!) }),
  });
  let hasOpened = false;
  let isOver = false;
  const close = (why?: string): void => {
    if (isOver) return;
    isOver = true;
    events.onClose(why);
  };
  socket.on('open', () => {
    hasOpened = true;
    if (!isOver) events.onOpen();
  });
  socket.on('message', (data, isBinary) => {
    if (isOver) return;
    if (isBinary) events.onData(data as Buffer);
    else close('the broker sent a text over its WebSocket');
  });
  socket.on('error', ({ message }) => close(message));
  socket.on('close', () => close());
  return {
    get hasOpened() {
      return hasOpened;
    },
    write: (bytes) => socket.send(bytes),
    async end() {
      isOver = true;
      if (socket.readyState === WebSocket.CLOSED) return;
      await new Promise<void>((done) => {
        const timer = setTimeout(() => socket.terminate(), END_MS);
        socket.once('close', () => {
          clearTimeout(timer);
          done();
        });
        socket.close();
      });
    },
    destroy() {
      isOver = true;
      socket.terminate();
    },
  };
}
