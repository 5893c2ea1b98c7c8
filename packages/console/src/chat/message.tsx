import { useComputed, useSignal, type ReadonlySignal } from '@preact/signals';
import { costText, durationText } from '@treadle/core/describe';
import type { AskRequest, CallDecision, CallResult } from '@treadle/server/wire';
import type { JSX, RefObject } from 'preact';
import { useEffect, useLayoutEffect, useRef } from 'preact/hooks';
import { countText, exactText, sizeText } from '../format.ts';
import { Markdown } from '../markdown/markdown.tsx';
import { hrefTo, navigate } from '../router.ts';
import { callSummary } from '../shell/asked-call.ts';
import { CallArguments } from '../shell/call-facts.tsx';
import { CopyButton } from '../shell/copy.tsx';
import { Dialog } from '../shell/dialog.tsx';
import { useFollowedEnd } from '../shell/follow-end.ts';
import { Icon } from '../shell/icon.tsx';
import { attachmentBlob, entryOf } from './api.ts';
import { AskCard } from './asks.tsx';
import {
  isOpen,
  report,
  shownAttachment,
  type AnswerMessage,
  type CallPart,
  type Conversation,
  type ShownAttachment,
  type TextPart,
  type UserMessage,
} from './conversation.ts';
import { pixelsIn } from './image-size.ts';

export interface UserViewProps {
  readonly message: UserMessage;
  readonly conversation: string | undefined;
  readonly canEdit: boolean;
  /** Rejects if the message was not sent. */
  readonly onEdit: (text: string) => Promise<void>;
}

export function UserView({ message, conversation, canEdit, onEdit }: UserViewProps): JSX.Element {
  const draft = useSignal<string | undefined>(undefined);
  const isSaving = useSignal(false);
  const { text, attachments } = message;
  if (draft.value !== undefined) {
    const save = async (): Promise<void> => {
      const edited = draft.value!.trim();
      isSaving.value = true;
      try {
        if (edited || attachments.length > 0) await onEdit(edited);
        draft.value = undefined;
      } catch (error) {
        report(error);
      } finally {
        isSaving.value = false;
      }
    };
    return (
      <article class="message user editing" aria-label="Your message">
        <label class="field">
          <span>Edit the message. The answer begins in a branch; this conversation stays.</span>
          <textarea
            rows={Math.min(12, draft.value.split('\n').length + 1)}
            value={draft.value}
            ref={(field) => field?.focus()}
            onInput={({ currentTarget }) => (draft.value = currentTarget.value)}
            onKeyDown={(event) => {
              if (event.key === 'Escape') draft.value = undefined;
              else if (event.key === 'Enter' && (event.ctrlKey || event.metaKey) && !isSaving.value) void save();
            }}
          />
        </label>
        <div class="ask-actions">
          <button type="button" class="button primary" disabled={isSaving.value} onClick={() => void save()}>
            Send in a branch
          </button>
          <button type="button" class="button" onClick={() => (draft.value = undefined)}>
            Cancel
          </button>
        </div>
      </article>
    );
  }
  return (
    <article class="message user" aria-label="Your message">
      <h2 class="sr-only">You</h2>
      <div class="bubble">
        {text}
        {attachments.length > 0 && (
          <ul class="attachments">
            {attachments.map((attachment, index) => (
              <li key={attachment.id ?? index}>
                <Attachment attachment={attachment} conversation={conversation} />
              </li>
            ))}
          </ul>
        )}
      </div>
      <div class="actions">
        <CopyButton text={() => text} label="Copy the message" />
        {canEdit && (
          <button
            type="button"
            class="icon-button small-icon"
            aria-label="Edit the message"
            title="Edit the message"
            onClick={() => (draft.value = text)}
          >
            <Icon name="edit" size={16} />
          </button>
        )}
      </div>
    </article>
  );
}

interface AttachmentProps {
  readonly attachment: ShownAttachment;
  /** The id of the conversation that has it. */
  readonly conversation: string | undefined;
}

const IMAGE = /^image\/(png|jpeg|gif|webp)$/;
/** Larger images are not shown. The user can save them. */
const MAX_SHOWN_BYTES = 10_000_000;
const MAX_SHOWN_PIXELS = 50_000_000;

