import { newLog } from '../src/http/log.ts';
import { route, type Route } from '../src/http/routes.ts';
import { createServer, type Server, type ServerOptions } from '../src/http/server.ts';
import { rawConnection, type RawConnection } from './raw-http.ts';

type Scoped = Partial<Pick<Route, 'scope'>>;

/** A route of a test. Any key may use it by default. */
export function getRoute<Path extends string>(path: Path, handle: Route<Path>['handle'], options: Scoped = {}): Route {
  return route({ method: 'GET', path, scope: 'any-key', summary: 'Test', handle, ...options });
}

export function postRoute<Path extends string>(path: Path, handle: Route<Path>['handle'], options: Scoped = {}): Route {
  return route({ method: 'POST', path, scope: 'any-key', summary: 'Test', handle, ...options });
}

/** A server on a free port of loopback, with access to its log. */
export interface Served extends AsyncDisposable {
  readonly server: Server;
  readonly url: string;
  readonly port: number;
  /** The lines of the log. */
  readonly lines: readonly string[];
  /** The lines of the log with this message. */
  logged(message: string): Record<string, unknown>[];
  /** Resolves when the log has `count` lines about requests. */
  requests(count: number): Promise<Record<string, unknown>[]>;
  connect(): Promise<RawConnection>;
}

export async function served(options: Partial<ServerOptions> = {}): Promise<Served> {
  const lines: string[] = [];
  let written = Promise.withResolvers<void>();
  const to = {
    write(line: string): void {
      lines.push(line);
      written.resolve();
      written = Promise.withResolvers();
    },
  };
  const server = createServer({
    port: 0,
    log: newLog({ level: 'debug', to }),
    routes: [],
    ready: async () => undefined,
    durable: () => {},
    drain: async () => undefined,
    ...options,
  });
  const { url, port } = await server.listen();
  const logged = (message: string): Record<string, unknown>[] =>
    lines.map((line) => JSON.parse(line) as Record<string, unknown>).filter(({ msg }) => msg === message);
  return {
    server,
    url,
    port,
    lines,
    logged,
    async requests(count) {
      while (logged('request').length < count) await written.promise;
      return logged('request');
    },
    connect: () => rawConnection(port, options.host?.includes(':') ? options.host : '127.0.0.1'),
    [Symbol.asyncDispose]: () => server.close(0),
  };
}
