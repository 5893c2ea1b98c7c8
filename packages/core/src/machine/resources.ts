import type { Event } from './events.ts';
import type { State } from './state.ts';

/** A process that a tool has started, or is about to start, for a run. It may outlive the process that drives the run. */
export interface HeldProcess {
  /** Absent: it was about to be started, and only its mark is known. */
  readonly pid?: number;
  /** Distinguishes the process from a later one with the same pid. */
  readonly startedAt?: string;
  /** Where the pid is valid. */
  readonly host?: string;
  /** It leads a group of processes, which ends with it. */
  readonly group?: true;
  /** Finds other processes that belong to it, even if it has ended itself. */
  readonly mark?: string;
}

/** A resource of a run that is a process, and that nobody has reported as closed. */
export interface OpenResource {
  /** The run that opened it. A fork has the entries of the original, but not its processes. */
  readonly runId: string;
  readonly name: string;
  readonly process: HeldProcess;
}

type ResourceEvent = Extract<Event, { type: 'resource-opened' | 'resource-closed' }>;

/** Whether an event about a resource applies to a run that is live or can be resumed. */
export function fitsResources({ resources = [] }: State, event: ResourceEvent): boolean {
  if (event.type === 'resource-closed') return resources.some(({ name }) => name === event.name);
  return typeof event.name === 'string' && typeof event.process === 'object' && event.process !== null;
}

/** The open resources after an event. A run has at most one of each name. */
export function resourcesAfter({ resources = [] }: State, event: ResourceEvent): State['resources'] {
  const others = resources.filter(({ name }) => name !== event.name);
  if (event.type === 'resource-closed') return others.length === 0 ? undefined : others;
  return [...others, { runId: event.runId, name: event.name, process: event.process }];
}
