import { plural } from '@treadle/core/describe';
import type { TraceFailure } from '@treadle/core/trace';
import type { JSX } from 'preact';
import { useMemo } from 'preact/hooks';
import { hrefTo } from '../router.ts';
import { notify } from '../shell/announce.tsx';
import { Icon } from '../shell/icon.tsx';
import { downloadTrace } from './api.ts';
import type { RunModel } from './run-model.ts';

interface Props {
  readonly id: string;
  readonly model: RunModel;
  readonly version: number;
}

/** The trace of the run: its id, under which collectors have its spans, and what failed in it. */
export function TraceFacts({ id, model, version }: Props): JSX.Element | null {
  const trace = useMemo(() => model.trace(), [model, version]);
  if (!trace) return null;
  const { traceId, failures } = trace;
  const count = failures.length === 0 ? 'nothing failed' : plural(failures.length, 'failure');
  return (
    <details class="trace-facts small">
      <summary>
        Trace {traceId.slice(0, 8)} · {count}
      </summary>
      <p>
        <code>{traceId}</code>{' '}
        <button type="button" class="button" onClick={() => void copy(traceId)}>
          <Icon name="copy" /> Copy the trace id
        </button>{' '}
        <button type="button" class="button" onClick={() => void downloadTrace(id).catch(tell)}>
          <Icon name="export" /> Download the trace
        </button>
      </p>
      {failures.length > 0 && <Failures id={id} failures={failures} />}
    </details>
  );
}

function Failures({ id, failures }: { readonly id: string; readonly failures: readonly TraceFailure[] }): JSX.Element {
  return (
    <div class="trace-failures">
      <table>
        <thead>
          <tr>
            {['Entry', 'What', 'Failure', 'Category', 'Code', 'Severity', 'Recovered by'].map((name) => (
              <th key={name} scope="col">
                {name}
              </th>
            ))}
          </tr>
        </thead>
        <tbody>
          {failures.map(({ seq, tool, effect, type, category, code, severity, recovery, retryable }, index) => (
            <tr key={index}>
              <td>
                <a href={hrefTo('runs', id, 'at', seq)}>{seq}</a>
              </td>
              <td>{tool ?? effect ?? 'the run'}</td>
              <td>{type}</td>
              <td>{category}</td>
              <td>{code}</td>
              <td>{severity}</td>
              <td>{recovery ? recovery.by : retryable ? 'nothing; it can be retried' : 'nothing'}</td>
            </tr>
          ))}
        </tbody>
      </table>
    </div>
  );
}

async function copy(text: string): Promise<void> {
  try {
    await navigator.clipboard.writeText(text);
    notify('The trace id was copied.');
  } catch {
    notify(text);
  }
}

function tell(error: unknown): void {
  notify(error instanceof Error ? error.message : String(error));
}
