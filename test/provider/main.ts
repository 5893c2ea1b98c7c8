import type { AddressInfo } from 'node:net';
import type { Seen, Step } from './script.ts';
import { providerServer } from './server.ts';

/** What a test requires of the process of the provider. Each order gets one report with its number. */
export type Order = { readonly number: number } & (
  | { readonly type: 'script'; readonly name: string; readonly steps: readonly Step[]; readonly isStrict: boolean }
  | { readonly type: 'seen'; readonly name: string }
  | { readonly type: 'said'; readonly name: string }
  | { readonly type: 'quiet'; readonly connections: number }
);

export type Report =
  | { readonly type: 'listening'; readonly port: number }
  | { readonly type: 'done'; readonly number: number; readonly result: readonly Seen[] | number | null };

const server = providerServer();

const sendReport = (report: Report): void => void process.send!(report);

process.on('message', async (order: Order) => {
  const done = (result: Extract<Report, { type: 'done' }>['result']): void =>
    sendReport({ type: 'done', number: order.number, result });
  switch (order.type) {
    case 'script':
      server.script(order.name, order.steps, order.isStrict);
      return done(null);
    case 'seen':
      return done(server.seen(order.name));
    case 'said':
      return done(server.said(order.name));
    case 'quiet':
      await server.quiet(order.connections);
      return done(null);
    default:
      order satisfies never;
  }
});
// The parent process has ended, for whatever reason.
process.on('disconnect', () => process.exit(0));

server.http.listen(0, '127.0.0.1', () => {
  sendReport({ type: 'listening', port: (server.http.address() as AddressInfo).port });
});
