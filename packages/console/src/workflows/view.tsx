import { useSignal } from '@preact/signals';
import type {
  ListPage,
  WireRun,
  WireWorkflow,
  WireWorkflowCancel,
  WireWorkflowRun,
  WireWorkflowSummary,
} from '@treadle/server/wire';
import type { JSX } from 'preact';
import { useEffect } from 'preact/hooks';
import { InputForm, Problem } from '../agents/input-form.tsx';
import { request } from '../api/client.ts';
import { hrefTo, navigate } from '../router.ts';
import type { ViewProps } from '../routes.ts';
import { listRuns } from '../runs/api.ts';
import { keepLooking } from '../runs/changes.ts';
import { agoText, StatusChip } from '../runs/texts.tsx';
import { Icon } from '../shell/icon.tsx';
import { Graph } from './graph.tsx';
import '../agents/agents.css';
import './workflows.css';

/** `#/workflows`, `#/workflows/<name>` and `#/workflows/<name>/runs/<run>`. */
export function View({ segments: [name, , run] }: ViewProps): JSX.Element {
  return name === undefined ? <WorkflowList /> : <WorkflowView key={name} name={name} run={run} />;
}

function WorkflowList(): JSX.Element {
  const workflows = useSignal<readonly WireWorkflowSummary[] | undefined>(undefined);
  const problem = useSignal<string | undefined>(undefined);
  useEffect(() => {
    request<ListPage<WireWorkflowSummary>>('GET', '/v1/workflows').then(
      ({ data }) => (workflows.value = data),
      (error: Error) => (problem.value = error.message),
    );
  }, []);
  return (
    <div class="agents-page">
      <h1>Workflows</h1>
      <Problem text={problem.value} />
      {workflows.value?.length === 0 && (
        <div class="empty">
          <Icon name="branch" size={36} />
          <h2>No workflows yet</h2>
          <p class="muted">
            A workflow is a file with steps. Run <code>treadle workflow new</code> in the folder of this server.
          </p>
        </div>
      )}
      <ul class="agent-cards">
        {workflows.value?.map(({ name, description }) => (
          <li key={name} class="card agent-card">
            <a href={hrefTo('workflows', name)}>{name}</a>
            <p class="muted">{description}</p>
          </li>
        ))}
      </ul>
    </div>
  );
}

const pathOf = (name: string, rest = ''): string => `/v1/workflows/${encodeURIComponent(name)}${rest}`;

async function start(name: string, inputs: unknown): Promise<string> {
  const body = { inputs, background: true };
  return (await request<WireWorkflowRun>('POST', pathOf(name, '/execute'), { body })).run_id;
}

interface WorkflowProps {
  readonly name: string;
  /** The run whose states are shown. */
  readonly run: string | undefined;
}

function WorkflowView({ name, run }: WorkflowProps): JSX.Element {
  const workflow = useSignal<WireWorkflow | undefined>(undefined);
  const problem = useSignal<string | undefined>(undefined);
  useEffect(() => {
    request<WireWorkflow>('GET', pathOf(name)).then(
      (found) => (workflow.value = found),
      (error: Error) => (problem.value = error.message),
    );
  }, []);
  const { value } = workflow;
  return (
    <div class="agents-page workflow-page">
      <header class="agent-head">
        <a class="muted small" href={hrefTo('workflows')}>
          Workflows
        </a>
        <h1>{name}</h1>
        {value && <p class="muted">{value.description}</p>}
      </header>
      <Problem text={problem.value} />
      {value && run !== undefined && <RunGraph key={run} workflow={value} run={run} />}
      {value && run === undefined && <Graph graph={value.graph} steps={[]} />}
      {value && (
        <InputForm
          name={name}
          schema={value.input_schema}
          start={(inputs) => start(name, inputs)}
          onStarted={(started) => navigate(hrefTo('workflows', name, 'runs', started))}
        />
      )}
      {value && <WorkflowRuns name={name} current={run} />}
    </div>
  );
}

