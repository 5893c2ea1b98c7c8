import { useSignal } from '@preact/signals';
import type { Message, ModelRequest, ToolResult } from '@treadle/core';
import { durationText, entryLines, usageText } from '@treadle/core/describe';
import type { ComponentChildren, JSX } from 'preact';
import { useState } from 'preact/hooks';
import type { Moment, OpenEffect } from './moment.ts';
import type { RunModel } from './run-model.ts';
import { numberText, prettyJson } from '../format.ts';
import { costText, Exact } from './texts.tsx';

const TABS = ['Conversation', 'Request', 'Reply', 'State', 'Event'] as const;
type MomentTab = (typeof TABS)[number];

interface PanelProps {
  readonly model: RunModel;
  readonly moment: Moment | undefined;
  readonly seq: number;
  readonly onSeek: (seq: number) => void;
}

/** The exact state of the run after an entry. */
export function MomentPanel(props: PanelProps): JSX.Element {
  const tab = useSignal<MomentTab>('Conversation');
  const { model, moment, seq } = props;
  function onKeyDown(event: KeyboardEvent): void {
    const step = event.key === 'ArrowRight' ? 1 : event.key === 'ArrowLeft' ? -1 : 0;
    if (step === 0) return;
    event.preventDefault();
    event.stopPropagation();
    tab.value = TABS[(TABS.indexOf(tab.value) + step + TABS.length) % TABS.length]!;
    document.getElementById(`tab-${tab.value}`)?.focus();
  }
  return (
    <section class="moment" aria-label={`State after entry ${seq}`}>
      <div class="tabs" role="tablist" aria-label="State">
        {TABS.map((name) => (
          <button
            key={name}
            id={`tab-${name}`}
            type="button"
            role="tab"
            aria-selected={tab.value === name}
            aria-controls="moment-tab"
            tabIndex={tab.value === name ? 0 : -1}
            onClick={() => (tab.value = name)}
            onKeyDown={onKeyDown}
          >
            {name}
          </button>
        ))}
      </div>
      <div id="moment-tab" class="moment-body" role="tabpanel" aria-labelledby={`tab-${tab.value}`} tabIndex={0}>
        {tab.value === 'Event' ? (
          <EventTab model={model} seq={seq} />
        ) : moment ? (
          <StateTab tab={tab.value} {...props} moment={moment} />
        ) : (
          <p class="problem">This entry has no state. {model.problem}</p>
        )}
      </div>
    </section>
  );
}

function StateTab({
  tab,
  moment,
  onSeek,
}: PanelProps & { readonly tab: MomentTab; readonly moment: Moment }): JSX.Element {
  switch (tab) {
    case 'Conversation':
      return <ConversationTab moment={moment} />;
    case 'Request':
      return <RequestTab moment={moment} onSeek={onSeek} />;
    case 'Reply':
      return <ReplyTab moment={moment} onSeek={onSeek} />;
    default:
      return <FactsTab moment={moment} onSeek={onSeek} />;
  }
}

/** The messages that are shown at first, from the end. */
const SHOWN_MESSAGES = 12;

function Messages({ messages }: { readonly messages: readonly Message[] }): JSX.Element {
  const [count, setCount] = useState(SHOWN_MESSAGES);
  const hidden = Math.max(0, messages.length - count);
  return (
    <>
      {hidden > 0 && (
        <button type="button" class="button" onClick={() => setCount(count + 200)}>
          Show {numberText(Math.min(200, hidden))} of {numberText(hidden)} earlier messages
        </button>
      )}
      {messages.slice(hidden).map((message, index) => (
        <MessageView key={hidden + index} message={message} />
      ))}
    </>
  );
}

function ConversationTab({ moment: { conversation, settled, pending } }: { readonly moment: Moment }): JSX.Element {
  return (
    <div class="moment-messages">
      <Messages messages={conversation} />
      {settled.length > 0 && (
        <article class="moment-message" data-role="tool">
          <p class="role">Results of this turn so far</p>
          {settled.map((result) => (
            <ResultView key={result.callId} result={result} />
          ))}
        </article>
      )}
      {pending.map((message, index) => (
        <article key={index} class="moment-message" data-role="user">
          <p class="role">User, for the next turn</p>
          <MessageParts message={message} />
        </article>
      ))}
    </div>
  );
}

const ROLES: Readonly<Record<Message['role'], string>> = { user: 'User', assistant: 'Model', tool: 'Results' };

