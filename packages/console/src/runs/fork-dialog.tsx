import { useSignal } from '@preact/signals';
import { textOf } from '@treadle/core';
import { plural } from '@treadle/core/describe';
import type { ForkBody, ForkLimits, WireForkPreview } from '@treadle/server/wire';
import type { JSX, TargetedSubmitEvent } from 'preact';
import { useEffect, useMemo } from 'preact/hooks';
import { serverInfo } from '../api/server-info.ts';
import { hrefTo, navigate } from '../router.ts';
import { Dialog } from '../shell/dialog.tsx';
import { forkRun, previewFork } from './api.ts';
import { laterWork } from './moment.ts';
import type { RunModel } from './run-model.ts';
import { oneLine } from './texts.tsx';

interface ForkProps {
  readonly id: string;
  readonly model: RunModel;
  readonly at: number;
  readonly onClose: () => void;
}

const PREVIEW_MS = 250;

/** Starts a run with the entries up to one, and with changes. Shows before what it would do. */
export function ForkDialog({ id, model, at, onClose }: ForkProps): JSX.Element {
  const state = model.stateAt(at);
  const original = useMemo(() => originalOf(model, at), [model, at]);
  const steps = useMemo(() => stepsOf(model), [model]);
  const step = useSignal('');
  const isCurrentDefinition = useSignal(false);
  const to = useSignal('');
  const instructions = useSignal(original.instructions);
  const input = useSignal(original.input);
  const results = useSignal<Readonly<Record<string, string>>>({});
  const tools = useSignal<readonly string[]>(original.tools);
  const limits = useSignal<Readonly<Record<string, string>>>({});
  const preview = useSignal<{ readonly key: string; readonly made: WireForkPreview } | undefined>(undefined);
  const problem = useSignal<string | undefined>(undefined);
  const isBusy = useSignal(false);

  const body: ForkBody = {
    ...(step.value === '' ? { at } : { step: step.value }),
    ...(isCurrentDefinition.value && { definition: 'current' as const }),
    ...(to.value !== '' && { model: to.value }),
    ...(instructions.value !== original.instructions && { instructions: instructions.value }),
    ...(input.value !== original.input && input.value !== '' && { input: input.value }),
    ...(Object.keys(results.value).length > 0 && { results: results.value }),
    ...(tools.value.length < original.tools.length && { tools: tools.value }),
    ...(Object.values(limits.value).some((value) => value !== '') && { limits: numbersIn(limits.value) }),
  };
  const key = JSON.stringify(body);
  useEffect(() => {
    const stopping = new AbortController();
    const timer = setTimeout(() => {
      previewFork(id, body, stopping.signal).then(
        (made) => {
          preview.value = { key, made };
          problem.value = undefined;
        },
        (error: unknown) => {
          if (stopping.signal.aborted) return;
          preview.value = undefined;
          problem.value = error instanceof Error ? error.message : String(error);
        },
      );
    }, PREVIEW_MS);
    return () => {
      clearTimeout(timer);
      stopping.abort();
    };
  }, [key]);

  async function start(event: TargetedSubmitEvent<HTMLFormElement>): Promise<void> {
    event.preventDefault();
    isBusy.value = true;
    try {
      const fork = await forkRun(id, body);
      onClose();
      navigate(hrefTo('runs', id, 'compare', fork.id));
    } catch (error) {
      problem.value = error instanceof Error ? error.message : String(error);
      isBusy.value = false;
    }
  }

  const edited = Object.keys(results.value);
  // Nothing starts that the user has not seen.
  const isCurrent = preview.value?.key === key;
  return (
    <Dialog title={`Fork after entry ${at}`} onClose={onClose}>
      <form class="fork" onSubmit={(event) => void start(event)}>
        <p class="muted small">A new run with the same beginning. The original does not change.</p>
        {steps.length > 0 && (
          <>
            <label class="field">
              <span>Begin with the step</span>
              <select value={step.value} onChange={({ currentTarget }) => (step.value = currentTarget.value)}>
                <option value="">What follows entry {at}</option>
                {steps.map((id) => (
                  <option key={id} value={id}>
                    {id}
                  </option>
                ))}
              </select>
            </label>
            <div class="field checks">
              <label>
                <input
                  type="checkbox"
                  checked={isCurrentDefinition.value}
                  onChange={({ currentTarget: { checked } }) => (isCurrentDefinition.value = checked)}
                />
                With the definition as it is now
              </label>
            </div>
          </>
        )}
        <label class="field">
          <span>Model</span>
          <select value={to.value} onChange={({ currentTarget }) => (to.value = currentTarget.value)}>
            <option value="">Unchanged ({state?.model})</option>
            {serverInfo.value?.models.map(({ id: name }) => (
              <option key={name} value={name}>
                {name}
              </option>
            ))}
          </select>
        </label>
        {original.input !== '' && (
          <label class="field">
            <span>Prompt</span>
            <textarea
              rows={2}
              value={input.value}
              onInput={({ currentTarget }) => (input.value = currentTarget.value)}
            />
          </label>
        )}
        <label class="field">
          <span>Instructions</span>
          <textarea
            rows={2}
            value={instructions.value}
            placeholder="None"
            onInput={({ currentTarget }) => (instructions.value = currentTarget.value)}
          />
        </label>
        {original.results.length > 0 && (
          <div class="field">
            <label for="fork-result">Tool result</label>
            <select
              id="fork-result"
              value=""
              onChange={({ currentTarget: { value } }) => {
                const found = original.results.find(({ effect }) => effect === value);
                if (found) results.value = { ...results.value, [value]: found.text };
              }}
            >
              <option value="">{edited.length === 0 ? 'All unchanged' : 'Change another one'}</option>
              {original.results
                .filter(({ effect }) => !edited.includes(effect))
                .map(({ effect, tool, text }) => (
                  <option key={effect} value={effect}>
                    {effect} {tool}: {oneLine(text, 50)}
                  </option>
                ))}
            </select>
            {edited.map((effect) => (
              <textarea
                key={effect}
                rows={2}
                aria-label={`Result of ${effect}`}
                value={results.value[effect]!}
                onInput={({ currentTarget }) => (results.value = { ...results.value, [effect]: currentTarget.value })}
              />
            ))}
          </div>
        )}
        {original.tools.length > 0 && (
          <fieldset class="field checks">
            <legend>Tools</legend>
            {original.tools.map((name) => (
              <label key={name}>
                <input
                  type="checkbox"
                  checked={tools.value.includes(name)}
                  onChange={({ currentTarget: { checked } }) => {
                    tools.value = original.tools.filter((one) => (one === name ? checked : tools.value.includes(one)));
                  }}
                />
                <code>{name}</code>
              </label>
            ))}
          </fieldset>
        )}
        <fieldset class="field limits">
          <legend>Limits</legend>
          {(['turns', 'calls', 'tokens', 'seconds'] as const).map((name) => (
            <label key={name}>
              {name}
              <input
                type="number"
                min={1}
                placeholder={String(original.limits[name] ?? 'none')}
                value={limits.value[name] ?? ''}
                onInput={({ currentTarget }) => (limits.value = { ...limits.value, [name]: currentTarget.value })}
              />
            </label>
          ))}
        </fieldset>
        <div class="fork-foot">
          <Preview model={model} preview={preview.value?.made} isCurrent={isCurrent} problem={problem.value} />
          <button
            type="submit"
            class="button primary"
            disabled={isBusy.value || problem.value !== undefined || !isCurrent}
          >
            {isBusy.value ? 'Starting…' : 'Start the fork and compare'}
          </button>
        </div>
      </form>
    </Dialog>
  );
}

