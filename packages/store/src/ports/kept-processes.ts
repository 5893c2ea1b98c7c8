import type { HeldProcess } from '@treadle/core';

/**
 * Processes of tools that are kept between the runs of a conversation. Each entry has the run that has left them, and the process
 * of the server or command that keeps them.
 */
export interface KeptProcessStore {
  /** Records what a run has left, instead of what `taken` had left before it. Durable when it resolves. */
  keep(runId: string, processes: readonly HeldProcess[], taken?: string): Promise<void>;
  /** They do not run any more. */
  remove(runId: string): Promise<void>;
  /** Those whose keeper has ended. `runId`: only those that this run has left. */
  abandoned(runId?: string): Promise<readonly AbandonedProcesses[]>;
}

export interface AbandonedProcesses {
  readonly runId: string;
  readonly processes: readonly HeldProcess[];
}
