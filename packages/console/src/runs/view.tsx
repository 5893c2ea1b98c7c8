import type { JSX } from 'preact';
import type { ViewProps } from '../routes.ts';
import { CompareView } from './compare.tsx';
import { RecentRuns, RunList } from './list.tsx';
import { RunView } from './run.tsx';
import './runs.css';

/** `#/runs`, `#/runs/<id>`, `#/runs/<id>/at/<seq>` and `#/runs/<id>/compare/<other id>`. */
export function View({ segments: [id, what, which], query }: ViewProps): JSX.Element {
  if (id === undefined) return <RunList query={query} />;
  if (what === 'compare' && which !== undefined) return <CompareView key={`${id} ${which}`} a={id} b={which} />;
  const at = what === 'at' && /^\d+$/.test(which ?? '') ? Number(which) : undefined;
  return <RunView key={id} id={id} at={at} />;
}

/** The list itself needs no other list beside it. */
export function Side({ segments: [id] }: ViewProps): JSX.Element | null {
  return id === undefined ? null : <RecentRuns current={id} />;
}
