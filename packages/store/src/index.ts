export type {
  ConversationFilter,
  ConversationRecord,
  ConversationStore,
  Extension,
  NewConversation,
} from './ports/conversations.ts';
export { createFolder } from './folders.ts';
export { holderState, thisProcess, type Holder } from './holder.ts';
export { INBOX_PATIENCE_MS, type InboxStore, type RunRequest } from './ports/inbox.ts';
export type { MetricFilter, MetricStore } from './ports/metrics.ts';
export {
  countNotedRuns,
  findMetrics,
  type CountOptions,
  type FindMetricsOptions,
  type FoundMetrics,
} from './records/metrics.ts';
export type { NoticeStore, RunNotice } from './ports/notices.ts';
export { resourceKeeper, type KeeperOptions, type ResourceKeeper } from './kept-resources.ts';
export type { AbandonedProcesses, KeptProcessStore } from './ports/kept-processes.ts';
export { heldProcess, killProcess } from './processes.ts';
export { SLOTS_MS, type QuotaStore, type TakenRequests } from './ports/quotas.ts';
export { memoryQuotas } from './records/quotas.ts';
export type {
  IdempotencyKey,
  RequestEnding,
  OwnedRequest,
  RequestHead,
  RequestRecord,
  UnfinishedRequest,
  RequestReopening,
  RequestStore,
  UsedKey,
} from './ports/requests.ts';
export { backupStore, restoreStore, type BackupOptions, type Restored, type RestoreOptions } from './sqlite/backup.ts';
export type { ProgressOptions, StoreProblem, StoreProgress, StoreReport } from './check.ts';
export { checkStore } from './sqlite/check.ts';
export { checkPostgresStore } from './postgres/check.ts';
export {
  migrateStore,
  type MigrateStoreOptions,
  type MigrationProgress,
  type MigrationReport,
} from './migrate/migrate.ts';
export type { PartSum } from './migrate/compare.ts';
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
export { encodeInput } from './records/input.ts';
export type { ScheduleContent, ScheduleStore, StoredSchedule } from './ports/schedules.ts';
export { openStore } from './open.ts';
export { postgresStore, type PostgresOptions, type PostgresStore } from './postgres/store.ts';
export type { StoredRuns } from './ports/runs.ts';
export type { SecretKeys, Store } from './ports/store.ts';
export { sqliteStore, type SqliteOptions, type SqliteStore } from './sqlite/store.ts';
export type { StoredEvent, StreamStore } from './ports/streams.ts';
