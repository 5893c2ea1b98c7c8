import { useSignal, type Signal } from '@preact/signals';
import type { WireDevice, WireDeviceCallResult, WireDeviceList, WireDeviceTool } from '@treadle/server/wire';
import type { JSX } from 'preact';
import { useEffect } from 'preact/hooks';
import { request } from '../api/client.ts';
import { hrefTo } from '../router.ts';
import type { ViewProps } from '../routes.ts';
import { agoText } from '../runs/texts.tsx';
import { announce } from '../shell/announce.tsx';
import { Field } from '../shell/fields.tsx';
import { fieldsOf, inputsFrom } from '../shell/form.ts';
import { Icon } from '../shell/icon.tsx';
import './devices.css';

/** `#/devices` and `#/devices/<name>`. */
export function View({ segments: [name] }: ViewProps): JSX.Element {
  return name === undefined ? <DeviceList /> : <DeviceView key={name} name={name} />;
}

const POLL_MS = 2_000;
const RESULT_MS = 300;
const MEASURE_MS = 10_000;

const pathOf = (name: string, rest = ''): string => `/v1/devices/${encodeURIComponent(name)}${rest}`;

/** Asks at once, and again and again while the tab is shown. */
function usePolled<T>(path: string, ms: number, isDone: (value: T) => boolean = () => false): Polled<T> {
  const value = useSignal<T | undefined>(undefined);
  const problem = useSignal<string | undefined>(undefined);
  useEffect(() => {
    const stop = new AbortController();
    let timer: ReturnType<typeof setTimeout> | undefined;
    async function look(): Promise<void> {
      if (!document.hidden) {
        try {
          value.value = await request<T>('GET', path, { signal: stop.signal });
          problem.value = undefined;
        } catch (error) {
          if (!stop.signal.aborted) problem.value = (error as Error).message;
        }
      }
      const isOver = value.value !== undefined && isDone(value.value);
      if (!stop.signal.aborted && !isOver) timer = setTimeout(() => void look(), ms);
    }
    void look();
    return () => {
      clearTimeout(timer);
      stop.abort();
    };
  }, [path]);
  return { value, problem };
}

interface Polled<T> {
  readonly value: Signal<T | undefined>;
  readonly problem: Signal<string | undefined>;
}

function DeviceList(): JSX.Element {
  const { value, problem } = usePolled<WireDeviceList>('/v1/devices', POLL_MS);
  const devices = value.value?.data;
  return (
    <div class="devices-page">
      <h1>Devices</h1>
      <Problem text={problem.value} />
      {devices?.length === 0 && (
        <div class="empty">
          <Icon name="device" size={36} />
          <h2>No devices yet</h2>
          <p class="muted">
            A device runs tools for this server. To try one, start the server with{' '}
            <code>treadle serve --demo-device</code>. To add your own, name it in <code>[edge.devices.NAME]</code> of
            treadle.toml, and run <code>treadle edge</code> on it.
          </p>
        </div>
      )}
      <ul class="device-cards">
        {devices?.map((device) => (
          <li key={device.name} class="card device-card">
            <a href={hrefTo('devices', device.name)}>{device.name}</a>
            <State device={device} />
            <p class="muted">{summaryOf(device)}</p>
          </li>
        ))}
      </ul>
    </div>
  );
}

function summaryOf({ platform, tools, latency_ms: latency }: WireDevice): string {
  const facts = [
    platform,
    `${tools.length} ${tools.length === 1 ? 'tool' : 'tools'}`,
    latency === null ? null : msText(latency),
  ];
  return facts.filter((fact) => fact !== null).join(' · ');
}

const STATES = {
  online: 'chip good',
  draining: 'chip warn',
  offline: 'chip bad',
  unknown: 'chip',
} as const;

function State({ device: { status } }: { readonly device: WireDevice }): JSX.Element {
  return <span class={STATES[status]}>{status === 'unknown' ? 'not connected' : status}</span>;
}

function Problem({ text }: { readonly text: string | undefined }): JSX.Element | null {
  if (text === undefined) return null;
  return (
    <p class="problem" role="alert">
      {text}
    </p>
  );
}