function Attachment({ attachment, conversation }: AttachmentProps): JSX.Element {
  const { ref, url, onError } = useImage<HTMLButtonElement>(attachment, conversation);
  const { name, size } = attachment;
  return (
    <button
      ref={ref}
      type="button"
      class="attachment"
      title={`Save ${name}`}
      onClick={() => void loadAttachment(attachment, conversation).then((blob) => saveBlob(blob, name), report)}
    >
      {url === undefined ? <Icon name="file" size={20} /> : <img src={url} alt="" decoding="async" onError={onError} />}
      <span class="attachment-name">{name}</span>
      <span class="muted small">{sizeText(size)}</span>
    </button>
  );
}

/** An image in the result of a call. */
function ResultImage({ attachment, conversation, label }: AttachmentProps & { readonly label: string }): JSX.Element {
  const isLarge = useSignal(false);
  const { ref, url, hasFailed, onError } = useImage<HTMLButtonElement>(attachment, conversation);
  if (hasFailed || !isShown(attachment)) return <Attachment attachment={attachment} conversation={conversation} />;
  const image = url !== undefined && <img src={url} alt={label} decoding="async" onError={onError} />;
  return (
    <>
      <button
        ref={ref}
        type="button"
        class="result-image"
        title="Show it larger"
        aria-label={image ? undefined : label}
        onClick={() => (isLarge.value = url !== undefined)}
      >
        {image}
      </button>
      {isLarge.value && (
        <Dialog title={label} onClose={() => (isLarge.value = false)}>
          <div class="large-image">{image}</div>
        </Dialog>
      )}
    </>
  );
}

function isShown({ media_type: type, size }: ShownAttachment): boolean {
  return IMAGE.test(type) && size <= MAX_SHOWN_BYTES;
}

async function loadAttachment(
  { media_type: type, id, data }: ShownAttachment,
  conversation: string | undefined,
): Promise<Blob> {
  if (data !== undefined) return new Blob([bytesIn(data)], { type });
  // The name of the type is the server's, but a blob of another type could be a page of this origin.
  const shown = IMAGE.test(type) ? type : 'application/octet-stream';
  return new Blob([await attachmentBlob(conversation!, id!)], { type: shown });
}

/** Undefined if it is not an image that can be shown. */
async function loadImage(attachment: ShownAttachment, conversation: string | undefined): Promise<Blob | undefined> {
  const blob = await loadAttachment(attachment, conversation);
  const pixels = pixelsIn(await blob.arrayBuffer());
  return pixels !== undefined && pixels <= MAX_SHOWN_PIXELS ? blob : undefined;
}

interface LoadedImage<T> {
  /** Of the element that shows it. */
  readonly ref: RefObject<T | null>;
  /** Undefined until it is loaded. */
  readonly url: string | undefined;
  /** It could not be loaded, or is not an image. */
  readonly hasFailed: boolean;
  readonly onError: () => void;
}

/** Loads an image when it comes into view. */
function useImage<T extends Element>(attachment: ShownAttachment, conversation: string | undefined): LoadedImage<T> {
  const ref = useRef<T>(null);
  const url = useSignal<string | undefined>(undefined);
  const hasFailed = useSignal(false);
  const { id, data } = attachment;
  const fail = (): void => {
    url.value = undefined;
    hasFailed.value = true;
  };
  useEffect(() => {
    if (!ref.current || !isShown(attachment) || (data === undefined && id === undefined)) return undefined;
    let made: string | undefined;
    let isGone = false;
    const observer = new IntersectionObserver(([entry]) => {
      if (!entry?.isIntersecting) return;
      observer.disconnect();
      loadImage(attachment, conversation).then((blob) => {
        if (!blob) fail();
        else if (!isGone) url.value = made = URL.createObjectURL(blob);
      }, fail);
    });
    observer.observe(ref.current);
    return () => {
      isGone = true;
      observer.disconnect();
      if (made !== undefined) URL.revokeObjectURL(made);
    };
  }, [id, data]);
  return { ref, url: url.value, hasFailed: hasFailed.value, onError: fail };
}

function bytesIn(base64: string): Uint8Array<ArrayBuffer> {
  return Uint8Array.from(atob(base64), (character) => character.charCodeAt(0));
}

