import type { RunStore, RunSummary } from '@treadle/core';
import { againThere, type PlaceValues } from '../command-line/flags.ts';
import { oneLine } from '../terminal/printable.ts';
import { ageText } from '../terminal/quantities.ts';
import { isChild, shortId } from './run-id.ts';

const SHOWN = 3;

/** Tells of runs that stopped in the middle and that nobody drives, newest first; nothing if there are none. */
export async function unfinishedNotice(
  store: RunStore,
  values: PlaceValues,
  now: number = Date.now(),
): Promise<string | undefined> {
  const left: RunSummary[] = [];
  for (const run of await store.list({ status: ['running'] })) {
    if (!isChild(run) && !(await store.isDriven(run.runId))) left.push(run);
  }
  const [newest] = left;
  if (!newest) return undefined;
  const lines = left
    .slice(0, SHOWN)
    .map(
      ({ runId, updatedAt, title }) => `  ${shortId(runId)}  ${ageText(now - updatedAt)} ago  ${oneLine(title, 50)}`,
    );
  const heading = left.length === 1 ? 'A run was not finished:' : `${left.length} runs were not finished:`;
  const more =
    left.length > SHOWN ? [`  and more: ${againThere(['runs', 'list', '--status', 'interrupted'], values)}`] : [];
  const id = shortId(newest.runId);
  return [
    heading,
    ...lines,
    ...more,
    `Go on with ${againThere(['runs', 'resume', id], values)}, or end it with ${againThere(['runs', 'cancel', id], values)}.`,
  ].join('\n');
}
