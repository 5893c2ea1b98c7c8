export { main } from './cli.ts';
export type { Io } from './terminal/io.ts';
export { fileTools } from './tools/file-tools.ts';