export function saveBlob(blob: Blob, name: string): void {
  const link = document.createElement('a');
  link.href = URL.createObjectURL(blob);
  link.download = name;
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 10_000);
}

export interface AnswerViewProps {
  readonly message: AnswerMessage;
  readonly conversation: Conversation;
  readonly onRetry: (() => void) | undefined;
  readonly onBranch: (() => void) | undefined;
}

export function AnswerView({ message, conversation, onRetry, onBranch }: AnswerViewProps): JSX.Element {
  const { parts, waiting, status, error, warnings, run } = message;
  const isActive = isOpen(message);
  const shownCalls = new Set(parts.value.map(({ id }) => id));
  const answer = (ask: AskRequest): JSX.Element => (
    <AskCard key={ask.id} ask={ask} onAnswer={(given) => conversation.answer(ask, given)} />
  );
  return (
    <article class="message answer" aria-label="Answer" aria-busy={status.value === 'in_progress'}>
      <h2 class="sr-only">Answer</h2>
      {parts.value.map((part) => {
        if (part.type === 'input') {
          return (
            <div key={part.id} class="bubble steering">
              <span class="muted small">While it worked: </span>
              {part.text}
            </div>
          );
        }
        if (part.type !== 'call') {
          return <AnswerText key={part.id} part={part} hasFailed={status.value === 'failed'} />;
        }
        const asks = waiting.value.filter(({ call_id }) => call_id === part.id);
        return (
          <Call
            key={part.id}
            call={part}
            run={run}
            conversation={conversation.id.value}
            isOpen={isActive}
            isWaiting={asks.length > 0}
            isAsked={asks.some((ask) => 'digest' in ask)}
          >
            {asks.map(answer)}
          </Call>
        );
      })}
      {waiting.value.filter(({ call_id }) => !shownCalls.has(call_id)).map(answer)}
      {warnings.value.map((text) => (
        <p key={text} class="note warn">
          <Icon name="warning" size={16} /> {text}
        </p>
      ))}
      {error.value && (
        <p
          class={status.value === 'failed' ? 'problem' : 'note warn'}
          role={status.value === 'failed' ? 'alert' : undefined}
        >
          {error.value.message}
        </p>
      )}
      {status.value === 'waiting' && !isActive && (
        <p class="note">
          <Icon name="question" size={16} /> This answer waits for the program that asked for it: for approvals, or for
          the results of calls.
        </p>
      )}
      {isActive && waiting.value.length === 0 && (
        <p class="working" aria-hidden="true">
          <span />
          <span />
          <span />
        </p>
      )}
      {!isActive && (
        <div class="actions">
          <CopyButton text={() => textOf(message)} label="Copy the answer" />
          {onRetry && (
            <button
              type="button"
              class="icon-button small-icon"
              aria-label="Retry in a branch"
              title="Retry in a branch"
              onClick={onRetry}
            >
              <Icon name="retry" size={16} />
            </button>
          )}
          {onBranch && (
            <button
              type="button"
              class="icon-button small-icon"
              aria-label="Branch from here"
              title="Branch from here"
              onClick={onBranch}
            >
              <Icon name="branch" size={16} />
            </button>
          )}
          {run !== undefined && (
            <a class="icon-button small-icon" href={hrefTo('runs', run)} aria-label="Show the run" title="Show the run">
              <Icon name="history" size={16} />
            </a>
          )}
          <UsageText message={message} />
        </div>
      )}
    </article>
  );
}

export function textOf({ parts }: AnswerMessage): string {
  return parts.value.flatMap((part) => (part.type === 'text' ? part.text.value : [])).join('\n\n');
}

function UsageText({ message: { usage, model } }: { readonly message: AnswerMessage }): JSX.Element | null {
  if (!usage.value) return null;
  const { input_tokens, output_tokens, cached_tokens, reasoning_tokens, cost } = usage.value;
  const details = [
    `${input_tokens} tokens read${cached_tokens ? `, ${cached_tokens} of them from the cache` : ''}`,
    `${output_tokens} tokens written${reasoning_tokens ? `, ${reasoning_tokens} of them reasoning` : ''}`,
  ].join('; ');
  return (
    <span class="usage muted small" title={details}>
      {[model, `${countText(input_tokens + output_tokens)} tokens`, cost === null ? '' : costText(cost)]
        .filter(Boolean)
        .join(' · ')}
    </span>
  );
}

