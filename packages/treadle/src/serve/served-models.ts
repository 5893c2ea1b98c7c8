import { chooseModel, keyFor, lacksKey, standingName, type ModelChoice, type ModelWish } from '../choose-model.ts';
import { modelEntries } from '../config/config.ts';
import type { LoadedConfig } from '../config/load.ts';
import type { Io } from '../io.ts';

/** The models that clients can name, and which one serves requests that name none. */
export interface ModelNames {
  readonly default: string;
  readonly choices: ReadonlyMap<string, ModelChoice>;
  /** What the user should know before anything is served. */
  readonly notices: readonly string[];
}

/**
 * Every entry of [models] under its name, and the one that was wished for. Those without their key are left out, as long
 * as it is not the default: the others work without it.
 */
export function servedModels(wish: ModelWish, loaded: LoadedConfig, env: Io['env']): ModelNames {
  const standard = chooseModel(wish, loaded, env);
  const name = wish.model ?? standingName(loaded) ?? (standard.type === 'demo' ? 'demo' : standard.model);
  const choices = new Map([[name, standard]]);
  const notices = standard.notice === undefined ? [] : [standard.notice];
  for (const [other, entry] of modelEntries(loaded.config)) {
    if (other === name) continue;
    const key = keyFor(entry, env);
    if (lacksKey(key)) {
      notices.push(`The model ${other} is left out, as it has no key: set the environment variable ${key.variable}.`);
      continue;
    }
    const choice = chooseModel({ model: other }, loaded, env);
    choices.set(other, choice);
    if (choice.notice !== undefined) notices.push(choice.notice);
  }
  return { default: name, choices, notices: [...new Set(notices)] };
}
