import { useSignal } from '@preact/signals';
import type {
  ListPage,
  WireAgent,
  WireAgentSummary,
  WireIterativeResult,
  WireRun,
  WireUnfinished,
} from '@treadle/server/wire';
import type { JSX } from 'preact';
import { useEffect } from 'preact/hooks';
import { request } from '../api/client.ts';
import { hrefTo } from '../router.ts';
import type { ViewProps } from '../routes.ts';
import { listRuns } from '../runs/api.ts';
import { keepLooking } from '../runs/changes.ts';
import { agoText, oneLine, StatusChip } from '../runs/texts.tsx';
import { Icon } from '../shell/icon.tsx';
import { InputForm, Problem } from './input-form.tsx';
import './agents.css';

/** `#/agents` and `#/agents/<name>`. */
export function View({ segments: [name] }: ViewProps): JSX.Element {
  return name === undefined ? <AgentList /> : <AgentView key={name} name={name} />;
}

function AgentList(): JSX.Element {
  const agents = useSignal<readonly WireAgentSummary[] | undefined>(undefined);
  const problem = useSignal<string | undefined>(undefined);
  useEffect(() => {
    request<ListPage<WireAgentSummary>>('GET', '/v1/agents').then(
      ({ data }) => (agents.value = data),
      (error: Error) => (problem.value = error.message),
    );
  }, []);
  return (
    <div class="agents-page">
      <h1>Agents</h1>
      <Problem text={problem.value} />
      {agents.value?.length === 0 && (
        <div class="empty">
          <Icon name="agent" size={36} />
          <h2>No agents yet</h2>
          <p class="muted">
            An agent is a file: instructions, inputs and tools. Run <code>treadle agents new</code> in the folder of
            this server.
          </p>
        </div>
      )}
      <ul class="agent-cards">
        {agents.value?.map(({ name, role, description }) => (
          <li key={name} class="card agent-card">
            <a href={hrefTo('agents', name)}>{name}</a>
            {role !== null && <span class="chip">{role}</span>}
            <p class="muted">{description}</p>
          </li>
        ))}
      </ul>
    </div>
  );
}

function AgentView({ name }: { readonly name: string }): JSX.Element {
  const agent = useSignal<WireAgent | undefined>(undefined);
  const problem = useSignal<string | undefined>(undefined);
  const started = useSignal<string | undefined>(undefined);
  useEffect(() => {
    request<WireAgent>('GET', pathOf(name)).then(
      (found) => (agent.value = found),
      (error: Error) => (problem.value = error.message),
    );
  }, []);
  return (
    <div class="agents-page">
      <header class="agent-head">
        <a class="muted small" href={hrefTo('agents')}>
          Agents
        </a>
        <h1>{name}</h1>
        {agent.value && <p class="muted">{agent.value.description}</p>}
        {agent.value && (
          <a class="button small-button" href={`${hrefTo('chat')}?model=${encodeURIComponent(agent.value.model_id)}`}>
            <Icon name="chat" /> Chat with it
          </a>
        )}
      </header>
      <Problem text={problem.value} />
      {agent.value && (
        <InputForm
          name={name}
          schema={agent.value.input_schema}
          start={(inputs) => startAgent(name, inputs)}
          onStarted={(run) => (started.value = run)}
        />
      )}
      {started.value !== undefined && <Result key={started.value} agent={name} run={started.value} />}
      {agent.value && <AgentRuns name={name} />}
    </div>
  );
}

const pathOf = (name: string, rest = ''): string => `/v1/agents/${encodeURIComponent(name)}${rest}`;

async function startAgent(name: string, inputs: unknown): Promise<string> {
  const body = { inputs, background: true };
  return (await request<WireUnfinished>('POST', pathOf(name, '/invoke-iterative'), { body })).run_id;
}

const LOOK_GAP_MS = 300;
const POLL_MS = 2_000;

/** What a run of an agent has come to: its output, why it has none, or what it waits for. */
function Result({ agent, run }: { readonly agent: string; readonly run: string }): JSX.Element {
  const found = useSignal<WireIterativeResult | WireUnfinished | undefined>(undefined);
  const problem = useSignal<string | undefined>(undefined);
  useEffect(() => {
    const looking = keepLooking(
      async (aborted) => {
        try {
          found.value = await request('GET', pathOf(agent, `/runs/${encodeURIComponent(run)}`), { signal: aborted });
          problem.value = undefined;
        } catch (error) {
          if (!aborted.aborted) problem.value = (error as Error).message;
        }
      },
      { gapMs: LOOK_GAP_MS, concerns: ({ id }) => id === run },
    );
    // A key that may not read runs is not told that this one has changed.
    const timer = setInterval(() => {
      if (problem.value === undefined && (!found.value || 'status' in found.value)) looking.again();
    }, POLL_MS);
    return () => {
      clearInterval(timer);
      looking.stop();
    };
  }, []);
  const { value } = found;
  return (
    <section class="card agent-result" aria-label="Result" aria-live="polite">
      <h2>
        Result <a href={hrefTo('runs', run)}>Show the run</a>
      </h2>
      <Problem text={problem.value} />
      {problem.value !== undefined ? null : !value || 'status' in value ? (
        <p>
          {value?.status === 'waiting' ? (
            <>
              It waits for {value.waiting.map(({ tool }) => tool).join(', ')}.{' '}
              <a href={hrefTo('runs', run)}>Answer it</a>
            </>
          ) : (
            <>
              <span class="spinner" /> Running…
            </>
          )}
        </p>
      ) : (
        <>
          {value.error && <Problem text={value.error.message} />}
          <dl>
            {Object.entries(value.output).map(([name, content]) => (
              <div key={name}>
                <dt>{name}</dt>
                <dd>{typeof content === 'string' ? content : JSON.stringify(content, null, 2)}</dd>
              </div>
            ))}
          </dl>
          <p class="muted small">
            Model calls: {value.iterations} · tool calls: {value.tool_calls_made} · tokens: {value.tokens_used}
          </p>
        </>
      )}
    </section>
  );
}

function AgentRuns({ name }: { readonly name: string }): JSX.Element {
  const runs = useSignal<readonly WireRun[] | undefined>(undefined);
  const problem = useSignal<string | undefined>(undefined);
  useEffect(
    () =>
      keepLooking(
        async (aborted) => {
          try {
            runs.value = (await listRuns({ label: `agent=${name}`, limit: '20' }, aborted)).data;
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
            <a href={hrefTo('runs', id)}>{oneLine(title, 100) || id}</a>
            <span class="muted small">{agoText(at, Math.max(Date.now(), now))}</span>
          </li>
        ))}
      </ul>
    </section>
  );
}
