/**
 * Parses the requests of one connection, for the part of HTTP/1.1 that clients of model APIs use: bodies with a length or
 * in chunks, one request after the other. The server of Node would cost more than most measured code.
 */
export function requestReader(onRequest: (path: string, body: Buffer) => void): (bytes: Buffer) => void {
  let rest: Buffer = Buffer.alloc(0);
  return (bytes) => {
    rest = rest.length === 0 ? bytes : Buffer.concat([rest, bytes]);
    for (let request = read(rest); request; request = read(rest)) {
      rest = rest.subarray(request.size);
      onRequest(request.path, request.body);
    }
  };
}

interface Request {
  readonly path: string;
  readonly body: Buffer;
  readonly size: number;
}

const HEAD_END = '\r\n\r\n';

function read(bytes: Buffer): Request | undefined {
  const headEnd = bytes.indexOf(HEAD_END);
  if (headEnd === -1) return undefined;
  const head = bytes.toString('latin1', 0, headEnd);
  const from = headEnd + HEAD_END.length;
  const path = head.slice(head.indexOf(' ') + 1).split(/[ ?]/, 1)[0]!;
  const length = /\ncontent-length: *(\d+)/i.exec(head);
  if (length) {
    const size = from + Number(length[1]);
    return bytes.length < size ? undefined : { path, body: bytes.subarray(from, size), size };
  }
  if (!/\ntransfer-encoding: *chunked/i.test(head)) return { path, body: Buffer.alloc(0), size: from };
  return chunked(bytes, path, from);
}

function chunked(bytes: Buffer, path: string, from: number): Request | undefined {
  const chunks: Buffer[] = [];
  for (let at = from; ;) {
    const lineEnd = bytes.indexOf('\r\n', at);
    if (lineEnd === -1) return undefined;
    const length = Number.parseInt(bytes.toString('latin1', at, lineEnd), 16);
    const end = lineEnd + 2 + length;
    if (bytes.length < end + 2) return undefined;
    if (length === 0) return { path, body: Buffer.concat(chunks), size: end + 2 };
    chunks.push(bytes.subarray(lineEnd + 2, end));
    at = end + 2;
  }
}