function DeviceView({ name }: { readonly name: string }): JSX.Element {
  const { value, problem } = usePolled<WireDevice>(pathOf(name), POLL_MS);
  const device = value.value;
  return (
    <div class="devices-page">
      <header class="device-head">
        <a class="muted small" href={hrefTo('devices')}>
          Devices
        </a>
        <h1>{name}</h1>
        {device && (
          <p>
            <State device={device} /> <span class="muted">{sinceText(device)}</span>{' '}
            <a href={`${hrefTo('chat')}?device=${encodeURIComponent(name)}`}>Chat with its tools</a>
          </p>
        )}
      </header>
      <Problem text={problem.value} />
      {device && <Facts device={device} />}
      {device && <Try device={device} />}
      {device && <LastCalls device={device} />}
    </div>
  );
}

function sinceText({ since, reason }: WireDevice): string {
  const facts = [since === null ? null : `changed ${agoText(since * 1000)}`, reason];
  return facts.filter((fact) => fact !== null).join(' · ');
}

function Facts({ device }: { readonly device: WireDevice }): JSX.Element {
  const { platform, capabilities, skills, limits, load, latency_ms: latency } = device;
  const problem = useSignal<string | undefined>(undefined);
  const measured = useSignal<WireDevice | undefined>(undefined);
  const measure = async (): Promise<void> => {
    measured.value = await request<WireDevice>('POST', pathOf(device.name, '/ping'), { body: {} });
  };
  async function ping(): Promise<void> {
    problem.value = undefined;
    try {
      await measure();
      announce(`The device answered in ${msText(measured.value?.latency_ms ?? 0)}.`);
    } catch (error) {
      problem.value = (error as Error).message;
    }
  }
  // What was asked for later is newer than what was measured.
  useEffect(() => void (measured.value = undefined), [device]);
  // The server knows the load of the last measurement.
  useEffect(() => {
    // One of the original design has no load, and may not know the question.
    if (device.status !== 'online' || device.is_plain) return undefined;
    const look = (): void => void (document.hidden || measure().catch(() => {}));
    look();
    const timer = setInterval(look, MEASURE_MS);
    return () => clearInterval(timer);
  }, [device.name, device.status, device.is_plain]);
  const shown = { latency: measured.value?.latency_ms ?? latency, load: measured.value?.load ?? load };
  return (
    <section class="card device-facts" aria-label="State">
      <dl>
        <Fact name="Latency">{shown.latency === null ? 'not measured' : msText(shown.latency)}</Fact>
        <Fact name="Load">
          {shown.load === null
            ? 'not known'
            : `${shown.load.running ?? 0}${limits.parallel === null ? '' : ` of ${limits.parallel}`} running, ${shown.load.queued ?? 0} waiting`}
        </Fact>
        <Fact name="Memory">
          {shown.load?.rss_bytes == null ? 'not known' : `${Math.round(shown.load.rss_bytes / 1_000_000)} MB`}
        </Fact>
        <Fact name="Platform">{platform ?? 'not known'}</Fact>
        <Fact name="Capabilities">{capabilities.join(', ') || 'none'}</Fact>
        <Fact name="Packages">
          {skills.map(({ name, version }) => (version === null ? name : `${name} ${version}`)).join(', ') || 'none'}
        </Fact>
      </dl>
      <Problem text={problem.value} />
      <button type="button" class="button small-button" onClick={() => void ping()}>
        Measure
      </button>
    </section>
  );
}

function Fact({ name, children }: { readonly name: string; readonly children: string }): JSX.Element {
  return (
    <div>
      <dt>{name}</dt>
      <dd>{children}</dd>
    </div>
  );
}

function msText(ms: number): string {
  return `${ms < 10 ? ms.toFixed(1) : Math.round(ms)} ms`;
}

/** A form for one call of a tool. The call is a run, so that it goes on if the page is closed. */
function Try({ device }: { readonly device: WireDevice }): JSX.Element {
  const { name, tools } = device;
  const chosen = useSignal(tools[0]?.name);
  const started = useSignal<string | undefined>(undefined);
  const tool = tools.find((one) => one.name === chosen.value) ?? tools[0];
  return (
    <section aria-label="Try a tool">
      <h2>Try a tool</h2>
      {!tool && <p class="muted">Its tools are not known.</p>}
      {tool && (
        <div class="card device-try">
          <div class="form-field">
            <label for="device-tool">Tool</label>
            <select
              id="device-tool"
              class="input"
              value={tool.name}
              onChange={(event) => (chosen.value = event.currentTarget.value)}
            >
              {tools.map((one) => (
                <option key={one.name} value={one.name}>
                  {one.name}
                </option>
              ))}
            </select>
          </div>
          <p class="muted">{tool.description}</p>
          <CallForm key={tool.name} device={name} tool={tool} started={started} />
        </div>
      )}
      {started.value !== undefined && <Result key={started.value} device={name} run={started.value} />}
    </section>
  );
}

