import { useSignal, useSignalEffect, type ReadonlySignal, type Signal } from '@preact/signals';
import { durationText, outcomeDetail, plural, shortId } from '@treadle/core/describe';
import type { WireRunDetails } from '@treadle/server/wire';
import type { JSX } from 'preact';
import { useEffect, useLayoutEffect, useMemo, useRef } from 'preact/hooks';
import { numberText } from '../format.ts';
import { hrefTo, navigate } from '../router.ts';
import { announce, notify } from '../shell/announce.tsx';
import { Icon, type IconName } from '../shell/icon.tsx';
import { useShortcuts } from '../shell/shortcuts.tsx';
import { cancelRun, downloadRun, isChildRun, resumeRun } from './api.ts';
import { EntryList, lineOf } from './entry-list.tsx';
import { ForkDialog } from './fork-dialog.tsx';
import { loadChildren, openRun, type LiveRun } from './live-run.ts';
import { landmarksOf, momentAt } from './moment.ts';
import { MomentPanel } from './moment-panel.tsx';
import type { RunModel } from './run-model.ts';
import { activeText, agoText, costText, oneLine, StatusChip } from './texts.tsx';
import { axisOf, turnStarts, type AxisMode } from './timeline.ts';
import { TraceFacts } from './trace-facts.tsx';
import { Timeline, zoomed, type Range, type Selection } from './timeline-chart.tsx';
import { WaitCard } from './waits.tsx';

/** `at`: the entry to show first. Undefined: the last one, also when others follow. */
export function RunView({ id, at }: { readonly id: string; readonly at: number | undefined }): JSX.Element {
  const run = useMemo(() => openRun(id), [id]);
  useEffect(() => run.close, [run]);
  if (run.problem.value !== undefined) {
    return (
      <div class="empty">
        <h1>This run cannot be shown</h1>
        <p class="problem">{run.problem.value}</p>
        <a class="button" href={hrefTo('runs')}>
          All runs
        </a>
      </div>
    );
  }
  if (!run.isLoaded.value || !run.details.value) {
    return (
      <div class="empty" role="status">
        <span class="spinner" />
        <p class="muted">
          Loading the run… {run.version.value > 0 && plural(run.model.entries.length, 'entry', 'entries')}
        </p>
      </div>
    );
  }
  return <LoadedRun run={run} details={run.details.value} at={at} />;
}

/** How long after the last move the address follows. Browsers limit how often it may change. */
const ADDRESS_MS = 300;

interface LoadedProps {
  readonly run: LiveRun;
  readonly details: WireRunDetails;
  readonly at: number | undefined;
}

