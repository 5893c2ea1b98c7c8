/**
 * What starts runs by itself: a schedule, or a trigger. Who changes an entry has read it before: of several processes that change
 * what they have read, one succeeds. So what has to be started is decided once.
 */
export interface StoredSchedule {
  readonly tenant: string;
  /** Unique for the tenant. */
  readonly name: string;
  /** Plain JSON. The server defines it. */
  readonly definition: unknown;
  /** Plain JSON: what was started, and what is to be started. */
  readonly state: unknown;
  /** When there is something to do. Absent: never, until it is changed. */
  readonly dueAt?: number;
  /** Another one after each change. */
  readonly version: string;
}

export type ScheduleContent = Omit<StoredSchedule, 'tenant' | 'name' | 'version'>;

/** Shared by all processes with the store. What resolves is durable. */
export interface ScheduleStore {
  /** False, and nothing is written, if one of this name exists. */
  add(schedule: Omit<StoredSchedule, 'version'>): Promise<boolean>;
  /** False, and nothing is written, if it was changed or removed since it was read. */
  change(read: Pick<StoredSchedule, 'tenant' | 'name' | 'version'>, content: ScheduleContent): Promise<boolean>;
  /** False if there is none. */
  remove(tenant: string, name: string): Promise<boolean>;
  get(tenant: string, name: string): Promise<StoredSchedule | undefined>;
  /** Of every tenant, in the order of the tenants and names. */
  list(): Promise<readonly StoredSchedule[]>;
  /** Calls `listener` when one may have been added, changed or removed. */
  watch(listener: () => void): () => void;
}
