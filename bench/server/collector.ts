/** A collector that takes everything, in a process of its own. With the argument `hangs` it never answers. Prints its port. */
import { createServer } from 'node:http';
import type { AddressInfo } from 'node:net';

const hangs = process.argv[2] === 'hangs';
const server = createServer((request, response) => {
  request.resume();
  if (!hangs) request.on('end', () => response.end('{}'));
});
server.listen(0, '127.0.0.1', () => process.stdout.write(`${(server.address() as AddressInfo).port}\n`));
// It ends with the process that has started it.
process.stdin.resume().on('end', () => process.exit());
