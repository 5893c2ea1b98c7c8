import { useSignal } from '@preact/signals';
import type { ApprovalRequest, AskRequest, ChatAnswer, QuestionRequest } from '@treadle/server/wire';
import type { JSX } from 'preact';
import { Icon } from '../shell/icon.tsx';
import { CallFacts } from '../shell/call-facts.tsx';
import { exactText } from '../format.ts';
import { report } from './conversation.ts';

/** What waits for the user: a call that has to be approved, or a question of a tool. */

type OnAnswer = (answer: ChatAnswer) => Promise<void>;

export function AskCard({ ask, onAnswer }: { readonly ask: AskRequest; readonly onAnswer: OnAnswer }): JSX.Element {
  async function answer(given: ChatAnswer): Promise<void> {
    await onAnswer(given);
    const { activeElement: focused } = document;
    // The button that had the focus is gone. Not to the next one: a second Enter would answer what nobody has read.
    if (!focused || focused === document.body || focused.matches(':disabled'))
      document.querySelector<HTMLElement>('.messages')?.focus({ preventScroll: true });
  }
  return 'digest' in ask ? <ApprovalCard ask={ask} onAnswer={answer} /> : <QuestionCard ask={ask} onAnswer={answer} />;
}

function ApprovalCard({ ask, onAnswer }: { readonly ask: ApprovalRequest; readonly onAnswer: OnAnswer }): JSX.Element {
  const isBusy = useSignal(false);
  const isDenying = useSignal(false);
  const reason = useSignal('');

  async function decide(approved: boolean, forRun = false): Promise<void> {
    isBusy.value = true;
    const why = reason.value.trim();
    try {
      const optional = { ...(!approved && why && { reason: why }), ...(forRun && { for_run: true }) };
      await onAnswer({ id: ask.id, approved, digest: ask.digest, ...optional });
    } catch (error) {
      report(error);
    } finally {
      isBusy.value = false;
    }
  }

  return (
    <section class="ask" aria-label={`Approval of ${ask.tool}`}>
      <h3 class="ask-title">
        <Icon name="shield" />
        <span>
          Allow <code>{exactText(ask.tool)}</code>?
        </span>
      </h3>
      <CallFacts tool={ask.tool} call={ask} />
      {ask.shown !== undefined && (
        <pre class="arguments" tabIndex={0} role="group" aria-label="Shown by the policy">
          {exactText(typeof ask.shown === 'string' ? ask.shown : JSON.stringify(ask.shown, undefined, 2))}
        </pre>
      )}
      {ask.required !== undefined && (
        <p class="muted small">
          {ask.required} people have to approve it. So far: {exactText(ask.approved_by?.join(', ') ?? '') || 'nobody'}.
        </p>
      )}
      {isDenying.value && (
        <label class="field">
          <span>Why not? The model gets this (optional)</span>
          <input
            value={reason.value}
            maxLength={2_000}
            onInput={({ currentTarget }) => (reason.value = currentTarget.value)}
            onKeyDown={({ key, isComposing }) => key === 'Enter' && !isComposing && !isBusy.value && void decide(false)}
            ref={(input) => input?.focus()}
          />
        </label>
      )}
      <div class="ask-actions">
        {!isDenying.value && (
          <>
            <button type="button" class="button primary" disabled={isBusy.value} onClick={() => void decide(true)}>
              Approve
            </button>
            <button
              type="button"
              class="button"
              disabled={isBusy.value}
              onClick={() => void decide(true, true)}
              title="Also later calls of the tool that touch nothing else, in the rest of the conversation"
            >
              Approve for this chat
            </button>
          </>
        )}
        <button
          type="button"
          class="button danger"
          disabled={isBusy.value}
          onClick={() => (isDenying.value ? void decide(false) : (isDenying.value = true))}
        >
          {isDenying.value ? 'Deny the call' : 'Deny'}
        </button>
        {isDenying.value && (
          <button type="button" class="button" onClick={() => (isDenying.value = false)}>
            Back
          </button>
        )}
        <Deadline at={ask.expires_at} />
      </div>
    </section>
  );
}

const SOON_MS = 24 * 3_600_000;

function Deadline({ at }: { readonly at: number | null }): JSX.Element | null {
  if (at === null || at - Date.now() > SOON_MS) return null;
  const date = new Date(at);
  const isToday = date.toDateString() === new Date().toDateString();
  return <span class="muted small">Expires: {isToday ? date.toLocaleTimeString() : date.toLocaleString()}</span>;
}

function QuestionCard({ ask, onAnswer }: { readonly ask: QuestionRequest; readonly onAnswer: OnAnswer }): JSX.Element {
  const isBusy = useSignal(false);
  const text = useSignal('');

  async function answer(value: unknown): Promise<void> {
    isBusy.value = true;
    try {
      await onAnswer({ id: ask.id, answer: value });
    } catch (error) {
      report(error);
    } finally {
      isBusy.value = false;
    }
  }

  const choices = ask.choices ?? [];
  return (
    <section class="ask" aria-label={`Question of ${ask.tool}`}>
      <h3 class="ask-title">
        <Icon name="question" />
        <span>{exactText(ask.prompt)}</span>
      </h3>
      {choices.length > 0 ? (
        <div class="ask-actions">
          {choices.map((choice) => (
            <button
              key={choice}
              type="button"
              class="button"
              disabled={isBusy.value}
              onClick={() => void answer(choice)}
            >
              {exactText(choice)}
            </button>
          ))}
        </div>
      ) : (
        <form
          class="ask-form"
          onSubmit={(event) => {
            event.preventDefault();
            void answer(valueOf(text.value, ask.schema));
          }}
        >
          <label class="field">
            <span>{ask.schema ? 'Your answer (JSON, or a text)' : 'Your answer'}</span>
            <textarea
              rows={2}
              required
              value={text.value}
              onInput={({ currentTarget }) => (text.value = currentTarget.value)}
            />
          </label>
          {ask.schema && <pre class="arguments">{JSON.stringify(ask.schema, undefined, 2)}</pre>}
          <div class="ask-actions">
            <button type="submit" class="button primary" disabled={isBusy.value || text.value.trim() === ''}>
              Answer
            </button>
            <Deadline at={ask.expires_at} />
          </div>
        </form>
      )}
    </section>
  );
}

/** With a schema the answer may be any JSON. */
function valueOf(text: string, schema: object | null): unknown {
  if (!schema || ('type' in schema && schema.type === 'string')) return text;
  try {
    return JSON.parse(text) as unknown;
  } catch {
    return text;
  }
}
