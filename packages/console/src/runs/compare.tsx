import { useSignal } from '@preact/signals';
import { plural, shortId } from '@treadle/core/describe';
import type { WireRunDetails } from '@treadle/server/wire';
import type { Change } from 'diff';
import type * as DiffModule from 'diff';
import type { JSX } from 'preact';
import { useEffect, useMemo } from 'preact/hooks';
import { numberText } from '../format.ts';
import { hrefTo } from '../router.ts';
import { comparedText, compareRuns, type Pair } from './compare-runs.ts';
import { lineOf } from './entry-list.tsx';
import { openRun, type LiveRun } from './live-run.ts';
import type { RunModel } from './run-model.ts';
import { activeText, costText, oneLine, StatusChip } from './texts.tsx';
import { WaitCard } from './waits.tsx';

type Diff = typeof DiffModule;

/** Two runs side by side. Both may still be running. */
export function CompareView({ a, b }: { readonly a: string; readonly b: string }): JSX.Element {
  const [left, right] = useMemo(() => [openRun(a), openRun(b)] as const, [a, b]);
  const diff = useSignal<Diff | undefined>(undefined);
  useEffect(() => {
    void import('diff').then((loaded) => (diff.value = loaded));
    return () => {
      left.close();
      right.close();
    };
  }, [left, right]);
  const problem = left.problem.value ?? right.problem.value;
  if (problem !== undefined) {
    return (
      <div class="empty">
        <h1>These runs cannot be compared</h1>
        <p class="problem">{problem}</p>
        <a class="button" href={hrefTo('runs')}>
          All runs
        </a>
      </div>
    );
  }
  if (!left.isLoaded.value || !right.isLoaded.value || !diff.value) {
    return (
      <div class="empty" role="status">
        <span class="spinner" />
        <p class="muted">Loading both runs…</p>
      </div>
    );
  }
  return <Compared left={left} right={right} diff={diff.value} />;
}

interface ComparedProps {
  readonly left: LiveRun;
  readonly right: LiveRun;
  readonly diff: Diff;
}

const MOST_PAIRS = 300;

function Compared({ left, right, diff }: ComparedProps): JSX.Element {
  const versions = [left.version.value, right.version.value] as const;
  const { same, first, pairs } = useMemo(
    () => compareRuns(left.model.entries, right.model.entries),
    [left, right, ...versions],
  );
  const shown = useSignal(MOST_PAIRS);
  const at = pairs.findIndex(({ isSame }) => !isSame);
  return (
    <div class="run compare">
      <header class="run-head">
        <nav class="crumbs small" aria-label="Where these runs are">
          <a href={hrefTo('runs')}>Runs</a> <span class="muted">/ comparison</span>
        </nav>
        <h1>Comparison</h1>
      </header>
      <div class="compare-scroll" tabIndex={0} role="region" aria-label="Both runs">
        <table class="compare-table">
          <thead>
            <tr>
              <td />
              {[left, right].map((run, index) => (
                <th key={run.id} scope="col">
                  {index === 0 ? 'A' : 'B'} <a href={hrefTo('runs', run.id)}>{shortId(run.id)}</a>{' '}
                  {run.details.value && <StatusChip status={run.details.value.status} />}
                </th>
              ))}
            </tr>
          </thead>
          <tbody>
            {SUMMARY.map(([name, textOf]) => (
              <tr key={name}>
                <th scope="row">{name}</th>
                {[left, right].map(({ id, details, model }) => (
                  <td key={id}>{details.value && textOf(details.value, model)}</td>
                ))}
              </tr>
            ))}
          </tbody>
        </table>
      </div>
      {right.details.value?.waiting.map((wait) => (
        <WaitCard key={wait.effect} runId={right.id} wait={wait} onAnswered={(answered) => right.refresh(answered)} />
      ))}
      <p class="same-part">
        {same === 0 ? 'The first entries differ.' : `The first ${plural(same, 'entry is', 'entries are')} the same.`}
        {!first && pairs.length === 0 && ' The runs do not differ.'}
      </p>
      <ol class="pairs">
        {pairs.slice(0, shown.value).map((pair, index) => (
          <PairView
            key={index}
            pair={pair}
            left={left}
            right={right}
            diff={diff}
            isFirst={index === at}
            path={first?.difference?.path}
          />
        ))}
      </ol>
      {pairs.length > shown.value && (
        <button type="button" class="button older" onClick={() => (shown.value += MOST_PAIRS)}>
          Show more of {numberText(pairs.length)} entries
        </button>
      )}
    </div>
  );
}