function LoadedRun({ run, details, at }: LoadedProps): JSX.Element {
  const { id, model } = run;
  const version = run.version.value;
  const last = model.entries.length - 1;
  const isFollowing = useSignal(at === undefined);
  const cursor = useSignal(Math.min(at ?? last, last));
  const mode = useSignal<AxisMode>('time');
  const zoom = useSignal<Range | undefined>(undefined);
  const selection = useSignal<Selection | undefined>(undefined);
  const search = useSignal('');
  const isForking = useSignal(false);
  const children = useSignal<ReadonlyMap<string, RunModel>>(new Map());

  useEffect(() => {
    if (isFollowing.value) cursor.value = model.entries.length - 1;
  }, [version]);
  // The address was changed by a link, or by going back. At once, before an earlier move changes the address again.
  useLayoutEffect(() => {
    if (at === undefined || at === cursor.value) return;
    isFollowing.value = false;
    cursor.value = Math.min(at, model.entries.length - 1);
  }, [at]);
  useSignalEffect(() => {
    const seq = cursor.value;
    if (isFollowing.value) return;
    const timer = setTimeout(() => navigate(hrefTo('runs', id, 'at', seq), { replace: true }), ADDRESS_MS);
    return () => clearTimeout(timer);
  });
  useEffect(() => {
    const stopping = new AbortController();
    loadChildren(run.related.value, children.value, stopping.signal).then(
      (loaded) => loaded.size > 0 && (children.value = loaded),
      () => {},
    );
    return () => stopping.abort();
  }, [run.related.value]);

  function seek(seq: number): void {
    isFollowing.value = false;
    cursor.value = Math.max(0, Math.min(model.entries.length - 1, seq));
  }

  const landmarks = useMemo(() => landmarksOf(model), [model, version]);
  const jump = (among: readonly number[], direction: 1 | -1): void => {
    const next =
      direction === 1
        ? (among.find((seq) => seq > cursor.value) ?? among[0])
        : (among.findLast((seq) => seq < cursor.value) ?? among.at(-1));
    if (next === undefined) return;
    seek(next);
    announce(entryText(model, next));
  };
  const jumpTurn = (direction: 1 | -1): void =>
    jump(
      turnStarts(model).map(({ seq }) => seq),
      direction,
    );
  const zoomBy = (factor: number): void => {
    const axis = axisOf(model, mode.value);
    const at_ = axis.positions[cursor.value] ?? 0;
    zoom.value = zoomed(zoom.value ?? { from: 0, to: axis.length }, axis, at_, factor);
  };
  useShortcuts('Run', [
    { keys: 'ArrowRight', label: 'Next entry', run: () => seek(cursor.value + 1) },
    { keys: 'ArrowLeft', label: 'Previous entry', run: () => seek(cursor.value - 1) },
    { keys: 'Home', label: 'First entry', run: () => seek(0) },
    { keys: 'End', label: 'Last entry', run: () => seek(model.entries.length - 1) },
    { keys: ']', label: 'Next turn', run: () => jumpTurn(1) },
    { keys: '[', label: 'Previous turn', run: () => jumpTurn(-1) },
    { keys: 'e', label: 'Next error', run: () => jump(landmarks.errors, 1) },
    { keys: 'd', label: 'Next denial', run: () => jump(landmarks.denials, 1) },
    {
      keys: 'x',
      label: 'Most expensive turn',
      run: () => landmarks.mostExpensive !== undefined && seek(landmarks.mostExpensive),
    },
    { keys: '+', label: 'Zoom in', run: () => zoomBy(0.5) },
    { keys: '-', label: 'Zoom out', run: () => zoomBy(2) },
    { keys: '0', label: 'Show everything', run: () => (zoom.value = undefined) },
    { keys: 'f', label: 'Fork here', run: () => (isForking.value = true) },
    {
      keys: '/',
      label: 'Search the entries',
      run: () => document.querySelector<HTMLElement>('#entry-search')?.focus(),
    },
  ]);

  return (
    <div class="run">
      <RunHeader run={run} details={details} onFork={() => (isForking.value = true)} cursor={cursor} />
      <TraceFacts id={id} model={model} version={version} />
      {details.waiting.map((wait) => (
        <WaitCard key={wait.effect} runId={id} wait={wait} onAnswered={(answered) => run.refresh(answered)} />
      ))}
      {details.definition_change !== null && <p class="problem">{details.definition_change}</p>}
      {model.problem !== undefined && (
        <p class="problem">This version of Treadle does not replay the whole run. {model.problem}</p>
      )}
      <section class="card timeline-card" aria-label="Timeline">
        <div class="timeline-tools">
          <Legend />
          <span class="spacer" />
          {selection.value && <SelectionFacts model={model} selection={selection} zoom={zoom} mode={mode.value} />}
          <div class="segments" role="group" aria-label="Axis">
            <button type="button" aria-pressed={mode.value === 'time'} onClick={() => setMode('time')}>
              Time
            </button>
            <button type="button" aria-pressed={mode.value === 'entries'} onClick={() => setMode('entries')}>
              Entries
            </button>
          </div>
          <div class="segments" role="group" aria-label="Zoom">
            <button type="button" aria-label="Zoom out" onClick={() => zoomBy(2)}>
              −
            </button>
            <button type="button" aria-label="Zoom in" onClick={() => zoomBy(0.5)}>
              +
            </button>
            <button type="button" disabled={!zoom.value} onClick={() => (zoom.value = undefined)}>
              Fit
            </button>
          </div>
        </div>
        <Timeline
          model={model}
          version={version}
          children_={children.value}
          mode={mode.value}
          cursor={cursor}
          zoom={zoom}
          selection={selection}
          onSeek={seek}
          onOpen={(child) => navigate(hrefTo('runs', child))}
        />
        <Scrubber model={model} cursor={cursor} last={last} onSeek={seek} />
        <div class="jumps">
          <JumpButton icon="warning" label="error" among={landmarks.errors} onJump={jump} />
          <JumpButton icon="shield" label="denial" among={landmarks.denials} onJump={jump} />
          <button
            type="button"
            class="button"
            disabled={landmarks.mostExpensive === undefined}
            onClick={() => seek(landmarks.mostExpensive!)}
          >
            Most expensive turn
          </button>
          <span class="spacer" />
          <button type="button" class="button" onClick={() => void copyLink(id, cursor.value)}>
            <Icon name="copy" /> Copy link
          </button>
          <button type="button" class="button primary" onClick={() => (isForking.value = true)}>
            <Icon name="branch" /> Fork here
          </button>
        </div>
      </section>
      <div class="run-split">
        <Entries run={run} version={version} cursor={cursor} search={search} selection={selection} onSeek={seek} />
        <CurrentMoment model={model} version={version} cursor={cursor} onSeek={seek} />
      </div>
      {isForking.value && (
        <ForkDialog id={id} model={model} at={cursor.value} onClose={() => (isForking.value = false)} />
      )}
    </div>
  );

  function setMode(to: AxisMode): void {
    mode.value = to;
    zoom.value = undefined;
  }
}