function MessageView({ message }: { readonly message: Message }): JSX.Element {
  return (
    <article class="moment-message" data-role={message.role}>
      <p class="role">{ROLES[message.role]}</p>
      <MessageParts message={message} />
    </article>
  );
}

function MessageParts({ message }: { readonly message: Message }): JSX.Element {
  return (
    <>
      {message.content.map((part, index) => {
        switch (part.type) {
          case 'text':
            return (
              <p key={index} class="said">
                {part.text}
              </p>
            );
          case 'reasoning':
            return (
              <details key={index} class="moment-reasoning">
                <summary>Reasoning</summary>
                <p class="said">{part.text}</p>
              </details>
            );
          case 'tool-call':
            return (
              <div key={index} class="moment-call">
                <code class="moment-call-name">{part.name}</code>
                <Exact text={prettyJson(part.arguments)} label={`Arguments of ${part.name}`} />
              </div>
            );
          case 'tool-result':
            return <ResultView key={index} result={part} />;
          default:
            return (
              <p key={index} class="muted">
                {part.type === 'image' ? 'An image' : 'A file'}, {part.mediaType}
              </p>
            );
        }
      })}
    </>
  );
}

function ResultView({ result }: { readonly result: ToolResult }): JSX.Element {
  const { name, isError, errorType, content } = result;
  const text = content.map((block) => ('text' in block ? block.text : `[${block.type} ${block.mediaType}]`)).join('\n');
  return (
    <div class="moment-call">
      <code class="moment-call-name">{name}</code> {isError && <span class="chip bad">{errorType ?? 'error'}</span>}
      <Exact text={text} label={`Result of ${name}`} />
    </div>
  );
}

interface TabProps {
  readonly moment: Moment;
  readonly onSeek: (seq: number) => void;
}

function RequestTab({ moment: { request: sent }, onSeek }: TabProps): JSX.Element {
  if (!sent) return <p class="muted">No request was sent to the model yet.</p>;
  const { request, model, seq } = sent;
  const { messages, tools, instructions, ...others } = request;
  return (
    <div class="moment-messages">
      <p class="muted small">
        To <strong>{model}</strong> with <SeekLink seq={seq} onSeek={onSeek} />: {numberText(messages.length)} messages,{' '}
        {numberText(tools.length)} tools.
      </p>
      {instructions !== undefined && (
        <Fold title="Instructions" isOpen>
          <Exact text={instructions} label="Instructions" />
        </Fold>
      )}
      <Fold title={`Tools (${tools.length})`}>
        <ToolList tools={tools} />
      </Fold>
      <Fold title="Settings">
        <Exact text={JSON.stringify(others, null, 2)} label="Settings" />
      </Fold>
      <Messages messages={messages} />
    </div>
  );
}

function ToolList({ tools }: { readonly tools: ModelRequest['tools'] }): JSX.Element {
  return (
    <dl class="facts">
      {tools.map(({ name, description }) => (
        <div key={name}>
          <dt>
            <code>{name}</code>
          </dt>
          <dd>{description}</dd>
        </div>
      ))}
    </dl>
  );
}

function ReplyTab({ moment: { request, reply }, onSeek }: TabProps): JSX.Element {
  if (!request) return <p class="muted">No request was sent to the model yet.</p>;
  if (!reply) {
    return (
      <p class="muted">
        The model has not replied to the request of <SeekLink seq={request.seq} onSeek={onSeek} /> yet.
      </p>
    );
  }
  const { seq, event } = reply;
  const attempts = event.attempts ?? [];
  return (
    <div class="moment-messages">
      <p class="muted small">
        <SeekLink seq={seq} onSeek={onSeek} />
        {event.type === 'model-replied' && ` by ${event.model}, ${usageText(event.usage)}, finish: ${event.finish}`}
      </p>
      {attempts.length > 1 && (
        <ol class="attempts">
          {attempts.map((attempt, index) => (
            <li key={index}>
              {attempt.fallback ?? attempt.model}, {durationText(attempt.ms)}
              {attempt.error && <span class="chip bad">{attempt.error.code}</span>} {attempt.error?.message}
            </li>
          ))}
        </ol>
      )}
      {event.type === 'model-replied' ? (
        <MessageView message={{ role: 'assistant', content: event.content }} />
      ) : (
        <p class="problem">
          {event.error.code}: {event.error.message}
        </p>
      )}
    </div>
  );
}

