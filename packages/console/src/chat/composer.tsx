import { batch, useSignal, type Signal } from '@preact/signals';
import type { JSX } from 'preact';
import { useEffect, useRef } from 'preact/hooks';
import { serverInfo } from '../api/server-info.ts';
import { notify } from '../shell/announce.tsx';
import { takeDroppedFiles } from '../shell/dropped-files.ts';
import { Icon } from '../shell/icon.tsx';
import { readFiles } from './attachments.ts';
import { report, type Conversation, type SendOptions } from './conversation.ts';
import { device, DeviceChoice } from './devices.tsx';
import { putBack, type Draft } from './drafts.ts';
import { matchingSkills, SkillChoices } from './skills.tsx';

export interface ComposerProps {
  readonly conversation: Conversation;
  readonly draft: Draft;
  /** The model for the next message; undefined: the default model. */
  readonly model: Signal<string | undefined>;
  readonly onSend: (text: string, options: SendOptions) => Promise<void>;
}

export function Composer({ conversation, draft, model, onSend }: ComposerProps): JSX.Element {
  const field = useRef<HTMLTextAreaElement>(null);
  const picker = useRef<HTMLInputElement>(null);
  const isDropping = useSignal(false);
  const isBusy = conversation.isBusy.value;
  const { models = [], agents = [] } = serverInfo.value ?? {};
  const { text, attachments, sending } = draft;

  useEffect(() => {
    const { current } = field;
    if (!current) return;
    current.style.height = 'auto';
    current.style.height = `${Math.min(current.scrollHeight, 280)}px`;
  }, [text.value]);
  useEffect(() => field.current?.focus(), [conversation]);

  async function add(files: readonly File[]): Promise<void> {
    const read = await readFiles(files, attachments.value.length);
    attachments.value = [...attachments.value, ...read.attachments];
    for (const problem of read.problems) notify(problem);
  }

  useEffect(() => takeDroppedFiles({ add: (files) => void add(files), isOver: isDropping }), [draft]);

  // An image may say enough.
  const canSend = text.value.trim() !== '' || (attachments.value.length > 0 && !isBusy);

  async function submit(): Promise<void> {
    const message = text.value.trim();
    if (!canSend) return;
    const files = attachments.value;
    batch(() => {
      sending.value = [...sending.value, message];
      text.value = '';
    });
    try {
      if (isBusy) return await conversation.steer(message);
      attachments.value = [];
      await onSend(message, { attachments: files, model: model.value, device: device.value });
    } catch (error) {
      putBack(draft, { text: message, attachments: files });
      report(error);
    } finally {
      const index = sending.value.indexOf(message);
      sending.value = sending.value.toSpliced(index, 1);
    }
  }

  // An answer in progress keeps the skills that it began with.
  const skills = isBusy ? [] : matchingSkills(text.value);
  function take(name: string): void {
    text.value = `/${name} `;
    field.current?.focus();
  }

  const hint = isBusy ? 'Add to the answer in progress…' : 'Send a message…';
  return (
    <form
      class="composer"
      data-dropping={isDropping.value || undefined}
      onSubmit={(event) => {
        event.preventDefault();
        void submit();
      }}
    >
      {attachments.value.length > 0 && (
        <ul class="attachments">
          {attachments.value.map((attachment, index) => (
            <li key={index} class="attachment">
              <Icon name="file" size={18} />
              <span class="attachment-name">{attachment.name}</span>
              <button
                type="button"
                class="icon-button small-icon"
                aria-label={`Remove ${attachment.name}`}
                onClick={() => (attachments.value = attachments.value.filter((one) => one !== attachment))}
              >
                <Icon name="close" size={14} />
              </button>
            </li>
          ))}
        </ul>
      )}
      {skills.length > 0 && <SkillChoices skills={skills} onChoose={({ name }) => take(name)} />}
      <textarea
        ref={field}
        id="message"
        rows={1}
        aria-label="Message"
        placeholder={hint}
        value={text.value}
        onInput={({ currentTarget }) => (text.value = currentTarget.value)}
        onPaste={(event) => {
          const files = [...(event.clipboardData?.files ?? [])];
          if (files.length === 0) return;
          event.preventDefault();
          void add(files);
        }}
        onKeyDown={(event) => {
          if (event.key === 'Tab' && !event.shiftKey && skills[0]) {
            event.preventDefault();
            return take(skills[0].name);
          }
          if (event.key !== 'Enter' || event.shiftKey || event.isComposing) return;
          event.preventDefault();
          void submit();
        }}
      />
      <div class="composer-bar">
        <button
          type="button"
          class="icon-button"
          aria-label="Attach files"
          title="Attach files"
          disabled={isBusy}
          onClick={() => picker.current!.click()}
        >
          <Icon name="attach" />
        </button>
        <input
          ref={picker}
          type="file"
          multiple
          hidden
          aria-label="Files"
          onChange={({ currentTarget }) => {
            void add([...(currentTarget.files ?? [])]);
            currentTarget.value = '';
          }}
        />
        {models.length + agents.length > 1 && (
          <label class="model-choice">
            <span class="sr-only">Model</span>
            <select
              value={model.value ?? models.find((one) => one.is_default)?.id}
              onChange={({ currentTarget }) => (model.value = currentTarget.value)}
            >
              {models.map(({ id }) => (
                <option key={id} value={id}>
                  {id}
                </option>
              ))}
              {agents.length > 0 && (
                <optgroup label="Agents">
                  {agents.map(({ name, model: id, description }) => (
                    <option key={id} value={id} title={description}>
                      {name}
                    </option>
                  ))}
                </optgroup>
              )}
            </select>
          </label>
        )}
        <DeviceChoice />
        <span class="spacer" />
        {isBusy && (
          <button
            type="button"
            class="button stop"
            aria-label="Stop"
            title="Stop the answer (Esc)"
            onClick={() => void conversation.stop().catch(report)}
          >
            <Icon name="stop" /> Stop
          </button>
        )}
        <button type="submit" class="send" aria-label={isBusy ? 'Add to the answer' : 'Send'} disabled={!canSend}>
          <Icon name="send" />
        </button>
      </div>
    </form>
  );
}
