import { join } from 'node:path';
import type { RunSummary } from '@treadle/core';
import { sqliteStore, type SqliteStore } from '@treadle/store';
import { afterEach, beforeEach } from 'vitest';
import { command, type Printed } from './in-process.ts';
import { playground, type Playground } from './playground.ts';
import { scriptedOpenAi, type ScriptedCall, type ScriptedOpenAi, type Step } from './scripted-openai.ts';
import { stopLeftovers, treadle, type TreadleProcess } from './treadle-process.ts';

/** A folder with a store, and a scripted model. Each test gets a new one. */
export interface RunsFixture {
  readonly play: Playground;
  readonly server: ScriptedOpenAi;
  /** Replaces the script, and resets the requests. */
  script(...steps: readonly Step[]): Promise<void>;
  /** Starts `treadle …` in a process. Standard input stays open. */
  start(...args: readonly string[]): TreadleProcess;
  /** Runs `treadle …` in this process. */
  treadle(...args: readonly string[]): Promise<Printed>;
  /** The flags that name the scripted model. */
  model(): readonly string[];
  /** Opens the store of the folder for `use`, and closes it afterwards. */
  inStore<T>(use: (store: SqliteStore) => Promise<T>): Promise<T>;
  /** The runs of the store, newest first. */
  runs(): Promise<readonly RunSummary[]>;
}

export function runsFixture(): RunsFixture {
  let play: Playground;
  let server: ScriptedOpenAi | undefined;
  beforeEach(async () => {
    play = await playground();
  });
  afterEach(async () => {
    stopLeftovers();
    await server?.close();
    server = undefined;
    await play.remove();
  });
  const fixture: RunsFixture = {
    get play() {
      return play;
    },
    get server() {
      return server!;
    },
    async script(...steps) {
      await server?.close();
      server = await scriptedOpenAi(steps);
    },
    start: (...args) => treadle(args, { cwd: play.folder }),
    treadle: (...args) => command(args, play.folder),
    model: () => ['--model', 'scripted', '--base-url', server!.baseURL],
    async inStore(use) {
      const store = sqliteStore(join(play.folder, '.treadle', 'treadle.db'));
      try {
        return await use(store);
      } finally {
        await store.close();
      }
    },
    runs: () => fixture.inStore((store) => store.list()),
  };
  return fixture;
}

export const READ: { readonly calls: readonly ScriptedCall[] } = {
  calls: [{ name: 'read', arguments: '{"path":"notes.txt"}' }],
};