interface CallFormProps {
  readonly device: string;
  readonly tool: WireDeviceTool;
  /** The run of the last call. */
  readonly started: Signal<string | undefined>;
}

function CallForm({ device, tool, started }: CallFormProps): JSX.Element {
  const fields = fieldsOf(tool.parameters);
  const problem = useSignal<string | undefined>(undefined);
  const isSending = useSignal(false);
  async function call(form: HTMLFormElement): Promise<void> {
    const read = inputsFrom(fields, new FormData(form));
    problem.value = read.problem;
    if (read.problem !== undefined) return;
    isSending.value = true;
    try {
      const body = { tool: tool.name, arguments: read.inputs };
      started.value = (await request<WireDeviceCallResult>('POST', pathOf(device, '/calls'), { body })).run_id;
      announce('The call has started.');
    } catch (error) {
      problem.value = (error as Error).message;
    } finally {
      isSending.value = false;
    }
  }
  return (
    <form
      class="device-form"
      aria-label={`Arguments of ${tool.name}`}
      onSubmit={(event) => {
        event.preventDefault();
        void call(event.currentTarget);
      }}
    >
      {fields.map((field) => (
        <Field key={field.name} field={field} />
      ))}
      <Problem text={problem.value} />
      <button type="submit" class="button primary" disabled={isSending.value}>
        Call
      </button>
    </form>
  );
}

function Result({ device, run }: { readonly device: string; readonly run: string }): JSX.Element {
  const path = pathOf(device, `/calls/${encodeURIComponent(run)}`);
  const { value, problem } = usePolled<WireDeviceCallResult>(path, RESULT_MS, ({ status }) => status === 'ended');
  const result = value.value;
  return (
    <section class="card device-result" aria-label="Result" aria-live="polite">
      <h3>
        Result <a href={hrefTo('runs', run)}>Show the run</a>
      </h3>
      <Problem text={problem.value} />
      {result?.status === 'ended' ? (
        <>
          {result.is_error && <p class="problem">{result.error_type ?? 'error'}</p>}
          {result.content.map((block, index) => (
            <Block key={index} block={block} />
          ))}
        </>
      ) : result?.status === 'waiting' ? (
        <p>
          {result.waiting.some(({ type }) => type === 'approval') ? (
            <>
              It needs an approval. <a href={hrefTo('runs', run)}>Answer it</a>
            </>
          ) : (
            'It waits until the device is back.'
          )}
        </p>
      ) : (
        <p>
          <span class="spinner" /> Running…
        </p>
      )}
    </section>
  );
}

function Block({ block }: { readonly block: WireDeviceCallResult['content'][number] }): JSX.Element {
  if (block.type === 'text' || block.type === 'error')
    return (
      <pre tabIndex={0} aria-label="Output">
        {block.text}
      </pre>
    );
  const { source, mediaType, name = mediaType } = block;
  if (block.type === 'image' && source.type === 'data' && /^image\/(png|jpeg|gif|webp)$/.test(mediaType))
    return <img alt={name} src={`data:${mediaType};base64,${source.data}`} />;
  return <p class="muted">A file: {name}</p>;
}

function LastCalls({ device: { last_calls: calls } }: { readonly device: WireDevice }): JSX.Element {
  return (
    <section aria-label="Last calls">
      <h2>Last calls</h2>
      {calls.length === 0 && <p class="muted">None since the server was started.</p>}
      <ul class="device-calls">
        {calls.map(({ request_id: id, tool, at, elapsed_ms: elapsed, result }) => (
          <li key={id}>
            <span class={result === null ? 'chip' : result === 'success' ? 'chip good' : 'chip bad'}>
              {result ?? 'running'}
            </span>
            <span>{tool}</span>
            <span class="muted small">
              {agoText(at * 1000)}
              {elapsed === null ? '' : ` · ${msText(elapsed)}`}
            </span>
          </li>
        ))}
      </ul>
    </section>
  );
}
