export type { Holder } from './holder.ts';
export type { IdempotencyKey, ResponseEnding, ResponseRecord, ResponseStore, UsedKey } from './response-store.ts';
export { sqliteStore, type SqliteOptions, type SqliteStore } from './sqlite/store.ts';
