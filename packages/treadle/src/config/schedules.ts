import { dirname, resolve } from 'node:path';
import type { TreadleServerOptions } from '@treadle/server';
import type { Shape } from '@treadle/tools/toml';
import { CommandError } from '../command-line/command.ts';
import type { Io } from '../terminal/io.ts';
import type { Config } from './config.ts';
import type { LoadedConfig } from './load.ts';

/** What `[[schedules]]` and `[[triggers]]` start. */
interface StarterEntry {
  readonly name?: string;
  readonly workflow?: string;
  readonly agent?: string;
  readonly inputs?: Readonly<Record<string, unknown>>;
  /** The name of the key of the server as which runs are started. */
  readonly key?: string;
}

/** An entry of `[[schedules]]`. */
export interface ScheduleEntry extends StarterEntry {
  readonly cron?: string;
  readonly time_zone?: string;
  readonly every?: string;
  readonly missed?: 'skip' | 'once' | 'all';
  readonly overlap?: 'skip' | 'wait' | 'allow';
}

/** An entry of `[[triggers]]`. */
export interface TriggerEntry extends StarterEntry {
  /** The environment variable with the secret for signatures. */
  readonly webhook_secret_env?: string;
  readonly after?: string;
  readonly status?: readonly ('completed' | 'failed' | 'exhausted' | 'cancelled')[];
  readonly file?: string;
}

const text: Shape = { type: 'text' };
const name: Shape = {
  type: 'text',
  form: {
    matches: (given) => /^[A-Za-z0-9](?:[\w-]{0,62}[A-Za-z0-9])?$/.test(given),
    means: 'a name of up to 64 letters, digits, hyphens and underscores',
  },
};
const STARTER = {
  name,
  workflow: text,
  agent: text,
  inputs: { type: 'table', fields: {}, others: { type: 'any' } },
  key: text,
} satisfies Record<keyof StarterEntry, Shape>;

export const SCHEDULES_SHAPE: Shape = {
  type: 'tables',
  each: {
    type: 'table',
    fields: {
      ...STARTER,
      cron: text,
      time_zone: text,
      every: text,
      missed: { type: 'text', choices: ['skip', 'once', 'all'] },
      overlap: { type: 'text', choices: ['skip', 'wait', 'allow'] },
    } satisfies Record<keyof ScheduleEntry, Shape>,
  },
};

export const TRIGGERS_SHAPE: Shape = {
  type: 'tables',
  each: {
    type: 'table',
    fields: {
      ...STARTER,
      webhook_secret_env: {
        type: 'text',
        form: {
          matches: (given) => /^[A-Za-z_][A-Za-z0-9_]*$/.test(given),
          means: 'the name of an environment variable, such as DEPLOY_SECRET, and not the secret itself',
        },
      },
      after: text,
      status: { type: 'texts', choices: ['completed', 'failed', 'exhausted', 'cancelled'] },
      file: text,
    } satisfies Record<keyof TriggerEntry, Shape>,
  },
};

/** What the shapes do not cover. Cron expressions are checked when the server starts. */
export function starterProblems({ schedules = [], triggers = [], server = {} }: Config): string[] {
  const keys = (server.keys ?? []).map((one) => one.name);
  const named = [
    ...schedules.map((one, index) => [`schedules[${index}]`, one] as const),
    ...triggers.map((one, index) => [`triggers[${index}]`, one] as const),
  ];
  return named.flatMap(([path, { name: own, workflow, agent, key }]) => {
    const problems: string[] = [];
    if (own === undefined) problems.push(`${path}.name is missing`);
    if ((workflow === undefined) === (agent === undefined)) {
      problems.push(`${path} needs either workflow or agent: the name of what it starts`);
    }
    if (key === undefined ? keys.length > 0 : !keys.includes(key)) {
      const known = keys.length === 0 ? 'There are none: remove it' : `Use one of ${keys.join(', ')}`;
      problems.push(`${path}.key must name the key of [[server.keys]] as which its runs are started. ${known}`);
    }
    return problems;
  });
}

/** The options of the server for both. */
export function starterOptions(
  { config, path, file: shown }: LoadedConfig,
  folder: string,
  env: Io['env'],
): Pick<TreadleServerOptions, 'schedules' | 'triggers'> {
  const { schedules = [], triggers = [] } = config;
  const base = path === undefined ? folder : dirname(path);
  return {
    schedules: schedules.map((one) => ({ ...one, name: one.name! })),
    triggers: triggers.map(({ webhook_secret_env: variable, file, ...one }, index) => {
      const secret = variable === undefined ? undefined : env[variable];
      if (variable !== undefined && (secret === undefined || secret.length < 16)) {
        throw new CommandError(
          `${shown}: triggers[${index}].webhook_secret_env names ${variable}. Set this environment variable to a secret of at least 16 characters.`,
        );
      }
      return {
        ...one,
        name: one.name!,
        ...(secret !== undefined && { webhook: { secret } }),
        ...(file !== undefined && { file: resolve(base, file) }),
      };
    }),
  };
}
