import { timingSafeEqual, createHash } from 'node:crypto';
import { createServer, isIP, type AddressInfo, type Server, type Socket } from 'node:net';
import { topicsOf } from '../protocol/topics.ts';
import { MAX_PACKET_BYTES } from './client.ts';
import type { TlsFiles } from './transport.ts';

/*
 * A broker inside this process.
 *
 * 1. It listens on loopback, unless users with passwords are configured: then also elsewhere, with TLS.
 * 2. With users, a device may use only its own topics, and only an orchestrator may send commands. The ids of clients are those of
 *    their users: nobody can take the connection or the session of another user's client.
 * 3. It keeps everything in memory. What it loses when it restarts is sent again by its clients: the protocol depends on nothing
 *    that a broker stores.
 * 4. A client that sends a packet which is larger than its receivers accept is disconnected: they would be.
 */

export interface BrokerOptions {
  readonly prefix: string;
  /** Default 127.0.0.1. */
  readonly host?: string;
  /** Default: any free port. */
  readonly port?: number;
  /** Users by name. Absent: everybody on this machine may connect. */
  readonly users?: Readonly<Record<string, BrokerUser>>;
  /** Certificate and key of the broker; `ca`: clients need a certificate that is signed by it. */
  readonly tls?: TlsFiles;
  readonly onProblem?: (problem: string) => void;
}

export interface BrokerUser {
  readonly password: string;
  /** A device has the name of its user. Default: an orchestrator, which may use all topics of the prefix. */
  readonly device?: string;
}

export interface Broker {
  /** For clients on this machine. */
  readonly url: string;
  /** Clients that are connected. */
  readonly clients: number;
  close(): Promise<void>;
}

/** Packets of a client whose connection is not accepted yet. */
const MAX_QUEUED = 1_000;

/** Rejects with an error that says what to change, if it may not listen there or cannot. */
export async function openBroker(options: BrokerOptions): Promise<Broker> {
  const { prefix, host = '127.0.0.1', port = 0, users, tls, onProblem = () => {} } = options;
  if (!isLoopback(host) && !(users && tls?.cert !== undefined)) {
    throw new Error(
      `The embedded broker does not listen on ${host}, because everybody could use the devices. Configure users and a ` +
        `certificate, or listen on 127.0.0.1.`,
    );
  }
  const { Aedes } = await import('aedes');
  const aedes = await Aedes.createBroker({
    queueLimit: MAX_QUEUED,
    // Of clients with MQTT 3.1, whose ids have the name of the user in front here.
    maxClientsIdLength: 1_000,
    preConnect(_, packet, done) {
      const { username, clientId } = packet;
      if (users && clientId) packet.clientId = `${encodeURIComponent(username ?? '')}/${clientId}`;
      done(null, true);
    },
    authenticate(client, username, password, done) {
      const user = users && Object.hasOwn(users, username ?? '') ? users[username!] : undefined;
      const isKnown = !users || (user !== undefined && isSameText(password?.toString() ?? '', user.password));
      if (user) rights.set(client, user);
      done(null, isKnown);
    },
    authorizePublish(client, { topic }, done) {
      // The broker itself publishes wills for clients that it still knows.
      done(client && !mayPublish(client, topic) ? new Error(`may not publish to ${topic}`) : null);
    },
    authorizeSubscribe(client, subscription, done) {
      done(null, maySubscribe(client, subscription.topic) ? subscription : null);
    },
  });
  const rights = new WeakMap<object, BrokerUser>();
  const topics = topicsOf(prefix);

  function mayPublish(client: object, topic: string): boolean {
    if (!users) return !topic.startsWith('$SYS/');
    const { device } = rights.get(client) ?? {};
    if (!rights.has(client)) return false;
    if (device === undefined) return topic.startsWith(`${prefix}/`);
    return [topics.reports(device), topics.status(device), topics.capabilities(device)].includes(topic);
  }

  function maySubscribe(client: object, topic: string): boolean {
    if (!users) return true;
    const { device } = rights.get(client) ?? {};
    if (!rights.has(client)) return false;
    if (device === undefined) return topic.startsWith(`${prefix}/`);
    return [topics.commands(device), topics.broadcast, topics.strategy(device)].includes(topic);
  }

  aedes.on('clientError', (client, error) => onProblem(`${client.id}: ${error.message}`));
  aedes.on('connectionError', (_, error) => {
    // A client that tries MQTT 5 first.
    if (error.message !== 'unacceptable protocol version') onProblem(`a client could not connect: ${error.message}`);
  });
  const sockets = new Set<Socket>();
  const onSocket = (socket: Socket): void => {
    socket.setNoDelay(true);
    sockets.add(socket);
    socket.once('close', () => sockets.delete(socket));
    limit(aedes.handle(socket), socket);
  };
  const server = tls?.cert === undefined ? createServer(onSocket) : await tlsServer(tls, onSocket);
  try {
    await listening(server, port, host);
  } catch (error) {
    await new Promise<void>((done) => aedes.close(done));
    throw new Error(`The embedded broker cannot listen on ${host}:${port}: ${(error as Error).message}.`, {
      cause: error,
    });
  }
  const { port: actual } = server.address() as AddressInfo;
  const shown = isIP(host) === 6 ? `[${host}]` : host;
  return {
    url: `${tls?.cert === undefined ? 'mqtt' : 'mqtts'}://${shown}:${actual}`,
    get clients() {
      return aedes.connectedClients;
    },
    async close() {
      const closed = new Promise<void>((done) => server.close(() => done()));
      await new Promise<void>((done) => aedes.close(done));
      for (const socket of sockets) socket.destroy();
      await closed;
    },
  };
}

/** Aedes itself collects a packet of up to 256 MB, also of a client that has not said who it is. */
function limit(client: object, socket: Socket): void {
  const { _parser: parser } = client as { readonly _parser: { parse(bytes: Uint8Array): number } };
  const parse = parser.parse.bind(parser);
  parser.parse = (bytes) => {
    const unparsed = parse(bytes);
    if (unparsed > MAX_PACKET_BYTES)
      socket.destroy(new Error(`it sent a packet of more than ${MAX_PACKET_BYTES} bytes`));
    return unparsed;
  };
}

/** An address of this machine that others cannot reach. */
function isLoopback(host: string): boolean {
  return host === 'localhost' || host === '::1' || (isIP(host) === 4 && host.startsWith('127.'));
}

async function tlsServer({ ca, cert, key }: TlsFiles, onSocket: (socket: Socket) => void): Promise<Server> {
  const { createServer: createTlsServer } = await import('node:tls');
  const clients = ca === undefined ? {} : { ca, requestCert: true, rejectUnauthorized: true };
  return createTlsServer({ cert: cert!, ...(key !== undefined && { key }), ...clients }, onSocket);
}

function listening(server: Server, port: number, host: string): Promise<void> {
  return new Promise((done, fail) => {
    server.once('error', fail);
    server.listen(port, host, () => {
      server.off('error', fail);
      done();
    });
  });
}

function isSameText(a: string, b: string): boolean {
  const digest = (text: string): Buffer => createHash('sha256').update(text).digest();
  return timingSafeEqual(digest(a), digest(b));
}