async function copyLink(id: string, seq: number): Promise<void> {
  const link = new URL(hrefTo('runs', id, 'at', seq), location.href).href;
  try {
    await navigator.clipboard.writeText(link);
    notify('The link was copied.');
  } catch {
    notify(link);
  }
}

function showError(error: unknown): void {
  notify(error instanceof Error ? error.message : String(error));
}

interface HeaderProps {
  readonly run: LiveRun;
  readonly details: WireRunDetails;
  readonly cursor: ReadonlySignal<number>;
  readonly onFork: () => void;
}

/** The latest ones. The list has all of them. */
const SHOWN_RELATED = 8;

function RunHeader({ run, details, onFork, cursor }: HeaderProps): JSX.Element {
  const { id, status, title, model, parent, usage, turns, calls, outcome, driven } = details;
  const isOpen = status === 'running' || status === 'paused';
  const isStopped = status === 'failed' || status === 'cancelled' || status === 'exhausted';
  const act = (what: Promise<WireRunDetails>): void => {
    what.then((changed) => run.refresh(changed), showError);
  };
  const facts = [
    model,
    plural(turns, 'turn'),
    plural(calls, 'call'),
    `${numberText(usage.input_tokens)} in, ${numberText(usage.output_tokens)} out`,
    costText(usage.cost),
    `active ${activeText(run.model)}`,
    agoText(details.started_at),
  ].filter((text) => text !== '');
  const forks = run.related.value.filter((other) => !isChildRun(other));
  return (
    <header class="run-head">
      <nav class="crumbs small" aria-label="Where this run comes from">
        <a href={hrefTo('runs')}>Runs</a>
        {parent !== null && (
          <>
            <span class="muted">/</span>
            <a href={hrefTo('runs', parent)}>
              {isChildRun(details) ? 'parent' : 'original'} {shortId(parent)}
            </a>
          </>
        )}
        <span class="muted">/ {shortId(id)}</span>
      </nav>
      <div class="run-title-row">
        <h1>{oneLine(title, 120) || 'Without a title'}</h1>
        <StatusChip status={status} />
        {status === 'running' && !driven && <span class="chip warn">Interrupted</span>}
        <span class="spacer" />
        {parent !== null && !isChildRun(details) && (
          <a class="button" href={hrefTo('runs', parent, 'compare', id)}>
            Compare with the original
          </a>
        )}
        {isOpen && (
          <button type="button" class="button danger" onClick={() => act(cancelRun(id))}>
            <Icon name="stop" /> Cancel
          </button>
        )}
        {status === 'running' && !driven && (
          <button type="button" class="button" onClick={() => act(resumeRun(id))}>
            <Icon name="retry" /> Resume
          </button>
        )}
        {isStopped && cursor.value > 0 && (
          <button
            type="button"
            class="button"
            onClick={onFork}
            title="Go back to an entry before the end, and continue from there"
          >
            <Icon name="retry" /> Continue in a fork
          </button>
        )}
        <button type="button" class="button" onClick={() => void downloadRun(id).catch(showError)}>
          <Icon name="export" /> Export
        </button>
      </div>
      <p class="muted small">{facts.join(' · ')}</p>
      {outcome && outcome.type !== 'completed' && (
        <p class={outcome.type === 'failed' ? 'problem' : 'muted'}>{outcomeDetail(outcome)}</p>
      )}
      {forks.length > 0 && (
        <p class="small forks">
          <Icon name="branch" size={15} /> {run.hasMoreRelated.value && 'at least '}
          {plural(forks.length, 'fork')}:{' '}
          {forks.slice(0, SHOWN_RELATED).map((fork) => (
            <span key={fork.id}>
              <a href={hrefTo('runs', fork.id)}>{shortId(fork.id)}</a> (
              <a href={hrefTo('runs', id, 'compare', fork.id)} aria-label={`Compare with ${shortId(fork.id)}`}>
                compare
              </a>
              ){' '}
            </span>
          ))}
          {(forks.length > SHOWN_RELATED || run.hasMoreRelated.value) && <AllRelated id={id} />}
        </p>
      )}
      <ChildRuns run={run} />
    </header>
  );
}

