/** A minimal server between a client and the model: it forwards all bytes without parsing them. */
import { Agent, createServer, request } from 'node:http';
import type { AddressInfo } from 'node:net';
import { pipeline } from 'node:stream';
import { attach, jobOf } from './control.ts';

const { hostname, port } = new URL(jobOf().provider);
const agent = new Agent({ keepAlive: true });

const server = createServer((incoming, outgoing) => {
  const headers = { 'content-type': 'application/json', 'content-length': incoming.headers['content-length'] };
  const asked = request({ agent, hostname, port, path: incoming.url, method: incoming.method, headers }, (answer) => {
    outgoing.writeHead(answer.statusCode!, answer.headers);
    pipeline(answer, outgoing, () => {});
  });
  asked.on('error', () => outgoing.destroy());
  outgoing.on('close', () => asked.destroy());
  incoming.pipe(asked);
});

server.listen({ port: 0, host: '127.0.0.1', backlog: 4_096 }, () => {
  attach(`http://127.0.0.1:${(server.address() as AddressInfo).port}/v1`);
});