function FactsTab({ moment, onSeek }: TabProps): JSX.Element {
  const { outstanding, waiting, verdicts, judgedTurn, limits, usage, activeMs, status } = moment;
  return (
    <div class="state">
      <section>
        <h2>Outstanding effects</h2>
        {outstanding.length === 0 && <p class="muted">None: the run is {status}.</p>}
        <ul class="plain-list">
          {outstanding.map((open) => (
            <li key={open.effect.id}>
              <code>{open.effect.id}</code> {effectText(open, waiting)} <span class="muted">since</span>{' '}
              <SeekLink seq={open.since} onSeek={onSeek} />
            </li>
          ))}
        </ul>
      </section>
      <section>
        <h2>Verdicts of turn {judgedTurn}</h2>
        {verdicts.length === 0 && <p class="muted">No call of this turn was judged.</p>}
        <ul class="plain-list">
          {verdicts.map(({ call, verdict, seq, approvals }) => (
            <li key={call.id}>
              <span class={`chip ${VERDICT_CHIPS[verdict.type]}`}>{verdict.type}</span> <code>{call.name}</code>{' '}
              {'reason' in verdict && verdict.reason} <SeekLink seq={seq} onSeek={onSeek} />
              {verdict.rule !== undefined && (
                <div class="small">
                  Decided by the rule <code>{verdict.rule}</code>
                </div>
              )}
              {approvals.map(({ by, approved, reason, at }) => (
                <div key={at} class="small">
                  {approved ? 'Approved' : 'Denied'}
                  {by !== undefined && ` by ${by}`}
                  {reason !== undefined && `: ${reason}`}
                </div>
              ))}
            </li>
          ))}
        </ul>
      </section>
      <section>
        <h2>Limits used</h2>
        <dl class="meters">
          {limits.map(({ name, used, limit }) => (
            <div key={name}>
              <dt>{name}</dt>
              <dd>
                <meter min={0} max={limit} value={Math.min(used, limit)} aria-label={name} />{' '}
                {name === 'duration'
                  ? `${durationText(used)} of ${durationText(limit)}`
                  : name === 'cost'
                    ? `${costText(used)} of ${costText(limit)}`
                    : `${numberText(used)} of ${numberText(limit)}`}
              </dd>
            </div>
          ))}
        </dl>
      </section>
      <section>
        <h2>Cost so far</h2>
        <p>
          {costText(usage.cost) || 'No price is known'} <span class="muted">· {usageText({ ...usage, cost: 0 })}</span>
        </p>
        <p class="muted">Active for {durationText(activeMs)}</p>
      </section>
    </div>
  );
}

const VERDICT_CHIPS = { allow: 'good', deny: 'bad', ask: 'warn' } as const;

function effectText({ effect, waits }: OpenEffect, waiting: Moment['waiting']): string {
  if (!('call' in effect)) return effect.type;
  const { id, name } = effect.call;
  const wait = waiting.find(({ call }) => call.id === id);
  if (!waits || !wait) return `${waits ? 'waits:' : 'runs'} ${name}`;
  switch (wait.type) {
    case 'approval':
      return `waits for an approval: ${name}`;
    case 'question':
      return `waits for an answer: ${name}`;
    case 'client':
      return `waits for a result from outside: ${name}`;
    case 'parked':
      return `is parked on ${wait.on}: ${name}`;
    default:
      return wait satisfies never;
  }
}

function EventTab({ model, seq }: { readonly model: RunModel; readonly seq: number }): JSX.Element {
  const shown = model.shown[seq];
  if (!shown) return <p class="muted">There is no entry {seq}.</p>;
  const { event, ...entry } = shown.entry;
  return (
    <div class="moment-messages">
      <ul class="plain-list lines">
        {entryLines(shown).map(({ head, body, note, tone }, index) => (
          <li key={index} class={`tone-${tone}`}>
            <strong>{head}</strong> {note !== undefined && <span class="muted">({note})</span>} {body}
          </li>
        ))}
      </ul>
      <Exact text={JSON.stringify({ ...entry, event }, null, 2)} label="Entry as JSON" />
    </div>
  );
}

function SeekLink({ seq, onSeek }: { readonly seq: number; readonly onSeek: (seq: number) => void }): JSX.Element {
  return (
    <button type="button" class="link-button" onClick={() => onSeek(seq)}>
      entry {seq}
    </button>
  );
}

function Fold({
  title,
  isOpen,
  children,
}: {
  readonly title: string;
  readonly isOpen?: boolean;
  readonly children: ComponentChildren;
}): JSX.Element {
  return (
    <details class="fold" open={isOpen}>
      <summary>{title}</summary>
      {children}
    </details>
  );
}
