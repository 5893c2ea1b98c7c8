import { useSignal } from '@preact/signals';
import { shortId } from '@treadle/core/describe';
import type { WireAnswer, WireRun, WireRunDetails, WireWaiting } from '@treadle/server/wire';
import type { JSX } from 'preact';
import { useId } from 'preact/hooks';
import { exactText } from '../format.ts';
import { hrefTo } from '../router.ts';
import { announce } from '../shell/announce.tsx';
import { callSummary } from '../shell/asked-call.ts';
import { CallFacts } from '../shell/call-facts.tsx';
import { Icon } from '../shell/icon.tsx';
import { answerRun } from './api.ts';
import { oneLine } from './texts.tsx';

interface WaitProps {
  readonly runId: string;
  readonly wait: WireWaiting;
  readonly onAnswered: (details: WireRunDetails) => void;
}

const TITLES: Readonly<Record<WireWaiting['type'], string>> = {
  approval: 'Approval needed',
  question: 'Question',
  client: 'A client has to execute this call',
  parked: 'The call continues elsewhere',
};

/** Something that a run waits for, with what is needed to answer it. */
export function WaitCard(props: WaitProps): JSX.Element {
  const { wait } = props;
  return (
    <section class="wait card" aria-label={`${TITLES[wait.type]}: ${wait.tool}`}>
      <header>
        <WaitTitle wait={wait} />
      </header>
      <WaitBody {...props} />
    </section>
  );
}

interface WaitRowProps extends Omit<WaitProps, 'runId'> {
  readonly run: WireRun;
  /** Whether it is unfolded at first. */
  readonly isOpen: boolean;
}

/** The same as one line, which can be unfolded. */
export function WaitRow({ run, isOpen, ...props }: WaitRowProps): JSX.Element {
  const { wait } = props;
  const about = wait.type === 'question' ? oneLine(wait.question.prompt, 200) : callSummary(wait.arguments);
  const title = oneLine(run.title, 90) || shortId(run.id);
  return (
    <section class="wait card" aria-label={`${TITLES[wait.type]}: ${wait.tool}`}>
      <details open={isOpen}>
        <summary>
          <WaitTitle wait={wait} />
          <span class="wait-about">
            <span class="wait-call">{exactText(about)}</span>
            <span class="muted">{title}</span>
          </span>
          <span class="chevron">
            <Icon name="chevron" size={16} />
          </span>
        </summary>
        <div class="wait-body">
          <a href={hrefTo('runs', run.id)}>{title}</a>
          <WaitBody runId={run.id} {...props} />
        </div>
      </details>
    </section>
  );
}

function WaitTitle({ wait }: { readonly wait: WireWaiting }): JSX.Element {
  return (
    <>
      <Icon name={wait.type === 'approval' ? 'shield' : wait.type === 'question' ? 'question' : 'clock'} />
      <strong>{TITLES[wait.type]}</strong>
      <code>{exactText(wait.tool)}</code>
    </>
  );
}

function WaitBody({ runId, wait, onAnswered }: WaitProps): JSX.Element {
  const isBusy = useSignal(false);
  const problem = useSignal<string | undefined>(undefined);

  async function answer(given: WireAnswer): Promise<void> {
    isBusy.value = true;
    problem.value = undefined;
    try {
      const details = await answerRun(runId, [given]);
      announce('The answer was sent.');
      onAnswered(details);
    } catch (error) {
      problem.value = error instanceof Error ? error.message : String(error);
    } finally {
      isBusy.value = false;
    }
  }

  const props = { wait, isBusy: isBusy.value, answer: (given: WireAnswer) => void answer(given) };
  return (
    <>
      {wait.type === 'question' ? (
        <p class="wait-prompt">{exactText(wait.question.prompt)}</p>
      ) : (
        <CallFacts tool={wait.tool} call={wait} />
      )}
      {wait.type === 'approval' && <ApprovalFacts wait={wait} />}
      {wait.type === 'approval' ? (
        <ApprovalButtons {...props} wait={wait} />
      ) : wait.type === 'question' ? (
        <QuestionForm {...props} wait={wait} />
      ) : (
        <ResultForm {...props} />
      )}
      {wait.expires_at !== null && <p class="muted small">Expires: {new Date(wait.expires_at).toLocaleString()}</p>}
      {problem.value !== undefined && (
        <p class="problem" role="alert">
          {problem.value}
        </p>
      )}
    </>
  );
}

