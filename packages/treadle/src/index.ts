export { main } from './cli.ts';
export type { Io } from './terminal/io.ts';
