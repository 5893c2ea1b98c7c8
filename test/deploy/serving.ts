import { mkdirSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { main } from 'treadle';
import { expect } from 'vitest';
import { testIo, type TestIo } from '../serve/serve-command.ts';

export const root = path.resolve(import.meta.dirname, '../..');

export function deployFile(name: string): string {
  return readFileSync(path.join(root, 'deploy', name), 'utf8');
}

/** The grace period of a configuration, in seconds. */
export function graceSeconds(configuration: string): number {
  return Number(/^shutdown_grace_ms = (\d+)$/m.exec(configuration)![1]) / 1000;
}

export const env = { OPENAI_API_KEY: 'not-a-key' };

/** A folder with what a machine has where the server of a file of `deploy/` runs. */
export interface Machine extends Disposable {
  readonly folder: string;
  readonly io: () => TestIo;
  /**
   * The arguments of a command line of the files, with the paths and the port of the test instead of those of a machine. What
   * begins with "postgres:" replaces as it is.
   */
  readonly localArguments: (args: readonly string[], paths: Readonly<Record<string, string>>) => readonly string[];
  /** Starts the command, and stops it after `act`. Returns its exit code. */
  readonly whileServing: (args: readonly string[], act: (url: string) => Promise<void>) => Promise<number>;
  readonly expectAnswers: (url: string) => Promise<void>;
}

/** Does what a person does first: creates a key, and adds its lines to the configuration. */
export async function prepareMachine(configuration: string): Promise<Machine> {
  const folder = mkdtempSync(path.join(tmpdir(), 'treadle-deploy-'));
  mkdirSync(path.join(folder, 'work'));
  const io = (): TestIo => testIo({ cwd: folder, isTTY: false });
  const made = io();
  expect(await main(['key', 'new', '--name', 'app'], made.io)).toBe(0);
  const key = made.written.stdout.trim();
  const lines = made.written.stderr.slice(made.written.stderr.indexOf('[[server.keys]]'));
  writeFileSync(path.join(folder, 'treadle.toml'), `${configuration}\n${lines}`);
  return {
    folder,
    io,
    localArguments(args, paths) {
      const local = (to: string): string => (to.startsWith('postgres:') ? to : path.join(folder, to));
      const replaced = args.map((arg) =>
        Object.entries(paths).reduce((text, [from, to]) => text.replace(from, local(to)), arg),
      );
      const port = replaced.indexOf('--port');
      return port === -1 ? [...replaced, '--port', '0'] : replaced.with(port + 1, '0');
    },
    async whileServing(args, act) {
      const { io: started, written, waitFor, terminate } = io();
      const ended = main(args, { ...started, env });
      await Promise.race([waitFor('\n', 'stdout'), ended]);
      const url = /listens on (\S+)/.exec(written.stdout)?.[1];
      expect(url, written.stderr).toBeDefined();
      try {
        await act(url!);
      } finally {
        terminate();
      }
      return ended;
    },
    async expectAnswers(url) {
      expect((await fetch(`${url}/readyz`)).status).toBe(200);
      expect((await fetch(`${url}/v1/models`)).status).toBe(401);
      const answer = await fetch(`${url}/v1/models`, { headers: { authorization: `Bearer ${key}` } });
      expect(await answer.json()).toMatchObject({ data: [{ id: 'main' }] });
    },
    [Symbol.dispose]: () => rmSync(folder, { recursive: true }),
  };
}
