import { useSignal } from '@preact/signals';
import { durationText, shortId } from '@treadle/core/describe';
import type { WireRun } from '@treadle/server/wire';
import type { JSX } from 'preact';
import { useEffect } from 'preact/hooks';
import { serverInfo } from '../api/server-info.ts';
import { numberText } from '../format.ts';
import { hrefTo, navigate } from '../router.ts';
import { Icon } from '../shell/icon.tsx';
import { useShortcuts } from '../shell/shortcuts.tsx';
import { isChildRun, listRuns } from './api.ts';
import { keepLooking } from './changes.ts';
import { agoText, oneLine, StatusChip, StatusDot } from './texts.tsx';
import { areMoreOpen, asked, lookForWaits } from './waiting.ts';
import { WaitRow } from './waits.tsx';

const PAGE = 50;
const LIST_GAP_MS = 300;
/** What waits is above the list of runs. More of it, and all if the user looks for certain runs, is one line each. */
const UNFOLDED_WAITS = 3;

/** Calls `look` now and when runs have changed. */
function useLooking(look: (aborted: AbortSignal) => Promise<void>, gapMs: number, key = ''): void {
  useEffect(() => keepLooking(look, { gapMs }).stop, [key]);
}

const STATUSES = [
  ['', 'All'],
  ['running', 'Running'],
  ['paused', 'Waiting'],
  ['completed', 'Completed'],
  ['failed', 'Failed'],
  ['exhausted,cancelled', 'Stopped'],
] as const;
const PERIODS = [
  ['', 'Any time'],
  ['3600000', 'Last hour'],
  ['86400000', 'Last day'],
  ['604800000', 'Last week'],
] as const;

export function RunList({ query }: { readonly query: URLSearchParams }): JSX.Element {
  const [status, model, search, period, parent] = ['status', 'model', 'search', 'period', 'parent'].map(
    (name) => query.get(name) ?? '',
  );
  const key = query.toString();
  const runs = useSignal<readonly WireRun[] | undefined>(undefined);
  const older = useSignal<readonly WireRun[]>([]);
  const cursor = useSignal<string | null>(null);
  const problem = useSignal<string | undefined>(undefined);
  const filter = { status: status!, model: model!, search: search!, parent: parent!, limit: String(PAGE) };
  const since = (): { readonly since?: string } => (period ? { since: String(Date.now() - Number(period)) } : {});

  useEffect(() => {
    older.value = [];
    cursor.value = null;
  }, [key]);
  useLooking(
    async (aborted) => {
      try {
        const page = await listRuns({ ...filter, ...since() }, aborted);
        runs.value = page.data;
        problem.value = undefined;
        if (older.value.length === 0) cursor.value = page.next_cursor;
      } catch (error) {
        if (!aborted.aborted) problem.value = error instanceof Error ? error.message : String(error);
        throw error;
      }
    },
    LIST_GAP_MS,
    key,
  );
  useShortcuts('Runs', [
    { keys: '/', label: 'Search', run: () => document.querySelector<HTMLElement>('#run-search')?.focus() },
  ]);

  function choose(name: string, value: string): void {
    const next = new URLSearchParams(query);
    if (value === '') next.delete(name);
    else next.set(name, value);
    const text = next.toString();
    navigate(`${hrefTo('runs')}${text && `?${text}`}`, { replace: true });
  }

  async function showOlder(): Promise<void> {
    const page = await listRuns({ ...filter, ...since(), cursor: cursor.value! });
    older.value = [...older.value, ...page.data];
    cursor.value = page.next_cursor;
  }

  const known = new Set(runs.value?.map(({ id }) => id));
  const shown = runs.value && [...runs.value, ...older.value.filter(({ id }) => !known.has(id))];
  const isFiltered = key !== '';
  return (
    <div class="runs-page">
      <header class="runs-head">
        <h1>Runs</h1>
        <input
          id="run-search"
          type="search"
          class="input"
          placeholder="Search titles"
          aria-label="Search titles"
          value={search}
          onInput={({ currentTarget }) => choose('search', currentTarget.value)}
        />
        <div class="runs-filters">
          <div class="segments" role="group" aria-label="Status">
            {STATUSES.map(([value, label]) => (
              <button key={value} type="button" aria-pressed={status === value} onClick={() => choose('status', value)}>
                {label}
              </button>
            ))}
          </div>
          <span class="spacer" />
          <select
            class="input"
            aria-label="Started"
            value={period}
            onChange={({ currentTarget }) => choose('period', currentTarget.value)}
          >
            {PERIODS.map(([value, label]) => (
              <option key={value} value={value}>
                {label}
              </option>
            ))}
          </select>
          {(serverInfo.value?.models.length ?? 0) > 1 && (
            <select
              class="input"
              aria-label="Model"
              value={model}
              onChange={({ currentTarget }) => choose('model', currentTarget.value)}
            >
              <option value="">All models</option>
              {serverInfo.value!.models.map(({ id }) => (
                <option key={id} value={id}>
                  {id}
                </option>
              ))}
            </select>
          )}
        </div>
      </header>
      {parent && (
        <p class="runs-parent small">
          Forks and child runs of <a href={hrefTo('runs', parent)}>{shortId(parent)}</a>, the latest first.{' '}
          <a href={hrefTo('runs')}>Show all runs</a>
        </p>
      )}
      {asked.value.length > 0 && !parent && (
        <section class="asked" aria-label="Waiting for you">
          <h2>
            Waiting for you <span class="badge">{asked.value.length}</span>
          </h2>
          {asked.value.map(({ run, wait }, index) => (
            <WaitRow
              key={`${run.id} ${wait.effect}`}
              run={run}
              wait={wait}
              isOpen={!isFiltered && index < UNFOLDED_WAITS}
              onAnswered={() => void lookForWaits().catch(() => {})}
            />
          ))}
          {areMoreOpen.value && (
            <p class="muted small">
              This is what the newest 100 open runs wait for. The filter <strong>Waiting</strong> has the others.
            </p>
          )}
        </section>
      )}
      {problem.value !== undefined && (
        <p class="problem" role="alert">
          {problem.value}
        </p>
      )}
      {shown && shown.length > 0 && <RunTable runs={shown} />}
      {shown?.length === 0 && (
        <div class="empty">
          <Icon name="runs" size={36} />
          <h2>{isFiltered ? 'No run matches' : 'No runs yet'}</h2>
          <p class="muted">
            {isFiltered
              ? 'Change the filters, or search for another word.'
              : 'Every message of a chat, and every response of the API, is a run.'}
          </p>
          {isFiltered ? (
            <a class="button" href={hrefTo('runs')}>
              Show all runs
            </a>
          ) : (
            <a class="button primary" href={hrefTo('chat')}>
              Start a chat
            </a>
          )}
        </div>
      )}
      {cursor.value !== null && (
        <button type="button" class="button older" onClick={() => void showOlder()}>
          Show older runs
        </button>
      )}
    </div>
  );
}

