export type { Holder } from './holder.ts';
export type { ResponseEnding, ResponseRecord, ResponseStore } from './response-store.ts';
export { sqliteStore, type SqliteOptions, type SqliteStore } from './sqlite/store.ts';
