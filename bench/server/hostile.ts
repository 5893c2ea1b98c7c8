import type { Socket } from 'node:net';

/** Replies of a provider that is broken or hostile, in the Responses API. The name of the model is `hostile:` and one of these. */
const REPLIES: Readonly<Record<string, Reply>> = {
  glob: callsTool('glob', () => ({ pattern: `{${'a,'.repeat(175_000)}b}` })),
  grep: callsTool('grep', () => ({ pattern: '(a+)+$', glob: '{a,b}'.repeat(16) })),
  plain: {
    type: 'text/plain',
    *pieces() {
      for (let n = 0; n < 200_000; n++) yield frameOf('response.output_text.delta', { ...AT, delta: 'x'.repeat(200) });
    },
  },
  calls: {
    type: 'text/event-stream',
    *pieces() {
      for (let n = 0; n < 100_000; n++) {
        const item = { type: 'function_call', id: `fc_${n}`, call_id: `call_${n}`, name: 'step', arguments: '{}' };
        yield frameOf('response.output_item.added', { output_index: n, item: { ...item, arguments: '' } });
        yield frameOf('response.output_item.done', { output_index: n, item });
      }
    },
  },
  arguments: {
    type: 'text/event-stream',
    *pieces() {
      const item = { type: 'function_call', id: 'fc_0', call_id: 'call_0', name: 'step', arguments: '' };
      yield frameOf('response.output_item.added', { output_index: 0, item });
      const delta = 'x'.repeat(1_000);
      for (let n = 0; n < 100_000; n++)
        yield frameOf('response.function_call_arguments.delta', { item_id: 'fc_0', output_index: 0, delta });
    },
  },
};

interface Reply {
  readonly type: string;
  readonly pieces: () => Iterable<string>;
}

const AT = { item_id: 'msg_0', output_index: 0, content_index: 0 };
const MARK = '"model":"hostile:';
const RESULT = '"type":"function_call_output"';

/** Sends the reply if the request is for a hostile model. */
export function hostileReply(socket: Socket, body: Buffer): boolean {
  const at = body.indexOf(MARK);
  if (at === -1) return false;
  const name = body.toString('latin1', at + MARK.length, body.indexOf('"', at + MARK.length));
  void sendReply(socket, body.includes(RESULT) ? ANSWER : REPLIES[name]!);
  return true;
}

async function sendReply(socket: Socket, { type, pieces }: Reply): Promise<void> {
  socket.write(`HTTP/1.1 200 OK\r\ncontent-type: ${type}\r\ntransfer-encoding: chunked\r\n\r\n`);
  for (const piece of pieces()) {
    if (socket.destroyed) return;
    if (!socket.write(`${Buffer.byteLength(piece).toString(16)}\r\n${piece}\r\n`)) await drained(socket);
  }
  socket.write('0\r\n\r\n');
}

/** Resolves also if the connection is closed. */
function drained(socket: Socket): Promise<void> {
  return new Promise((resolve) => {
    const done = (): void => {
      socket.off('drain', done).off('close', done);
      resolve();
    };
    socket.on('drain', done).on('close', done);
  });
}

function frameOf(type: string, rest: object): string {
  return `event: ${type}\ndata: ${JSON.stringify({ type, ...rest })}\n\n`;
}

function completed(output: readonly object[]): string {
  return frameOf('response.completed', { response: { id: 'resp_0', object: 'response', status: 'completed', output } });
}

const ANSWER: Reply = {
  type: 'text/event-stream',
  *pieces() {
    yield frameOf('response.output_text.delta', { ...AT, delta: 'done' });
    const content = [{ type: 'output_text', text: 'done', annotations: [] }];
    yield completed([{ type: 'message', id: 'msg_0', role: 'assistant', status: 'completed', content }]);
  },
};

function callsTool(name: string, input: () => object): Reply {
  return {
    type: 'text/event-stream',
    *pieces() {
      const item = { type: 'function_call', id: 'fc_0', call_id: 'call_0', name, arguments: JSON.stringify(input()) };
      yield frameOf('response.output_item.added', { output_index: 0, item: { ...item, arguments: '' } });
      yield frameOf('response.output_item.done', { output_index: 0, item });
      yield completed([item]);
    },
  };
}