const LOOK_GAP_MS = 300;
const POLL_MS = 2_000;

/** The graph with the states of a run. A run of an earlier definition is drawn by the one that it was started with. */
function RunGraph({ workflow, run }: { readonly workflow: WireWorkflow; readonly run: string }): JSX.Element {
  const found = useSignal<WireWorkflowRun | undefined>(undefined);
  const problem = useSignal<string | undefined>(undefined);
  const path = pathOf(workflow.name, `/runs/${encodeURIComponent(run)}`);
  const isOpen = (): boolean => ['in_progress', 'waiting'].includes(found.value?.status ?? 'in_progress');
  useEffect(() => {
    const looking = keepLooking(
      async (aborted) => {
        try {
          found.value = await request('GET', path, { signal: aborted });
          problem.value = undefined;
        } catch (error) {
          if (!aborted.aborted) problem.value = (error as Error).message;
        }
      },
      // Branches are child runs.
      { gapMs: LOOK_GAP_MS, concerns: ({ id }) => id === run || id.startsWith(`${run}.`) },
    );
    // A key that may not read runs is not told that this one has changed.
    const timer = setInterval(() => {
      if (problem.value === undefined && isOpen()) looking.again();
    }, POLL_MS);
    return () => {
      clearInterval(timer);
      looking.stop();
    };
  }, []);

  async function cancel(): Promise<void> {
    try {
      const { undo_run_id: undo } = await request<WireWorkflowCancel>('POST', `${path}/cancel`);
      if (undo !== null) navigate(hrefTo('workflows', workflow.name, 'runs', undo));
    } catch (error) {
      problem.value = (error as Error).message;
    }
  }

  const { value } = found;
  return (
    <section class="workflow-run" aria-label="Run">
      <h2>
        <span role="status">{value ? value.status.replace('_', ' ') : 'Loading…'}</span>
        <a href={hrefTo('runs', run)}>Show the run</a>
        {value?.status === 'waiting' && <a href={hrefTo('runs', run)}>Answer it</a>}
        {value && isOpen() && (
          <button type="button" class="button small-button" onClick={() => void cancel()}>
            Cancel
          </button>
        )}
      </h2>
      <Problem text={problem.value ?? value?.error?.message} />
      <Graph graph={value?.graph ?? workflow.graph} steps={value?.steps ?? []} />
    </section>
  );
}

function WorkflowRuns({ name, current }: { readonly name: string; readonly current: string | undefined }): JSX.Element {
  const runs = useSignal<readonly WireRun[] | undefined>(undefined);
  const problem = useSignal<string | undefined>(undefined);
  useEffect(
    () =>
      keepLooking(
        async (aborted) => {
          try {
            const { data } = await listRuns({ label: `agent=${name}`, limit: '50' }, aborted);
            // Branches have the labels of their run. Forks have a parent too.
            runs.value = data.filter(({ id, parent }) => !id.startsWith(`${parent}.`)).slice(0, 20);
            problem.value = undefined;
          } catch (error) {
            if (!aborted.aborted) problem.value = (error as Error).message;
            throw error;
          }
        },
        { gapMs: LOOK_GAP_MS },
      ).stop,
    [],
  );
  return (
    <section aria-label="Runs">
      <h2>Its runs</h2>
      {problem.value !== undefined && <p class="muted">{problem.value}</p>}
      {runs.value?.length === 0 && <p class="muted">None yet.</p>}
      <ul class="agent-runs">
        {runs.value?.map(({ id, title, status, started_at: at, updated_at: now }) => (
          <li key={id}>
            <StatusChip status={status} />
            <a href={hrefTo('workflows', name, 'runs', id)} aria-current={id === current ? 'true' : undefined}>
              {title || id}
            </a>
            <span class="muted small">{agoText(at, Math.max(Date.now(), now))}</span>
          </li>
        ))}
      </ul>
    </section>
  );
}
