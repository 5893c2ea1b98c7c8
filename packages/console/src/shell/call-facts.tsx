import type { JSX } from 'preact';
import { exactText, objectIn, prettyJson } from '../format.ts';
import { otherTouches, touchDetails, touchText, whyAsked, type AskedCall, type ShownTouch } from './asked-call.ts';
import { PatchText, TextDiff } from './text-diff.tsx';

/** What somebody has to know who approves a call: why they are asked, what it does, and what else it touches. */
export function CallFacts({ tool, call }: { readonly tool: string; readonly call: AskedCall }): JSX.Element {
  const why = whyAsked(call);
  return (
    <>
      {why !== undefined && <p class="why">{exactText(why)}</p>}
      <CallArguments tool={tool} text={call.arguments} />
      <Touches touches={otherTouches(call)} />
    </>
  );
}

const VERBS: Readonly<Record<string, string>> = {
  read: 'reads',
  write: 'writes',
  command: 'runs',
  url: 'requests',
  session: 'uses the session',
  device: 'uses the device',
};

function Touches({ touches }: { readonly touches: readonly ShownTouch[] }): JSX.Element | null {
  const known = touches.filter(({ type }) => type in VERBS);
  if (known.length === 0) return null;
  return (
    <ul class="touches">
      {known.map((touch, index) => (
        <li key={index}>
          <span class="muted">{VERBS[touch.type]}</span> <code>{exactText(touchText(touch))}</code>
          {exactText(touchDetails(touch))}
        </li>
      ))}
    </ul>
  );
}

/** The arguments of a call: a command, a change of a file as a diff, or everything as JSON. Nothing is left out. */
export function CallArguments({ tool, text }: { readonly tool: string; readonly text: string }): JSX.Element {
  const input = objectIn(text);
  const { command, patch, path, old_text: before, new_text: after, content, edits, ...others } = input ?? {};
  const label = `Change of ${typeof path === 'string' ? path : 'a file'}`;
  if (typeof command === 'string') {
    return (
      <>
        <pre class="command" tabIndex={0} role="group" aria-label="Command">
          {exactText(command)}
        </pre>
        <Rest input={{ path, patch, old_text: before, new_text: after, content, edits, ...others }} />
      </>
    );
  }
  if (typeof patch === 'string') {
    return (
      <>
        <PatchText patch={patch} label="Patch" />
        <Rest input={{ path, old_text: before, new_text: after, content, edits, ...others }} />
      </>
    );
  }
  if (typeof before === 'string' && typeof after === 'string') {
    return (
      <>
        <Rest input={{ path, content, edits, ...others }} />
        <TextDiff before={before} after={after} label={label} />
      </>
    );
  }
  if (tool === 'write' && typeof content === 'string') {
    return (
      <>
        <Rest input={{ path, edits, ...others }} />
        <TextDiff before="" after={content} label={label} />
      </>
    );
  }
  return (
    <pre class="arguments" tabIndex={0} role="group" aria-label="Arguments">
      {exactText(prettyJson(text)) || '{}'}
    </pre>
  );
}

function Rest({ input }: { readonly input: object }): JSX.Element | null {
  const entries = Object.entries(input).filter(([, value]) => value !== undefined);
  if (entries.length === 0) return null;
  return (
    <dl class="rest">
      {entries.map(([name, value]) => (
        <>
          <dt class="muted">{exactText(name)}</dt>
          <dd>{exactText(typeof value === 'string' ? value : JSON.stringify(value, undefined, 2))}</dd>
        </>
      ))}
    </dl>
  );
}
