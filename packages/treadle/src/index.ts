export { main } from './cli.ts';
export { EXIT } from './command-line/command.ts';
export { CONFIG_SHAPE } from './config/config.ts';
export type { Shape } from '@treadle/tools/toml';
export { DEFAULT_STORE } from './config/store.ts';
export type { Io } from './terminal/io.ts';