function AllRelated({ id }: { readonly id: string }): JSX.Element {
  return <a href={`${hrefTo('runs')}?${new URLSearchParams({ parent: id }).toString()}`}>Show all</a>;
}

/** The timeline shows them too, but only a pointer can open them there. */
function ChildRuns({ run: { id, model, related, hasMoreRelated } }: { readonly run: LiveRun }): JSX.Element | null {
  const children = related.value.filter(isChildRun);
  if (children.length === 0) return null;
  const tools = new Map(model.spans.map(({ child, label }) => [child, label]));
  return (
    <p class="small forks">
      <Icon name="runs" size={15} /> {hasMoreRelated.value && 'at least '}
      {plural(children.length, 'child run')}:{' '}
      {children.slice(0, SHOWN_RELATED).map((child) => (
        <a key={child.id} href={hrefTo('runs', child.id)}>
          {tools.get(child.id)} {shortId(child.id)}
        </a>
      ))}
      {(children.length > SHOWN_RELATED || hasMoreRelated.value) && <AllRelated id={id} />}
    </p>
  );
}

const LEGEND = [
  ['model', 'Model'],
  ['tool', 'Tools'],
  ['wait', 'Waiting'],
  ['check', 'Checks'],
  ['problem', 'Errors and denials'],
] as const;

function Legend(): JSX.Element {
  return (
    <ul class="legend small">
      {LEGEND.map(([paint, label]) => (
        <li key={paint}>
          <svg width="12" height="12" aria-hidden="true">
            <rect class={`bar-${paint}`} width="12" height="12" rx="2" />
          </svg>
          {label}
        </li>
      ))}
    </ul>
  );
}

interface SelectionProps {
  readonly model: RunModel;
  readonly selection: Signal<Selection | undefined>;
  readonly zoom: Signal<Range | undefined>;
  readonly mode: AxisMode;
}

/** What the selected entries used. */
function SelectionFacts({ model, selection, zoom, mode }: SelectionProps): JSX.Element {
  const { first, last } = selection.value!;
  const [before, after] = [model.stateAt(first), model.stateAt(last)];
  const tokens = after && before ? total(after.usage) - total(before.usage) : 0;
  const [spent, spentBefore] = [after?.usage.cost, before?.usage.cost];
  const cost = spent === undefined || spentBefore === undefined ? undefined : spent - spentBefore;
  function zoomIn(): void {
    const { positions } = axisOf(model, mode);
    if (positions[last]! > positions[first]!) zoom.value = { from: positions[first]!, to: positions[last]! };
  }
  return (
    <span class="selection-facts small">
      Entries {first} to {last}: {durationText(model.times[last]! - model.times[first]!)}, {numberText(tokens)} tokens{' '}
      {costText(cost)}
      <button type="button" class="link-button" onClick={zoomIn}>
        Zoom in
      </button>
      <button type="button" class="link-button" onClick={() => (selection.value = undefined)}>
        Clear
      </button>
    </span>
  );
}

function total({ inputTokens, outputTokens }: { readonly inputTokens: number; readonly outputTokens: number }): number {
  return inputTokens + outputTokens;
}

