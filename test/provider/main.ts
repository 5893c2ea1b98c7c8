import type { AddressInfo } from 'node:net';
import type { Order, Report } from './control.ts';
import { providerServer } from './server.ts';

const server = providerServer();

const tell = (report: Report): void => void process.send!(report);

process.on('message', async (order: Order) => {
  const done = (result: Extract<Report, { type: 'done' }>['result']): void =>
    tell({ type: 'done', number: order.number, result });
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
// Whoever started it is gone, however that came about.
process.on('disconnect', () => process.exit(0));

server.http.listen(0, '127.0.0.1', () => {
  tell({ type: 'listening', port: (server.http.address() as AddressInfo).port });
});