type Approval = Extract<WireWaiting, { type: 'approval' }>;
type Asked = Extract<WireWaiting, { type: 'question' }>;

function ApprovalFacts({ wait }: { readonly wait: Approval }): JSX.Element | null {
  const { rule, shown, required, approvers, approved_by: by } = wait;
  const facts: readonly (readonly [string, string | undefined])[] = [
    ['Rule', rule],
    [
      'Shown by the policy',
      shown === undefined ? undefined : typeof shown === 'string' ? shown : JSON.stringify(shown, null, 2),
    ],
    ['Approvers', approvers?.join(', ')],
    ['Approved by', required > 1 ? `${by.length} of ${required} ${by.join(', ')}` : undefined],
  ];
  const known = facts.filter(([, value]) => value !== undefined);
  if (known.length === 0) return null;
  return (
    <dl class="facts">
      {known.map(([name, value]) => (
        <div key={name}>
          <dt>{name}</dt>
          <dd>{exactText(value!)}</dd>
        </div>
      ))}
    </dl>
  );
}

interface FormProps<W extends WireWaiting> {
  readonly wait: W;
  readonly isBusy: boolean;
  readonly answer: (given: WireAnswer) => void;
}

function ApprovalButtons({ wait: { effect, digest }, isBusy, answer }: FormProps<Approval>): JSX.Element {
  const reason = useSignal('');
  const decide = (approved: boolean, forRun = false): void =>
    answer({
      type: 'approval',
      effect,
      digest,
      approved,
      ...(!approved && reason.value !== '' && { reason: reason.value }),
      ...(forRun && { for_run: true }),
    });
  return (
    <div class="wait-actions">
      <button type="button" class="button primary" disabled={isBusy} onClick={() => decide(true)}>
        Approve
      </button>
      <button
        type="button"
        class="button"
        disabled={isBusy}
        onClick={() => decide(true, true)}
        title="Also later calls of the tool that touch nothing else, in this run and the rest of its conversation"
      >
        Approve for this run
      </button>
      <span class="spacer" />
      <input
        class="input wait-reason"
        placeholder="Reason for a denial"
        aria-label="Reason for a denial"
        value={reason.value}
        onInput={({ currentTarget }) => (reason.value = currentTarget.value)}
      />
      <button type="button" class="button danger" disabled={isBusy} onClick={() => decide(false)}>
        Deny
      </button>
    </div>
  );
}

function QuestionForm({ wait: { effect, question }, isBusy, answer }: FormProps<Asked>): JSX.Element {
  const text = useSignal('');
  const id = useId();
  const give = (value: unknown): void => answer({ type: 'answer', effect, value });
  if (question.choices) {
    return (
      <div class="wait-actions">
        {question.choices.map((choice) => (
          <button key={choice} type="button" class="button" disabled={isBusy} onClick={() => give(choice)}>
            {exactText(choice)}
          </button>
        ))}
      </div>
    );
  }
  return (
    <form
      class="wait-actions"
      onSubmit={(event) => {
        event.preventDefault();
        give(question.schema ? valueOf(text.value) : text.value);
      }}
    >
      <label class="sr-only" for={id}>
        Answer
      </label>
      <input
        id={id}
        class="input"
        required
        value={text.value}
        onInput={({ currentTarget }) => (text.value = currentTarget.value)}
      />
      <button type="submit" class="button primary" disabled={isBusy}>
        Answer
      </button>
    </form>
  );
}

/** An answer with a schema may be a number or an object. */
function valueOf(text: string): unknown {
  try {
    return JSON.parse(text);
  } catch {
    return text;
  }
}

function ResultForm({ wait: { effect }, isBusy, answer }: FormProps<WireWaiting>): JSX.Element {
  const text = useSignal('');
  const give = (isError: boolean): void =>
    answer({ type: 'result', effect, content: text.value, ...(isError && { is_error: true }) });
  return (
    <div class="wait-actions">
      <input
        class="input"
        placeholder="Result of the call"
        aria-label="Result of the call"
        value={text.value}
        onInput={({ currentTarget }) => (text.value = currentTarget.value)}
      />
      <button type="button" class="button primary" disabled={isBusy} onClick={() => give(false)}>
        Send as result
      </button>
      <button type="button" class="button" disabled={isBusy} onClick={() => give(true)}>
        Send as error
      </button>
    </div>
  );
}