interface ScrubberProps {
  readonly model: RunModel;
  readonly cursor: ReadonlySignal<number>;
  readonly last: number;
  readonly onSeek: (seq: number) => void;
}

function Scrubber({ model, cursor, last, onSeek }: ScrubberProps): JSX.Element {
  const seq = Math.min(cursor.value, last);
  const since = durationText(model.times[seq]! - model.times[0]!);
  return (
    <div class="scrubber">
      <button
        type="button"
        class="icon-button"
        aria-label="Previous entry"
        disabled={seq === 0}
        onClick={() => onSeek(seq - 1)}
      >
        <span class="flip">
          <Icon name="chevron" />
        </span>
      </button>
      <input
        type="range"
        min={0}
        max={last}
        value={seq}
        aria-label="Entry"
        aria-valuetext={`Entry ${seq} of ${last}, after ${since}: ${entryText(model, seq)}`}
        onInput={({ currentTarget }) => onSeek(Number(currentTarget.value))}
      />
      <button
        type="button"
        class="icon-button"
        aria-label="Next entry"
        disabled={seq === last}
        onClick={() => onSeek(seq + 1)}
      >
        <Icon name="chevron" />
      </button>
      <output class="scrubber-at">
        {seq} / {last} · +{since}
      </output>
    </div>
  );
}

function entryText(model: RunModel, seq: number): string {
  const { head, body } = lineOf(model, seq);
  return oneLine(body === undefined ? head : `${head}: ${body}`, 120);
}

interface JumpProps {
  readonly icon: IconName;
  readonly label: string;
  readonly among: readonly number[];
  readonly onJump: (among: readonly number[], direction: 1 | -1) => void;
}

function JumpButton({ icon, label, among, onJump }: JumpProps): JSX.Element {
  return (
    <button type="button" class="button" disabled={among.length === 0} onClick={() => onJump(among, 1)}>
      <Icon name={icon} /> Next {label}
      <span class="muted small">{among.length}</span>
    </button>
  );
}

interface EntriesProps {
  readonly run: LiveRun;
  readonly version: number;
  readonly cursor: ReadonlySignal<number>;
  readonly search: Signal<string>;
  readonly selection: Signal<Selection | undefined>;
  readonly onSeek: (seq: number) => void;
}

function Entries({ run, version, cursor, search, selection, onSeek }: EntriesProps): JSX.Element {
  const found = useSignal(0);
  return (
    <section class="entries-panel" aria-label="Entries of the journal">
      <div class="entries-head">
        <input
          id="entry-search"
          type="search"
          class="input"
          placeholder="Search in all entries"
          aria-label="Search in all entries"
          value={search.value}
          onInput={({ currentTarget }) => (search.value = currentTarget.value)}
        />
        <span class="muted small" role="status">
          {search.value === '' && !selection.value
            ? plural(run.model.entries.length, 'entry', 'entries')
            : `${numberText(found.value)} of ${numberText(run.model.entries.length)}`}
        </span>
      </div>
      <EntryList
        model={run.model}
        version={version}
        cursor={cursor}
        search={search}
        selection={selection}
        onSeek={onSeek}
        onFound={(count) => (found.value = count)}
      />
    </section>
  );
}

interface CurrentProps {
  readonly model: RunModel;
  readonly version: number;
  readonly cursor: ReadonlySignal<number>;
  readonly onSeek: (seq: number) => void;
}

/** While the cursor moves fast, the state is shown at most this often. */
const SETTLE_MS = 120;

/** Reads the cursor itself, so that the rest of the view is not rendered while it moves. */
function CurrentMoment({ model, cursor, onSeek }: CurrentProps): JSX.Element {
  const shown = useSignal(cursor.value);
  const changedAt = useRef(0);
  useSignalEffect(() => {
    const seq = cursor.value;
    const wait = changedAt.current + SETTLE_MS - performance.now();
    const show = (): void => {
      changedAt.current = performance.now();
      shown.value = seq;
    };
    if (wait <= 0) return show();
    const timer = setTimeout(show, wait);
    return () => clearTimeout(timer);
  });
  const seq = shown.value;
  const moment = useMemo(() => momentAt(model, seq), [model, seq]);
  return <MomentPanel model={model} moment={moment} seq={seq} onSeek={onSeek} />;
}