interface PreviewProps {
  readonly model: RunModel;
  readonly preview: WireForkPreview | undefined;
  /** False: it is of earlier changes. */
  readonly isCurrent: boolean;
  readonly problem: string | undefined;
}

function Preview({ model, preview, isCurrent, problem }: PreviewProps): JSX.Element {
  if (problem !== undefined) {
    return (
      <p class="problem" role="alert">
        {problem}
      </p>
    );
  }
  if (!preview) return <p class="muted">Looking what the fork would do…</p>;
  const { shared, copied, performs, waiting } = preview;
  const { modelCalls, calls } = laterWork(model, shared - 1, copied);
  return (
    <section class="preview" aria-label="What the fork does" aria-live="polite" aria-busy={!isCurrent} tabIndex={0}>
      <h3>What the fork does {!isCurrent && <span class="spinner" />}</h3>
      <ul>
        <li>
          It shares {plural(shared, 'entry', 'entries')} with the original
          {copied.length > 0 && `, and takes over ${plural(copied.length, 'later result')}, so that nothing runs twice`}
          .
        </li>
        {performs.map(({ type, effect, tool }) => (
          <li key={effect}>
            {type === 'call-model'
              ? 'It calls the model again'
              : tool === undefined
                ? `It performs ${type}`
                : `It runs ${tool} again`}{' '}
            (<code>{effect}</code>).
          </li>
        ))}
        {waiting.map(({ effect, tool }) => (
          <li key={effect}>
            It waits for an answer about <code>{tool}</code>.
          </li>
        ))}
        {performs.length === 0 && waiting.length === 0 && <li>It has nothing left to do.</li>}
        {modelCalls + calls.length > 0 && (
          <li>
            What followed in the original is decided anew: {plural(modelCalls, 'model call')}
            {calls.map(({ tool, effect, count }) => (
              <span key={tool}>
                , {count} × <code>{tool}</code>
                {effect === 'once' && <strong> (acts each time)</strong>}
              </span>
            ))}
            .
          </li>
        )}
      </ul>
    </section>
  );
}

