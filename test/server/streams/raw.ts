import { connect } from 'node:net';

/** An answer as it was written: each write of the server is a chunk. */
export async function rawAnswer(url: string, path: string, body: object): Promise<{ head: string; chunks: string[] }> {
  const { hostname, port } = new URL(url);
  const json = Buffer.from(JSON.stringify(body));
  const socket = connect(Number(port), hostname);
  const lines = [`POST ${path} HTTP/1.1`, `Host: ${hostname}:${port}`, 'Connection: close'];
  lines.push('Content-Type: application/json', `Content-Length: ${json.length}`, '', '');
  socket.write(Buffer.concat([Buffer.from(lines.join('\r\n')), json]));
  const pieces: Buffer[] = [];
  for await (const piece of socket) pieces.push(piece as Buffer);
  const all = Buffer.concat(pieces);

  const end = all.indexOf('\r\n\r\n') + 4;
  const chunks: string[] = [];
  for (let at = end; ;) {
    const line = all.indexOf('\r\n', at);
    const size = Number.parseInt(all.toString('latin1', at, line), 16);
    if (!(size > 0)) break;
    chunks.push(all.toString('utf8', line + 2, line + 2 + size));
    at = line + 2 + size + 2;
  }
  return { head: all.toString('latin1', 0, end), chunks };
}
