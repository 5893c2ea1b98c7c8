export type {
  ConversationFilter,
  ConversationRecord,
  ConversationStore,
  Extension,
  NewConversation,
} from './conversation-store.ts';
export { createFolder } from './folders.ts';
export type { Holder } from './holder.ts';
export type { InboxStore, RunRequest } from './inbox-store.ts';
export type { NoticeStore, RunNotice } from './notice-store.ts';
export { heldProcess, killProcess } from './processes.ts';
export type {
  IdempotencyKey,
  ResponseEnding,
  OwnedResponse,
  ResponseHead,
  ResponseRecord,
  UnfinishedResponse,
  ResponseReopening,
  ResponseStore,
  UsedKey,
} from './response-store.ts';
export { backupStore, restoreStore, type BackupOptions, type Restored, type RestoreOptions } from './sqlite/backup.ts';
export {
  checkStore,
  type ProgressOptions,
  type StoreProblem,
  type StoreProgress,
  type StoreReport,
} from './sqlite/check.ts';
export {
  lineChecksum,
  parentOf,
  readRunFamily,
  RUN_FILE_FORMAT,
  RUN_FILE_VERSION,
  runFileLines,
  type ExportedBlob,
  type ExportedRun,
  type RunFamily,
} from './run-file.ts';
export { fileSecrets, memorySecrets, type Secrets } from './secrets.ts';
export { encodeInput } from './sqlite/messages.ts';
export { sqliteStore, type SqliteOptions, type SqliteStore } from './sqlite/store.ts';
export type { StoredEvent, StreamStore } from './stream-store.ts';