/** The ids of the steps of a workflow. */
function stepsOf(model: RunModel): readonly string[] {
  const first = model.entries[0]?.event;
  const definition = first?.type === 'run-started' ? first.definition : undefined;
  const { steps = [] } = ((definition ?? {}) as { readonly workflow?: WorkflowSteps }).workflow ?? {};
  return steps.map(({ id }) => id);
}

interface WorkflowSteps {
  readonly steps?: readonly { readonly id: string }[];
}

interface Original {
  readonly instructions: string;
  readonly input: string;
  readonly tools: readonly string[];
  readonly results: readonly { readonly effect: string; readonly tool: string; readonly text: string }[];
  readonly limits: Readonly<Record<string, number | undefined>>;
}

/** What the run has at an entry, that a fork can change. */
function originalOf(model: RunModel, at: number): Original {
  const state = model.stateAt(at);
  const results: { effect: string; tool: string; text: string }[] = [];
  let input = '';
  for (let seq = 0; seq <= at; seq++) {
    const { event } = model.entries[seq]!;
    if (event.type === 'run-started') {
      const said = event.input.findLast((message) => message.role === 'user');
      if (said) input = textOf(said.content);
    } else if (event.type === 'input-added') input = textOf(event.messages.at(-1)!.content);
    else if (event.type === 'tool-settled' && event.result.type === 'result') {
      const phase = model.shown[seq]!.states?.before.phase;
      const slot = phase && 'slots' in phase ? phase.slots?.[Number(event.effect.split('.').at(-1))] : undefined;
      results.push({ effect: event.effect, tool: slot?.call.name ?? '', text: textOf(event.result.content) });
    } else if (event.type === 'client-result-given') {
      results.push({ effect: event.effect, tool: '', text: textOf(event.content) });
    }
  }
  const durationMs = state?.rules.limits.durationMs;
  return {
    instructions: state?.instructions ?? '',
    input,
    tools: (state?.tools ?? []).map(({ name }) => name).filter((name) => !name.startsWith('read_result')),
    // The latest are changed most often.
    results: results.toReversed().slice(0, 100),
    limits: {
      turns: state?.rules.maxTurns,
      calls: state?.rules.limits.calls,
      tokens: state?.rules.limits.tokens,
      seconds: durationMs === undefined ? undefined : durationMs / 1_000,
    },
  };
}

function numbersIn(texts: Readonly<Record<string, string>>): ForkLimits {
  const given = Object.entries(texts).filter(([, text]) => text !== '');
  return Object.fromEntries(
    given.map(([name, text]) =>
      name === 'seconds' ? ['duration_ms', Math.round(Number(text) * 1_000)] : [name, Number(text)],
    ),
  );
}
