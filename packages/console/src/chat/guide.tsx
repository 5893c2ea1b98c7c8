import { effect, signal } from '@preact/signals';
import type { JSX } from 'preact';
import { hrefTo, navigate } from '../router.ts';
import { Icon } from '../shell/icon.tsx';
import { entryOf } from './api.ts';
import { report } from './conversation.ts';
import { shown } from './conversations.ts';
import { device, deviceNames } from './devices.tsx';

/*
 * The first minutes with the demo model: a tool call, an approval, a step back in time, a device, a real model. What was done is kept in
 * the browser, so the guide goes on after a reload and ends for good.
 */

interface Progress {
  readonly hasCalled?: boolean;
  /** The run with the last approval. */
  readonly approved?: string;
  readonly hasTravelled?: boolean;
  readonly hasSeenDevice?: boolean;
  readonly isClosed?: boolean;
}

const KEY = 'treadle.guide';
const progress = signal<Progress>(stored());

function stored(): Progress {
  try {
    return (JSON.parse(localStorage.getItem(KEY) ?? '{}') as Progress | null) ?? {};
  } catch {
    return {};
  }
}

function add(more: Progress): void {
  progress.value = { ...progress.peek(), ...more };
  localStorage.setItem(KEY, JSON.stringify(progress.peek()));
}

effect(() => {
  for (const message of shown.value.messages.value) {
    if (message.role === 'user') continue;
    for (const part of message.parts.value) {
      if (part.type !== 'call') continue;
      if (part.result.value && !progress.peek().hasCalled) add({ hasCalled: true });
      if (part.decision.value?.source === 'person' && message.run && progress.peek().approved !== message.run)
        add({ approved: message.run });
    }
  }
});

const CALL = 'List the files';
const APPROVAL = 'Read "../"';
/** `treadle serve --demo-device` starts it. */
const DEMO_DEVICE = 'demo-device';
const TEMPERATURE = 'take the temperature of the demo device';

export interface GuideProps {
  readonly onSend: (text: string) => void;
  readonly onModels: () => void;
  readonly isBusy: boolean;
}

/** The steps, the next one with a button. Nothing when the guide was closed. */
export function Guide({ onSend, onModels, isBusy }: GuideProps): JSX.Element | null {
  const { hasCalled, approved, hasTravelled, hasSeenDevice, isClosed } = progress.value;
  const hasDemo = deviceNames.value?.includes(DEMO_DEVICE) ?? false;
  if (isClosed) return null;
  const steps = [
    {
      title: 'A tool call',
      text: 'The demo model lists the files of the folder where the server runs.',
      action: `Ask “${CALL}”`,
      isDone: hasCalled === true,
      run: () => onSend(CALL),
    },
    {
      title: 'An approval',
      text: 'Outside of that folder the policy asks you first. Approve the call, or deny it.',
      action: 'Ask “Read "../"”',
      isDone: approved !== undefined,
      run: () => onSend(APPROVAL),
    },
    {
      title: 'A step back in time',
      text: 'See the run as it was when you decided: what the model had seen, and what came next.',
      action: 'Go to the approval',
      isDone: hasTravelled === true,
      run: () => void travel(approved!).catch(report),
    },
    {
      title: 'A device',
      text: hasDemo
        ? 'A tool runs on a device, in a process of its own. The policy asks you first.'
        : 'Devices run tools for the server. One with the tools of a Raspberry Pi comes with it: treadle serve --demo-device',
      action: hasDemo ? `Ask “${TEMPERATURE}”` : 'Show devices',
      isDone: hasSeenDevice === true,
      run: () => {
        add({ hasSeenDevice: true });
        if (!hasDemo) return navigate(hrefTo('devices'));
        device.value = DEMO_DEVICE;
        return onSend(TEMPERATURE);
      },
    },
    {
      title: 'A real model',
      text: 'The demo model follows a few fixed rules. Set a real one.',
      action: 'Show how',
      isDone: false,
      run: () => {
        add({ isClosed: true });
        onModels();
      },
    },
  ];
  const next = steps.findIndex(({ isDone }) => !isDone);
  return (
    <section class="guide" aria-label="First steps">
      <header>
        <h2>First steps</h2>
        <button
          type="button"
          class="icon-button small-icon"
          aria-label="Close the first steps"
          title="Close"
          onClick={() => add({ isClosed: true })}
        >
          <Icon name="close" size={16} />
        </button>
      </header>
      <ol>
        {steps.map(({ title, text, action, isDone, run }, index) => (
          <li key={title} data-state={isDone ? 'done' : index === next ? 'next' : 'later'}>
            <span class="guide-mark" aria-hidden="true">
              {isDone ? <Icon name="check" size={14} /> : index + 1}
            </span>
            <div>
              <h3>
                {title}
                {isDone && <span class="sr-only"> (done)</span>}
              </h3>
              {index === next && <p class="muted small">{text}</p>}
            </div>
            {index === next && (
              <button type="button" class="button primary" disabled={isBusy} onClick={run}>
                {action}
              </button>
            )}
          </li>
        ))}
      </ol>
    </section>
  );
}

/** Shows a run at its last approval. */
async function travel(run: string): Promise<void> {
  const seq = await entryOf(run, ({ type }) => type === 'approval-given');
  add({ hasTravelled: true });
  navigate(seq === undefined ? hrefTo('runs', run) : hrefTo('runs', run, 'at', seq));
}
