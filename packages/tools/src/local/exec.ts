import { spawn } from 'node:child_process';
import { resolve } from 'node:path';
import type { ExecOps, Exit, OutputChunk } from '../ops.ts';

export interface ExecOptions {
  /** The environment of programs. */
  readonly env?: Readonly<Record<string, string>>;
}

/** Programs of this machine. To be replaced. */
export function localExec(folder: string, { env = process.env as Record<string, string> }: ExecOptions): ExecOps {
  return {
    async start({ argv: [program, ...args], workdir = '.', env: added, writable = false }) {
      const child = spawn(program, args, {
        cwd: resolve(folder, workdir),
        env: { ...env, ...added },
        detached: true,
        stdio: [writable ? 'pipe' : 'ignore', 'pipe', 'pipe'],
      });
      const exit = new Promise<Exit>((done) => {
        child.on('exit', (code, signal) => done({ exitCode: code ?? undefined, signal: signal ?? undefined }));
      });
      await new Promise((done, fail) => {
        child.on('spawn', done);
        child.on('error', fail);
      });
      async function* output(): AsyncGenerator<OutputChunk> {
        for await (const bytes of child.stdout!) yield { stream: 'stdout', bytes };
        for await (const bytes of child.stderr!) yield { stream: 'stderr', bytes };
      }
      return {
        process: { pid: child.pid!, started: '', group: true } as never,
        output: output(),
        exit,
        write: (text) =>
          new Promise((done, fail) => child.stdin!.write(text, (error) => (error ? fail(error) : done()))),
        endInput: () => void child.stdin?.end(),
        async kill() {
          process.kill(-child.pid!, 'SIGKILL');
          await exit;
        },
      };
    },
  };
}
