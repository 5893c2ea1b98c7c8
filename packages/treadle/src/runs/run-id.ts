import type { RunSummary } from '@treadle/core';

/** Enough of an id to tell it from others: what lists show and what may be typed. */
export function shortId(runId: string): string {
  return runId.replace(/^((?:run|resp)_[0-9a-f]{8})[0-9a-f]{24}(?=$|\.)/, '$1');
}

/** It works for a call of another run, and goes on with that. */
export function isChild({ runId, parent }: Pick<RunSummary, 'runId' | 'parent'>): boolean {
  return parent !== undefined && runId.startsWith(`${parent}.`);
}