/** The latest runs, beside one of them. */
export function RecentRuns({ current }: { readonly current: string }): JSX.Element {
  const runs = useSignal<readonly WireRun[]>([]);
  useLooking(async (aborted) => {
    runs.value = (await listRuns({ limit: '40' }, aborted)).data;
  }, LIST_GAP_MS);
  return (
    <ul class="recent" aria-label="Recent runs">
      {runs.value
        .filter((run) => !isChildRun(run))
        .map(({ id, title, status }) => (
          <li key={id}>
            <a href={hrefTo('runs', id)} aria-current={id === current ? 'page' : undefined} title={title}>
              <StatusDot status={status} />
              <span>{oneLine(title, 60) || shortId(id)}</span>
            </a>
          </li>
        ))}
    </ul>
  );
}

/** A fork has entries that are older than itself. */
const NO_DURATION = '–';

/** How often the texts of times are written again. */
const CLOCK_MS = 20_000;

function RunTable({ runs }: { readonly runs: readonly WireRun[] }): JSX.Element {
  const now = useSignal(Date.now());
  useEffect(() => {
    const timer = setInterval(() => (now.value = Date.now()), CLOCK_MS);
    return () => clearInterval(timer);
  }, [now]);
  return (
    <table class="run-table">
      <thead>
        <tr>
          <th scope="col">Run</th>
          <th scope="col">Status</th>
          <th scope="col">Model</th>
          <th scope="col">Started</th>
          <th scope="col" class="number">
            Took
          </th>
          <th scope="col" class="number">
            Entries
          </th>
        </tr>
      </thead>
      <tbody>
        {runs.map((run) => (
          <tr key={run.id}>
            <td>
              <a class="run-title" href={hrefTo('runs', run.id)}>
                {oneLine(run.title, 140) || 'Without a title'}
              </a>
              <span class="muted small">
                {isChildRun(run)
                  ? `Child run of ${shortId(run.parent!)}`
                  : run.parent === null
                    ? shortId(run.id)
                    : `Fork of ${shortId(run.parent)}`}
                {run.recovered > 0 && ` · recovered ${run.recovered} times`}
                {run.labels['started-by'] === 'command' && ' · started by the command'}
              </span>
            </td>
            <td>
              <StatusChip status={run.status} />
            </td>
            <td class="muted">{run.model}</td>
            <td class="muted" title={new Date(run.started_at).toLocaleString()}>
              {agoText(run.started_at, Math.max(now.value, run.updated_at))}
            </td>
            <td class="number muted">
              {run.parent === null || isChildRun(run) ? durationText(run.updated_at - run.started_at) : NO_DURATION}
            </td>
            <td class="number muted">{numberText(run.entries)}</td>
          </tr>
        ))}
      </tbody>
    </table>
  );
}
