import type { Message } from '../messages.ts';
import type { State } from './state.ts';

/**
 * What a run has seen: content from outside, which anybody may have written, and private data. It is never undone. Of each, the
 * state keeps the first cause.
 */
export interface Exposure {
  readonly outside?: Cause;
  readonly private?: Cause;
}

/** `outside`: content that anybody may have written. `private`: data that must not leave. */
export type Exposes = keyof Exposure | readonly (keyof Exposure)[];

/** What has exposed a run. */
export interface Cause {
  /** The call of the run that brought it, by its effect. Absent: the input, or what the run was started with. */
  readonly effect?: string;
  /** The tool that read it. */
  readonly tool?: string;
  /** What was read, in words. */
  readonly what: string;
  /** Where it was read, if that was another run, such as a child run or one before in the conversation: `RUN/EFFECT`. */
  readonly from?: string;
}

/** Of several causes in a turn, that of the first call counts, in whatever order they settle. */
export function withExposure(had: Exposure | undefined, seen: Exposure | undefined): Exposure | undefined {
  return had && seen
    ? { ...seen, ...had, ...causes(seen, (cause, kind) => isEarlier(cause, had[kind]) && cause) }
    : (had ?? seen);
}

function isEarlier({ effect = '' }: Cause, other: Cause | undefined): boolean {
  const [turn, , index] = effect.split('.');
  const [had, , position] = (other?.effect ?? '').split('.');
  return turn === had && Number(index) < Number(position);
}

/** What a run has seen, as another run has it that starts with it or has called the run. */
export function exposureElsewhere({ exposure, runId }: Pick<State, 'exposure' | 'runId'>): Exposure | undefined {
  const elsewhere = ({ effect, from, ...cause }: Cause): Cause => ({
    ...cause,
    from: from ?? (effect ? `${runId}/${effect}` : runId),
  });
  return exposure && causes(exposure, elsewhere);
}

/** The causes that `map` returns. */
export function causes(exposure: Exposure, map: (cause: Cause, kind: keyof Exposure) => Cause | false): Exposure {
  const all = Object.entries(exposure) as [keyof Exposure, Cause][];
  return Object.fromEntries(all.map(([kind, cause]) => [kind, map(cause, kind)]).filter(([, cause]) => cause));
}

/** What people attach is theirs. What an attachment refers to by its address is from outside. */
export function inputExposure(messages: readonly Message[]): Exposure | undefined {
  for (const { role, content } of messages) {
    if (role !== 'user') continue;
    for (const block of content) {
      const url = 'source' in block && block.source.type === 'url' && block.source.url;
      if (url && !url.startsWith('data:')) return { outside: { what: `attached ${url.slice(0, 200)}` } };
    }
  }
  return undefined;
}