interface AnswerTextProps {
  readonly part: TextPart;
  /** The model broke off. */
  readonly hasFailed: boolean;
}

function AnswerText({ part, hasFailed }: AnswerTextProps): JSX.Element {
  return (
    <>
      {part.type === 'text' ? <Markdown text={part.text} /> : <Reasoning part={part} />}
      {part.isStopped.value && (
        <p class="stopped">
          <span class="chip" title="The model did not complete this text, and does not get it with later messages">
            {hasFailed ? 'incomplete' : 'stopped here'}
          </span>
        </p>
      )}
    </>
  );
}

function Reasoning({ part }: { readonly part: TextPart }): JSX.Element {
  const isOpen = useSignal(false);
  return (
    <details class="reasoning" onToggle={({ currentTarget }) => (isOpen.value = currentTarget.open)}>
      <summary>
        <Icon name="brain" size={16} /> Reasoning
      </summary>
      {isOpen.value && <Markdown text={part.text} />}
    </details>
  );
}

/** Calls with longer arguments and results are rendered when they are unfolded. The browser finds a text in the others. */
const LONG_CHARS = 20_000;

interface CallProps {
  readonly call: CallPart;
  readonly run: string | undefined;
  readonly conversation: string | undefined;
  /** The answer is in progress. */
  readonly isOpen: boolean;
  readonly isWaiting: boolean;
  /** It waits for an approval, which shows its arguments. */
  readonly isAsked: boolean;
  readonly children: JSX.Element[];
}

function Call({ call, run, conversation, isOpen, isWaiting, isAsked, children }: CallProps): JSX.Element {
  const { name, arguments: text, output, result, decision, startedAt } = call;
  const outcome = result.value;
  const state = outcome ? (outcome.is_error ? 'error' : 'done') : isWaiting ? 'waiting' : isOpen ? 'running' : 'none';
  const summary = useComputed(() => callSummary(text));
  const isUnfolded = useSignal(false);
  const isLong = text.length + (outcome?.content.length ?? 0) > LONG_CHARS;
  return (
    <div class={`call ${state}`}>
      <details onToggle={({ currentTarget }) => (isUnfolded.value = currentTarget.open)}>
        <summary>
          <span class="call-state">
            {state === 'running' ? <span class="spinner" /> : <Icon name={STATE_ICONS[state]} size={16} />}
            <span class="sr-only">{STATE_NAMES[state]}</span>
          </span>
          <span class="call-name">{exactText(name)}</span>
          <span class="call-summary">{!isAsked && exactText(summary.value)}</span>
          {decision.value && (
            <span class={`chip ${decision.value.approved ? 'good' : 'bad'}`} title={decisionText(decision.value)}>
              {decision.value.approved ? 'approved' : 'denied'}
            </span>
          )}
          <span class="call-time">
            {outcome
              ? outcome.duration_ms !== null && durationText(outcome.duration_ms)
              : state === 'running' && startedAt && <Elapsed since={startedAt} />}
          </span>
          <span class="chevron">
            <Icon name="chevron" size={16} />
          </span>
        </summary>
        {(isUnfolded.value || !isLong) && (
          <div class="call-body">
            {!isAsked && (
              <>
                <h3>Arguments</h3>
                <CallArguments tool={name} text={text} />
              </>
            )}
            {decision.value && (
              <>
                <h3>Decision</h3>
                <p class="decision">{decisionText(decision.value)}</p>
              </>
            )}
            {outcome && <ResultText result={outcome} conversation={conversation} />}
            <p class="call-links">
              <CopyButton text={() => outcome?.content ?? text} label="Copy the result" />
              {run !== undefined && <StepLink run={run} call={call} />}
            </p>
          </div>
        )}
      </details>
      {!outcome && output.value !== '' && <LiveOutput output={output} />}
      {outcome && <ResultImages tool={name} result={outcome} conversation={conversation} />}
      {children}
    </div>
  );
}

/** Who decided about a call, by which rule, and why. */
function decisionText({ approved, source, by, rule, reason }: CallDecision): string {
  const names = by.length === 0 ? '' : ` by ${by.join(' and ')}`;
  const who =
    source === 'policy'
      ? 'Denied by the policy'
      : source === 'deadline'
        ? 'Denied, because nobody answered in time'
        : `${approved ? 'Approved' : 'Denied'}${names}`;
  const facts = [reason ? `${who}: ${reason}` : who, rule === null ? '' : `rule ${rule}`];
  return exactText(facts.filter(Boolean).join(' · '));
}

