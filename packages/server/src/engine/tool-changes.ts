import type { StartedRun, Tool } from '@treadle/core';
import type { OfferedFunction, OpenedTool } from './executors.ts';

/** The tools of other servers may change while a run goes on. */
export interface ToolChanges {
  /** Gives a run the changed tools from now on, and those that have changed before. */
  give(run: Pick<StartedRun, 'changeTools'>): void;
  stop(): void;
}

/**
 * Follows the tools whose servers report changes. `change` takes over the new functions of a tool, and returns all tools that the
 * run has then; undefined if it does not have to be told. It throws if they cannot be used.
 */
export function followChanges(
  all: readonly OpenedTool[],
  change: (opened: OpenedTool) => readonly Tool[] | undefined,
): ToolChanges {
  const followed = all.filter(({ executor, gone }) => executor.follow && gone === undefined);
  let run: Pick<StartedRun, 'changeTools'> | undefined;
  let changed: readonly Tool[] | undefined;
  const stops = followed.map((opened) => {
    let known = functionsKey(opened.functions);
    return opened.executor.follow!(opened.origin, async (functions) => {
      const key = functionsKey(functions);
      if (key !== undefined && key === known) return;
      changed = change({ ...opened, functions });
      if (changed) await run?.changeTools(changed);
      known = key;
    });
  });
  return {
    give(started) {
      run = started;
      if (changed) void run.changeTools(changed);
    },
    stop() {
      for (const stop of stops.splice(0)) stop();
    },
  };
}

/** Differs when functions are added, removed or described differently. Undefined if one of them has no fingerprint. */
function functionsKey(functions: readonly OfferedFunction[]): string | undefined {
  if (functions.some(({ fingerprint }) => fingerprint === undefined)) return undefined;
  return functions.map(({ name, fingerprint }) => `${name} ${fingerprint}`).join('\n');
}
