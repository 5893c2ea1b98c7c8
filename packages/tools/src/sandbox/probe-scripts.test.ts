import { execFileSync } from 'node:child_process';
import { mkdirSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { createServer, type AddressInfo, type Server } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { MACOS_SCRIPT } from './probe-scripts.ts';

let top: string;
const servers: Server[] = [];
beforeEach(() => {
  top = mkdtempSync(join(tmpdir(), 'treadle-scripts-'));
  mkdirSync(join(top, 'folder', '.git', 'hooks'), { recursive: true });
  writeFileSync(join(top, 'folder', '.env'), 'secret');
  writeFileSync(join(top, 'secret'), 'secret');
});
afterEach(() => {
  for (const server of servers.splice(0)) server.close();
  rmSync(top, { recursive: true });
});

async function listen(at: number | string): Promise<Server> {
  const server = createServer((socket) => socket.destroy());
  servers.push(server);
  await new Promise<void>((done) => server.listen(at, done));
  return server;
}

describe.runIf(process.platform !== 'win32')('the probe of macOS', () => {
  it('reports every wall that is missing', async () => {
    await listen(join(top, 'folder', 'socket'));
    const { port } = (await listen(0)).address() as AddressInfo;
    const output = execFileSync('sh', ['-c', MACOS_SCRIPT, 'sh', top, String(process.pid), String(port), top], {
      cwd: join(top, 'folder'),
      encoding: 'utf8',
      stdio: 'pipe',
    });
    const missing = [...output.matchAll(/^(\S+) no /gm)].map(([, name]) => name).toSorted();
    expect(missing).toEqual(
      'cpu devices file-size home network private processes protected root setuid setuid-files sockets tmp'.split(' '),
    );
    expect(output).toMatch(/^env .*\bPATH\b/m);
  });
});
