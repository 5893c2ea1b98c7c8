/** A web handler that streams a run to its client. Run it: npm run example streaming-http */
import { once } from 'node:events';
import { createServer } from 'node:http';
import type { AddressInfo } from 'node:net';
import { Readable } from 'node:stream';
import { text } from 'node:stream/consumers';
import { pipeline } from 'node:stream/promises';
import { streamLoop } from '@treadle/core';
import { toTextResponse } from '@treadle/core/web';
import { demo } from '@treadle/models';

/** A handler as Hono, Next, Bun, Deno and workers have them. toEventStreamResponse sends all items, not only the text. */
function handle(question: string): Response {
  return toTextResponse(streamLoop({ model: demo(), input: question }));
}

// Node's own server and Express take no Response, so this one copies it. The other frameworks do that for you. The copying ends
// early, and must not end the process, if the run fails or the client leaves, which cancels the run.
const server = createServer(async (request, outgoing) => {
  const response = handle(await text(request));
  outgoing.writeHead(response.status, Object.fromEntries(response.headers));
  await pipeline(Readable.fromWeb(response.body!), outgoing).catch(() => {});
}).listen(0, '127.0.0.1');
await once(server, 'listening');

const { port } = server.address() as AddressInfo;
const response = await fetch(`http://127.0.0.1:${port}`, { method: 'POST', body: 'What is 6 * 7?' });
for await (const piece of response.body!.pipeThrough(new TextDecoderStream())) process.stdout.write(piece);
// prints: 6 * 7 = 42
server.close();