const SUMMARY: readonly (readonly [string, (details: WireRunDetails, model: RunModel) => string])[] = [
  ['Model', ({ model }) => model],
  ['Cost', ({ usage }) => costText(usage.cost) || 'not known'],
  ['Tokens', ({ usage }) => `${numberText(usage.input_tokens)} in, ${numberText(usage.output_tokens)} out`],
  // A fork has the start of its original, and nothing happens in the time between them.
  ['Active time', (_, model) => activeText(model)],
  ['Turns and calls', ({ turns, calls }) => `${plural(turns, 'turn')}, ${plural(calls, 'call')}`],
];

interface PairProps {
  readonly pair: Pair;
  readonly left: LiveRun;
  readonly right: LiveRun;
  readonly diff: Diff;
  readonly isFirst: boolean;
  /** Where the first difference is. */
  readonly path: string | undefined;
}

function PairView({ pair, left, right, diff, isFirst, path }: PairProps): JSX.Element {
  const { a, b, isSame } = pair;
  const changes = useMemo(
    () => (a && b && !isSame ? changesOf(diff, comparedText(a.event), comparedText(b.event)) : undefined),
    [a, b, isSame, diff],
  );
  return (
    <li class={`pair${isFirst ? ' first-divergence' : ''}${isSame ? ' same' : ''}`}>
      {isFirst && (
        <p class="divergence" id="divergence">
          First divergence{path !== undefined && path !== '' && ` in ${path}`}
        </p>
      )}
      <Half run={left} seq={a?.seq} side="A" changes={changes?.filter(({ added }) => !added)} />
      <Half run={right} seq={b?.seq} side="B" changes={changes?.filter(({ removed }) => !removed)} />
    </li>
  );
}

interface HalfProps {
  readonly run: LiveRun;
  readonly seq: number | undefined;
  readonly side: string;
  readonly changes: readonly Change[] | undefined;
}

function Half({ run, seq, side, changes }: HalfProps): JSX.Element {
  if (seq === undefined) return <div class="half missing muted small">{side} has no such entry</div>;
  const { head, body, tone } = lineOf(run.model, seq);
  const { event } = run.model.entries[seq]!;
  return (
    <div class="half">
      <p class={`half-head tone-${tone}`}>
        <a href={hrefTo('runs', run.id, 'at', seq)}>{seq}</a> <strong>{head.trim()}</strong>{' '}
        {body !== undefined && !changes && <span class="muted">{oneLine(body, 160)}</span>}
      </p>
      {changes && (
        <pre class="exact" tabIndex={0} role="group" aria-label={`${event.type} in ${side}`}>
          {changes.map(({ value, added, removed }, index) =>
            added ? (
              <ins key={index}>{value}</ins>
            ) : removed ? (
              <del key={index}>{value}</del>
            ) : (
              <span key={index}>{value}</span>
            ),
          )}
        </pre>
      )}
    </div>
  );
}

/** Longer texts are compared by lines, which is faster. */
const BY_WORDS = 20_000;
const TIMEOUT_MS = 200;

function changesOf(diff: Diff, a: string, b: string): readonly Change[] {
  const isShort = a.length + b.length < BY_WORDS;
  const changes = isShort
    ? diff.diffWordsWithSpace(a, b, { timeout: TIMEOUT_MS })
    : diff.diffLines(a, b, { timeout: TIMEOUT_MS });
  return (
    changes ?? [
      { value: a, removed: true, added: false, count: 1 },
      { value: b, added: true, removed: false, count: 1 },
    ]
  );
}
