import { X509Certificate } from 'node:crypto';
import { connect, type Socket } from 'node:net';
import type { ConnectionOptions } from 'node:tls';

/** A connection to a broker, whatever it is made of. */
export interface Transport {
  /** It was open at some time. */
  readonly hasOpened: boolean;
  write(bytes: Uint8Array): void;
  /** Sends what was written, and ends. */
  end(): Promise<void>;
  destroy(): void;
}

export interface TransportOptions {
  /** `mqtt://host:1883`, `mqtts://`, `ws://` or `wss://`. */
  readonly url: string;
  /** For `mqtts`. All in PEM. */
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

const PORTS: Readonly<Record<string, number>> = { 'mqtt:': 1883, 'mqtts:': 8883 };
/** Of a connection that ends. */
const END_MS = 1_000;

/** Throws for a URL that cannot be used. */
export function openTransport({ url, tls }: TransportOptions, events: TransportEvents): Transport {
  const { protocol, hostname, port, host } = brokerUrl(url);
  if (protocol === 'ws:' || protocol === 'wss:') {
    if (tls) throw new TypeError(`Certificates of ${host} cannot be set for a WebSocket. Set NODE_EXTRA_CA_CERTS.`);
    return webSocketTransport(url, events);
  }
  const address = { host: hostname.replace(/^\[(.*)\]$/, '$1'), port: port === '' ? PORTS[protocol]! : Number(port) };
  if (protocol === 'mqtt:') return socketTransport(connect({ ...address, noDelay: true }), 'connect', events);
  return tlsTransport({ ...address, ...tls }, events);
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

/** TLS is loaded when it is needed: it takes several megabytes. */
function tlsTransport({ pin, ...options }: ConnectionOptions & TlsFiles, events: TransportEvents): Transport {
  let inner: Transport | undefined;
  let isOver = false;
  const { host } = options;
  void import('node:tls').then(
    ({ connect: connectTls }) => {
      if (isOver) return;
      try {
        const servername = /^[\d.]+$|:/.test(host!) ? {} : { servername: host! };
        const socket = connectTls({
          ...options,
          ...servername,
          ...(pin !== undefined && { rejectUnauthorized: false }),
        });
        socket.setNoDelay(true);
        // Before anything is sent.
        socket.once('secureConnect', () => {
          const isOther = pin !== undefined && socket.getPeerX509Certificate()?.fingerprint256 !== fingerprintOf(pin);
          if (isOther) socket.destroy(new Error('the broker has another certificate than edge.cert'));
        });
        inner = socketTransport(socket, 'secureConnect', events);
      } catch (error) {
        events.onClose((error as Error).message);
      }
    },
    (error: Error) => events.onClose(error.message),
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

function fingerprintOf(certificate: string): string {
  return new X509Certificate(certificate).fingerprint256;
}

function webSocketTransport(url: string, events: TransportEvents): Transport {
  const socket = new WebSocket(url, 'mqtt');
  socket.binaryType = 'arraybuffer';
  let hasOpened = false;
  let isOver = false;
  const close = (why?: string): void => {
    if (isOver) return;
    isOver = true;
    events.onClose(why);
  };
  socket.addEventListener('open', () => {
    hasOpened = true;
    if (!isOver) events.onOpen();
  });
  socket.addEventListener('message', ({ data }) => {
    if (isOver) return;
    if (data instanceof ArrayBuffer) events.onData(Buffer.from(data));
    else close('the broker sent a text over its WebSocket');
  });
  socket.addEventListener('error', () => close('the WebSocket could not be opened, or failed'));
  socket.addEventListener('close', () => close());
  return {
    get hasOpened() {
      return hasOpened;
    },
    write: (bytes) => socket.send(bytes as Uint8Array<ArrayBuffer>),
    async end() {
      isOver = true;
      socket.close();
    },
    destroy() {
      isOver = true;
      socket.close();
    },
  };
}
