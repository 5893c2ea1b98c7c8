/** An MCP server over stdio that misbehaves as its first argument says. It has no dependencies, so it starts quickly. */
import { spawn } from 'node:child_process';
import { appendFileSync, existsSync, writeFileSync, writeSync } from 'node:fs';
import { createInterface } from 'node:readline';

const [mode, file] = process.argv.slice(2);
const write = (message) => process.stdout.write(`${JSON.stringify({ jsonrpc: '2.0', ...message })}\n`);
const text = (said) => ({ content: [{ type: 'text', text: said }] });

if (mode === 'dies') {
  process.stderr.write('no licence\u001b[31m found\n');
  process.exit(3);
}
if (mode === 'ignores-end') {
  process.on('SIGTERM', () => {});
  setInterval(() => {}, 1_000);
  const child = spawn(process.execPath, ['-e', 'setInterval(() => {}, 1000)'], { detached: true, stdio: 'ignore' });
  writeFileSync(file, `${process.pid} ${child.pid}`);
}

if (file) appendFileSync(`${file}.starts`, '.');

/** Returns when the pipe has taken the message. Ends the process when nobody reads it any more. */
function writeNow(message) {
  const line = `${JSON.stringify({ jsonrpc: '2.0', ...message })}\n`;
  for (let from = 0; from < line.length;) {
    try {
      from += writeSync(1, line.slice(from));
    } catch (error) {
      if (error.code !== 'EAGAIN') process.exit(1);
    }
  }
}

const handlers = {
  ...(mode === 'modern' && {
    'server/discover': () => ({
      resultType: 'complete',
      supportedVersions: ['2026-07-28'],
      capabilities: { tools: {} },
      ttlMs: 0,
      cacheScope: 'private',
    }),
  }),
  initialize: ({ protocolVersion }) => ({
    protocolVersion,
    capabilities: { tools: {} },
    serverInfo: { name: 'hostile', version: '1' },
  }),
  ping: () => ({}),
  'tools/list': () => ({ tools: [{ name: 'tool', inputSchema: { type: 'object' } }] }),
  'tools/call': ({ arguments: given }) => {
    if (given?.forever) {
      writeFileSync(`${file}.called`, '');
      return undefined;
    }
    if (mode === 'large') {
      const piece = 'x'.repeat(1024 * 1024);
      process.stdout.write('{"jsonrpc":"2.0","id":1,"result":{"content":[{"type":"text","text":"');
      for (let i = 0; i < 100; i++) process.stdout.write(piece);
      process.stdout.write('"}]}}\n');
      return undefined;
    }
    if (mode === 'drips') {
      setInterval(() => process.stdout.write(' '), 10);
      return undefined;
    }
    if (mode === 'floods') {
      for (let i = 0; ; i++) {
        writeNow({ id: `question ${i}`, method: 'roots/list' });
        if (i % 500 === 0) writeFileSync(file, String(i));
      }
    }
    if (mode === 'hangs' && !existsSync(file)) {
      writeFileSync(file, String(process.pid));
      for (;;);
    }
    if (mode === 'crashes' && !existsSync(file)) {
      writeFileSync(file, '');
      process.kill(process.pid, 'SIGKILL');
    }
    return text(`pid ${process.pid}`);
  },
};

createInterface({ input: process.stdin })
  .on('line', (line) => {
    const { id, method, params = {} } = JSON.parse(line);
    if (id === undefined) return;
    if (mode === 'picky' && method === 'server/discover') process.exit(1);
    const handler = handlers[method];
    if (!handler) return write({ id, error: { code: -32601, message: 'Method not found' } });
    const result = handler(params);
    if (result) write({ id, result });
  })
  .on('close', () => mode === 'ignores-end' || process.exit(0));
