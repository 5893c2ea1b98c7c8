export type { Holder } from './holder.ts';
export { sqliteStore, type SqliteOptions } from './sqlite/store.ts';
