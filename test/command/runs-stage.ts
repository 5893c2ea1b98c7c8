import { join } from 'node:path';
import type { RunSummary } from '@treadle/core';
import { sqliteStore, type SqliteStore } from '@treadle/store';
import { afterEach, beforeEach } from 'vitest';
import { command, type Printed } from './in-process.ts';
import { playground, type Playground } from './playground.ts';
import { scriptedOpenAi, type ScriptedCall, type ScriptedOpenAi, type Step } from './scripted-openai.ts';
import { stopLeftovers, treadle, type TreadleProcess } from './treadle-process.ts';

/** A folder with a store, and a model that follows a script; new for each test. */
export interface RunsStage {
  readonly play: Playground;
  readonly server: ScriptedOpenAi;
  /** Replaces the script; requests are counted anew. */
  script(...steps: readonly Step[]): Promise<void>;
  /** `treadle …` in a process of its own; standard input stays open. */
  start(...args: readonly string[]): TreadleProcess;
  /** `treadle …` in this process, to its end. */
  treadle(...args: readonly string[]): Promise<Printed>;
  /** The flags that name the scripted model. */
  model(): readonly string[];
  /** The store of the folder, to look or put something into; closed afterwards. */
  inStore<T>(use: (store: SqliteStore) => Promise<T>): Promise<T>;
  /** Newest first. */
  runs(): Promise<readonly RunSummary[]>;
}

export function runsStage(): RunsStage {
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
  const stage: RunsStage = {
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
    runs: () => stage.inStore((store) => store.list()),
  };
  return stage;
}

export const READ: { readonly calls: readonly ScriptedCall[] } = {
  calls: [{ name: 'read', arguments: '{"path":"notes.txt"}' }],
};
