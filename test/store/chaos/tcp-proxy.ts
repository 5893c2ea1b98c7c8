import { once } from 'node:events';
import { connect, createServer, type AddressInfo, type Socket } from 'node:net';

/** Passes connections on, and can cut them. */
export interface TcpProxy extends AsyncDisposable {
  readonly port: number;
  /** Cuts the connections that this function selects; default: all. */
  readonly cut: (isCut?: () => boolean) => void;
  /** Whether new connections are refused, and what arrives is held back: as if the network did not answer. */
  readonly hold: (isHeld: boolean) => void;
}

/** `target`: the port of this machine for the next connection. Undefined: it is refused. */
export async function tcpProxy(target: () => number | undefined): Promise<TcpProxy> {
  const pairs = new Set<readonly [Socket, Socket]>();
  let isHeld = false;

  function accept(incoming: Socket): void {
    const port = target();
    if (port === undefined) return void incoming.resetAndDestroy();
    const outgoing = connect({ port, host: '127.0.0.1' });
    const pair = [incoming, outgoing] as const;
    pairs.add(pair);
    for (const [from, to] of [pair, [outgoing, incoming]] as const) {
      from.on('error', () => {});
      from.on('close', () => {
        pairs.delete(pair);
        to.destroy();
      });
      from.pipe(to);
      if (isHeld) from.pause();
    }
  }

  const server = createServer(accept).listen(0, '127.0.0.1');
  await once(server, 'listening');
  return {
    port: (server.address() as AddressInfo).port,
    cut(isCut = () => true) {
      for (const [incoming, outgoing] of pairs) {
        if (!isCut()) continue;
        incoming.resetAndDestroy();
        outgoing.resetAndDestroy();
      }
    },
    hold(held) {
      isHeld = held;
      for (const sockets of pairs)
        for (const socket of sockets) {
          if (held) socket.pause();
          else socket.resume();
        }
    },
    async [Symbol.asyncDispose]() {
      server.close();
      for (const sockets of pairs) for (const socket of sockets) socket.destroy();
      await once(server, 'close');
    },
  };
}