interface ResultProps {
  readonly result: CallResult;
  readonly conversation: string | undefined;
}

/** The texts and files of a result. */
function ResultText({ result, conversation }: ResultProps): JSX.Element {
  const { content, is_error: isError, parts = [{ type: 'text', text: content }] } = result;
  const name = isError ? 'Error' : 'Result';
  return (
    <>
      <h3>{name}</h3>
      {parts.map((part, index) => {
        if (part.type === 'image') return null;
        if (part.type === 'file')
          return <Attachment key={part.id} attachment={shownAttachment(part)} conversation={conversation} />;
        return (
          <pre key={index} class={isError ? 'result error' : 'result'} tabIndex={0} role="group" aria-label={name}>
            {part.text || '(empty)'}
          </pre>
        );
      })}
    </>
  );
}

/** The images of a result, which are shown also if the call is folded. */
function ResultImages({ tool, result, conversation }: ResultProps & { readonly tool: string }): JSX.Element | null {
  const images = (result.parts ?? []).filter((part) => part.type === 'image');
  if (images.length === 0) return null;
  return (
    <div class="result-images">
      {images.map((image, index) => (
        <ResultImage
          key={image.id}
          attachment={shownAttachment({ ...image, name: image.name ?? `image-${index + 1}` })}
          conversation={conversation}
          label={image.name ?? (images.length === 1 ? `Image of ${tool}` : `Image ${index + 1} of ${tool}`)}
        />
      ))}
    </div>
  );
}

const STATE_ICONS = { done: 'check', error: 'warning', waiting: 'shield', none: 'close' } as const;
const STATE_NAMES = {
  done: 'Done:',
  error: 'Failed:',
  waiting: 'Waiting for you:',
  running: 'Running:',
  none: 'Without a result:',
} as const;

const OUTPUT_CHARS = 20_000;
const MOST_OUTPUT_CHARS = 200_000;
/** How far from the end of the output the page still follows it, in pixels: about one line. */
const NEAR_OUTPUT = 24;

/** The newest output. */
function LiveOutput({ output }: { readonly output: ReadonlySignal<string> }): JSX.Element {
  const { scroller, isAtEnd, toEnd, onScroll } = useFollowedEnd<HTMLPreElement>(NEAR_OUTPUT);
  const text = output.value;
  const start = useRef(0);
  // What the user has scrolled up to should not move.
  const most = isAtEnd.value ? OUTPUT_CHARS : MOST_OUTPUT_CHARS;
  start.current = Math.max(start.current, text.length - most);
  useLayoutEffect(() => {
    if (isAtEnd.peek()) toEnd();
  }, [text]);
  return (
    <pre ref={scroller} class="live" tabIndex={0} aria-label="Output so far" onScroll={onScroll}>
      {text.slice(start.current)}
    </pre>
  );
}

function Elapsed({ since }: { readonly since: number }): JSX.Element {
  const now = useSignal(Date.now());
  useEffect(() => {
    const timer = setInterval(() => (now.value = Date.now()), 1_000);
    return () => clearInterval(timer);
  }, [now]);
  return <>{now.value - since >= 1_000 && durationText(now.value - since)}</>;
}

/** Leads to the journal entry with the result of the call, or to the run while it has none. */
function StepLink({ run, call }: { readonly run: string; readonly call: CallPart }): JSX.Element {
  const [, turn, index] = /_(\d+)_(\d+)$/.exec(call.id) ?? [];
  async function go(event: MouseEvent): Promise<void> {
    if (event.ctrlKey || event.metaKey || turn === undefined) return;
    event.preventDefault();
    const step = `t${turn}.tool.${index}`;
    const seq = await entryOf(run, ({ effect }) => effect === step).catch(() => undefined);
    navigate(seq === undefined ? hrefTo('runs', run) : hrefTo('runs', run, 'at', seq));
  }
  return (
    <a href={hrefTo('runs', run)} onClick={(event) => void go(event)}>
      Show this step in the run
    </a>
  );
}
