/* The objects of `/v1/schedules`. Pages import them as types from `@treadle/server/wire`. Times are ISO 8601, in UTC. */

/** What is started of the due times when no server was there. */
export type DueRule = 'skip' | 'once' | 'all';
/** What happens when a schedule is due and the run that it has started before has not ended. */
export type OverlapRule = 'skip' | 'wait' | 'allow';

export interface WireSchedule {
  readonly object: 'schedule';
  readonly name: string;
  /** `config`: it is in the configuration of the server, and only changes with it. */
  readonly source: 'config' | 'api';
  /** The workflow or agent that it starts. */
  readonly agent: string;
  readonly inputs: Readonly<Record<string, unknown>>;
  readonly cron: string | null;
  readonly time_zone: string | null;
  /** Seconds. */
  readonly every: number | null;
  readonly missed: DueRule;
  readonly overlap: OverlapRule;
  readonly next_at: string | null;
  /** Due times whose runs are still to be started. */
  readonly pending: readonly string[];
  readonly last: { readonly due_at: string; readonly run_id: string } | null;
  /** How many due times were skipped. */
  readonly skipped: number;
  /** Why the last due time was not started. */
  readonly problem: { readonly due_at: string; readonly message: string } | null;
}

/** The answer to a start by hand. */
export interface WireScheduleRun {
  readonly object: 'schedule.run';
  readonly schedule: string;
  readonly agent: string;
  readonly run_id: string;
}

export interface WireScheduleDeleted {
  readonly object: 'schedule.deleted';
  readonly name: string;
  readonly deleted: true;
}

/** The answer to the request of a trigger. */
export interface WireTriggerRun {
  readonly object: 'trigger.run';
  readonly trigger: string;
  readonly agent: string;
  readonly run_id: string;
}
