import { afterEach, beforeEach } from 'vitest';
import { playground, type Playground } from '../command/playground.ts';
import { scriptedOpenAi, type ScriptedOpenAi, type Step } from '../command/scripted-openai.ts';
import { stopLeftovers } from '../command/treadle-process.ts';
import { serving, type Serving } from './serve-command.ts';

/** A folder to serve from, and a model that follows a script; new for each test. */
export interface ServeStage {
  readonly play: Playground;
  /** The one that `script` has made. */
  readonly provider: ScriptedOpenAi;
  script(...steps: readonly Step[]): Promise<ScriptedOpenAi>;
  /** A server whose model `main` follows the script, with these lines in its configuration. */
  scripted(lines: string, ...steps: readonly Step[]): Promise<Serving>;
  /** `treadle serve` in the folder. */
  serving(...args: readonly string[]): Promise<Serving>;
}

export function serveStage(): ServeStage {
  let play: Playground;
  let provider: ScriptedOpenAi | undefined;
  beforeEach(async () => {
    play = await playground();
  });
  afterEach(async () => {
    stopLeftovers();
    await provider?.close();
    provider = undefined;
    await play.remove();
  });
  const stage: ServeStage = {
    get play() {
      return play;
    },
    get provider() {
      return provider!;
    },
    async script(...steps) {
      provider = await scriptedOpenAi(steps);
      return provider;
    },
    async scripted(lines, ...steps) {
      const { baseURL } = await stage.script(...steps);
      await play.write('treadle.toml', `[models.main]\nmodel = "m-1"\nbase_url = "${baseURL}"\n${lines}\n`);
      return stage.serving();
    },
    serving: (...args) => serving({ cwd: play.folder }, ...args),
  };
  return stage;
}
